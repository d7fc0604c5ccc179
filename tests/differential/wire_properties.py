"""What must hold of every request that goes out, whatever was in the history: one check for each protocol.

The words are those of the public cases: every call answered once, no orphan results, results in call order and in
their place, roles alternate where the protocol wants it, ids unique and within the grammar, no empty text.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from spine.llm.catalogue import Traits
from spine.llm.protocols import Body


def check_body(body: Body, traits: Traits) -> dict[str, Any]:
    """The request as JSON, after everything was checked that its protocol demands of messages."""
    data: dict[str, Any] = json.loads(body.content.decode("utf-8"), parse_constant=_no_number)
    json.dumps(data, ensure_ascii=False).encode("utf-8")  # refuses lone surrogates, also escaped ones
    assert len(set(body.losses)) == len(body.losses)
    names = [name for name in _tool_names(data) if name is not None]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(traits.tool_name_pattern, name) for name in names), names
    _CHECKS[traits.protocol](data, traits)
    return data


def _no_number(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


def _tool_names(data: dict[str, Any]) -> Iterator[str | None]:
    for tool in data.get("tools", ()):
        yield tool.get("name") or tool.get("function", {}).get("name")


def check_ids(ids: list[str], traits: Traits) -> None:
    """Ids of calls: unique in the request and within the target's grammar."""
    assert len(set(ids)) == len(ids), ids
    assert all(re.fullmatch(traits.call_id_pattern, id) for id in ids), ids


# ---------------------------------------------------------------------------------------------------- protocols


def _check_chat(data: dict[str, Any], traits: Traits) -> None:
    """Results stand directly after the message with their calls, one message each, in call order."""
    ids: list[str] = []
    open_ids: list[str] = []
    for message in data["messages"]:
        if message["role"] == "tool":
            assert open_ids, "a result without a call"
            assert message["tool_call_id"] == open_ids.pop(0)
            continue
        assert not open_ids, f"{open_ids} are not answered"
        open_ids = [call["id"] for call in message.get("tool_calls", ())]
        ids.extend(open_ids)
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
        content = message.get("content")
        assert content is not None or open_ids, "content may be null beside calls only"
        assert message["role"] == "assistant" or content
        _check_texts(content, "text")
    assert not open_ids, f"{open_ids} are not answered"
    check_ids(ids, traits)


def _check_texts(content: Any, *kinds: str) -> None:
    if isinstance(content, list):
        assert content
        assert all(part["text"] for part in content if part["type"] in kinds)


def _check_responses(data: dict[str, Any], traits: Traits) -> None:
    """Each call has one output of its own kind, in call order and before anything that a person said next."""
    calls: dict[str, str] = {}
    open_ids: list[str] = []
    for item in data["input"]:
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            assert item["call_id"] not in calls
            calls[item["call_id"]] = kind
            open_ids.append(item["call_id"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            assert open_ids, "an output without a call"
            assert item["call_id"] == open_ids.pop(0)
            assert kind == f"{calls[item['call_id']]}_output"
        elif kind == "message":
            assert item["role"] not in ("user", "developer") or not open_ids, f"{open_ids} are not answered"
            assert item["content"]
            _check_texts(item["content"], "input_text", "output_text")
    assert not open_ids, f"{open_ids} are not answered"
    assert data["store"] is False
    assert "previous_response_id" not in data
    check_ids(list(calls), traits)


def _check_messages(data: dict[str, Any], traits: Traits) -> None:
    """Roles alternate, results open the message after their calls, text has something to be seen."""
    messages = data["messages"]
    roles = [message["role"] for message in messages]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    ids: list[str] = []
    for place, message in enumerate(messages):
        content = message["content"]
        assert content
        kinds = [block["type"] for block in content]
        if message["role"] == "user":
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
        assert all(block["text"].strip() for block in content if block["type"] == "text")
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        ids.extend(calls)
        following = messages[place + 1]["content"] if place + 1 < len(messages) else []
        assert [block["tool_use_id"] for block in following if block["type"] == "tool_result"] == calls
    check_ids(ids, traits)
    assert data["max_tokens"] > 0
    budget = data.get("thinking", {}).get("budget_tokens")
    assert budget is None or 1024 <= budget < data["max_tokens"]


_CHECKS: dict[str, Callable[[dict[str, Any], Traits], None]] = {
    "openai_chat": _check_chat,
    "openai_responses": _check_responses,
    "anthropic_messages": _check_messages,
}
