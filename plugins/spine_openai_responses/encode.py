"""A neutral request to the JSON body of Responses: pure, deterministic, and it invents no item.

The server is asked to keep nothing and to hand out its reasoning encrypted, so that each request stands in the log as a
whole. The body is put together from bytes: each message is encoded once per target and found again by identity. What
the target cannot be told is refused by `check` or listed as a loss.
Source: the OpenAI reference of responses, read 2026-11-30.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from spine.llm.catalogue import Traits
from spine.llm.errors import provider_error
from spine.llm.protocols import Body
from spine.llm.request import ModelRequest, ResponseFormat, ToolChoice
from spine.tools import ServerTool, ToolDefinition
from spine.wire import (
    TargetMemory,
    clean_text,
    join_body,
    lose_tool_choice,
    named_format,
    object_schema,
    read_options,
    refuse_features,
    refuse_unsupported,
    sampling,
    strict_problem,
    to_json,
    tool_names,
    wire_name,
)
from spine_openai_responses.answer import NAME
from spine_openai_responses.turns import TurnEncoder

PATH = "/responses"
ENCRYPTED = "reasoning.encrypted_content"
OPTIONS = frozenset(
    (
        "include",
        "max_tool_calls",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "text",
        "top_logprobs",
        "truncation",
        "user",
    )
)
"""What `provider_options["openai_responses"]` may hold beside `extra_body`, each sent under its own name.

Members of `reasoning` and `text` join those the request asks for; `include` joins what is included anyway.
"""
_OURS = frozenset(("model", "input", "instructions", "tools", "stream", "include"))
"""What `extra_body` may not replace: the log says what was asked."""
_HELD = frozenset(("background", "conversation", "previous_response_id", "store"))
"""What would leave a part of the conversation with the server."""


class ResponsesEncoder:
    """Encodes requests; keeps wire bytes of messages as long as the messages live."""

    def __init__(self) -> None:
        self._targets = TargetMemory(TurnEncoder)

    def check(self, request: ModelRequest, traits: Traits) -> None:
        """Raise `unsupported_capability` or, for options that do not exist, `invalid_request`."""
        refuse_features(request, traits, [("a thinking budget in tokens", "thinking", type(request.thinking) is int)])
        refuse_unsupported(request, traits, NAME)
        tool_names(request, traits)
        _with_options(request, _parameters(request, traits, {}))
        self._targets.of(str(request.route), traits).prepare(request.messages)

    def encode(self, request: ModelRequest, traits: Traits) -> Body:
        """The body of one POST."""
        losses: dict[str, None] = {}
        turns = self._targets.of(str(request.route), traits)
        fields = _with_options(request, _parameters(request, traits, losses))
        system = clean_text("\n\n".join(block.text for block in request.system if block.text))
        items = turns.encode(request.messages, losses)
        if system and traits.developer_role:
            items.insert(0, b"," + to_json({"role": "developer", "content": system}))
        elif system:
            fields["instructions"] = system
        return Body(
            path=PATH,
            content=join_body(fields, "input", items),
            losses=tuple(losses),
            names=tool_names(request, traits),
        )


def _parameters(request: ModelRequest, traits: Traits, losses: dict[str, None]) -> dict[str, Any]:
    effort = request.thinking if isinstance(request.thinking, str) and traits.thinking != () else None
    fields: dict[str, Any] = {
        "model": request.route.model,
        "store": False,
        "stream": True if traits.stream else None,
        "include": [ENCRYPTED] if traits.thinking != () else None,  # models that do not reason refuse to be asked
        "max_output_tokens": request.max_output_tokens,
        **sampling(request, traits, losses),
        "reasoning": {"effort": "none" if effort == "off" else effort} if effort else None,
        "text": _text(request.response_format, traits, losses),
        "tools": [_tool(tool, traits) for tool in request.tools] or None,
        "tool_choice": _tool_choice(request, traits) if request.tools else None,
        "parallel_tool_calls": request.parallel_tool_calls if request.tools else None,
    }
    lose_tool_choice(request, losses)
    for is_lost, sentence in (
        (request.stop_sequences, "stop_sequences were left out: the protocol has none"),
        (request.seed is not None, "seed was left out: the protocol has none"),
    ):
        if is_lost:
            losses[sentence] = None
    return {key: value for key, value in fields.items() if value is not None}


def _with_options(request: ModelRequest, fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` and the caller's own. Raises `invalid_request` for those that contradict the request."""
    _refuse_server_state(request)
    options, extra = read_options(request, NAME, OPTIONS, _OURS | fields.keys())
    for key in ("reasoning", "text"):
        if key in options and isinstance(fields.get(key), dict):
            options[key] = _merged(key, fields[key], options[key])
    if "include" in options:
        options["include"] = list(dict.fromkeys((*fields.get("include", ()), *_texts(options["include"]))))
    return {**fields, **options, **extra}


def _refuse_server_state(request: ModelRequest) -> None:
    given = request.provider_options.get(NAME)
    extra = given.get("extra_body") if isinstance(given, Mapping) else None
    asked = {*(given if isinstance(given, Mapping) else ()), *(extra if isinstance(extra, Mapping) else ())}
    held = sorted(asked & _HELD)
    if held:
        raise provider_error(
            "invalid_request",
            f'provider_options["{NAME}"] may not set {", ".join(held)}: the server keeps nothing, '
            "so that a request can be rebuilt from the log alone",
        )


def _merged(key: str, asked: Mapping[str, Any], option: Any) -> dict[str, Any]:
    if not isinstance(option, Mapping) or not asked.keys().isdisjoint(option):
        raise provider_error(
            "invalid_request",
            f'provider_options["{NAME}"]["{key}"] must be an object without {", ".join(sorted(asked))}: '
            "the request itself says that",
        )
    return {**asked, **option}


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, tuple | list) and all(isinstance(item, str) for item in value):
        return value
    raise provider_error("invalid_request", f'provider_options["{NAME}"]["include"] must be a list of texts')


def _tool_choice(request: ModelRequest, traits: Traits) -> Any:
    choice: ToolChoice | None = request.tool_choice
    if choice is None or choice.mode != "tool":
        return choice and choice.mode
    built_in = next((t for t in request.tools if type(t) is ServerTool and t.name == choice.name), None)
    if built_in is not None:
        return {"type": built_in.config.get("type")}
    return {"type": "function", "name": wire_name(choice.name or "", traits.tool_name_pattern)}


def _text(wanted: ResponseFormat | None, traits: Traits, losses: dict[str, None]) -> dict[str, Any] | None:
    return {"format": {"type": "json_schema", **named_format(wanted, traits, losses)}} if wanted is not None else None


def _tool(tool: ToolDefinition | ServerTool, traits: Traits) -> Mapping[str, Any]:
    """Whether a tool's schema is enforced is always said: left out, it would be, and optional arguments be refused."""
    if isinstance(tool, ServerTool):
        return tool.config
    parameters = object_schema(tool.parameters)
    function = {
        "type": "function",
        "name": wire_name(tool.name, traits.tool_name_pattern),
        "description": clean_text(tool.description),
        "parameters": parameters,
        "strict": traits.strict_schemas and strict_problem(parameters) is None,
    }
    return {key: value for key, value in function.items() if value != ""}
