"""Answers as the three providers write them, decoded by our own decoders: what a history is made of.

An answer is a list of neutral parts; each protocol has its own way to say them, with the opaque state that it adds.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from spine.llm.providers import CATALOGUE
from spine.llm.request import Route
from spine.messages import Message, ToolCallBlock
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

PROTOCOLS: dict[str, Any] = {p.name: p for p in (AnthropicMessages(), OpenAIChat(), OpenAIResponses())}


@attrs.frozen
class Part:
    """`kind` is think, hide (redacted thinking), say, refuse, call or search (a tool that the provider ran)."""

    kind: str
    text: str = ""
    name: str = ""
    vendor_id: str = ""


def answer(route: Route, step: str, parts: Sequence[Part]) -> Message:
    """What `route` said, as a session would keep it: our call ids, registered tool names, its origin."""
    traits = CATALOGUE.traits(route.provider, route.model)
    body = BODIES[traits.protocol](route.model, step, parts)
    decoder = PROTOCOLS[traits.protocol].decoder(traits, {})
    decoder.feed(json.dumps(body).encode())
    message: Message = decoder.finish().message
    content: list[Any] = []
    for block in message.content:
        is_call = type(block) is ToolCallBlock
        calls = sum(type(each) is ToolCallBlock for each in content)
        content.append(attrs.evolve(block, id=f"{step}c{calls + 1}") if is_call else block)
    return message.evolve(content=tuple(content))


# --------------------------------------------------------------------------------------------------------- bodies


def chat_body(model: str, step: str, parts: Sequence[Part]) -> dict[str, Any]:
    def joined(kind: str) -> str | None:
        return "".join(part.text for part in parts if part.kind == kind) or None

    calls = [
        {"id": part.vendor_id, "type": "function", "function": {"name": part.name, "arguments": part.text}}
        for part in parts
        if part.kind == "call"
    ]
    message = {
        "role": "assistant",
        "content": joined("say"),
        "refusal": joined("refuse"),
        "reasoning_content": joined("think"),
        **({"tool_calls": calls} if calls else {}),
    }
    ending = "tool_calls" if calls else "stop"
    return {
        "id": f"chat-{step}",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": ending}],
    }


def responses_body(model: str, step: str, parts: Sequence[Part]) -> dict[str, Any]:
    items = [_ITEMS[part.kind](part, f"{step}_{place}") for place, part in enumerate(parts)]
    return {"id": f"resp_{step}", "object": "response", "status": "completed", "model": model, "output": items}


def _said(part: Part, id: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"msg_{id}", "type": "message", "role": "assistant", "status": "completed", "content": [content]}


_ITEMS: dict[str, Callable[[Part, str], dict[str, Any]]] = {
    "think": lambda part, id: {
        "id": f"rs_{id}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": part.text}],
        "encrypted_content": f"opaque-{id}",
    },
    "hide": lambda part, id: {"id": f"rs_{id}", "type": "reasoning", "summary": [], "encrypted_content": f"op-{id}"},
    "say": lambda part, id: _said(part, id, {"type": "output_text", "text": part.text, "annotations": []}),
    "refuse": lambda part, id: _said(part, id, {"type": "refusal", "refusal": part.text}),
    "call": lambda part, id: {
        "id": f"fc_{id}",
        "type": "function_call",
        "call_id": part.vendor_id,
        "name": part.name,
        "arguments": part.text,
        "status": "completed",
    },
    "search": lambda part, id: {
        "id": f"ws_{id}",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": part.text, "queries": [part.text]},
    },
}


def messages_body(model: str, step: str, parts: Sequence[Part]) -> dict[str, Any]:
    blocks = [block for place, part in enumerate(parts) for block in _BLOCKS[part.kind](part, f"{step}_{place}")]
    ending = "tool_use" if any(part.kind == "call" for part in parts) else "end_turn"
    return {
        "id": f"msg_{step}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": ending,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _input(text: str) -> Any:
    """This protocol has no text of arguments: what is no object cannot be said in it."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


_BLOCKS: dict[str, Callable[[Part, str], list[dict[str, Any]]]] = {
    "think": lambda part, id: [{"type": "thinking", "thinking": part.text, "signature": f"sig-{id}"}],
    "hide": lambda part, id: [{"type": "redacted_thinking", "data": f"opaque-{id}"}],
    "say": lambda part, id: [{"type": "text", "text": part.text}],
    "refuse": lambda part, id: [{"type": "text", "text": part.text}],
    "call": lambda part, id: [
        {"type": "tool_use", "id": part.vendor_id, "name": part.name, "input": _input(part.text)},
    ],
    "search": lambda part, id: [
        {"type": "server_tool_use", "id": f"srvtoolu_{id}", "name": "web_search", "input": {"query": part.text}},
        {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{id}", "content": []},
    ],
}

BODIES: dict[str, Callable[[str, str, Sequence[Part]], dict[str, Any]]] = {
    "openai_chat": chat_body,
    "openai_responses": responses_body,
    "anthropic_messages": messages_body,
}
"""By protocol: model, step and parts to the body of an answer that is not streamed."""
