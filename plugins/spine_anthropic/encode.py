"""A neutral request to the JSON body of the Messages API: pure, deterministic, and it invents no message.

Cache marks stand at three places at the most, of the four that the API allows: at the end of the static prompt
sections that come before the first dynamic one (else at the last tool), at the end of the last user turn, and at the
end of the user turn before it. So a step reads what the step before has written, and its own additions are written.
What the target cannot be told is refused by `check` or listed as a loss.

Source: Anthropic's reference of the Messages API, pages on caching, thinking and structured outputs, read 2026-11-30.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError, provider_error
from spine.llm.protocols import Body
from spine.llm.request import ModelRequest
from spine.messages import SystemBlock
from spine.tools import ServerTool, ToolDefinition
from spine.wire import (
    TargetMemory,
    clean_text,
    closed_schema,
    join_body,
    lose_tool_choice,
    object_schema,
    read_options,
    refuse_unsupported,
    sampling,
    stop_words,
    to_json,
    wire_name,
    wire_names,
)
from spine_anthropic.answer import NAME
from spine_anthropic.parts import text_part
from spine_anthropic.thinking import Plan, check_thinking, plan
from spine_anthropic.turns import TurnEncoder, Turns

PATH = "/messages"
VERSION = "2023-06-01"
OPTIONS = frozenset(
    (
        "betas",
        "cache",
        "container",
        "context_management",
        "inference_geo",
        "metadata",
        "output_config",
        "service_tier",
        "top_k",
    )
)
"""What `provider_options["anthropic_messages"]` may hold beside `extra_body`. `betas` is a list for the header
`anthropic-beta`, `cache` how long marked content is kept (`5m`, `1h`, or `off`: no marks); the others are sent under
their own names, and in `output_config` the request's own effort and format win."""
MARKS: Mapping[Any, Mapping[str, str] | None] = {
    None: {"type": "ephemeral"},
    "5m": {"type": "ephemeral"},
    "1h": {"type": "ephemeral", "ttl": "1h"},
    "off": None,
}
"""`cache_control` by the option `cache`."""
LEAST: Mapping[str, float] = {"temperature": 1.0, "top_p": 0.95}
"""The smallest values beside thinking."""
_OURS = frozenset(
    ("max_tokens", "messages", "model", "output_config", "stream", "system", "thinking", "tool_choice", "tools")
)
"""What `extra_body` may not replace: the log says what was asked."""
_BETA = re.compile(r"[A-Za-z0-9._-]+")
_CHOICES = {"auto": "auto", "none": "none", "required": "any", "tool": "tool"}


class MessagesEncoder:
    """Encodes requests; keeps wire bytes of messages as long as the messages live."""

    def __init__(self) -> None:
        self._targets = TargetMemory(TurnEncoder)

    def check(self, request: ModelRequest, traits: Traits) -> None:
        """Raise `unsupported_capability` or, for options and budgets that cannot be, `invalid_request`."""
        refuse_unsupported(request, traits, NAME)
        check_thinking(request, traits)
        _names(request, traits)
        _options(request)
        self._targets.of(str(request.route), traits).prepare(request.messages)

    def encode(self, request: ModelRequest, traits: Traits) -> Body:
        """The body of one POST."""
        losses: dict[str, None] = {}
        options, extra = _options(request)
        mark = MARKS[options.pop("cache", None)] if traits.cache_marks else None
        betas = options.pop("betas", ())
        turns = self._targets.of(str(request.route), traits).encode(request.messages, losses)
        thinking = _plan(request, traits, turns, losses)
        fields = {
            **_parameters(request, traits, thinking, losses),
            **_tools(request, traits, turns, losses),
            "system": _system(request.system, mark),
            "container": turns.container(),
            **options,
            "output_config": _output_config(request, options.get("output_config", {}), thinking),
            **extra,
        }
        _mark_tools(fields, mark)
        return Body(
            path=PATH,
            content=join_body(
                {key: value for key, value in fields.items() if value is not None},
                "messages",
                turns.items(None if mark is None else b'"cache_control":' + to_json(mark)),
            ),
            headers={"anthropic-version": VERSION, **({"anthropic-beta": ",".join(betas)} if betas else {})},
            losses=tuple(losses),
            names=_names(request, traits),
        )


def _plan(request: ModelRequest, traits: Traits, turns: Turns, losses: dict[str, None]) -> Plan:
    found = plan(request, traits, losses)
    if found.has_budget and turns.goes_on_without_thinking():
        losses["thinking was left off: the answer that goes on began without thinking of this model"] = None
        return attrs.evolve(found, thinking=None)
    return found


def _parameters(request: ModelRequest, traits: Traits, thinking: Plan, losses: dict[str, None]) -> dict[str, Any]:
    if request.seed is not None:
        losses["seed was left out: the API has none"] = None
    return {
        "model": request.route.model,
        "stream": True if traits.stream else None,
        "max_tokens": thinking.max_tokens,
        "thinking": thinking.thinking,
        "stop_sequences": stop_words(request, losses, takes_blanks=False),
        **_sampling(sampling(request, traits, losses), thinking, losses),
    }


