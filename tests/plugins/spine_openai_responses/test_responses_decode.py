"""Answers on the wire to chunks and one response: the same for every cut, and never anything but our own errors."""

import json
import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from responses_made import (
    PROTOCOL,
    TRAITS,
    added,
    answer,
    arguments,
    call,
    calls_of,
    completed,
    created,
    delta,
    done,
    error,
    event,
    failed,
    incomplete,
    message,
    outcome,
    part,
    reasoning,
    response,
    run,
    said,
    shown,
    sse,
)
from wire_trials import FileTrials, bytewise, try_limit

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
from spine.wire import WireLimits
from spine_openai_responses.answer import EVENTS, RULES, State
from spine_openai_responses.decode import responses_decoder

WIRE = pathlib.Path(__file__).parent / "wire"

# -------------------------------------------------------------------------------------------- files, every cut


def text(value: str, **state: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **({"provider_state": state} if state else {})}


def thought(value: str, **state: Any) -> dict[str, Any]:
    return {"type": "thinking", "text": value, "redacted": not value, "provider_state": state}


def called(vendor_id: str, name: str, parsed: Any, raw: str | None = None, **state: Any) -> dict[str, Any]:
    block = {"type": "tool_call", "id": vendor_id, "name": name, "arguments": parsed, "arguments_text": raw}
    return {**block, "provider_state": state} if state else block


def extension(kind: str, data: Any) -> dict[str, Any]:
    return {"type": "extension", "kind": kind, "data": data}


CITED = [{"type": "url_citation", "start_index": 0, "end_index": 4, "url": "https://example.com/a", "title": "A"}]
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "oulu", "sources": None},
}
RUN = {
    "id": "ci_1",
    "type": "code_interpreter_call",
    "status": "completed",
    "code": "1+1",
    "container_id": "cntr_1",
    "outputs": [],
}
ADDED = [thought("**Adding**", id="rs_1", encrypted_content="ENC-1"), thought("Two plus two.", id="rs_1")]
FILES: dict[str, tuple[list[dict[str, Any]], str | None, str | None]] = {
    "text.sse": ([text("Grüße\u2028 🌊!", id="msg_1", phase="final_answer")], "end_turn", None),
    "calls.sse": (
        [
            called("call_a", "weather", {"city": "Oulu"}, id="fc_1"),
            called("call_b", "ping", {}, id="fc_2", namespace="net"),
            called("call_c", "shell", None, "ls -l", id="ctc_3", type="custom_tool_call"),
        ],
        "tool_use",
        None,
    ),
    "reasoning.sse": (
        [
            *ADDED,
            text("Let me see.", id="msg_1", phase="commentary"),
            thought("", id="rs_2", encrypted_content="ENC-2"),
            text("4", id="msg_2", phase="final_answer"),
        ],
        "end_turn",
        None,
    ),
    "tools.sse": (
        [
            extension("web_search_call", SEARCH),
            text("Oulu is cold.", id="msg_1"),
            extension("annotations", CITED),
            extension("code_interpreter_call", RUN),
        ],
        "end_turn",
        None,
    ),
    "failed.sse": ([text("Hello")], None, "overloaded"),
    "cut.sse": ([text("The answer"), called("call_a", "weather", None, '{"city": "Ou')], None, "stream_truncated"),
    "whole.json": (
        [
            *ADDED,
            text("Hi", id="msg_1"),
            extension("annotations", CITED),
            called("call_a", "weather", None, '{"ci', id="fc_1"),
            extension("web_search_call", SEARCH),
        ],
        "max_tokens",
        None,
    ),
}


class TestFiles(FileTrials):
    protocol = PROTOCOL
    folder = WIRE
    files = FILES


def test_what_came_before_an_error_in_the_same_piece_is_handed_out_first() -> None:
    decoder = responses_decoder(TRAITS)
    chunks = decoder.feed(sse(created(), said("Hel"), event("error", code="server_error", message="oh")))
    assert [type(c) for c in chunks] == [ResponseStarted, TextDelta]
    assert decoder.error is not None
    for again in (lambda: decoder.feed(b""), lambda: decoder.feed(sse(completed())), decoder.finish):
        with pytest.raises(ProviderError, match="oh") as caught:
            again()
        assert caught.value is decoder.error


