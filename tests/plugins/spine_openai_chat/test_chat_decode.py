"""Answers on the wire to chunks and one response: the same for every cut, and never anything but our own errors."""

import json
import pathlib
from typing import Any

import pytest
import wire_trials
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_trials import FileTrials, try_limit

from spine.llm.catalogue import Traits
from spine.llm.chunks import (
    BlockEnded,
    ProviderEvent,
    ResponseStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from spine.llm.errors import ProviderError
from spine.llm.response import ModelResponse
from spine.wire import WireLimits, decode_captured
from spine_openai_chat.answer import RULES, State
from spine_openai_chat.decode import chat_decoder
from spine_openai_chat.protocol import OpenAIChat

WIRE = pathlib.Path(__file__).parent / "wire"
TRAITS = Traits(provider="lab", protocol="openai_chat", model="m")
PROTOCOL = OpenAIChat()


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {"id": "chatcmpl-a1", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice], **more}


def call(arguments: Any = None, name: Any = None, **more: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return chunk({"tool_calls": [{"function": function, **more}]})


def sse(*payloads: Any) -> bytes:
    lines = (payload if isinstance(payload, str) else json.dumps(payload) for payload in payloads)
    return "".join(f"data: {line}\n\n" for line in lines).encode()


TEXT = chunk({"content": "Hi"})
STOP = chunk({}, "stop")
DONE = "[DONE]"


def run(*pieces: bytes, traits: Traits = TRAITS, limits: WireLimits | None = None) -> tuple[list[Any], Any]:
    """All chunks, and the response or the error."""
    return wire_trials.run(lambda: chat_decoder(traits, limits), *pieces)


def outcome(*pieces: bytes) -> Any:
    """What must not depend on the cuts: the folded message and how it ended."""
    return wire_trials.outcome(lambda: chat_decoder(TRAITS), *pieces)


def shown(body: bytes, traits: Traits = TRAITS) -> dict[str, Any]:
    return decode_captured(PROTOCOL, {"status": 200, "headers": {}, "body": body}, traits)


def answer(*payloads: Any, traits: Traits = TRAITS) -> ModelResponse:
    end = run(sse(*payloads), traits=traits)[1]
    assert isinstance(end, ModelResponse), end
    return end


def error(*payloads: Any, traits: Traits = TRAITS) -> ProviderError:
    end = run(sse(*payloads), traits=traits)[1]
    assert isinstance(end, ProviderError), end
    return end


def calls_of(response: ModelResponse) -> list[tuple[Any, ...]]:
    return [(c.vendor_id, c.name, c.arguments, c.arguments_text) for c in response.message.tool_calls]


# -------------------------------------------------------------------------------------------- files, every cut

FILES = {
    "text.sse": ([{"type": "text", "text": "Grüße\u2028 🌊!"}], "end_turn", None),
    "calls.sse": (
        [
            {"type": "text", "text": "Let me look."},
            {
                "type": "tool_call",
                "id": "call_a",
                "name": "weather",
                "arguments": {"city": "Oulu"},
                "arguments_text": None,
            },
            {"type": "tool_call", "id": "call_b", "name": "ping", "arguments": {}, "arguments_text": None},
        ],
        "tool_use",
        None,
    ),
    "reasoning.sse": (
        [
            {
                "type": "thinking",
                "text": "Two plus",
                "redacted": False,
                "provider_state": {
                    "reasoning_details": [
                        {"type": "reasoning.text", "index": 0, "text": "Two plus", "signature": "c2ln"}
                    ]
                },
            },
            {"type": "text", "text": "4"},
        ],
        "end_turn",
        None,
    ),
    "error.sse": ([{"type": "text", "text": "Hello"}], None, "server_error"),
    "cut.sse": (
        [
            {"type": "text", "text": "The answer"},
            {"type": "tool_call", "id": "call_a", "name": "rm", "arguments": None, "arguments_text": '{"path": "/tm'},
        ],
        None,
        "stream_truncated",
    ),
    "whole.json": (
        [
            {"type": "thinking", "text": "Greet.", "redacted": False},
            {"type": "text", "text": "Hi"},
            {"type": "tool_call", "id": "call_a", "name": "ping", "arguments": {}, "arguments_text": None},
            {"type": "extension", "kind": "citations", "data": ["https://example.com/a"]},
        ],
        "tool_use",
        None,
    ),
}


class TestFiles(FileTrials):
    protocol = PROTOCOL
    folder = WIRE
    files = FILES


def test_what_came_before_an_error_in_the_same_piece_is_handed_out_first() -> None:
    decoder = chat_decoder(TRAITS)
    chunks = decoder.feed(sse(TEXT, {"error": {"message": "overloaded"}}))
    assert [type(c) for c in chunks] == [ResponseStarted, TextDelta]
    assert decoder.error is not None
    with pytest.raises(ProviderError, match="overloaded"):
        decoder.feed(b"")


def test_after_an_error_every_call_raises_it() -> None:
    decoder = chat_decoder(TRAITS)
    with pytest.raises(ProviderError) as first:
        decoder.feed(sse({"error": {"message": "overloaded"}}))
    for again in (lambda: decoder.feed(sse(TEXT)), decoder.finish):
        with pytest.raises(ProviderError) as caught:
            again()
        assert caught.value is first.value is decoder.error


def test_done_is_said_so_that_nobody_waits_for_the_end_of_the_body() -> None:
    decoder = chat_decoder(TRAITS)
    decoder.feed(sse(TEXT, STOP))
    assert not decoder.is_done
    decoder.feed(sse(DONE))
    assert decoder.is_done
    assert decoder.finish() == decoder.finish()


# ---------------------------------------------------------------------------------------------------- endings

ENDS_WELL: dict[str, tuple[tuple[Any, ...], str, str | None]] = {
    "finish and done": ((TEXT, STOP, DONE), "end_turn", "stop"),
    "finish without done": ((TEXT, STOP), "end_turn", "stop"),
    "done without finish, after text": ((TEXT, DONE), "unknown", None),
    "the same finish twice": ((TEXT, STOP, STOP, DONE), "end_turn", "stop"),
    "done twice": ((TEXT, STOP, DONE, DONE), "end_turn", "stop"),
    "empty deltas after the end": ((TEXT, STOP, chunk({"role": "assistant", "content": ""}), DONE), "end_turn", "stop"),
    "usage after done": ((TEXT, STOP, DONE, chunk({}, None, usage={"prompt_tokens": 1})), "end_turn", "stop"),
    "no choices after the end": ((TEXT, STOP, {"choices": [], "usage": None}, DONE), "end_turn", "stop"),
    "unknown objects": (({"ping": 1}, TEXT, {"type": "vendor.ping"}, STOP), "end_turn", "stop"),
    "an empty finish is none": ((chunk({"content": "Hi"}, ""), chunk({}, "stop")), "end_turn", "stop"),
    "length": ((TEXT, chunk({}, "length")), "max_tokens", "length"),
    "content filter": ((TEXT, chunk({}, "content_filter")), "content_filter", "content_filter"),
    "model length": ((TEXT, chunk({}, "model_length")), "context_window", "model_length"),
    "a word nobody knows": ((TEXT, chunk({}, "weather")), "unknown", "weather"),
    "a finish that is no text": ((TEXT, chunk({}, 7)), "unknown", "7"),
    "tool_calls without calls": ((TEXT, chunk({}, "tool_calls")), "unknown", "tool_calls"),
    "stop with calls": ((call("{}", "f", index=0), STOP), "tool_use", "stop"),
    "length with calls": ((call("{", "f", index=0), chunk({}, "length")), "max_tokens", "length"),
    "refusal": ((chunk({"refusal": "No."}), STOP), "refusal", "stop"),
    "nothing said": ((chunk({"role": "assistant"}), STOP), "end_turn", "stop"),
    "other choices are not read": (
        (TEXT, {"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "length"}]}, STOP),
        "end_turn",
        "stop",
    ),
}


@pytest.mark.parametrize("name", ENDS_WELL)
def test_endings_that_are_complete(name: str) -> None:
    payloads, stop_reason, raw = ENDS_WELL[name]
    response = answer(*payloads)
    assert (response.stop_reason, response.raw_stop_reason) == (stop_reason, raw)
    assert response.message.text in ("Hi", "")


ENDS_BADLY: dict[str, tuple[tuple[Any, ...], str]] = {
    "nothing": ((), "stream_truncated"),
    "done first": ((DONE,), "stream_truncated"),
    "role alone": ((chunk({"role": "assistant"}), DONE), "stream_truncated"),
    "text": ((TEXT,), "stream_truncated"),
    "thinking, then done": ((chunk({"reasoning": "x"}), DONE), "stream_truncated"),
    "an open call, then done": ((TEXT, call("{}", "f", index=0), DONE), "stream_truncated"),
    "content after finish": ((TEXT, STOP, TEXT), "protocol_error"),
    "content after done": ((TEXT, STOP, DONE, TEXT), "protocol_error"),
    "a call after finish": ((TEXT, STOP, call("{}", "f", index=0)), "protocol_error"),
    "another finish": ((TEXT, STOP, chunk({}, "length")), "protocol_error"),
    "another finish after done": ((TEXT, DONE, chunk({}, "stop")), "protocol_error"),
    "no JSON": ((TEXT, "{not json}"), "protocol_error"),
    "a JSON array": ((TEXT, "[1]"), "protocol_error"),
    "an error": ((TEXT, {"error": {"message": "x", "type": "server_error"}}), "server_error"),
    "an error after finish": ((TEXT, STOP, {"error": {"message": "x", "type": "server_error"}}), "server_error"),
    "an error inside the choice": (
        ({"choices": [{"index": 0, "delta": {"content": ""}, "error": {"code": 502, "message": "x"}}]},),
        "server_error",
    ),
    "finish error": ((TEXT, chunk({}, "error")), "server_error"),
    "finish for lack of resources": ((TEXT, chunk({}, "insufficient_system_resource")), "overloaded"),
    "an error without error": (({"object": "error", "message": "Too many requests", "code": 429},), "rate_limit"),
    "an error in a vendor field": ((TEXT, chunk({}, None, x_groq={"error": "over capacity"})), "overloaded"),
}


@pytest.mark.parametrize("name", ENDS_BADLY)
def test_endings_that_are_failures(name: str) -> None:
    payloads, category = ENDS_BADLY[name]
    assert error(*payloads).category == category


def test_null_errors_are_none() -> None:
    assert answer(chunk({"content": "Hi"}, None, error=None), chunk({}, "stop", error={})).stop_reason == "end_turn"


def test_an_event_named_error_is_one_without_saying_so() -> None:
    body = b'event: error\ndata: {"message": "overloaded", "code": "x"}\n\n'
    result = run(body)[1]
    assert isinstance(result, ProviderError)
    assert result.category == "overloaded"


def test_a_target_known_to_end_with_done_may_end_with_calls_too() -> None:
    traits = Traits(provider="lab", model="m", terminal="done")
    response = answer(call('{"a": 1}', "f", index=0), DONE, traits=traits)
    assert (response.stop_reason, calls_of(response)) == ("tool_use", [(None, "f", {"a": 1}, None)])


def test_every_state_has_a_rule_for_errors_usage_and_done() -> None:
    assert set(RULES) == set(State)
    for rules in RULES.values():
        assert {"error", "usage", "done", "finish"} <= set(rules)


# ------------------------------------------------------------------------------------------------------ calls

CALLS: dict[str, tuple[tuple[Any, ...], list[tuple[Any, ...]]]] = {
    "no index: a new id begins a call": (
        (call('{"a":', "f", id="a"), call("1}"), call('{"b":2}', "g", id="b")),
        [("a", "f", {"a": 1}, None), ("b", "g", {"b": 2}, None)],
    ),
    "no index, no id: a name after whole arguments begins a call": (
        (call('{"a":1}', "f"), call('{"a":2}', "f"), call("{}", "g")),
        [(None, "f", {"a": 1}, None), (None, "f", {"a": 2}, None), (None, "g", {}, None)],
    ),
    "one index for parallel calls": (
        (call('{"a":1}', "f", index=0, id="a"), call('{"a":2}', "f", index=0, id="b")),
        [("a", "f", {"a": 1}, None), ("b", "f", {"a": 2}, None)],
    ),
    "interleaved": (
        (
            call('{"a":', "f", index=0, id="a"),
            call('{"b":', "g", index=1, id="b"),
            call("1}", index=0),
            call("2}", index=1),
        ),
        [("a", "f", {"a": 1}, None), ("b", "g", {"b": 2}, None)],
    ),
    "another id in each delta, without name": (
        (call('{"a":', "f", index=0, id="a"), call("1}", index=0, id="b")),
        [("a", "f", {"a": 1}, None)],
    ),
    "index with gaps and out of order": (
        (call("{}", "f", index=7, id="a"), call("{}", "g", index=2, id="b")),
        [("a", "f", {}, None), ("b", "g", {}, None)],
    ),
    "name in pieces": (
        (call("", "read_", index=0, id="a"), call("{}", "note", index=0)),
        [("a", "read_note", {}, None)],
    ),
    "name in pieces after the arguments began": (
        (call("{", "read_", index=0, id="a"), call("}", "note", index=0)),
        [("a", "read_note", {}, None)],
    ),
    "name again": ((call("", "f", index=0, id="a"), call("{}", "f", index=0, id="a")), [("a", "f", {}, None)]),
    "name after the arguments": (
        (call('{"a":', index=0, id="a"), call("", "f", index=0), call("1}", index=0)),
        [("a", "f", {"a": 1}, None)],
    ),
    "id after the arguments": ((call("{", "f", index=0), call("}", index=0, id="a")), [("a", "f", {}, None)]),
    "no name at all": ((call("{}", index=0, id="a"),), [("a", "", {}, None)]),
    "empty arguments": ((call("", "f", index=0, id="a"),), [("a", "f", {}, None)]),
    "blank arguments": ((call("  \n", "f", index=0, id="a"),), [("a", "f", {}, None)]),
    "null arguments": (
        (chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": None}}]}),),
        [("a", "f", {}, None)],
    ),
    "arguments as an object": ((call({"a": 1}, "f", index=0, id="a"),), [("a", "f", {"a": 1}, None)]),
    "arguments that are no object": ((call("[1]", "f", index=0, id="a"),), [("a", "f", None, "[1]")]),
    "half arguments": ((call('{"a', "f", index=0, id="a"),), [("a", "f", None, '{"a')]),
    "duplicate keys": ((call('{"a":1,"a":2}', "f", index=0, id="a"),), [("a", "f", None, '{"a":1,"a":2}')]),
    "ids repeat": (
        (call("{}", "f", index=0, id="a"), call("{}", "g", index=1, id="a")),
        [("a", "f", {}, None), ("a", "g", {}, None)],
    ),
    "ids that are numbers": ((call("{}", "f", index=0, id=0),), [("0", "f", {}, None)]),
    "legacy function_call": (
        (chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": "{}"}})),
        [(None, "f", {}, None)],
    ),
    "custom": (
        (chunk({"tool_calls": [{"index": 0, "id": "a", "custom": {"name": "f", "input": "free text"}}]}),),
        [("a", "f", None, "free text")],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_put_together(name: str) -> None:
    payloads, expected = CALLS[name]
    body = sse(*payloads, chunk({}, "tool_calls"), DONE)
    response = outcome(body)
    assert calls_of(response) == expected
    assert len({c.id for c in response.message.tool_calls}) == len(expected)
    assert outcome(*(body[i : i + 1] for i in range(len(body)))) == response


def test_a_call_is_not_passed_on_before_its_name_is_known() -> None:
    decoder = chat_decoder(TRAITS)
    assert not [c for c in decoder.feed(sse(call("{", index=0, id="a"))) if type(c) is not ResponseStarted]
    assert decoder.feed(sse(call("}", "f", index=0))) == (
        ToolCallStarted(0, "f", "a"),
        ToolCallDelta(0, "{"),
        ToolCallDelta(0, "}"),
    )


def test_calls_of_a_whole_answer_are_told_apart_by_their_place() -> None:
    calls = [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}] * 2
    body = json.dumps({"choices": [{"message": {"content": None, "tool_calls": calls}, "finish_reason": ""}]}).encode()
    response = outcome(body)
    assert [c.name for c in response.message.tool_calls] == ["f", "f"]
    assert (response.stop_reason, response.raw_stop_reason) == ("tool_use", None)


# ------------------------------------------------------------------------------------------- content and usage


def test_two_names_for_reasoning_are_one() -> None:
    response = answer(chunk({"reasoning": "a", "reasoning_content": "a"}), TEXT, STOP)
    assert [type(block).__name__ for block in response.message.content] == ["ThinkingBlock", "TextBlock"]
    assert response.message.content[0].text == "a"  # type: ignore[union-attr]


def test_content_lists_become_blocks_in_order() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm. "}, {"type": "text", "text": "Yes."}]},
        {"type": "text", "text": "Look: "},
        {"type": "reference", "reference_ids": [1]},
        {"type": "image_url", "image_url": {"url": "data:image/webp;base64,AAAA"}},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Done."}]},
        {"type": "text", "text": ""},
        "stray",
        {"type": "text", "text": 3},
    ]
    content = shown(sse(chunk({"content": parts}), STOP))["content"]
    assert [(block["type"], block.get("text")) for block in content] == [
        ("thinking", "Hm. Yes."),
        ("text", "Look: "),
        ("extension", None),
        ("image", None),
        ("thinking", "Done."),
    ]


def test_what_the_provider_added_is_carried_once() -> None:
    first = chunk({"content": "a", "annotations": [{"url": 1}]}, None, citations=["x"])
    last = chunk({"annotations": [{"url": 2}], "images": [{"image_url": {"url": "https://example.com/i.png"}}]}, None)
    content = shown(sse(first, last, {**STOP, "citations": ["x", "y"]}, DONE))["content"]
    assert content[1:] == [
        {"type": "image", "media_type": "image/png", "url": "https://example.com/i.png"},
        {"type": "extension", "kind": "annotations", "data": [{"url": 1}, {"url": 2}]},
        {"type": "extension", "kind": "citations", "data": ["x", "y"]},
    ]


def test_sound_in_pieces_is_one_block() -> None:
    pieces = [
        {"id": "audio_1", "data": "QQ==", "transcript": "He"},
        {"data": "Qg==", "transcript": "llo"},
        {"data": ""},
    ]
    content = shown(sse(*(chunk({"audio": piece}) for piece in pieces), STOP))["content"]
    assert content == [{"type": "audio", "media_type": "audio/wav", "data": "QUI=", "transcript": "Hello"}]


def test_a_signature_on_a_call_stays_with_the_call() -> None:
    item = {
        "index": 0,
        "id": "a",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"s": "x"}},
    }
    response = answer(chunk({"tool_calls": [item]}), STOP)
    state = response.message.tool_calls[0].provider_state
    assert state is not None
    assert (state.protocol, state.provider, state.model) == ("openai_chat", "lab", "m")
    assert state.data == {"extra_content": {"google": {"s": "x"}}}


def test_encrypted_reasoning_without_text_keeps_its_place() -> None:
    details = [{"type": "reasoning.encrypted", "index": 0, "data": "ENC"}]
    chunks, response = run(sse(chunk({"content": "", "reasoning_details": details}), TEXT, STOP))
    assert response.message.content[0].text == ""
    assert response.message.content[0].provider_state.data == {"reasoning_details": tuple(details)}
    assert [c.index for c in chunks if type(c) is BlockEnded] == [0]


def test_unknown_objects_are_told_to_whoever_debugs_and_nothing_else() -> None:
    chunks, response = run(sse({"type": "vendor.ping", "n": 1}, TEXT, {"object": "tick"}, STOP))
    assert [c for c in chunks if type(c) is ProviderEvent] == [
        ProviderEvent("vendor.ping", {"type": "vendor.ping", "n": 1}),
        ProviderEvent("tick", {"object": "tick"}),
    ]
    assert response.message.text == "Hi"


def test_a_stream_without_names_says_once_that_it_began() -> None:
    bare = {"choices": [{"delta": {"content": "a"}}]}
    chunks, response = run(sse(bare, bare, {"choices": [{"finish_reason": "stop"}]}))
    assert chunks[0] == ResponseStarted()
    assert [type(c) for c in chunks[1:]] == [TextDelta, TextDelta]
    assert (response.model, response.response_id) == (None, None)


def test_origin_model_and_id_are_the_first_that_are_not_empty() -> None:
    azure = {"id": "", "model": "", "choices": [], "prompt_filter_results": []}
    response = answer(azure, TEXT, {**STOP, "model": "m-2"})
    assert (response.model, response.response_id) == ("m-1", "chatcmpl-a1")
    origin = response.message.origin
    assert origin is not None
    assert (origin.protocol, origin.route, origin.model) == ("openai_chat", "lab:m", "m-1")


USAGE: list[tuple[Any, dict[str, Any]]] = [
    ({"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}, {"input_tokens": 40, "output_tokens": 10}),
    ({"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 16}}, {"cache_read_tokens": 16}),
    ({"prompt_tokens": 40, "prompt_cache_hit_tokens": 3}, {"cache_read_tokens": 3}),
    ({"prompt_tokens": 40, "cached_tokens": 0}, {"cache_read_tokens": 0}),
    ({"prompt_tokens_details": {"cache_write_tokens": 7}}, {"cache_write_tokens": 7}),
    ({"completion_tokens_details": {"reasoning_tokens": 4}}, {"reasoning_tokens": 4}),
    ({"prompt_tokens": 12.0}, {"input_tokens": 12, "malformed": False}),
    ({"prompt_tokens": None, "prompt_tokens_details": None}, {"input_tokens": None, "malformed": False}),
    ({"prompt_tokens": "12"}, {"input_tokens": None, "malformed": True}),
    ({"prompt_tokens": -1}, {"input_tokens": None, "malformed": True}),
    ({"prompt_tokens": True}, {"input_tokens": None, "malformed": True}),
    ({"prompt_tokens": 1.5}, {"input_tokens": None, "malformed": True}),
    ({"prompt_tokens": 10**30}, {"input_tokens": None, "malformed": True}),
    ({"prompt_tokens_details": "x", "prompt_tokens": 1}, {"input_tokens": 1, "cache_read_tokens": None}),
    ("many", {"input_tokens": None, "malformed": True}),
]


@pytest.mark.parametrize(("raw", "expected"), USAGE)
def test_usage_is_what_was_reported_and_nothing_else(raw: Any, expected: dict[str, Any]) -> None:
    usage = answer(TEXT, STOP, {"choices": [], "usage": raw}, DONE).usage
    assert {key: getattr(usage, key) for key in expected} == expected
    assert usage.output_tokens == expected.get("output_tokens")


def test_the_last_usage_counts_and_repeats_are_not_reported_again() -> None:
    one, two = {"prompt_tokens": 1}, {"prompt_tokens": 2}
    chunks, response = run(sse({**TEXT, "usage": one}, {**STOP, "usage": one}, {"choices": [], "usage": two}, DONE))
    assert [c.usage.input_tokens for c in chunks if type(c) is UsageReported] == [1, 2]
    assert response.usage.input_tokens == 2


def test_usage_in_vendor_fields_counts_when_there_is_no_other() -> None:
    assert answer(TEXT, {**STOP, "x_groq": {"usage": {"prompt_tokens": 18}}}).usage.input_tokens == 18
    both = answer({**TEXT, "usage": {"prompt_tokens": 1}}, {**STOP, "x_groq": {"usage": {"prompt_tokens": 18}}})
    assert both.usage.input_tokens == 1
    inner = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 9}}]}
    assert answer(TEXT, inner).usage.input_tokens == 9


def test_no_usage_is_none() -> None:
    usage = answer(TEXT, STOP).usage
    assert usage.input_tokens is None
    assert not usage.malformed


# ------------------------------------------------------------------------------------------ bodies of any kind

BODIES = [
    (b"", "stream_truncated", True),
    (b"   \n ", "stream_truncated", True),
    (b": keep-alive\n\n: keep-alive\n\n", "stream_truncated", True),
    (b"<html>log in</html>", "protocol_error", False),
    (b"hello there", "protocol_error", False),
    (b"null", "protocol_error", False),
    (b'"x"', "protocol_error", False),
    (b"[]", "protocol_error", False),
    (b"{}", "protocol_error", False),
    (b'{"choices": []}', "protocol_error", False),
    (b'{"choices": [{"index": 0, "message": {"content": "x"}', "protocol_error", True),
    (b'{"error": {"message": "Internal Server Error", "code": 500}}', "server_error", True),
    (b'[{"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}]', "overloaded", True),
    (b'{"detail": "Unauthorized"}', "server_error", True),
    (b"data: {not json}\n\n", "protocol_error", True),
]


@pytest.mark.parametrize(("body", "category", "retryable"), BODIES)
def test_bodies_that_are_no_answer(body: bytes, category: str, retryable: bool) -> None:
    _, end = outcome(body)
    assert (end.category, end.retryable) == (category, retryable)
    assert outcome(*(body[i : i + 1] for i in range(len(body)))) == outcome(body)


def test_a_whole_message_inside_an_event_stream_is_read() -> None:
    response = answer({"id": "a", "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]})
    assert response.message.text == "Hi"


def test_a_structured_answer_that_is_an_object_becomes_a_json_block() -> None:
    body = b'{"choices": [{"message": {"role": "assistant", "content": {"name": "Em"}}, "finish_reason": "stop"}]}'
    assert shown(body)["content"] == [{"type": "json", "value": {"name": "Em"}}]


LIMITS = WireLimits(line_bytes=500, event_bytes=500, response_bytes=2000, blocks=5, calls=3, arguments_chars=50)
TOO_MUCH = {
    "line": sse(chunk({"content": "x" * 600})),
    "calls": sse(*(call("{}", "f", index=i) for i in range(4))),
    "blocks": sse(*(chunk({key: "x"}) for key in ("content", "reasoning") * 3)),
    "arguments": sse(call("{", "f", index=0), *(call("x" * 9, index=0) for _ in range(9))),
    "JSON answer": b'{"x": "' + b"x" * 3000,
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_limits_end_the_answer(what: str) -> None:
    try_limit(lambda: chat_decoder(TRAITS, LIMITS), TOO_MUCH[what], what)


# ------------------------------------------------------------------------------------------------------- fuzz

KEYS = """
    id model choices index delta message content finish_reason tool_calls function name arguments type text usage
    prompt_tokens error reasoning_details audio data images image_url url x_groq citations refusal reasoning custom
"""
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "x", "stop", "{}", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(tuple(KEYS.split())), inner, max_size=5)
    ),
    max_leaves=25,
)


@settings(max_examples=300)
@given(st.lists(JUNK, max_size=3), JUNK, JUNK)
def test_any_json_ends_in_a_response_or_our_error(payloads: list[Any], delta: Any, choices: Any) -> None:
    for body in (
        sse(*map(json.dumps, payloads)),
        sse(chunk(delta), STOP),
        sse({"choices": choices}, STOP),
        json.dumps({"choices": [{"message": delta, "finish_reason": "stop"}]}).encode(),
        json.dumps({"choices": choices}).encode(),
    ):
        whole = outcome(body)
        assert outcome(body[: len(body) // 2], body[len(body) // 2 :]) == whole


@given(st.binary(max_size=200), st.sampled_from([b"", b"data: ", b"{", sse(TEXT)]))
def test_any_bytes_end_in_our_error_or_a_response(junk: bytes, before: bytes) -> None:
    outcome(before + junk)
