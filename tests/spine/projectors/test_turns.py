"""What stands around steps in the text transcript: inputs, the header, facts, and ends of turns."""

from typing import Any

import pytest
from handwritten import (
    AGENT,
    CUT,
    RATE_LIMIT,
    Log,
    asked,
    call,
    committed,
    requested,
    transcript_of,
)

from spine.events import (
    ApprovalDecided,
    CancelRequested,
    FieldChange,
    HistoryCompacted,
    HookFailed,
    InputAccepted,
    InputDelivered,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    Patch,
    Repeats,
    SessionCreated,
    SessionForked,
    SessionRenamed,
    SessionResumed,
    StepFailed,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    TurnSuspended,
)
from spine.llm.errors import Failure
from spine.llm.usage import Cost, Usage
from spine.messages import (
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    user_message,
)
from spine.projectors import SessionTranscript, fold
from spine.values import CallId, SessionId, TurnId


def accept(log: Log, given: Message, **fields: Any) -> int:
    return log.add(InputAccepted(message=given, **fields))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (user_message("Hello.\n\nturn t1 completed"), "USER\n    Hello.\n\n    turn t1 completed"),
        (user_message("Monday.", kind="context"), "USER (context)\n    Monday."),
        (user_message("x", kind="a\nb"), "USER (a\\nb)\n    x"),
        (Message(role="system", content=(TextBlock(text="Be brief."),)), "SYSTEM\n    Be brief."),
        (Message(role="assistant", content=(TextBlock(text="As I said."),)), "ASSISTANT (given)\n    As I said."),
        (
            Message(role="user", content=(TextBlock(text="See:"), ImageBlock(data="aGVsbG8="))),
            "USER\n    See:\n  [image image/png, 5 bytes]",
        ),
        (
            Message(role="assistant", content=(call("f", a=1),)),
            "ASSISTANT (given)\n  > f(a=1)",
        ),
        (
            Message(
                role="tool",
                content=(ToolResultBlock(call_id=CallId("c1"), name="f", content=(), is_error=True),),
            ),
            "TOOL\n  < error",
        ),
        (Message(role="user"), "USER"),
    ],
)
def test_an_input_reads(given: Message, expected: str) -> None:
    log = Log("s")
    seq = accept(log, given)
    log.add(InputDelivered(inputs=(seq,)), "t1")
    assert transcript_of(log).text.partition("\n\n")[2] == expected


def test_an_input_stands_where_history_took_it_and_waits_at_the_end_before() -> None:
    log = Log("s")
    log.turn("First.")
    steering = accept(log, user_message("Only\nthe mug.", kind="steering"), delivery="steer")
    queued = accept(log, user_message("Later."))
    log.step("One.")
    assert transcript_of(log).text.split("\n\n")[-2:] == [
        "USER (waiting)\n    Only\n    the mug.",
        "USER (waiting)\n    Later.",
    ]
    log.add(InputDelivered(inputs=(steering,), place="step"), "t1")
    log.step("Two.", step="t1s2")
    log.add(TurnCompleted(), "t1")
    log.add(TurnStarted(inputs=(queued,)), "t2")
    log.add(InputDelivered(inputs=(queued,)), "t2")
    assert transcript_of(log).text.split("\n\n")[1:] == [
        "USER\n    First.",
        "ASSISTANT t1s1\n    One.",
        "USER\n  + Only\n    the mug.",
        "ASSISTANT t1s2\n    Two.",
        "turn t1 completed: 2 steps",
        "USER\n    Later.",
    ]


def test_inputs_of_unknown_number_and_delivered_twice_show_once() -> None:
    log = Log("s")
    seq = accept(log, user_message("Once."))
    for inputs in ((seq, 99), (seq,)):
        log.add(InputDelivered(inputs=inputs), "t1")
    assert transcript_of(log).text == "s\n\nUSER\n    Once."


