"""Answers on the wire to chunks and one response: the same for every cut, and never anything but our own errors."""

import json
import pathlib
from typing import Any

import pytest
from events_made import (
    CALLER,
    CONTAINER,
    HI,
    PING,
    PROTOCOL,
    STOP,
    TRAITS,
    answer,
    block,
    call,
    called,
    ending,
    error,
    event,
    extension,
    outcome,
    run,
    said,
    sse,
    start,
    text,
    thought,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_trials import FileTrials, bytewise, try_limit

from spine.llm.chunks import (
    ProviderEvent,
    ResponseStarted,
    TextDelta,
    UsageReported,
)
from spine.llm.errors import ProviderError
from spine.wire import WireLimits
from spine_anthropic.answer import EVENTS, RULES, State
from spine_anthropic.decode import messages_decoder

WIRE = pathlib.Path(__file__).parent / "wire"

# -------------------------------------------------------------------------------------------- files, every cut


CITATION = {
    "type": "web_search_result_location",
    "url": "https://example.com/tides",
    "title": "Tides",
    "encrypted_index": "SWR4",
    "cited_text": "noon",
}
FOUND = {
    "type": "web_search_result",
    "url": "https://example.com/tides",
    "title": "Tides",
    "encrypted_content": "RW5j",
    "page_age": None,
}
FILES: dict[str, tuple[list[dict[str, Any]], str | None, str | None]] = {
    "text.sse": ([said("Grüße\u2028 🌊!")], "end_turn", None),
    "calls.sse": (
        [
            thought("Look first.", signature="c2ln"),
            called("toolu_a", "weather", {"city": "Oulu"}),
            thought("", redacted=True, data="b3BhcXVl"),
            called("toolu_b", "ping", {}),
        ],
        "tool_use",
        None,
    ),
    "server.sse": (
        [
            extension(
                "server_tool_use",
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}},
            ),
            extension(
                "web_search_tool_result",
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [FOUND]},
            ),
            said("High at noon.", citations=[CITATION]),
            extension("compaction", {"type": "compaction", "content": "So far: tides."}),
            extension("container", CONTAINER),
        ],
        "pause",
        None,
    ),
    "error.sse": ([said("Hello")], None, "overloaded"),
    "cut.sse": ([said("The answer"), called("toolu_a", "rm", None, '{"path": "/tm')], None, "stream_truncated"),
    "whole.json": (
        [
            thought("Greet.", signature="c2ln"),
            said("Hi"),
            called("toolu_a", "ping", {"n": 1}, provider_state={"caller": CALLER}),
            extension(
                "mcp_tool_result",
                {
                    "type": "mcp_tool_result",
                    "tool_use_id": "mcptoolu_1",
                    "is_error": False,
                    "content": [{"type": "text", "text": "x"}],
                },
            ),
        ],
        "tool_use",
        None,
    ),
}


class TestFiles(FileTrials):
    protocol = PROTOCOL
    folder = WIRE
    files = FILES


def test_chunks_come_as_they_arrive() -> None:
    decoder = messages_decoder(TRAITS)
    opened = decoder.feed(sse(start(), *text(0, "Hi")[:2]))
    assert opened[0] == ResponseStarted("m-1", "msg_a1")
    assert [type(chunk) for chunk in opened] == [ResponseStarted, UsageReported, TextDelta]
    assert decoder.feed(sse(PING)) == ()
    assert decoder.feed(sse(text(0)[-1])) == ()
    assert not decoder.is_done
    assert [type(chunk) for chunk in decoder.feed(sse(ending(), STOP))] == [UsageReported]
    assert decoder.is_done
    assert decoder.finish() == decoder.finish()


def test_what_came_before_an_error_in_the_same_piece_is_handed_out_first() -> None:
    decoder = messages_decoder(TRAITS)
    failure = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    chunks = decoder.feed(sse(start(), *HI, failure))
    assert [type(chunk) for chunk in chunks] == [ResponseStarted, UsageReported, TextDelta]
    for again in (lambda: decoder.feed(b""), lambda: decoder.feed(sse(STOP)), decoder.finish):
        with pytest.raises(ProviderError, match="Overloaded") as caught:
            again()
        assert caught.value is decoder.error


# ---------------------------------------------------------------------------------------------------- endings

