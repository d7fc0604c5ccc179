"""One captured answer to one JSON-ready reading (side room `wire`), by the same decoder that live answers go through.

Shape of the result: `content stop_reason raw_stop_reason usage model response_id error partial`. `content` is None
and `partial` holds what had arrived when the answer is an error.
"""

import datetime
import math
from collections.abc import Callable, Mapping
from typing import Any

from spine.llm.assemble import Assembler
from spine.llm.catalogue import Traits
from spine.llm.errors import Failure, ProviderError
from spine.llm.protocols import WireProtocol
from spine.llm.response import ModelResponse
from spine.llm.usage import Usage
from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    RefusalBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from spine.values import thaw
from spine.wire.bodies import to_json

__all__ = ["decode_captured"]


def decode_captured(protocol: WireProtocol, record: Mapping[str, Any], traits: Traits | None = None) -> dict[str, Any]:
    """Read a record with `status headers body` and optionally `vendor now`, and give plain JSON.

    `body` is text, bytes, a JSON value, or missing; `now`, for delays given as dates, are seconds since 1970 UTC or
    text as in RFC 3339. Never raises for what a provider sent: that is the result's `error`.
    """
    status = int(record.get("status") or 200)
    headers = {str(key).lower(): str(value) for key, value in (record.get("headers") or {}).items()}
    data = _bytes(record.get("body"))
    seen = Assembler()
    if not 200 <= status < 300:
        return _failed(protocol.classify(status, headers, data, now=_seconds(record.get("now"))), seen)
    traits = traits or Traits(provider=str(record.get("vendor") or ""), protocol=protocol.name)
    decoder = protocol.decoder(traits, headers)
    try:
        for piece in (data, b"") if data else (b"",):
            for chunk in decoder.feed(piece):
                seen.add(chunk)
        return _answered(decoder.finish())
    except ProviderError as error:
        return _failed(error, seen)


def _bytes(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return body if isinstance(body, bytes) else b"" if body is None else to_json(body)


def _seconds(moment: Any) -> float:
    """NaN when nobody noted the time: then dates say nothing."""
    if isinstance(moment, str):
        return datetime.datetime.fromisoformat(moment).timestamp()
    return math.nan if moment is None else float(moment)


def _answered(response: ModelResponse) -> dict[str, Any]:
    return {
        "content": [_shown(block) for block in response.message.content],
        "stop_reason": response.stop_reason,
        "raw_stop_reason": response.raw_stop_reason,
        "usage": _usage(response.usage),
        "model": response.model,
        "response_id": response.response_id,
        "error": None,
        "partial": None,
    }


def _failed(error: ProviderError, seen: Assembler) -> dict[str, Any]:
    return {
        "content": None,
        "stop_reason": None,
        "raw_stop_reason": None,
        "usage": _usage(seen.usage) if seen.usage is not None else None,
        "model": seen.model,
        "response_id": seen.response_id,
        "error": _failure(error.failure),
        "partial": {"content": [_shown(block) for block in seen.message().content]},
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "category": failure.category,
        "code": failure.code,
        "message": failure.message,
        "retryable": failure.retryable,
        "retry_after_s": failure.retry_after_s,
        "status": failure.status,
        "request_id": failure.request_id,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_tokens": usage.total_tokens,
        "malformed": usage.malformed,
        "raw": thaw(usage.raw),
    }


def _call(block: Any) -> dict[str, Any]:
    return {
        "id": block.vendor_id or block.id,
        "name": block.name,
        "arguments": None if block.arguments is None else thaw(block.arguments),
        "arguments_text": block.arguments_text,
    }


def _media(block: Any) -> dict[str, Any]:
    members = ("media_type", "data", "url", "artifact", "detail", "transcript", "name")
    return {key: value for key in members if (value := getattr(block, key, None)) is not None}


_SHOWN: dict[type, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    TextBlock: ("text", lambda block: {"text": block.text}),
    JsonBlock: ("json", lambda block: {"value": thaw(block.value)}),
    ThinkingBlock: ("thinking", lambda block: {"text": block.text, "redacted": block.redacted}),
    RefusalBlock: ("refusal", lambda block: {"text": block.text}),
    ToolCallBlock: ("tool_call", _call),
    ToolResultBlock: ("tool_result", lambda block: {"call_id": block.call_id, "is_error": block.is_error}),
    ImageBlock: ("image", _media),
    AudioBlock: ("audio", _media),
    DocumentBlock: ("document", _media),
    ArtifactRefBlock: ("artifact_ref", lambda block: {"digest": block.digest, "size": block.size}),
    ExtensionBlock: ("extension", lambda block: {"kind": block.kind, "data": thaw(block.data)}),
}


def _shown(block: ContentBlock) -> dict[str, Any]:
    name, members = _SHOWN[type(block)]
    shown: dict[str, Any] = {"type": name, **members(block)}
    if block.provider_state is not None:
        shown["provider_state"] = thaw(block.provider_state.data)
    return shown