def test_the_header_names_session_title_and_every_route_once() -> None:
    log = Log("s")
    log.add(SessionCreated(agent=AGENT, title="old"))
    log.add(SessionRenamed(title='The "mug"\n· x:y'))
    log.turn()
    log.add(requested(log.frame("lab:tiny")), "t1s1")
    log.add(StepFailed(failure=CUT), "t1s1")
    log.step("a", step="t1s2", route="scripted:demo")
    log.step("b", step="t1s3", route="lab:tiny")
    assert transcript_of(log).text.split("\n")[0] == 's "The \\"mug\\"\\n· x:y" · lab:tiny · scripted:demo'
    assert fold(SessionTranscript(), []).text == "no session"


def test_a_route_that_a_plugin_chose_is_the_one_shown() -> None:
    log = Log("s")
    frame = log.frame("lab:tiny")
    inline = Patch(plugin="p", changes=(FieldChange(field="route", value="lab:large"),))
    stored = log.content(b'"lab:stored"')
    beside = Patch(plugin="p", changes=(FieldChange(field="route", content=stored),))
    log.add(requested(frame, patches=(inline,)), "t1s1")
    log.add(requested(frame, patches=(beside,)), "t1s2")
    log.add(requested(999), "t1s3")
    assert transcript_of(log).routes == ("lab:large", "lab:stored")


SO_FAR = HistoryCompacted(summary=user_message("So far:\nnothing.", kind="summary"), until=4)
OTHER_FACTS: dict[str, tuple[Any, str | None, list[str]]] = {
    "a fork": (SessionForked(parent=SessionId("parent"), seq=12, hash="ab"), None, ["forked from parent at seq 12"]),
    "a resumption without changes": (SessionResumed(agent=AGENT), None, []),
    "a resumption with changes": (
        SessionResumed(agent=AGENT, changes=("tool refund gone", "a\nb")),
        None,
        ["resumed with changes\n  ! tool refund gone\n  ! a\\nb"],
    ),
    "a repeated turn": (TurnStarted(repeats=Repeats(turn=TurnId("t1"))), "t2", ["turn t2 repeats t1"]),
    "a repeated turn that keeps its text": (
        TurnStarted(repeats=Repeats(turn=TurnId("t1"), keep_partial=True)),
        "t2",
        ["turn t2 repeats t1, going on from its partial answer"],
    ),
    "a compaction": (SO_FAR, "t1", ["SUMMARY (in place of earlier history)\n    So far:\n    nothing."]),
    "a hook that failed between turns": (
        HookFailed(hook="h", plugin="p@1", error=""),
        None,
        ["  ! hook h of p@1 failed"],
    ),
    "a limit outside of steps": (
        CancelRequested(failure=Failure(category="limit", message="10 s\nused")),
        "t9",
        ["  ~ stopped by a limit: 10 s\\nused"],
    ),
    "a cancel outside of steps": (CancelRequested(cause="a\nb"), "t9", ["  ~ cancel requested: a\\nb"]),
    "a step refused before its request": (
        StepFailed(failure=Failure(category="limit", message="no")),
        "t1s1",
        ["ASSISTANT t1s1\n  ! step failed: limit: no"],
    ),
}


@pytest.mark.parametrize("name", OTHER_FACTS)
def test_a_fact_outside_of_steps_reads(name: str) -> None:
    event, place, expected = OTHER_FACTS[name]
    log = Log("s")
    log.add(event, place)
    assert transcript_of(log).text.split("\n\n")[1:] == expected


def test_a_hook_that_failed_after_its_turn_stands_apart() -> None:
    log = Log("s")
    log.turn()
    log.step("Hm.")
    log.add(TurnCompleted(), "t1")
    log.add(HookFailed(hook="h", plugin="p", error="late"), "t1s1")
    assert transcript_of(log).text.split("\n\n")[-2:] == ["turn t1 completed: 1 step", "  ! hook h of p failed: late"]


