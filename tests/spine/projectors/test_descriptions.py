"""What `spine log` says of each event: a table of events and their lines, alone and in the course of a log."""

from typing import Any

import attrs
import pytest
from handwritten import AGENT, CUT, RATE_LIMIT, REFUND, Log, asked, call, committed, message, requested, result, started

from spine.events import (
    CORE_EVENTS,
    ApprovalDecided,
    CancelRequested,
    ContentAdded,
    ContentErased,
    FieldChange,
    HistoryCompacted,
    HookFailed,
    InputAccepted,
    InputDelivered,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelChunks,
    Patch,
    Repeats,
    SessionCreated,
    SessionForked,
    SessionRenamed,
    SessionResumed,
    Splice,
    StepFailed,
    ToolProgress,
    ToolResolved,
    ToolRevised,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    TurnSuspended,
    UnknownEvent,
    WireCaptured,
)
from spine.llm import chunks as c
from spine.llm.errors import Failure
from spine.llm.usage import Cost, Usage
from spine.messages import ImageBlock, Message, TextBlock, ToolResultBlock, user_message
from spine.projectors import describe, log_lines
from spine.tools import ToolError
from spine.values import CallId, Digest, JsonObject, SessionId, TurnId, digest

ORDERS = Patch(plugin="orders@0.3.0", changes=(FieldChange(field="temperature", value=1),))


def decided_by(plugin: str, decision: str = "ask") -> Patch:
    """What a plugin decided about a call; its arguments stay."""
    return Patch(plugin=plugin, changes=(FieldChange(field="decision", value=decision),))


NOTED = (
    c.ResponseStarted(),
    c.TextDelta(0, "Hello"),
    c.TextDelta(0, "."),
    c.ThinkingDelta(1, "x"),
    c.ToolCallStarted(2, "f"),
    c.ToolCallDelta(2, "{}"),
    c.RefusalDelta(3, "no"),
)
REVISED = ToolResultBlock(call_id=CallId("t1s1c1"), name="f", content=(TextBlock(text="é"),))
LONG = "x" * 200
BROKEN = ToolError(kind="exception", message="m")