def test_the_last_response_is_the_last_word() -> None:
    decoder = responses_decoder(TRAITS)
    decoder.feed(sse(created(), said("Hi"), done(message("Hi"))))
    assert not decoder.is_done
    decoder.feed(sse(completed()))
    assert decoder.is_done
    assert decoder.finish() == decoder.finish()


# ---------------------------------------------------------------------------------------------------- endings

HI = said("Hi")
PING = {"type": "keepalive", "sequence_number": 3}
ENDS_WELL: dict[str, tuple[tuple[Any, ...], str, str | None]] = {
    "completed": ((created(), HI, completed()), "end_turn", "completed"),
    "nothing before the end": ((completed(message("Hi")),), "end_turn", "completed"),
    "queued first": ((event("queued", response=response("queued")), HI, completed()), "end_turn", "completed"),
    "completed twice": ((HI, completed(), completed()), "end_turn", "completed"),
    "[DONE]": ((HI, completed(), "[DONE]", "[DONE]"), "end_turn", "completed"),
    "pings and additions": (
        (PING, created(), {"type": "vendor.tick"}, HI, {"x": 1}, completed(), PING, {"type": "response.new_thing"}),
        "end_turn",
        "completed",
    ),
    "sequence numbers backwards": (
        ({**created(), "sequence_number": 9}, {**HI, "sequence_number": 9}, {**completed(), "sequence_number": 1}),
        "end_turn",
        "completed",
    ),
    "no status": ((HI, event("completed", response={"usage": None})), "end_turn", "completed"),
    "max output tokens": ((HI, incomplete("max_output_tokens")), "max_tokens", "incomplete:max_output_tokens"),
    "content filter": ((HI, incomplete("content_filter")), "content_filter", "incomplete:content_filter"),
    "a reason nobody knows": ((HI, incomplete("steered")), "unknown", "incomplete:steered"),
    "no reason": ((HI, incomplete(None)), "unknown", "incomplete"),
    "max output tokens with a call": (
        (HI, added(call(), 1), arguments('{"a', 1), incomplete("max_output_tokens")),
        "max_tokens",
        "incomplete:max_output_tokens",
    ),
    "cancelled": ((HI, event("cancelled", response=response("cancelled"))), "unknown", "cancelled"),
    "a call": ((HI, added(call(), 1), done(call("{}"), 1), completed()), "tool_use", "completed"),
    "a refusal": ((delta("refusal", "No.", content_index=0), completed()), "refusal", "completed"),
    "a refusal after text": ((HI, delta("refusal", "No.", content_index=1), completed()), "end_turn", "completed"),
    "nothing said": ((created(), completed()), "end_turn", "completed"),
}


@pytest.mark.parametrize("name", ENDS_WELL)
def test_endings_that_are_complete(name: str) -> None:
    payloads, stop_reason, raw = ENDS_WELL[name]
    result = answer(*payloads)
    assert (result.stop_reason, result.raw_stop_reason) == (stop_reason, raw)
    assert result.message.text in ("Hi", "")


RATE = {"code": "rate_limit_exceeded", "message": "Please try again in 2s."}
ENDS_BADLY: dict[str, tuple[tuple[Any, ...], str]] = {
    "nothing": ((), "stream_truncated"),
    "[DONE] alone": (("[DONE]",), "stream_truncated"),
    "text": ((created(), HI), "stream_truncated"),
    "whole items": ((created(), done(message("Hi"))), "stream_truncated"),
    "text, then [DONE]": ((created(), HI, "[DONE]"), "stream_truncated"),
    "text after the end": ((HI, completed(), HI), "protocol_error"),
    "an item after the end": ((HI, completed(), added(message(), 1)), "protocol_error"),
    "another response after the end": ((HI, completed(), created()), "protocol_error"),
    "another ending": ((HI, completed(), incomplete("max_output_tokens")), "protocol_error"),
    "no JSON": ((HI, "{not json}"), "protocol_error"),
    "a JSON array": ((HI, "[1]"), "protocol_error"),
    "an end without a response": ((HI, event("completed")), "protocol_error"),
    "an item that is none": ((HI, event("output_item.done", item=[])), "protocol_error"),
    "failed": ((HI, failed({"code": "server_error", "message": "x"})), "server_error"),
    "failed without an error": ((HI, failed(None)), "server_error"),
    "failed after the end": ((HI, completed(), failed(RATE)), "rate_limit"),
    "completed with an error": ((HI, completed(error=RATE)), "rate_limit"),
    "a flat error": ((HI, event("error", **RATE, param=None)), "rate_limit"),
    "a nested error": ((HI, event("error", error=RATE)), "rate_limit"),
    "an error without a type": ((HI, {"error": RATE}), "rate_limit"),
    "an unfinished answer with calls": (
        (done(call("{}")), event("cancelled", response=response("cancelled"))),
        "stream_truncated",
    ),
    "two versions of arguments": ((added(call()), arguments('{"a": 1}'), done(call('{"a": 2}'))), "protocol_error"),
    "arguments that part ways": ((added(call()), arguments('{"a'), done(call('{"b": 2}'))), "protocol_error"),
}