# ------------------------------------------------------------------------------------------------------ ends of turns


def ended(end: Any, *steps: dict[str, Any], place: str = "t1") -> str:
    """The last block of a turn with these steps (fields of their answers) and this end."""
    log = Log("s")
    log.turn()
    for number, fields in enumerate(steps, 1):
        log.step("Hm.", step=f"t1s{number}", **fields)
    log.add(end, place)
    return transcript_of(log).text.split("\n\n")[-1]


PRICED = {"usage": Usage(input_tokens=1000, output_tokens=10), "cost": Cost(micros=1_234_567, prices="p")}
IN_EURO = PRICED | {"cost": Cost(micros=5, currency="EUR", prices="q")}
UNPRICED = {"usage": Usage(input_tokens=1, output_tokens=2)}
ENDS = [
    (TurnCompleted(), [{}], "turn t1 completed: 1 step"),
    (TurnCompleted(), [{}, {}], "turn t1 completed: 2 steps"),
    (TurnCompleted(), [], "turn t1 completed"),
    (TurnCompleted(stop_reason="stop_sequence"), [{}], "turn t1 completed: 1 step"),
    (TurnCompleted(stop_reason="unknown"), [{}], "turn t1 completed (stop reason unknown): 1 step"),
    (
        TurnCompleted(stop_reason="max_tokens", complete=False),
        [{}],
        "turn t1 completed (incomplete: max_tokens): 1 step",
    ),
    (TurnCancelled(), [{}], "turn t1 cancelled: 1 step"),
    (TurnCancelled(cause="dead\nline"), [], "turn t1 cancelled (dead\\nline)"),
    (
        TurnFailed(failure=Failure(category="limit", message="steps: 1 of 1 used")),
        [{}],
        "turn t1 failed (limit): 1 step\n  ! limit: steps: 1 of 1 used",
    ),
    (
        TurnFailed(failure=RATE_LIMIT),
        [],
        "turn t1 failed (rate_limit (HTTP 429))\n  ! rate_limit (HTTP 429): slow down",
    ),
    (TurnSuspended(approvals=("a1",)), [{}], "turn t1 suspended until a1 is decided: 1 step"),
    (TurnSuspended(approvals=("a1", "a2", "a3")), [{}], "turn t1 suspended until a1, a2 and a3 are decided: 1 step"),
    (TurnCompleted(), [PRICED], "turn t1 completed: 1 step, 1,000 tokens in, 10 out, $1.234567"),
    (TurnCompleted(), [PRICED, PRICED], "turn t1 completed: 2 steps, 2,000 tokens in, 20 out, $2.469134"),
    (TurnCompleted(), [IN_EURO], "turn t1 completed: 1 step, 1,000 tokens in, 10 out, 0.000005 EUR"),
    (
        TurnCompleted(),
        [PRICED, IN_EURO],
        "turn t1 completed: 2 steps, 2,000 tokens in, 20 out, cost unknown (prices are in EUR and USD)",
    ),
    (
        TurnCompleted(),
        [PRICED, UNPRICED],
        "turn t1 completed: 2 steps, 1,001 tokens in, 12 out, cost unknown (scripted:demo has no price)",
    ),
    (
        TurnCompleted(),
        [PRICED, {}],
        "turn t1 completed: 2 steps, at least 1,000 tokens in, at least 10 out, "
        "cost unknown (scripted:demo did not report its usage)",
    ),
    (
        TurnCompleted(),
        [UNPRICED, UNPRICED | {"route": "lab:tiny"}, UNPRICED],
        "turn t1 completed: 3 steps, 3 tokens in, 6 out, "
        "cost unknown (scripted:demo has no price; lab:tiny has no price)",
    ),
    (
        TurnCompleted(),
        [{"usage": Usage(input_tokens=1, cache_read_tokens=0), "route": None}],
        "turn t1 completed: 1 step, at least 1 token in, cost unknown (the model did not report its usage)",
    ),
    (TurnCompleted(), [{"usage": Usage(total_tokens=5, malformed=True)}], "turn t1 completed: 1 step, "
     "cost unknown (scripted:demo did not report its usage)"),
]  # fmt: skip