LINES: list[tuple[Any, str]] = [
    (SessionCreated(agent=AGENT), "agent refunds · contract cc8321d6"),
    (
        SessionCreated(agent=AGENT, scope="acme", title="A\nB", versions={"spine": "0.1", "orders": "0.3"}),
        'agent refunds · contract cc8321d6 · scope acme · "A\\nB" · orders 0.3, spine 0.1',
    ),
    (SessionResumed(agent=AGENT), "agent refunds · nothing changed"),
    (SessionResumed(agent=AGENT, changes=("one", "a\nb")), "agent refunds · one; a\\nb"),
    (SessionForked(parent=SessionId("p"), seq=12, hash="0123456789ab"), "from p at seq 12 · 01234567"),
    (SessionRenamed(title="A title"), '"A title"'),
    (ContentErased(reason="asked for", events={"4": "1:ab"}, by="dpo"), 'seq 4 · "asked for" · by dpo'),
    (ContentErased(reason="a\nb", contents={"1:0123456789abcdef": "1:ab"}), 'content 1:0123456789ab · "a\\nb"'),
    (InputAccepted(message=user_message("Hé\nyou")), 'user · queue · 7 bytes · "Hé\\nyou"'),
    (
        InputAccepted(message=user_message(LONG, kind="memory"), delivery="steer", surrogates_replaced=True),
        f'memory · steer · 200 bytes · "{"x" * 59}…" · lone surrogates replaced',
    ),
    (
        InputAccepted(message=Message(role="user", content=(ImageBlock(url="https://x"),)), delivery="interrupt"),
        "user · interrupt · 34 bytes",
    ),
    (InputDelivered(inputs=(2, 4)), "input 2, 4 · at the start of a turn"),
    (InputDelivered(inputs=(2,), place="step"), "input 2 · at the start of a step"),
    (TurnStarted(inputs=(2,)), "input 2"),
    (
        TurnStarted(repeats=Repeats(turn=TurnId("t1")), overrides={"model": "x", "a b": 1}),
        'no input · repeats t1 · with "a b", model',
    ),
    (TurnStarted(repeats=Repeats(turn=TurnId("t1"), keep_partial=True)), "no input · repeats t1, keeping partial text"),
    (TurnCompleted(), "0 steps"),
    (TurnCompleted(stop_reason="stop_sequence"), "0 steps"),
    (TurnCompleted(stop_reason="max_tokens", complete=False), "0 steps · max_tokens · incomplete"),
    (TurnCompleted(stop_reason="unknown"), "0 steps · unknown"),
    (TurnFailed(failure=RATE_LIMIT), "rate_limit 429 · slow down · 0 steps"),
    (TurnFailed(failure=Failure(category="limit", message=LONG)), f"limit · {'x' * 119}… · 0 steps"),
    (TurnCancelled(cause="a\nb"), "a\\nb · 0 steps"),
    (TurnSuspended(approvals=("a1", "a2")), "waits for a1 and a2"),
    (
        ContentAdded(digest=digest(b"x"), media_type="text/plain", size=1234, text="x"),
        "text/plain · 1,234 bytes · 2d711642",
    ),
    (
        ContentAdded(digest=digest(b"x"), media_type="a\nb", size=1),
        "a\\nb · 1 byte · 2d711642 · beside the log",
    ),
    (requested(7), "frame at seq 7 · 1f58b914"),
    (
        requested(7, patches=(ORDERS, ORDERS, Patch(plugin="b@1")), trimmed=("news", "weather")),
        "frame at seq 7 · 1f58b914 · changed by orders@0.3.0 and b@1 · left out news and weather",
    ),
    (ModelAttemptStarted(attempt=2), "attempt 2"),
    (
        ModelAttemptFailed(attempt=1, failure=RATE_LIMIT, delay_s=2.0),
        "attempt 1 · rate_limit 429 · retry after 2 s (server's)",
    ),
    (ModelAttemptFailed(attempt=2, failure=CUT, delay_s=0.25), "attempt 2 · stream_truncated · retry after 250 ms"),
    (ModelAttemptFailed(attempt=3, failure=RATE_LIMIT), "attempt 3 · rate_limit 429 · no retry"),
    (
        ModelAttemptFailed(attempt=1, failure=CUT, delay_s=0.0004, discarded=True, usage=Usage(input_tokens=5)),
        "attempt 1 · stream_truncated · retry after under 1 ms · output withdrawn · 5 in",
    ),
    (
        ModelChunks(chunks=NOTED, attempt=2),
        "attempt 2 · 7 chunks · 6 characters of text, 1 character of thinking, 2 characters of arguments, "
        "2 characters of refusal",
    ),
    (ModelChunks(chunks=(c.ResponseStarted(),)), "attempt 1 · 1 chunk"),
    (
        committed(
            usage=Usage(input_tokens=1512, cache_write_tokens=1408, output_tokens=24),
            cost=Cost(micros=5952, prices="p"),
            stop_reason="tool_use",
        ),
        "tool_use · 1,512 in (1,408 written to cache) 24 out · $0.005952",
    ),
    (
        committed(usage=Usage(input_tokens=9, cache_read_tokens=3, cache_write_tokens=2)),
        "end_turn · 9 in (3 from cache, 2 written to cache)",
    ),
    (committed(usage=Usage(input_tokens=612, output_tokens=71)), "end_turn · 612 in, 71 out"),
    (committed(usage=Usage(output_tokens=71, cache_read_tokens=0)), "end_turn · 71 out"),
    (committed(), "end_turn · usage unknown"),
    (MessageInterrupted(), "cancelled · nothing had arrived"),
    (
        MessageInterrupted(message=message(TextBlock(text="I am")), cause="failed", failure=RATE_LIMIT, note="a\nb"),
        "failed · rate_limit 429 · 4 bytes kept · a\\nb",
    ),
    (started("f", arguments={"b": 1, "a": "x"}, effect="read_only"), 'f(a="x", b=1) · read_only'),
    (started("f", effect="idempotent"), "f() · idempotent · key refund-1017/t1s1c1"),
    (started("f", effect="reconcilable"), "f() · reconcilable · key refund-1017/t1s1c1"),
    (started("f", patches=(ORDERS,)), "f() · irreversible · changed by orders@0.3.0"),
    (started("f", patches=(decided_by("p"),)), "f() · irreversible · held for a person by p"),
    (
        started("f", patches=(decided_by("p"), ORDERS, decided_by("q"), decided_by("r", "deny"))),
        "f() · irreversible · held for a person by p and q, changed by orders@0.3.0, denied by r",
    ),
    (ToolProgress(call=CallId("t1s1c1"), text="half\nway"), '"half\\nway"'),
    (ToolProgress(call=CallId("t1s1c1"), data={"done": 3}), '{"done": 3}'),
    (ToolProgress(call=CallId("t1s1c1"), data=[LONG]), f'["{"x" * 97}…'),
    (result("f", {"item": "mug", "paid_cents": 1290, "state": "delivered"}, duration_s=0.031), "ok · 52 bytes · 31 ms"),
    (
        result("f", "é", "x", status="error", error=BROKEN, truncated=True, duration_s=65.04),
        "error · exception · 3 bytes · cut · 65 s",
    ),
    (result("f", status="not_started"), "not_started · 0 bytes"),
    (ToolRevised(result=REVISED, patches=(ORDERS,)), "2 bytes · changed by orders@0.3.0"),
    (ToolResolved(call=CallId("t1s1c1"), decision="rerun", reason="idempotent"), "rerun · idempotent"),
    (StepFailed(failure=CUT), "stream_truncated · the stream ended"),
    (HookFailed(hook="spine_post_step", plugin="noisy@2.0", error="a\nb"), "spine_post_step of noisy@2.0 · a\\nb"),
    (CancelRequested(), "cancelled"),
    (CancelRequested(cause="deadline", by="ann"), "deadline · by ann"),
    (CancelRequested(cause="limit", failure=Failure(category="limit", message="10 s used")), "limit · 10 s used"),
    (asked(), "a1 · refund(amount_cents=1290, order_id=\"1017\") · refunds need a person"),
    (
        asked("a2", reason=None, replaces="a1", patches=(ORDERS,)),
        'a2 · refund(amount_cents=1290, order_id="1017") · in place of a1 · changed by orders@0.3.0',
    ),
    (
        ApprovalDecided(id="a1", decision="approved", by="duty-manager", channel="session.approve"),
        "approved by duty-manager (session.approve)",
    ),
    (ApprovalDecided(id="a1", decision="denied", by="ann", reason="no"), "denied by ann (session) · no"),
    (HistoryCompacted(summary=user_message("So far."), until=88), "up to seq 88 · summary of 7 bytes"),
    (WireCaptured(attempt=1, request=Digest("1:abcdef0123")), "attempt 1 · request abcdef01"),
    (WireCaptured(attempt=2, response=Digest("1:abcdef0123")), "attempt 2 · response abcdef01"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), LINES, ids=lambda value: type(value).__name__)
