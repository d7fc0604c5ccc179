"""Answers that were decoded go back as they came, and histories from public reports are valid on the wire."""

import json
import re
from typing import Any

import pytest
from messages_made import PROTOCOL, call, losses, result, sent, text, traits
from wire_trials import NO_RECORDS, answers, cases, recorded

from spine.llm.catalogue import Traits
from spine.llm.request import ModelRequest, Route
from spine.messages import Message, Origin, ProviderState, TextBlock, ThinkingBlock
from spine_anthropic.decode import messages_decoder

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}

# ------------------------------------------------------------------------------------------------- round trips


def test_what_was_decoded_goes_back_as_it_came() -> None:
    blocks = [
        {"type": "thinking", "thinking": "First the weather.", "signature": "sigAAA="},
        {"type": "tool_use", "id": "toolu_01", "name": "weather", "input": {"city": "Ii"}},
        {"type": "redacted_thinking", "data": "opaqueBBB"},
        {"type": "thinking", "thinking": "", "signature": "sigCCC="},
        SEARCH,
        FOUND,
        {"type": "text", "text": "Found it.", "citations": [{"type": "x", "cited_text": "y"}]},
        {"type": "tool_use", "id": "toolu_02", "name": "note", "input": {"name": "x"}},
    ]
    body = {"type": "message", "model": "m", "content": blocks, "stop_reason": "tool_use"}
    decoder = messages_decoder(traits())
    decoder.feed(json.dumps(body).encode())
    message = decoder.finish().message
    assert sent(message)[0]["content"] == blocks
    assert losses(message) == ()


@NO_RECORDS
def test_recorded_answers_go_back_as_they_came() -> None:
    """Every recorded message comes back block for block, but for empty text and the callers that go without saying."""
    tried = 0
    for body in answers(recorded("anthropic_messages")):
        if not body.lstrip().startswith(b"{"):
            continue
        wanted = [_replayed(block) for block in json.loads(body)["content"] if _is_replayed(block)]
        decoder = messages_decoder(traits(call_id_pattern=r"[A-Za-z0-9_-]{1,256}"))
        decoder.feed(body)
        message = decoder.finish().message
        kept = Message(
            role="assistant",
            content=tuple(block for block in message.content if getattr(block, "kind", None) != "container"),
            origin=message.origin,
        )
        if wanted:
            assert sent(kept, result("t1s1c1", "x"))[0]["content"] == wanted
            tried += 1
    assert tried > 300


def _is_replayed(block: dict[str, Any]) -> bool:
    if block["type"] == "text":
        return bool(block["text"].strip())
    return block["type"] != "thinking" or bool(block["signature"])


def _replayed(block: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in block.items()
        if not (key == "citations" and not value)
        and not (block["type"] == "tool_use" and key == "caller" and value == {"type": "direct"})
    }


# ---------------------------------------------------------------------------------------------- reported cases


def history_of(case: dict[str, Any]) -> list[Message]:
    """A case's history in our values: calls are numbered by step, results belong to the latest call of their id."""
    messages: list[Message] = []
    latest: dict[str, str] = {}
    open_calls: dict[str, str] = {}
    for step, message in enumerate(case["history"], 1):
        if message["role"] != "tool":
            messages.extend(_interrupted(open_calls))
        content: list[Any] = []
        given = message.get("origin")
        for place, block in enumerate(message["content"], 1):
            if block["type"] == "tool_call":
                latest[block["id"]] = our_id = f"t1s{step}c{place}"
                open_calls[our_id] = block["name"]
                content.append(call(our_id, block["name"], block["id"], arguments=block["args"]))
            elif block["type"] == "tool_result":
                open_calls.pop(latest[block["call_id"]])
                content.extend(result(latest[block["call_id"]], *(part["text"] for part in block["content"])).content)
            elif block["type"] == "thinking":
                kept = ProviderState(
                    protocol=given["protocol"],
                    provider=given["provider"],
                    model=given["model"],
                    data={"signature": block["signature"]},
                )
                content.append(ThinkingBlock(text=block["text"], provider_state=kept))
            else:
                content.append(TextBlock(text=block["text"]))
        origin = given and Origin(protocol=given["protocol"], route=f"{given['provider']}:{given['model']}")
        messages.append(Message(role=message["role"], content=tuple(content), origin=origin))
    return [*messages, *_interrupted(open_calls)]


def _interrupted(open_calls: dict[str, str]) -> list[Message]:
    """What the loop has appended for calls without a result before anything else is asked."""
    found = [result(call_id, "interrupted; it may have had effects", is_error=True) for call_id in open_calls]
    open_calls.clear()
    return found


def encoded(case: dict[str, Any], model: str) -> list[dict[str, Any]]:
    target = Traits(provider="anthropic", protocol="anthropic_messages", model=model, cache_marks=False)
    asked = ModelRequest(route=Route("anthropic", model), step="t1s1", messages=tuple(history_of(case)))  # type: ignore[arg-type]
    found: list[dict[str, Any]] = json.loads(PROTOCOL.encode(asked, target).content)["messages"]
    return found


def check_wire(messages: list[dict[str, Any]]) -> None:
    """What the API demands of any conversation."""
    roles = [message["role"] for message in messages]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    seen: set[str] = set()
    for place, message in enumerate(messages):
        kinds = [block["type"] for block in message["content"]]
        assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result") or message["role"] == "assistant"
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", id) for id in calls)
        assert seen.isdisjoint(calls)
        seen.update(calls)
        following = messages[place + 1]["content"] if place + 1 < len(messages) else []
        assert [block["tool_use_id"] for block in following if block["type"] == "tool_result"] == calls


CASES = {case["id"][:3]: case for case in cases("c")}


@NO_RECORDS
@pytest.mark.parametrize("id", ["c01", "c02", "c03", "c04", "c05", "c11"])
def test_reported_histories_are_valid_on_the_wire(id: str) -> None:
    check_wire(encoded(CASES[id], CASES[id]["target"]["model"]))


@NO_RECORDS
def test_an_interrupted_call_is_answered_before_the_new_question() -> None:
    last = encoded(CASES["c01"], "model-a")[2]["content"]
    assert [block["type"] for block in last] == ["tool_result", "tool_result", "text"]
    assert [block.get("is_error") for block in last[:2]] == [None, True]


@NO_RECORDS
def test_thinking_comes_back_when_its_model_does() -> None:
    case = CASES["c03"]
    assert "sigFromA=" not in json.dumps(encoded(case, "model-b"))
    assert text("It is 7.") in encoded(case, "model-b")[1]["content"]
    assert encoded(case, "model-a")[1]["content"][0] == {
        "type": "thinking",
        "thinking": "secret chain",
        "signature": "sigFromA=",
    }


@NO_RECORDS
def test_calls_with_one_id_keep_their_own_results() -> None:
    messages = encoded(CASES["c11"], "model-a")
    paired = {}
    for place, message in enumerate(messages):
        for block in message["content"]:
            if block["type"] == "tool_use":
                paired[block["name"]] = messages[place + 1]["content"][0]["content"][0]["text"]
    assert paired["weather"] == "one"
    assert paired["read_note"] == "two"
    assert "interrupted" in paired["ping_host"]
