"""Events and bodies of Responses, made for the tests, and the ways to read them."""

import json
from typing import Any

import wire_trials

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.response import ModelResponse
from spine.wire import WireLimits, decode_captured
from spine_openai_responses.decode import responses_decoder
from spine_openai_responses.protocol import OpenAIResponses

TRAITS = Traits(provider="lab", protocol="openai_responses", model="m")
PROTOCOL = OpenAIResponses()
USAGE = {"input_tokens": 5, "output_tokens": 2}


def response(status: Any = "completed", *output: Any, **more: Any) -> dict[str, Any]:
    return {"id": "resp_a1", "object": "response", "model": "m-1", "status": status, "output": list(output), **more}


def event(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}" if kind != "error" else kind, **members}


def created() -> dict[str, Any]:
    return event("created", response=response("in_progress"))


def completed(*output: Any, **more: Any) -> dict[str, Any]:
    return event("completed", response=response("completed", *output, **more))


def incomplete(reason: Any, *output: Any) -> dict[str, Any]:
    return event("incomplete", response=response("incomplete", *output, incomplete_details={"reason": reason}))


def failed(error: Any) -> dict[str, Any]:
    return event("failed", response=response("failed", error=error))


def delta(kind: str, text: Any, at: Any = 0, **more: Any) -> dict[str, Any]:
    return event(f"{kind}.delta", output_index=at, item_id=f"item_{at}", delta=text, **more)


def said(text: Any, at: Any = 0, nth: Any = 0) -> dict[str, Any]:
    return delta("output_text", text, at, content_index=nth)


def arguments(text: Any, at: Any = 0) -> dict[str, Any]:
    return delta("function_call_arguments", text, at)


def added(item: Any, at: Any = 0) -> dict[str, Any]:
    return event("output_item.added", output_index=at, item=item)


def done(item: Any, at: Any = 0) -> dict[str, Any]:
    return event("output_item.done", output_index=at, item=item)


def part(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], **more}


def message(*parts: Any, **more: Any) -> dict[str, Any]:
    content = [part(item) if isinstance(item, str) else item for item in parts]
    return {"type": "message", "id": "item_0", "role": "assistant", "content": content, **more}


def call(text: str = "", name: str = "f", call_id: str = "call_a", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "item_0", "call_id": call_id, "name": name, "arguments": text, **more}


def reasoning(*summary: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": "rs_1", "summary": parts, **more}


def sse(*payloads: Any) -> bytes:
    lines = (payload if isinstance(payload, str) else json.dumps(payload) for payload in payloads)
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def run(*pieces: bytes, limits: WireLimits | None = None) -> tuple[list[Any], Any]:
    """All chunks, and the response or the error."""
    return wire_trials.run(lambda: responses_decoder(TRAITS, limits), *pieces)


def outcome(*pieces: bytes) -> Any:
    """What must not depend on the cuts: the folded message and how it ended."""
    return wire_trials.outcome(lambda: responses_decoder(TRAITS), *pieces)


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


def calls_of(answered: ModelResponse) -> list[tuple[Any, ...]]:
    return [(c.vendor_id, c.name, c.arguments, c.arguments_text) for c in answered.message.tool_calls]