ENDS_WELL: dict[str, tuple[tuple[Any, ...], str, str | None]] = {
    "end_turn": ((*HI, ending(), STOP), "end_turn", "end_turn"),
    "max_tokens": ((*HI, ending("max_tokens"), STOP), "max_tokens", "max_tokens"),
    "stop_sequence": ((*HI, ending("stop_sequence", stop_sequence="X"), STOP), "stop_sequence", "stop_sequence"),
    "refusal": ((*HI, ending("refusal"), STOP), "refusal", "refusal"),
    "pause_turn": ((*HI, ending("pause_turn"), STOP), "pause", "pause_turn"),
    "a full window": (
        (*HI, ending("model_context_window_exceeded"), STOP),
        "context_window",
        "model_context_window_exceeded",
    ),
    "compaction": ((*HI, ending("compaction"), STOP), "pause", "compaction"),
    "a word nobody knows": ((*HI, ending("weather"), STOP), "unknown", "weather"),
    "a reason that is no text": ((*HI, ending(7), STOP), "unknown", "7"),
    "no reason": ((*HI, STOP), "unknown", None),
    "a null reason": ((*HI, ending(None), STOP), "unknown", None),
    "a null reason, then one": ((*HI, ending(None), ending("max_tokens"), STOP), "max_tokens", "max_tokens"),
    "content after a null reason": ((ending(None), *HI, ending(), STOP), "end_turn", "end_turn"),
    "the same reason twice": ((*HI, ending(), ending(), STOP), "end_turn", "end_turn"),
    "tool_use with calls": ((*call(0, "f"), ending("tool_use"), STOP), "tool_use", "tool_use"),
    "end_turn with calls": ((*call(0, "f"), ending(), STOP), "tool_use", "end_turn"),
    "max_tokens with calls": ((*call(0, "f", "{"), ending("max_tokens"), STOP), "max_tokens", "max_tokens"),
    "tool_use without calls": ((*HI, ending("tool_use"), STOP), "unknown", "tool_use"),
    "pings anywhere": ((PING, *HI[:2], PING, HI[2], PING, ending(), PING, STOP, PING), "end_turn", "end_turn"),
    "unknown events anywhere": (
        (event("tick"), *HI[:2], event("tick"), HI[2], event("tick"), ending(), STOP, event("tick")),
        "end_turn",
        "end_turn",
    ),
    "a marker of gateways": ((*HI, ending(), STOP, "[DONE]"), "end_turn", "end_turn"),
    "no content": ((ending(), STOP), "end_turn", "end_turn"),
    "started twice": ((start(), *HI, ending(), STOP), "end_turn", "end_turn"),
    "started again without an id": ((start(id=None), *HI, ending(), STOP), "end_turn", "end_turn"),
}


@pytest.mark.parametrize("name", ENDS_WELL)
def test_endings_that_are_complete(name: str) -> None:
    payloads, stop_reason, raw = ENDS_WELL[name]
    response = answer(start(), *payloads)
    assert (response.stop_reason, response.raw_stop_reason) == (stop_reason, raw)
    assert response.message.text in ("Hi", "")


