"""Events of a Messages stream, and what they are read as, made in few words."""

import json
from typing import Any

import wire_trials

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.response import ModelResponse
from spine.wire import WireLimits, decode_captured
from spine_anthropic.decode import messages_decoder
from spine_anthropic.protocol import AnthropicMessages

TRAITS = Traits(provider="lab", protocol="anthropic_messages", model="m")
PROTOCOL = AnthropicMessages()


def event(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, **members}


def start(**members: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    return event("message_start", message={"id": "msg_a1", "model": "m-1", "content": [], "usage": usage, **members})


def block(index: int, kind: str, *deltas: dict[str, Any], **members: Any) -> list[dict[str, Any]]:
    """A whole block as its events."""
    return [
        event("content_block_start", index=index, content_block={"type": kind, **members}),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    return block(index, "text", *({"type": "text_delta", "text": piece} for piece in pieces), text="")


def call(index: int, name: str, *pieces: str, **members: Any) -> list[dict[str, Any]]:
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, "tool_use", *deltas, **{"id": f"toolu_{index}", "name": name, "input": {}, **members})


def ending(reason: Any = "end_turn", **members: Any) -> dict[str, Any]:
    return event("message_delta", delta={"stop_reason": reason, **members}, usage={"output_tokens": 9})


STOP = event("message_stop")
PING = event("ping")
HI = text(0, "Hi")


def sse(*payloads: Any) -> bytes:
    lines = (payload if isinstance(payload, str) else json.dumps(payload) for payload in payloads)
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def run(*pieces: bytes, limits: WireLimits | None = None) -> tuple[list[Any], Any]:
    """All chunks, and the response or the error."""
    return wire_trials.run(lambda: messages_decoder(TRAITS, limits), *pieces)


def outcome(*pieces: bytes) -> Any:
    """What must not depend on the cuts: the folded message and how it ended."""
    return wire_trials.outcome(lambda: messages_decoder(TRAITS), *pieces)


def shown(body: bytes) -> dict[str, Any]:
    return decode_captured(PROTOCOL, {"status": 200, "headers": {}, "body": body}, TRAITS)


def answer(*payloads: Any) -> ModelResponse:
    end = run(sse(*payloads))[1]
    assert isinstance(end, ModelResponse), end
    return end


def error(*payloads: Any) -> ProviderError:
    end = run(sse(*payloads))[1]
    assert isinstance(end, ProviderError), end
    return end


def content(*payloads: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shown(sse(start(), *payloads, ending(), STOP))["content"]
    return found


CALLER = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
CONTAINER = {"id": "container_1", "expires_at": "2026-11-30T12:00:00Z"}


def called(id: str, name: str, arguments: Any, raw: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": id, "name": name, "arguments": arguments, "arguments_text": raw, **more}


def said(words: str, **state: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **({"provider_state": state} if state else {})}


def thought(words: str, redacted: bool = False, **state: Any) -> dict[str, Any]:
    return {"type": "thinking", "text": words, "redacted": redacted, "provider_state": state}


def extension(kind: str, data: Any) -> dict[str, Any]:
    return {"type": "extension", "kind": kind, "data": data}
