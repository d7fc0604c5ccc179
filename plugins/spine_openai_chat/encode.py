"""A neutral request to the JSON body of Chat Completions: pure, deterministic, and it invents no message.

The body is put together from bytes: each message is encoded once per target and found again by identity, so a step of a
long session costs a look-up per message. What the target cannot be told is refused by `check` or listed as a loss.
Sources: the OpenAI reference of chat completions, and the compatible servers' own pages, read 2026-11-30.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from spine.llm.catalogue import Traits
from spine.llm.protocols import Body
from spine.llm.request import ModelRequest, ResponseFormat, ToolChoice
from spine.messages import SystemBlock
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
    stop_words,
    to_json,
    tool_names,
    wire_name,
)
from spine_openai_chat.turns import TurnEncoder

NAMESPACE = "openai_chat"
PATH = "/chat/completions"
OPTIONS = frozenset(
    (
        "audio",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "metadata",
        "min_p",
        "modalities",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning",
        "repetition_penalty",
        "safety_identifier",
        "service_tier",
        "store",
        "top_k",
        "top_logprobs",
        "user",
        "verbosity",
        "web_search_options",
    )
)
"""What `provider_options["openai_chat"]` may hold beside `extra_body`, each sent under its own name."""
_OURS = frozenset(("model", "messages", "tools", "stream", "n"))
"""What `extra_body` may not replace: the log says what was asked."""


class ChatEncoder:
    """Encodes requests; keeps wire bytes of messages as long as the messages live."""

    def __init__(self) -> None:
        self._targets = TargetMemory(TurnEncoder)

    def check(self, request: ModelRequest, traits: Traits) -> None:
        """Raise `unsupported_capability` or, for options that do not exist, `invalid_request`."""
        refuse_features(request, traits, [("a thinking budget in tokens", "thinking", type(request.thinking) is int)])
        refuse_unsupported(request, traits, NAMESPACE)
        tool_names(request, traits)
        _options(request, traits)
        self._targets.of(str(request.route), traits).prepare(request.messages)

    def encode(self, request: ModelRequest, traits: Traits) -> Body:
        """The body of one POST."""
        losses: dict[str, None] = {}
        turns = self._targets.of(str(request.route), traits)
        fields = {**_parameters(request, traits, losses), **_options(request, traits)}
        if request.tools:
            fields["tools"] = [_tool(tool, traits) for tool in request.tools]
        items = [*_system(request.system, traits), *turns.encode(request.messages, losses)]
        return Body(
            path=PATH,
            content=join_body(fields, "messages", items),
            losses=tuple(losses),
            names=tool_names(request, traits),
        )


def _parameters(request: ModelRequest, traits: Traits, losses: dict[str, None]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "model": request.route.model,
        "stream": True if traits.stream else None,
        "stream_options": {"include_usage": True} if traits.stream and traits.stream_usage else None,
        traits.max_tokens_field: request.max_output_tokens,
        **sampling(request, traits, losses),
        "seed": request.seed,
        "stop": stop_words(request, losses),
        "tool_choice": _tool_choice(request.tool_choice, traits) if request.tools else None,
        "parallel_tool_calls": request.parallel_tool_calls if request.tools else None,
        "reasoning_effort": _effort(request, traits),
        "response_format": _response_format(request.response_format, traits, losses),
    }
    lose_tool_choice(request, losses)
    return {key: value for key, value in fields.items() if value is not None}


def _effort(request: ModelRequest, traits: Traits) -> str | None:
    effort = request.thinking
    if not isinstance(effort, str) or traits.thinking == ():
        return None
    return "none" if effort == "off" else effort


def _tool_choice(choice: ToolChoice | None, traits: Traits) -> Any:
    if choice is None:
        return None
    if choice.mode == "tool":
        return {"type": "function", "function": {"name": wire_name(choice.name or "", traits.tool_name_pattern)}}
    return choice.mode


def _response_format(wanted: ResponseFormat | None, traits: Traits, losses: dict[str, None]) -> Any:
    if wanted is None:
        return None
    return {"type": "json_schema", "json_schema": named_format(wanted, traits, losses)}


def _tool(tool: ToolDefinition | ServerTool, traits: Traits) -> Mapping[str, Any]:
    if isinstance(tool, ServerTool):
        return tool.config
    function = {
        "name": wire_name(tool.name, traits.tool_name_pattern),
        "description": clean_text(tool.description),
        "parameters": object_schema(tool.parameters),
    }
    if not function["description"]:
        del function["description"]
    return {"type": "function", "function": function}


def _system(blocks: Iterable[SystemBlock], traits: Traits) -> list[bytes]:
    """All sections as one message: many compatible servers take a single one, and only at the front."""
    text = clean_text("\n\n".join(block.text for block in blocks if block.text))
    if not text:
        return []
    return [b"," + to_json({"role": "developer" if traits.developer_role else "system", "content": text})]


def _options(request: ModelRequest, traits: Traits) -> dict[str, Any]:
    """The caller's own fields, none of them one that the request asks for."""
    if NAMESPACE not in request.provider_options:
        return {}
    asked = _parameters(request, traits, {}).keys() - {"stream_options"}
    fields, extra = read_options(request, NAMESPACE, OPTIONS, _OURS | asked)
    return {**fields, **extra}