OVERLOADED = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
ENDS_BADLY: dict[str, tuple[tuple[Any, ...], str, str]] = {
    "nothing": ((), "stream_truncated", "before message_start"),
    "a ping": ((PING,), "stream_truncated", "before message_start"),
    "the start": ((start(),), "stream_truncated", "between blocks"),
    "half a block": ((start(), *HI[:2]), "stream_truncated", "inside a block"),
    "a block": ((start(), *HI), "stream_truncated", "between blocks"),
    "a reason without message_stop": ((start(), *HI, ending()), "stream_truncated", "after its stop reason"),
    "only a marker of gateways": ((start(), *HI, "[DONE]"), "stream_truncated", "between blocks"),
    "message_stop first": ((STOP,), "protocol_error", "message_stop before message_start"),
    "content first": ((HI[0],), "protocol_error", "content_block_start before message_start"),
    "message_delta first": ((ending(),), "protocol_error", "message_delta before message_start"),
    "a delta without a block": ((start(), HI[1]), "protocol_error", "content_block_delta between blocks"),
    "a stop without a block": ((start(), HI[2]), "protocol_error", "content_block_stop between blocks"),
    "a delta of another block": (
        (start(), HI[0], text(1, "x")[1]),
        "protocol_error",
        "content_block_delta for block 1 inside a block",
    ),
    "a stop of another block": (
        (start(), HI[0], text(1)[-1]),
        "protocol_error",
        "content_block_stop for block 1 inside a block",
    ),
    "overlapping blocks": ((start(), HI[0], text(1)[0]), "protocol_error", "content_block_start inside a block"),
    "a reason inside a block": ((start(), *HI[:2], ending()), "protocol_error", "message_delta inside a block"),
    "an end inside a block": ((start(), *HI[:2], STOP), "protocol_error", "message_stop inside a block"),
    "content after the reason": (
        (start(), *HI, ending(), *text(1)),
        "protocol_error",
        "content_block_start after its stop reason",
    ),
    "another reason": ((start(), *HI, ending(), ending("max_tokens")), "protocol_error", 'twice: "end_turn", then'),
    "content after the end": (
        (start(), *HI, ending(), STOP, *text(1)),
        "protocol_error",
        "content_block_start after message_stop",
    ),
    "the end twice": ((start(), *HI, ending(), STOP, STOP), "protocol_error", "message_stop after message_stop"),
    "a second answer": (
        (start(), *HI, ending(), STOP, start()),
        "protocol_error",
        "message_start after message_stop",
    ),
    "spliced answers": ((start(), *HI, start()), "protocol_error", "another message_start between blocks"),
    "another answer": ((start(), start(id="msg_b")), "protocol_error", "another message_start between blocks"),
    "an answer inside a block": ((start(), HI[0], start()), "protocol_error", "message_start inside a block"),
    "no message": ((event("message_start"),), "protocol_error", "without a message"),
    "no block": ((start(), event("content_block_start", index=0)), "protocol_error", "without a type"),
    "no delta": ((start(), HI[0], event("content_block_delta", index=0)), "protocol_error", "a delta without a type"),
    "a delta of another kind": (
        (start(), HI[0], event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "x"})),
        "protocol_error",
        "a thinking_delta inside a text block",
    ),
    "a call without a name": (
        (start(), *block(0, "tool_use", id="toolu_1")),
        "protocol_error",
        "whose name is no text",
    ),
    "no JSON": ((start(), *HI, "{not json}"), "protocol_error", "does not parse"),
    "a JSON array": ((start(), "[1]"), "protocol_error", "no JSON object"),
    "an error first": ((OVERLOADED,), "overloaded", "Overloaded"),
    "an error inside a block": ((start(), *HI[:2], OVERLOADED), "overloaded", "Overloaded"),
    "an error after the end": ((start(), *HI, ending(), STOP, OVERLOADED), "overloaded", "Overloaded"),
    "an error without a type": (({"error": {"message": "over capacity"}},), "overloaded", "over capacity"),
    "an invalid request": (
        (start(), event("error", error={"type": "invalid_request_error", "message": "tools: too many"})),
        "invalid_request",
        "tools: too many",
    ),
}


@pytest.mark.parametrize("name", ENDS_BADLY)
def test_endings_that_are_failures(name: str) -> None:
    payloads, category, words = ENDS_BADLY[name]
    failed = error(*payloads)
    assert failed.category == category
    assert words in failed.message


def test_an_event_is_named_by_the_stream_when_its_payload_does_not() -> None:
    body = b'event: error\ndata: {"message": "overloaded", "code": "x"}\n\n'
    end = run(body)[1]
    assert isinstance(end, ProviderError)
    assert end.category == "overloaded"


def test_every_state_takes_pings_and_errors_and_no_event_is_without_a_place() -> None:
    assert set(RULES) == set(State)
    assert all({"error", "ping"} <= set(rules) for rules in RULES.values())
    assert {event for rules in RULES.values() for event in rules} == EVENTS


def test_what_no_rule_knows_is_told_to_whoever_debugs_and_nothing_else() -> None:
    tick = event("tick", n=1)
    odd = event("content_block_delta", index=0, delta={"type": "sparkle_delta", "sparkle": 1})
    chunks, response = run(sse(start(), tick, HI[0], odd, *HI[1:], ending(), STOP))
    assert [chunk for chunk in chunks if type(chunk) is ProviderEvent] == [
        ProviderEvent("tick", tick),
        ProviderEvent("content_block_delta", odd),
    ]
    assert response.message.text == "Hi"


# ------------------------------------------------------------------------------------------ bodies of any kind