@pytest.mark.parametrize("name", ENDS_BADLY)
def test_endings_that_are_failures(name: str) -> None:
    payloads, category = ENDS_BADLY[name]
    assert error(*payloads).category == category


def test_delays_in_the_words_of_a_stream_are_read() -> None:
    assert error(failed(RATE)).retry_after_s == 2.0
    assert error(failed(None)).failure.message == "the provider ended its answer with an error"


def test_usage_of_a_failed_response_is_told() -> None:
    result = shown((WIRE / "failed.sse").read_bytes())
    assert result["usage"]["input_tokens"] == 40
    assert result["error"]["retry_after_s"] == 1.5


def test_an_event_line_names_what_the_data_does_not() -> None:
    body = b'event: response.completed\ndata: {"response": {"id": "r", "output": []}}\n\n'
    assert run(body)[1].response_id == "r"
    failure = run(b'event: error\ndata: {"message": "overloaded"}\n\n')[1]
    assert failure.category == "overloaded"


def test_every_state_has_a_rule_for_failures_and_endings() -> None:
    assert set(RULES) == set(State)
    for rules in RULES.values():
        assert {"error", "response.failed", "response.completed", "response.incomplete", "[DONE]"} <= set(rules)
    assert "response.output_text.delta" in EVENTS
    assert "response.output_text.delta" not in RULES[State.ENDED]


# ------------------------------------------------------------------------------------------------ once and whole


def parted(*indexes: int) -> list[dict[str, Any]]:
    return [said(piece, nth=nth) for nth, piece in zip(indexes, ("It is ", "noon."), strict=True)]


TWO = completed(message("It is ", id="a"), message("noon.", id="b"))
ONCE: dict[str, tuple[tuple[Any, ...], list[str]]] = {
    "deltas alone": ((*parted(0, 0), completed()), ["It is noon."]),
    "all five": (
        (
            added(message()),
            *parted(0, 0),
            event("output_text.done", output_index=0, content_index=0, text="It is noon."),
            event("content_part.done", output_index=0, content_index=0, part=part("It is noon.")),
            done(message("It is noon.")),
            completed(message("It is noon.")),
        ),
        ["It is noon."],
    ),
    "the last response alone": ((created(), completed(message("It is noon."))), ["It is noon."]),
    "the done item alone": ((done(message("It is noon.")), completed()), ["It is noon."]),
    "the done event alone": (
        (event("output_text.done", output_index=0, content_index=0, text="It is noon."), completed()),
        ["It is noon."],
    ),
    "a snapshot that goes on": ((said("It is "), done(message("It is noon.")), completed()), ["It is noon."]),
    "a snapshot that stops early": ((*parted(0, 0), done(message("It is")), completed()), ["It is noon."]),
    "a snapshot with other words": ((*parted(0, 0), done(message("Noon it is.")), completed()), ["It is noon."]),
    "two parts": (
        (*parted(0, 1), done(message("It is ", "noon.")), completed(message("It is ", "noon."))),
        ["It is ", "noon."],
    ),
    "parts counted from 1": ((*parted(1, 1), done(message("It is noon.")), completed()), ["It is noon."]),
    "empty parts": ((said(""), said("noon."), said(None), done(message("noon.", "")), completed()), ["noon."]),
    "no places": (
        (
            added(message(), None),
            {"type": "response.output_text.delta", "item_id": "item_0", "delta": "It is "},
            {"type": "response.output_text.delta", "delta": "noon."},
            {"type": "response.output_item.done", "item": message("It is noon.")},
            completed(),
        ),
        ["It is noon."],
    ),
    "ids that change": (
        (
            added(message(id="a")),
            {**said("It is "), "item_id": "b"},
            {**said("noon."), "item_id": "c"},
            done(message("It is noon.", id="d")),
            completed(message("It is noon.", id="e")),
        ),
        ["It is noon."],
    ),
    "one place for two items": (
        (
            added(message(id="a")),
            said("It is "),
            done(message("It is ", id="a")),
            added(message(id="b")),
            said("noon."),
            done(message("noon.", id="b")),
            completed(message("It is ", id="a"), message("noon.", id="b")),
        ),
        ["It is ", "noon."],
    ),
    "one place for two done items": (
        (done(message("It is ", id="a")), done(message("noon.", id="b")), completed()),
        ["It is ", "noon."],
    ),
    "added twice": ((added(message()), said("It is "), added(message()), said("noon."), completed()), ["It is noon."]),
    "items of which only the last response tells": (
        (
            said("noon.", 1),
            done(message("noon.", id="b"), 1),
            completed(message("It is ", id="a"), message("noon.", id="b")),
        ),
        ["noon.", "It is "],
    ),
}