def _sampling(asked: Mapping[str, float], thinking: Plan, losses: dict[str, None]) -> dict[str, float]:
    """While it thinks, a model takes no temperature but 1 and hardly any `top_p`."""
    taken: dict[str, float] = {}
    for key, value in asked.items():
        if thinking.thinks and value < LEAST[key]:
            losses[f"{key} {value:g} was left out: the model thinks"] = None
        else:
            taken[key] = value
    return taken


def _system(blocks: Iterable[SystemBlock], mark: Any) -> list[dict[str, Any]] | None:
    """Each section as a block of text; the last static one before the first dynamic one is marked."""
    parts: list[dict[str, Any]] = []
    static = 0
    for block in blocks:
        part = text_part(block.text)
        if part is not None:
            static += not block.dynamic and static == len(parts)
            parts.append(part)
    if static and mark is not None:
        parts[static - 1]["cache_control"] = mark
    return parts or None


def _mark_tools(fields: dict[str, Any], mark: Any) -> None:
    """Tools stand before the system prompt, whose mark covers them; without that one the last of them is marked."""
    tools = fields.get("tools")
    is_covered = any("cache_control" in part for part in fields["system"] or ())
    if tools and mark is not None and not is_covered:
        fields["tools"] = [*tools[:-1], {**tools[-1], "cache_control": mark}]


def _tools(request: ModelRequest, traits: Traits, turns: Turns, losses: dict[str, None]) -> dict[str, Any]:
    if request.tools:
        tools = [_tool(tool, traits) for tool in request.tools]
        return {"tools": tools, "tool_choice": _tool_choice(request, traits)}
    lose_tool_choice(request, losses)
    return _past_tools(turns.names(), traits)


def _past_tools(names: Iterable[str], traits: Traits) -> dict[str, Any]:
    """The API refuses calls and results of tools among the messages when a request defines none: the tools of the
    past are named, and none may be called."""
    tools = [_tool(ToolDefinition(name=name, description="No longer available."), traits) for name in names]
    return {"tools": tools, "tool_choice": {"type": "none"}} if tools else {}


def _tool(tool: ToolDefinition | ServerTool, traits: Traits) -> Mapping[str, Any]:
    if isinstance(tool, ServerTool):
        return tool.config
    description = clean_text(tool.description)
    return {
        "name": wire_name(tool.name, traits.tool_name_pattern),
        **({"description": description} if description else {}),
        "input_schema": object_schema(tool.parameters),
    }


def _tool_choice(request: ModelRequest, traits: Traits) -> dict[str, Any] | None:
    choice = request.tool_choice
    is_single = request.parallel_tool_calls is False
    if choice is None and not is_single:
        return None
    found: dict[str, Any] = {"type": _CHOICES[choice.mode] if choice is not None else "auto"}
    if choice is not None and choice.mode == "tool":
        found["name"] = wire_name(choice.name or "", traits.tool_name_pattern)
    if is_single and found["type"] != "none":
        found["disable_parallel_tool_use"] = True
    return found


def _output_config(request: ModelRequest, given: Mapping[str, Any], thinking: Plan) -> dict[str, Any] | None:
    config = dict(given)
    if thinking.effort is not None:
        config["effort"] = thinking.effort
    if request.response_format is not None:
        config["format"] = {"type": "json_schema", "schema": closed_schema(request.response_format.schema)}
    return config or None


def _names(request: ModelRequest, traits: Traits) -> dict[str, str]:
    return wire_names((tool.name for tool in request.tools if type(tool) is ToolDefinition), traits.tool_name_pattern)


def _options(request: ModelRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The caller's own fields and their `extra_body`. Raises `invalid_request` for what no field may hold."""
    if NAME not in request.provider_options:
        return {}, {}
    asked = {name for name in ("stop_sequences", *LEAST) if getattr(request, name) not in (None, ())}
    fields, extra = read_options(request, NAME, OPTIONS, _OURS | asked)
    cache, betas = fields.get("cache"), fields.get("betas", ())
    if not (cache is None or isinstance(cache, str)) or cache not in MARKS:
        raise _wrong_option("cache", "5m, 1h or off")
    names = betas if isinstance(betas, tuple | list) else (None,)
    if not all(isinstance(beta, str) and _BETA.fullmatch(beta) for beta in names):
        raise _wrong_option("betas", "a list of names of beta features")
    if not isinstance(fields.get("output_config", {}), Mapping):
        raise _wrong_option("output_config", "an object")
    return fields, extra


def _wrong_option(key: str, wanted: str) -> ProviderError:
    return provider_error("invalid_request", f'provider_options["{NAME}"]["{key}"] must be {wanted}')