BODIES = [
    (b"", "stream_truncated", True),
    (b"   \n ", "stream_truncated", True),
    (b": keep-alive\n\n: keep-alive\n\n", "stream_truncated", True),
    (b"<html>log in</html>", "protocol_error", False),
    (b"hello there", "protocol_error", False),
    (b"null", "protocol_error", False),
    (b"[]", "protocol_error", False),
    (b"{}", "protocol_error", False),
    (b'{"type": "message"}', "protocol_error", False),
    (b'{"type": "message", "content": [{"type": "text"', "protocol_error", True),
    (b'{"type": "message", "content": ["x"]}', "protocol_error", False),
    (b'{"type": "error", "error": {"type": "api_error", "message": "Internal"}}', "server_error", True),
    (b'{"error": {"message": "overloaded"}}', "overloaded", True),
    (b"data: {not json}\n\n", "protocol_error", True),
]


@pytest.mark.parametrize(("body", "category", "retryable"), BODIES)
def test_bodies_that_are_no_answer(body: bytes, category: str, retryable: bool) -> None:
    _, end = outcome(body)
    assert (end.category, end.retryable) == (category, retryable)
    assert outcome(*bytewise(body)) == outcome(body)


def test_a_whole_answer_may_say_nothing() -> None:
    response = outcome(b'{"type": "message", "content": [], "stop_reason": "end_turn"}')
    assert (response.message.content, response.stop_reason, response.model) == ((), "end_turn", None)


def test_a_value_too_deep_for_an_event_is_a_broken_answer() -> None:
    deep: Any = 1
    for _ in range(250):
        deep = [deep]
    failed = error(start(), *block(0, "server_tool_use", input=deep), ending(), STOP)
    assert failed.category == "protocol_error"
    assert "deeper than 200" in failed.message


LIMITS = WireLimits(line_bytes=500, event_bytes=500, response_bytes=2000, blocks=5, calls=3, arguments_chars=50)
TOO_MUCH = {
    "line": sse(start(), text(0, "x" * 600)[1]),
    "calls": sse(start(), *(part for i in range(4) for part in call(i, "f"))),
    "blocks": sse(start(), *(part for i in range(6) for part in text(i, "x"))),
    "arguments": sse(start(), *call(0, "f", *["x" * 9] * 9)),
    "JSON answer": b'{"x": "' + b"x" * 3000,
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_limits_end_the_answer(what: str) -> None:
    try_limit(lambda: messages_decoder(TRAITS, LIMITS), TOO_MUCH[what], what)


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use"])
def test_inputs_are_limited_wherever_they_stand(kind: str) -> None:
    pieces = [{"type": "input_json_delta", "partial_json": "x" * 30}] * 2
    for body in (
        sse(start(), *block(0, kind, *pieces, name="f")),
        sse(start(), *block(0, "tool_use", name="f", input={"a": "x" * 60})),
    ):
        end = run(body, limits=LIMITS)[1]
        assert isinstance(end, ProviderError)
        assert "longer than 50 characters" in end.message


# ------------------------------------------------------------------------------------------------------- fuzz

KEYS = """
    id model content index delta type text thinking signature partial_json citation name input usage input_tokens
    output_tokens error message content_block stop_reason stop_sequence container data tool_use_id caller citations
"""
KINDS = (
    "text tool_use thinking redacted_thinking server_tool_use text_delta input_json_delta thinking_delta "
    "signature_delta citations_delta error"
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from(["", "x", "end_turn", "{}", "\ud800", *KINDS.split()]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(tuple(KEYS.split())), inner, max_size=5)
    ),
    max_leaves=25,
)
EVENT = st.builds(
    lambda kind, members: {**members, "type": kind},
    st.sampled_from(sorted(EVENTS)),
    st.dictionaries(st.sampled_from(tuple(KEYS.split())), JUNK, max_size=4),
)


@settings(max_examples=300)
@given(st.lists(EVENT | JUNK, max_size=4), JUNK, JUNK)
def test_any_json_ends_in_a_response_or_our_error(payloads: list[Any], one: Any, two: Any) -> None:
    for body in (
        sse(*map(json.dumps, payloads)),
        sse(start(), *map(json.dumps, payloads), ending(), STOP),
        sse(start(), event("content_block_start", index=0, content_block=one), STOP),
        sse(start(), HI[0], event("content_block_delta", index=0, delta=one), HI[2], ending(two), STOP),
        json.dumps({"type": "message", "content": [one, two], "usage": one, "stop_reason": two}).encode(),
    ):
        whole = outcome(body)
        assert outcome(body[: len(body) // 2], body[len(body) // 2 :]) == whole


@given(st.binary(max_size=200), st.sampled_from([b"", b"data: ", b"{", sse(start())]))
def test_any_bytes_end_in_our_error_or_a_response(junk: bytes, before: bytes) -> None:
    outcome(before + junk)
