"""Blocks, usage and names of an answer: put together from what the wire says of them."""

from typing import Any

import pytest
from events_made import (
    CALLER,
    CONTAINER,
    HI,
    STOP,
    answer,
    block,
    call,
    called,
    content,
    ending,
    extension,
    run,
    said,
    sse,
    start,
    text,
)

from spine.llm.chunks import (
    BlockAdded,
    BlockEnded,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)

# ------------------------------------------------------------------------------------------------------ blocks


def test_block_indexes_of_the_wire_may_repeat_and_jump() -> None:
    assert content(*text(0, "a"), *text(0, "b"), *text(7, "c")) == [said("a"), said("b"), said("c")]


def test_blocks_of_message_start_are_whole() -> None:
    blocks = [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}]
    response = answer(start(content=blocks, stop_reason="tool_use"), STOP)
    assert response.message.text == "Hi"
    assert response.message.tool_calls[0].arguments == {"a": 1}
    assert (response.stop_reason, response.raw_stop_reason) == ("tool_use", "tool_use")


INPUTS: dict[str, tuple[list[dict[str, Any]], Any, str | None]] = {
    "in pieces": (call(0, "f", '{"a": "x', 'y"}'), {"a": "xy"}, None),
    "an empty first piece": (call(0, "f", "", '{"a":1}'), {"a": 1}, None),
    "nothing": (call(0, "f"), {}, None),
    "empty pieces": (call(0, "f", "", ""), {}, None),
    "in the start": (call(0, "f", input={"a": 1}), {"a": 1}, None),
    "in the start, with an empty piece": (call(0, "f", "", input={"a": 1}), {"a": 1}, None),
    "in the start and in pieces": (call(0, "f", '{"b":2}', input={"a": 1}), {"b": 2}, None),
    "null in the start": (call(0, "f", input=None), {}, None),
    "text in the start": (call(0, "f", input='{"a":1}'), {"a": 1}, None),
    "half": (call(0, "f", '{"a'), None, '{"a'),
    "no object": (call(0, "f", "[1]"), None, "[1]"),
    "duplicate keys": (call(0, "f", '{"a":1,"a":2}'), None, '{"a":1,"a":2}'),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_are_put_together(name: str) -> None:
    payloads, arguments, raw = INPUTS[name]
    assert content(*payloads) == [called("toolu_0", "f", arguments, raw)]


def test_calls_are_passed_on_as_they_arrive() -> None:
    chunks, _ = run(sse(start(), *call(0, "f", "{", "}", id=None), ending("tool_use"), STOP))
    assert [chunk for chunk in chunks if type(chunk) in (ToolCallStarted, ToolCallDelta)] == [
        ToolCallStarted(0, "f", None),
        ToolCallDelta(0, "{"),
        ToolCallDelta(0, "}"),
    ]


@pytest.mark.parametrize(("caller", "is_kept"), [(CALLER, True), ({"type": "direct"}, False), (None, False)])
def test_who_called_is_kept_when_it_was_code(caller: Any, is_kept: bool) -> None:
    found = content(*call(0, "f", caller=caller))[0]
    assert found.get("provider_state") == ({"caller": CALLER} if is_kept else None)


def test_signatures_stay_with_their_block() -> None:
    chunks, response = run(
        sse(
            start(),
            *block(
                0,
                "thinking",
                {"type": "thinking_delta", "thinking": "a"},
                {"type": "signature_delta", "signature": "s1"},
                thinking="",
            ),
            *block(1, "thinking", {"type": "signature_delta", "signature": "s2"}, thinking=""),
            *block(2, "thinking", thinking="whole", signature="s3"),
            *block(3, "thinking", {"type": "thinking_delta", "thinking": "unsigned"}, thinking="", signature=""),
            *block(4, "thinking", thinking=""),
            ending(),
            STOP,
        )
    )
    found = [(b.text, b.provider_state and b.provider_state.data["signature"]) for b in response.message.content]
    assert found == [("a", "s1"), ("", "s2"), ("whole", "s3"), ("unsigned", None)]
    assert [chunk.index for chunk in chunks if type(chunk) is BlockEnded] == [0, 1, 2]
    assert ThinkingDelta(1, "") in chunks
    state = response.message.content[0].provider_state
    assert (state.protocol, state.provider, state.model) == ("anthropic_messages", "lab", "m")


def test_empty_text_is_no_block_whatever_it_cites() -> None:
    cited = block(1, "text", {"type": "citations_delta", "citation": {"n": 1}}, text="", citations=None)
    assert content(*text(0), *cited, *text(2, "", "")) == []


def test_citations_are_kept_in_order_with_their_text() -> None:
    deltas = [{"type": "text_delta", "text": "a"}, {"type": "citations_delta", "citation": {"n": 2}}]
    assert content(*block(0, "text", *deltas, text="", citations=[{"n": 1}])) == [
        said("a", citations=[{"n": 1}, {"n": 2}])
    ]


EXTENSIONS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "input in pieces": (
        block(0, "mcp_tool_use", {"type": "input_json_delta", "partial_json": '{"a":1}'}, id="m1", input={}),
        {"type": "mcp_tool_use", "id": "m1", "input": {"a": 1}},
    ),
    "input whole": (
        block(0, "server_tool_use", {"type": "input_json_delta", "partial_json": ""}, input={"a": 1}),
        {"type": "server_tool_use", "input": {"a": 1}},
    ),
    "half an input": (
        block(0, "server_tool_use", {"type": "input_json_delta", "partial_json": '{"a'}, input={}),
        {"type": "server_tool_use", "input": '{"a'},
    ),
    "text and lists in pieces, the rest replaced": (
        block(0, "sparkle", {"type": "x_delta", "t": "b", "l": [2], "n": 2, "z": None}, t="a", l=[1], n=1, z=1),
        {"type": "sparkle", "t": "ab", "l": [1, 2], "n": 2, "z": 1},
    ),
    "members of a later day": (block(0, "fallback", {"type": "y_delta", "new": 1}), {"type": "fallback", "new": 1}),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_what_the_provider_ran_is_carried_whole(name: str) -> None:
    payloads, data = EXTENSIONS[name]
    assert content(*payloads) == [extension(data["type"], data)]


def test_a_container_is_a_block_and_what_else_was_said_is_metadata() -> None:
    details = {"type": "refusal", "category": "cyber"}
    last = {**ending("refusal", stop_details=details, container=CONTAINER), "context_management": {"applied_edits": []}}
    chunks, response = run(sse(start(), last, STOP))
    assert [chunk.block.kind for chunk in chunks if type(chunk) is BlockAdded] == ["container"]
    assert response.message.content[0].data == CONTAINER
    assert response.metadata == {"stop_details": details, "context_management": {"applied_edits": ()}}
    matched = answer(start(), *HI, ending("stop_sequence", stop_sequence="END"), STOP)
    assert matched.metadata == {"stop_sequence": "END"}
    assert answer(start(), *HI, ending(), STOP).metadata == {}


# ------------------------------------------------------------------------------------------------------- usage

USAGE: list[tuple[Any, Any, dict[str, Any]]] = [
    ({"input_tokens": 25, "output_tokens": 1}, {"output_tokens": 15}, {"input_tokens": 25, "output_tokens": 15}),
    (
        {"input_tokens": 10, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200},
        {"output_tokens": 5},
        {"input_tokens": 1210, "cache_read_tokens": 1000, "cache_write_tokens": 200, "output_tokens": 5},
    ),
    (
        {"input_tokens": 10, "cache_read_input_tokens": 7, "output_tokens": 1},
        {"input_tokens": 12, "cache_read_input_tokens": 0, "output_tokens": 3},
        {"input_tokens": 12, "cache_read_tokens": 0, "output_tokens": 3},
    ),
    (
        {"input_tokens": 10},
        {"input_tokens": None, "output_tokens": None},
        {"input_tokens": 10, "output_tokens": None, "malformed": False},
    ),
    ({"input_tokens": 1}, {"output_tokens_details": {"thinking_tokens": 4}}, {"reasoning_tokens": 4}),
    (None, {"output_tokens": 2}, {"input_tokens": None, "output_tokens": 2}),
    ({"cache_read_input_tokens": 5}, None, {"input_tokens": None, "cache_read_tokens": 5}),
    (None, None, {"input_tokens": None, "output_tokens": None, "malformed": False}),
    ({"input_tokens": "many"}, None, {"input_tokens": None, "malformed": True}),
    ({"input_tokens": -1}, None, {"input_tokens": None, "malformed": True}),
    ("many", None, {"input_tokens": None, "malformed": True}),
]


@pytest.mark.parametrize(("first", "last", "expected"), USAGE)
def test_reports_of_start_and_end_are_one(first: Any, last: Any, expected: dict[str, Any]) -> None:
    usage = answer(start(usage=first), *HI, {**ending(), "usage": last}, STOP).usage
    assert {key: getattr(usage, key) for key in expected} == expected
    assert usage.total_tokens is None


def test_usage_is_handed_out_when_it_changes() -> None:
    chunks, response = run(sse(start(), *HI, ending(), ending(), STOP))
    reports = [chunk.usage for chunk in chunks if type(chunk) is UsageReported]
    assert [(usage.input_tokens, usage.output_tokens) for usage in reports] == [(10, 1), (10, 9)]
    assert response.usage == reports[-1]
    assert response.usage.raw == {"input_tokens": 10, "output_tokens": 9}


def test_origin_names_route_model_and_id() -> None:
    response = answer(start(), *HI, ending(), STOP)
    origin = response.message.origin
    assert origin is not None
    assert (origin.protocol, origin.route, origin.model) == ("anthropic_messages", "lab:m", "m-1")
    assert origin.response_id == response.response_id == "msg_a1"