@pytest.mark.parametrize(("end", "steps", "expected"), ENDS)
def test_the_end_of_a_turn_reads(end: Any, steps: list[dict[str, Any]], expected: str) -> None:
    assert ended(end, *steps) == expected


def test_calls_retries_and_what_failed_attempts_used_are_counted_apart() -> None:
    log = Log("s")
    log.turn()
    log.add(requested(), "t1s1")
    for attempt in (1, 2):
        used = Usage(input_tokens=7, output_tokens=1 if attempt == 1 else None)
        log.add(ModelAttemptFailed(attempt=attempt, failure=RATE_LIMIT, delay_s=1, usage=used), "t1s1")
        log.add(ModelAttemptStarted(attempt=attempt + 1), "t1s1")
    log.add(committed(call("f", "t1s1c1"), call("f", "t1s1c2"), **PRICED), "t1s1")
    log.add(requested(), "t1s2")
    log.add(MessageInterrupted(note="the answer was cancelled"), "t1s2")
    log.add(TurnCancelled(), "t1")
    assert transcript_of(log).text.split("\n\n")[-1] == (
        "turn t1 cancelled: 2 steps, 2 tool calls, 2 retries, 1,000 tokens in, 10 out, "
        "failed attempts used 14 in and 1 out, $1.234567, 1 interrupted answer not counted"
    )


def test_what_a_failed_attempt_did_not_report_is_unknown() -> None:
    log = Log("s")
    log.add(requested(), "t1s1")
    log.add(ModelAttemptFailed(attempt=1, failure=RATE_LIMIT, usage=Usage(input_tokens=7)), "t1s1")
    log.add(TurnCancelled(), "t1")
    assert transcript_of(log).text.endswith("turn t1 cancelled: 1 step, failed attempts used 7 in and unknown out")


def test_a_step_refused_before_its_request_is_not_part_of_the_step_before() -> None:
    log = Log("s")
    log.step("Hm.")
    log.add(StepFailed(failure=CUT), "t1s2")
    assert transcript_of(log).text.split("\n\n")[1:] == [
        "ASSISTANT t1s1\n    Hm.",
        "ASSISTANT t1s2\n  ! step failed: stream_truncated: the stream ended",
    ]


def test_a_turn_that_failed_with_its_step_says_so_once() -> None:
    log = Log("s")
    log.turn()
    log.add(requested(), "t1s1")
    log.add(StepFailed(failure=RATE_LIMIT), "t1s1")
    log.add(TurnFailed(failure=RATE_LIMIT), "t1")
    assert transcript_of(log).text.count("slow down") == 1
    assert transcript_of(log).text.endswith("\n\nturn t1 failed (rate_limit (HTTP 429)): 1 step")


def test_a_suspension_is_shown_until_every_approval_is_decided() -> None:
    log = Log("s")
    log.turn()
    log.step(call("refund", "t1s1c1"), call("refund", "t1s1c2"))
    log.add(asked("a1", "t1s1c1"), "t1s1")
    log.add(asked("a2", "t1s1c2"), "t1s1")
    log.add(TurnSuspended(approvals=("a1", "a2")), "t1")
    shown = []
    for id in ("a2", "a1"):
        shown.append("suspended" in transcript_of(log).text)
        log.add(ApprovalDecided(id=id, decision="approved", by="demo"), "t1s1")
    shown.append("suspended" in transcript_of(log).text)
    assert shown == [True, True, False]
    log.add(TurnSuspended(approvals=("a3",)), "t1")
    log.add(TurnCancelled(), "t1")
    assert "suspended" not in transcript_of(log).text