def test_an_event_is_described(data: Any, expected: str) -> None:
    log = Log()
    log.add(data, "t1s1")
    assert describe(log.events[0]).removesuffix(" · 0 steps") == expected.removesuffix(" · 0 steps")
    assert [line.what for line in log_lines(log.events)] == [expected]


def test_every_core_event_stands_in_the_table() -> None:
    assert {type(data) for data, _ in LINES} == {kind.data for kind in CORE_EVENTS}


@attrs.frozen
class Linked:
    ticket: str
    count: int = 0


@pytest.mark.parametrize(
    ("data", "origin", "expected"),
    [
        (Linked("a\nb"), "crm@1.4", 'crm@1.4 · {"ticket": "a\\nb"}'),
        (Linked("x", 3), "crm@1.4", 'crm@1.4 · {"count": 3, "ticket": "x"}'),
        (Linked(LONG), "crm@1.4", f'crm@1.4 · {{"ticket": "{"x" * 87}…'),
        ({"raw": "\x1b"}, "crm@1.4", "crm@1.4 · \"{'raw': '\\\\x1b'}\""),
        (UnknownEvent(JsonObject(a=1)), "crm@1.4", 'not known here: version 1 of crm@1.4 · {"a": 1}'),
        (UnknownEvent(JsonObject()), "c\nd", "not known here: version 1 of c\\nd"),
        (UnknownEvent(JsonObject()), None, "not known here: version 1 of the core"),
    ],
)
def test_events_of_plugins_and_unknown_ones_are_described(data: Any, origin: str | None, expected: str) -> None:
    log = Log()
    log.add(data, type="crm.linked", origin=origin)
    assert describe(log.events[0]) == expected


# --------------------------------------------------------------------------------------------------- a log as lines


def refund_log() -> Log:
    log = Log()
    log.add(SessionCreated(agent=AGENT))
    log.turn("Refund it.")
    frame = log.frame("anthropic:claude-sonnet-4-5")
    log.add(requested(frame), "t1s1")
    log.add(ModelAttemptFailed(attempt=1, failure=RATE_LIMIT, delay_s=2.0), "t1s1")
    log.add(ModelAttemptStarted(attempt=2), "t1s1")
    for _ in range(3):
        log.add(ModelChunks(chunks=NOTED, attempt=2), "t1s1")
    used = {"usage": Usage(input_tokens=10, output_tokens=1), "cost": Cost(micros=5952, prices="p")}
    log.add(committed(call("refund", **REFUND), **used), "t1s1")
    log.add(asked(), "t1s1")
    log.add(TurnSuspended(approvals=("a1",)), "t1")
    log.add(ApprovalDecided(id="a1", decision="approved", by="demo"), "t1s1")
    log.add(started("refund", arguments=REFUND, effect="read_only"), "t1s1")
    log.add(result("refund", "done"), "t1s1")
    change = Splice(start=0, end=2, messages=(1, 2, 3))
    log.add(requested(frame, patches=(Patch(plugin="p", changes=(change,)),)), "t1s2")
    log.add(ModelChunks(chunks=NOTED), "t1s2")
    log.add(InputAccepted(message=user_message("More."), delivery="steer"))
    log.add(ModelChunks(chunks=NOTED), "t1s2")
    log.add(committed("Done.", **used), "t1s2")
    log.add(TurnCompleted(), "t1")
    return log


