"""Whole sessions as a person reads them, and the transcript as a value."""

from inspect import cleandoc

import attrs
import pytest
from handwritten import (
    AGENT,
    RATE_LIMIT,
    REFUND,
    Log,
    asked,
    call,
    committed,
    requested,
    result,
    started,
    transcript_of,
)

from spine.events import (
    ApprovalDecided,
    ModelAttemptFailed,
    ModelAttemptStarted,
    SessionCreated,
    TurnCompleted,
    TurnSuspended,
)
from spine.llm.usage import Usage
from spine.projectors import Call, InputEntry, StepEntry, TurnEntry

# ------------------------------------------------------------------------------------------------ whole transcripts


def the_refund(log: Log) -> None:
    log.add(SessionCreated(agent=AGENT))
    log.turn("My mug from order 1017 arrived broken. Please refund it.")
    frame = log.frame()
    log.add(requested(frame), "t1s1")
    log.add(ModelAttemptFailed(attempt=1, failure=RATE_LIMIT, delay_s=2.0), "t1s1")
    log.add(ModelAttemptStarted(attempt=2), "t1s1")
    first = Usage(input_tokens=1512, cache_write_tokens=1408, output_tokens=24)
    log.add(committed(call("lookup_order", order_id="1017"), usage=first), "t1s1")
    log.add(started("lookup_order", arguments={"order_id": "1017"}), "t1s1")
    log.add(result("lookup_order", {"item": "mug", "paid_cents": 1290, "state": "delivered"}), "t1s1")
    second = Usage(input_tokens=1571, cache_read_tokens=1408, output_tokens=31)
    wanted = call("refund", "t1s2c1", **REFUND)
    log.step("The policy covers this, so I will refund it.", wanted, step="t1s2", frame=frame, usage=second)
    log.add(asked(call_id="t1s2c1"), "t1s2")
    log.add(TurnSuspended(approvals=("a1",)), "t1")
    log.add(ApprovalDecided(id="a1", decision="approved", by="demo"), "t1s2")
    log.add(started("refund", "t1s2c1", arguments=REFUND), "t1s2")
    log.add(result("refund", "refunded 12.90 EUR, reference R-88", call_id="t1s2c1"), "t1s2")
    third = Usage(input_tokens=1634, cache_read_tokens=1408, output_tokens=27)
    log.step("Done. 12.90 EUR are on their way, reference R-88.", step="t1s3", frame=frame, usage=third)
    log.add(TurnCompleted(), "t1")


def test_the_refund_session_reads_as_promised() -> None:
    log = Log()
    the_refund(log)
    assert transcript_of(log) == cleandoc("""
        refund-1017 · scripted:demo

        USER
            My mug from order 1017 arrived broken. Please refund it.

        ASSISTANT t1s1
          ! attempt 1 failed: rate_limit (HTTP 429), tried again after 2 s
          > lookup_order(order_id="1017")
          < {"item": "mug", "paid_cents": 1290, "state": "delivered"}

        ASSISTANT t1s2
            The policy covers this, so I will refund it.
          > refund(order_id="1017", amount_cents=1290)
          ? approval asked: refunds need a person
          ? approved by demo
          < refunded 12.90 EUR, reference R-88

        ASSISTANT t1s3
            Done. 12.90 EUR are on their way, reference R-88.

        turn t1 completed: 3 steps, 2 tool calls, 1 retry, 4,717 tokens in (2,816 from cache), 82 out, """) + (
        "cost unknown (scripted:demo has no price)"
    )


def test_a_denied_refund_reads_as_promised() -> None:
    log = Log("denied")
    log.turn("Refund order 1017, the mug is broken.")
    frame = log.frame()
    log.step(call("lookup_order", order_id="1017"), frame=frame)
    log.add(result("lookup_order", {"state": "shipped"}), "t1s1")
    log.step("I will refund it.", call("refund", "t1s2c1", **REFUND), step="t1s2", frame=frame)
    log.add(asked(call_id="t1s2c1"), "t1s2")
    log.add(TurnSuspended(approvals=("a1",)), "t1")
    log.add(ApprovalDecided(id="a1", decision="denied", by="duty-manager", reason="still shipped"), "t1s2")
    text = "denied: A person declined this call: still shipped. Nothing was executed."
    log.add(result("refund", text, call_id="t1s2c1", status="denied"), "t1s2")
    log.step("A colleague declined the refund because the parcel is still on its way.", step="t1s3", frame=frame)
    log.add(TurnCompleted(), "t1")
    assert transcript_of(log).text.partition("ASSISTANT t1s1")[2].partition("\n\n")[2] == cleandoc("""
        ASSISTANT t1s2
            I will refund it.
          > refund(order_id="1017", amount_cents=1290)
          ? approval asked: refunds need a person
          ? denied by duty-manager: still shipped
          < denied: A person declined this call: still shipped. Nothing was executed.

        ASSISTANT t1s3
            A colleague declined the refund because the parcel is still on its way.

        turn t1 completed: 3 steps, 2 tool calls""")


# ------------------------------------------------------------------------------------------------------- the value


def test_a_transcript_is_a_frozen_value_equal_to_what_it_reads_like() -> None:
    log = Log()
    the_refund(log)
    told, again = transcript_of(log), transcript_of(log)
    assert told == again == told.text == str(told)
    assert hash(told) == hash(told.text)
    assert told != attrs.evolve(told, title="other")
    assert told != told.text + "."
    assert told != 1
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        told.title = "x"  # type: ignore[misc]


def test_entries_lead_back_to_the_log() -> None:
    log = Log()
    the_refund(log)
    told = transcript_of(log)
    kinds = [type(entry) for entry in told.entries]
    assert kinds == [InputEntry, StepEntry, StepEntry, StepEntry, TurnEntry]
    step = told.entries[2]
    assert isinstance(step, StepEntry)
    assert (step.step, step.route, step.attempts, step.is_open) == ("t1s2", "scripted:demo", 1, False)
    refund = step.parts[1]
    assert isinstance(refund, Call)
    assert [fact.type for fact in refund.facts] == [
        "approval.requested",
        "approval.decided",
        "tool.started",
        "tool.completed",
    ]
    assert all(log.events[fact.seq - 1] is fact for fact in refund.facts)
    assert refund.completed is not None
    assert refund.result is refund.completed.result
    assert refund.revised is None
    assert told.entries[1].seq == 8  # type: ignore[union-attr]