@pytest.mark.parametrize("name", ONCE)
def test_text_is_said_once_however_often_it_comes(name: str) -> None:
    payloads, expected = ONCE[name]
    body = sse(*payloads)
    result = outcome(body)
    assert [block.text for block in result.message.content] == expected
    assert outcome(*bytewise(body)) == result


def test_items_of_which_only_added_came_are_carried_all_the_same() -> None:
    result = answer(added({**SEARCH, "status": "searching"}), added(call('{"a": 1}'), 1), completed())
    assert [type(block).__name__ for block in result.message.content] == ["ToolCallBlock", "ExtensionBlock"]
    assert calls_of(result) == [("call_a", "f", {"a": 1}, None)]


# ------------------------------------------------------------------------------------------------------ calls

CALLS: dict[str, tuple[tuple[Any, ...], list[tuple[Any, ...]]]] = {
    "interleaved": (
        (
            added(call()),
            added(call(name="g", call_id="call_b", id="item_1"), 1),
            arguments('{"b":', 1),
            arguments('{"a":'),
            arguments("2}", 1),
            arguments("1}"),
        ),
        [("call_a", "f", {"a": 1}, None), ("call_b", "g", {"b": 2}, None)],
    ),
    "whole in added": ((added(call('{"a": 1}')), done(call('{"a": 1}'))), [("call_a", "f", {"a": 1}, None)]),
    "done alone": ((done(call('{"a": 1}')),), [("call_a", "f", {"a": 1}, None)]),
    "arguments.done alone": (
        (added(call()), event("function_call_arguments.done", output_index=0, arguments='{"a": 1}')),
        [("call_a", "f", {"a": 1}, None)],
    ),
    "deltas before the item": (
        (arguments('{"a":'), arguments(" 1}"), done(call('{"a": 1}'))),
        [("call_a", "f", {"a": 1}, None)],
    ),
    "an id that comes late": (
        (added(call(call_id="")), arguments('{"a": 1}'), done(call('{"a": 1}'))),
        [("call_a", "f", {"a": 1}, None)],
    ),
    "no id at all": ((done(call("{}", call_id="")),), [(None, "f", {}, None)]),
    "no name at all": ((added(call(name="")), arguments("{}")), [("call_a", "", {}, None)]),
    "the same in other words": (
        (added(call()), arguments('{"a":1}'), done(call('{ "a": 1 }'))),
        [("call_a", "f", {"a": 1}, None)],
    ),
    "empty arguments": ((added(call()), done(call(""))), [("call_a", "f", {}, None)]),
    "null arguments": ((done({**call(), "arguments": None}),), [("call_a", "f", {}, None)]),
    "arguments as an object": ((done({**call(), "arguments": {"a": 1}}),), [("call_a", "f", {"a": 1}, None)]),
    "arguments that are no object": ((done(call("[1]")),), [("call_a", "f", None, "[1]")]),
    "half arguments": ((added(call()), arguments('{"a')), [("call_a", "f", None, '{"a')]),
    "two in one place": (
        (done(call("{}")), done(call("{}", "g", "call_b", id="item_9"))),
        [("call_a", "f", {}, None), ("call_b", "g", {}, None)],
    ),
    "custom": (
        (done({"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_a", "name": "f", "input": "free text"}),),
        [("call_a", "f", None, "free text")],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_put_together(name: str) -> None:
    payloads, expected = CALLS[name]
    body = sse(*payloads, completed())
    result = outcome(body)
    assert calls_of(result) == expected
    assert result.stop_reason == "tool_use"
    assert outcome(*bytewise(body)) == result


def test_a_call_is_handed_out_when_its_name_and_id_are_known() -> None:
    decoder = responses_decoder(TRAITS)
    assert [type(c) for c in decoder.feed(sse(arguments('{"a":')))] == [ResponseStarted]
    assert decoder.feed(sse(added(call(), 0))) == (
        ToolCallStarted(0, "f", "call_a"),
        ToolCallDelta(0, '{"a":'),
    )


def test_ids_namespaces_and_callers_are_kept_for_the_way_back() -> None:
    item = call("{}", namespace="crm", caller={"type": "program", "id": "p"}, status="completed", item_id="x")
    state = answer(done(item), completed()).message.tool_calls[0].provider_state
    assert state is not None
    assert (state.protocol, state.provider, state.model) == ("openai_responses", "lab", "m")
    assert state.data == {"id": "item_0", "namespace": "crm", "caller": {"type": "program", "id": "p"}}


# ------------------------------------------------------------------------------------------- content and usage


def test_a_summary_beats_content() -> None:
    both = reasoning("Sum.", content=[{"type": "reasoning_text", "text": "All of it."}])
    assert [b["text"] for b in shown(sse(done(both), completed(both)))["content"]] == ["Sum."]
    streamed = delta("reasoning_text", "All of it.", content_index=0)
    content = shown(sse(streamed, done({**both, "id": "item_0"}), completed()))["content"]
    assert [(b["text"], b["provider_state"]) for b in content] == [("All of it.", {"id": "item_0", "content": True})]


def test_encrypted_reasoning_is_kept_only_when_it_is_whole() -> None:
    begun = reasoning(encrypted_content="HALF")
    assert answer(added(begun), completed()).message.content == ()
    (block,) = answer(added(begun), completed(reasoning(encrypted_content="ENC"))).message.content
    assert block.redacted  # type: ignore[union-attr]
    assert block.provider_state is not None
    assert block.provider_state.data == {"id": "rs_1", "encrypted_content": "ENC"}


def test_reasoning_that_says_and_keeps_nothing_is_no_block() -> None:
    assert answer(done(reasoning()), HI, completed()).message.text == "Hi"
    assert len(answer(done(reasoning()), done(message("Hi"), 1), completed()).message.content) == 1


def test_reasoning_parts_may_come_as_content_parts() -> None:
    """OpenRouter ends the reasoning after the message that followed it."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    result = answer(
        added({**item, "content": []}),
        event("content_part.added", output_index=0, content_index=0, part={"type": "reasoning_text", "text": ""}),
        delta("reasoning_text", "Hm.", content_index=0),
        said("Hi", 1),
        event("content_part.done", output_index=0, content_index=0, part=item["content"][0]),  # type: ignore[index]
        done(item),
        completed({**item, "id": "rs_other"}, message("Hi", id="msg_other")),
    )
    assert [getattr(block, "text", None) for block in result.message.content] == ["Hm.", "Hi"]


def test_parts_that_fit_no_block_are_carried() -> None:
    chart = {"type": "output_chart", "rows": [1, 2]}
    content = shown(sse(said("Hi"), done(message("Hi", chart)), completed(message("Hi", chart))))["content"]
    assert content == [text("Hi", id="item_0"), extension("output_chart", chart)]


def test_annotations_follow_their_text_once() -> None:
    cited = part("Hi", annotations=CITED)
    ended = event("content_part.done", output_index=0, content_index=0, part=cited)
    content = shown(sse(said("Hi"), ended, said("!", nth=1), done(message(cited, "!")), completed(message(cited, "!"))))
    assert [block["type"] for block in content["content"]] == ["text", "extension", "text"]


def test_items_of_built_in_tools_are_carried_whole_and_their_steps_are_debug_events() -> None:
    step = event("web_search_call.searching", item_id="ws_1", output_index=0)
    chunks, result = run(sse(added({**SEARCH, "status": "in_progress"}), step, done(SEARCH), completed(SEARCH)))
    assert [c for c in chunks if type(c) is ProviderEvent] == [
        ProviderEvent("response.web_search_call.searching", step)
    ]
    assert [(block.kind, block.data["status"]) for block in result.message.content] == [
        ("web_search_call", "completed")
    ]


@pytest.mark.parametrize("type_", ["mcp_approval_request", "compaction", "item_of_a_later_day", None])
def test_items_nobody_knows_are_carried_too(type_: str | None) -> None:
    item = {"type": type_, "id": "x", "value": None}
    assert shown(sse(done(item), completed(item)))["content"] == [extension(type_ or "item", item)]


def test_the_id_of_the_last_response_counts() -> None:
    """GitHub Copilot has another id in every event."""
    result = answer(created(), HI, completed(id="resp_z9"))
    assert result.response_id == "resp_z9"
    assert result.message.origin is not None
    assert result.message.origin.response_id == "resp_z9"
    assert (result.message.origin.protocol, result.message.origin.route) == ("openai_responses", "lab:m")
    assert answer(created(), HI, event("completed", response={})).response_id == "resp_a1"


USAGES: list[tuple[Any, dict[str, Any]]] = [
    ({"input_tokens": 40, "output_tokens": 10, "total_tokens": 50}, {"input_tokens": 40, "output_tokens": 10}),
    ({"input_tokens": 40, "input_tokens_details": {"cached_tokens": 16}}, {"cache_read_tokens": 16}),
    ({"input_tokens_details": {"cache_write_tokens": 7}}, {"cache_write_tokens": 7, "input_tokens": None}),
    ({"output_tokens_details": {"reasoning_tokens": 4}}, {"reasoning_tokens": 4, "output_tokens": None}),
    ({"input_tokens": None, "input_tokens_details": None}, {"input_tokens": None, "malformed": False}),
    ({"input_tokens": "12"}, {"input_tokens": None, "malformed": True}),
    ("many", {"input_tokens": None, "malformed": True}),
    (None, {"input_tokens": None, "malformed": False}),
]


@pytest.mark.parametrize(("raw", "expected"), USAGES)
def test_usage_is_what_was_reported_and_nothing_else(raw: Any, expected: dict[str, Any]) -> None:
    usage = answer(HI, completed(usage=raw)).usage
    assert {key: getattr(usage, key) for key in expected} == expected


def test_usage_is_told_when_it_comes() -> None:
    one = {"input_tokens": 1}
    chunks, _ = run(sse(event("in_progress", response=response("in_progress", usage=one)), HI, completed(usage=one)))
    assert [c.usage.input_tokens for c in chunks if type(c) is UsageReported] == [1]


def test_state_is_told_when_an_item_ends() -> None:
    chunks, _ = run(sse(HI, done(message("Hi", phase="commentary")), completed()))
    (ended,) = [c for c in chunks if type(c) is BlockEnded]
    assert ended.provider_state is not None
    assert ended.provider_state.data == {"id": "item_0", "phase": "commentary"}


# ------------------------------------------------------------------------------------------ bodies of any kind

BODIES: list[tuple[Any, str | None, str]] = [
    (response("completed", message("Hi")), "end_turn", "completed"),
    (response("completed", call("{}")), "tool_use", "completed"),
    (response("queued"), "unknown", "queued"),
    ({**response("queued"), "output": None}, "unknown", "queued"),
    (response("in_progress"), "unknown", "in_progress"),
    (response("cancelled", message("Hi")), "unknown", "cancelled"),
    (response("complete", message("Hi")), "unknown", "complete"),
    (
        response("incomplete", incomplete_details={"reason": "content_filter"}),
        "content_filter",
        "incomplete:content_filter",
    ),
    (response("failed", error=RATE), None, "rate_limit"),
    (response("failed"), None, "server_error"),
    (response("in_progress", call("{}")), None, "stream_truncated"),
    ({"error": RATE}, None, "rate_limit"),
    ({"code": "x", "error": "Too many requests"}, None, "rate_limit"),
    ({"object": "error", "message": "overloaded"}, None, "overloaded"),
    ({"detail": "Unauthorized"}, None, "server_error"),
    ({"choices": []}, None, "protocol_error"),
    ([], None, "protocol_error"),
    ({}, None, "protocol_error"),
]


@pytest.mark.parametrize(("body", "stop_reason", "word"), BODIES)
def test_bodies_that_are_one_object(body: Any, stop_reason: str | None, word: str) -> None:
    result = shown(json.dumps(body).encode())
    assert result["stop_reason"] == stop_reason
    assert (result["raw_stop_reason"] or result["error"]["category"]) == word


NO_ANSWERS = [
    (b"", "stream_truncated", True),
    (b" \n ", "stream_truncated", True),
    (b": keep-alive\n\n", "stream_truncated", True),
    (b"<html>log in</html>", "protocol_error", False),
    (b"hello there", "protocol_error", False),
    (b'{"id": "resp_1", "output": [', "protocol_error", True),
]


@pytest.mark.parametrize(("body", "category", "retryable"), NO_ANSWERS)
def test_bodies_that_are_no_answer(body: bytes, category: str, retryable: bool) -> None:
    _, end = outcome(body)
    assert (end.category, end.retryable) == (category, retryable)


LIMITS = WireLimits(line_bytes=700, event_bytes=700, response_bytes=2000, blocks=5, calls=3, arguments_chars=50)
TOO_MUCH = {
    "line": sse(said("x" * 800)),
    "calls": sse(*(added(call(id=f"i{i}"), i) for i in range(4))),
    "blocks": sse(*(said("x", 0, i) for i in range(6))),
    "items": sse(*(added(message(id=f"i{i}"), i) for i in range(6))),
    "arguments": sse(added(call()), *(arguments("x" * 9) for _ in range(9))),
    "JSON answer": b'{"x": "' + b"x" * 3000,
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_limits_end_the_answer(what: str) -> None:
    try_limit(lambda: responses_decoder(TRAITS, LIMITS), TOO_MUCH[what], what)


# ------------------------------------------------------------------------------------------------------- fuzz

KEYS = """
    id type output_index content_index summary_index item_id delta text refusal arguments input item part content
    summary encrypted_content name call_id annotations response output status model usage error incomplete_details
"""
WORDS = ["", "x", "message", "reasoning", "function_call", "custom_tool_call", "output_text", "refusal", "summary_text"]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([*WORDS, "reasoning_text", "completed", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(tuple(KEYS.split())), inner, max_size=6)
    ),
    max_leaves=25,
)
KINDS = st.sampled_from([*sorted(EVENTS), "keepalive"])


@settings(max_examples=300)
@given(st.lists(st.tuples(KINDS, JUNK), max_size=5), JUNK)
def test_any_json_ends_in_a_response_or_our_error(events: list[tuple[str, Any]], output: Any) -> None:
    payloads = [{**(junk if isinstance(junk, dict) else {"item": junk}), "type": kind} for kind, junk in events]
    for body in (
        sse(*payloads, completed()),
        sse(*payloads, event("completed", response={"status": "completed", "output": output})),
        json.dumps({"status": "completed", "output": output}).encode(),
        json.dumps(output).encode(),
    ):
        whole = outcome(body)
        half = len(body) // 2 or 1
        assert outcome(body[:half], body[half:]) == whole


@given(st.binary(max_size=200), st.sampled_from([b"", b"data: ", b"{", sse(HI)]))
def test_any_bytes_end_in_our_error_or_a_response(junk: bytes, before: bytes) -> None:
    outcome(before + junk)


def test_the_protocol_hands_out_its_decoder_and_reads_errors() -> None:
    assert PROTOCOL.name == "openai_responses"
    failure = PROTOCOL.classify(429, {}, b'{"error": {"code": "insufficient_quota", "message": "x"}}', now=0.0)
    assert failure.category == "billing"