def test_a_log_reads_line_by_line() -> None:
    lines = [(line.seq, line.step, line.type, line.what) for line in log_lines(refund_log().events)]
    assert lines[7:] == [
        (8, "t1s1", "model.requested", "anthropic:claude-sonnet-4-5 · 2 sections, 2 tools, 1 message · 1f58b914"),
        (9, "t1s1", "model.attempt_failed", "attempt 1 · rate_limit 429 · retry after 2 s (server's)"),
        (10, "t1s1", "model.attempt_started", "attempt 2 · chunks 11-13"),
        (14, "t1s1", "message.committed", "tool_use · 10 in, 1 out · $0.005952"),
        (15, "t1s1c1", "approval.requested",
         'a1 · refund(order_id="1017", amount_cents=1290) · refunds need a person'),
        (16, "", "turn.suspended", "waits for a1"),
        (17, "t1s1c1", "approval.decided", "approved by demo (session)"),
        (18, "t1s1c1", "tool.started", 'refund(order_id="1017", amount_cents=1290) · read_only'),
        (19, "t1s1c1", "tool.completed", "ok · 4 bytes"),
        (20, "t1s2", "model.requested",
         "anthropic:claude-sonnet-4-5 · 2 sections, 2 tools, 4 messages · 1f58b914 · changed by p · chunks 21, 23"),
        (22, "", "input.accepted", 'user · steer · 5 bytes · "More."'),
        (24, "t1s2", "message.committed", "end_turn · 10 in, 1 out · $0.005952"),
        (25, "", "turn.completed", "2 steps · $0.011904"),
    ]  # fmt: skip


def test_with_chunks_every_event_has_its_line() -> None:
    log = refund_log()
    lines = list(log_lines(log.events, chunks=True))
    assert [line.event for line in lines] == log.events
    assert "chunks 1" not in lines[9].what
    assert lines[10].what.startswith("attempt 2 · 7 chunks")


def test_an_attempt_without_an_end_keeps_its_chunks() -> None:
    log = Log()
    log.add(requested(7), "t1s1")
    log.add(ModelChunks(chunks=NOTED), "t1s1")
    assert [line.what for line in log_lines(log.events)] == ["frame at seq 7 · 1f58b914 · chunk 2"]


def test_chunks_without_their_attempt_have_lines_of_their_own() -> None:
    log = Log()
    log.add(ModelChunks(chunks=NOTED), "t1s1")
    assert len(list(log_lines(log.events))) == 1


def test_from_the_middle_of_a_log_nothing_is_guessed() -> None:
    lines = {line.seq: line.what for line in log_lines(refund_log().events[15:])}
    assert lines[18] == 'refund(amount_cents=1290, order_id="1017") · read_only'
    assert lines[20].startswith("frame at seq 7 · ")
    assert lines[25] == ""
    assert {line.step for line in log_lines(refund_log().events[15:18])} == {"", "t1s1", "t1s1c1"}


def test_a_gap_or_an_unknown_event_stops_the_counting_of_messages() -> None:
    events = refund_log().events
    gap = [line for line in log_lines([*events[:18], *events[19:]]) if line.seq == 20]
    assert gap[0].what.startswith("anthropic:claude-sonnet-4-5 · 2 sections, 2 tools · ")
    newer = attrs.evolve(events[1], data=UnknownEvent(JsonObject(new=1)), version=2)
    unknown = [line.what for line in log_lines([events[0], newer, *events[2:]])]
    assert unknown[1] == 'not known here: version 2 of the core · {"new": 1}'
    assert unknown[7].startswith("anthropic:claude-sonnet-4-5 · 2 sections, 2 tools · ")
    assert unknown[-1] == "2 steps · $0.011904"


def test_a_turn_without_prices_says_so_once_tokens_are_known() -> None:
    for usage, expected in ((Usage(), "1 step"), (Usage(input_tokens=1, output_tokens=1), "1 step · cost unknown")):
        log = Log()
        log.turn()
        log.step("Hm.", usage=usage)
        log.add(TurnCompleted(), "t1")
        assert [line.what for line in log_lines(log.events)][-1] == expected
