"""A captured body to one JSON object."""

import json
from typing import Any

import pytest

from spine.wire import decode_captured
from spine_openai_chat.protocol import OpenAIChat

PROTOCOL = OpenAIChat()
CALL = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
WHOLE = {
    "id": "c1",
    "model": "m-1",
    "choices": [{"message": {"content": "Hi", "tool_calls": [CALL]}, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 3},
}


def decoded(body: Any, status: int | None = 200, **more: Any) -> dict[str, Any]:
    result = decode_captured(PROTOCOL, {"status": status, "headers": {}, "body": body, **more})
    json.dumps(result)
    assert list(result) == [
        "content",
        "stop_reason",
        "raw_stop_reason",
        "usage",
        "model",
        "response_id",
        "error",
        "partial",
    ]
    return result


@pytest.mark.parametrize("body", [json.dumps(WHOLE), json.dumps(WHOLE).encode(), WHOLE])
def test_an_answer_has_content_and_no_error(body: str | bytes) -> None:
    result = decoded(body)
    assert result["content"] == [
        {"type": "text", "text": "Hi"},
        {"type": "tool_call", "id": "call_a", "name": "f", "arguments": {"a": [1]}, "arguments_text": None},
    ]
    assert (result["stop_reason"], result["raw_stop_reason"]) == ("tool_use", "tool_calls")
    assert (result["model"], result["response_id"]) == ("m-1", "c1")
    assert result["usage"]["input_tokens"] == 3
    assert result["usage"]["output_tokens"] is None
    assert result["usage"]["raw"] == {"prompt_tokens": 3}
    assert result["error"] is result["partial"] is None


@pytest.mark.parametrize("now", [1_790_856_000, "2026-10-01T12:00:00Z"])
def test_an_error_status_is_read_by_the_protocol_with_the_records_clock(now: float | str) -> None:
    headers = {"Retry-After": "Thu, 01 Oct 2026 12:00:20 GMT", "X-Request-Id": "req_1"}
    result = decoded("slow down", 429, headers=headers, now=now)
    assert result["content"] is None
    assert result["partial"] == {"content": []}
    error = result["error"]
    assert (error["category"], error["status"], error["retry_after_s"], error["request_id"]) == (
        "rate_limit",
        429,
        20.0,
        "req_1",
    )


def test_a_cut_stream_is_an_error_with_what_had_arrived() -> None:
    chunk = {"id": "c1", "model": "m-1", "usage": {"prompt_tokens": 3}, "choices": [{"delta": {"content": "Hel"}}]}
    result = decoded(f"data: {json.dumps(chunk)}\n\n")
    assert result["error"]["category"] == "stream_truncated"
    assert result["error"]["status"] is None
    assert result["content"] is result["stop_reason"] is None
    assert result["partial"]["content"] == [{"type": "text", "text": "Hel"}]
    assert (result["model"], result["usage"]["input_tokens"]) == ("m-1", 3)


@pytest.mark.parametrize("body", [None, "", b"", "\ud800", "{", "<html>"])
def test_nothing_that_was_captured_raises(body: Any) -> None:
    assert decoded(body)["error"] is not None
    assert decoded(body, None)["error"] is not None
