"""Where a session stands: the state the loop starts from, folded from the log alone."""

import copy
from typing import Any

import attrs
import pytest
from generated import generated_logs
from handwritten import Log, call, committed, result
from hypothesis import HealthCheck, given, settings

from spine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    InputAccepted,
    InputDelivered,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelRequested,
    RecordedEvent,
    StepFailed,
    ToolStarted,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    TurnSuspended,
)
from spine.llm.errors import Failure
from spine.llm.usage import Cost, Usage
from spine.messages import TextBlock, user_message
from spine.projectors.status import SessionStatus, Status
from spine.values import CallId, digest

lawful = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
FAILURE = Failure(category="overloaded", message="busy", retryable=True)


def folded(events: list[RecordedEvent]) -> SessionStatus:
    projector = Status()
    state = projector.initial()
    for event in events:
        if event.type in projector.types:
            projector.apply(state, event)
    return state


@lawful
@given(generated_logs())
def test_the_status_after_each_event_is_a_fresh_fold_of_that_prefix(events: list[RecordedEvent]) -> None:
    """fold(prefix) + event = fold(prefix + event), at every prefix."""
    projector = Status()
    state = projector.initial()
    for end, event in enumerate(events, 1):
        if event.type in projector.types:
            projector.apply(state, event)
        assert attrs.asdict(state, recurse=False) == attrs.asdict(folded(events[:end]), recurse=False)


@lawful
@given(generated_logs())
def test_a_state_may_be_copied_and_folded_on(events: list[RecordedEvent]) -> None:
    """Nothing outside the state takes part in the fold."""
    half = len(events) // 2
    state = copy.deepcopy(folded(events[:half]))
    projector = Status()
    for event in events[half:]:
        if event.type in projector.types:
            projector.apply(state, event)
    assert state == folded(events)


def begun() -> Log:
    log = Log()
    accepted = log.add(InputAccepted(message=user_message("Go."), key="k"))
    log.add(TurnStarted(inputs=(accepted,)), "t1")
    log.add(InputDelivered(inputs=(accepted,)), "t1")
    return log


def requested(log: Log, step: str = "t1s1") -> None:
    log.add(ModelRequested(digest=digest(b"x"), frame=1), step)


def phase_of(log: Log) -> str | None:
    turn = folded(log.events).turn
    return None if turn is None else turn.phase


def test_the_phases_of_a_turn_follow_its_facts() -> None:
    """step → answer → calls → step → answer → end; a failed step waits for a verdict."""
    log = begun()
    assert phase_of(log) == "step"
    requested(log)
    assert phase_of(log) == "answer"
    log.add(committed(call("pay", "t1s1c1"), call("pay", "t1s1c2")), "t1s1")
    assert phase_of(log) == "calls"
    log.add(ToolStarted(call=CallId("t1s1c1"), name="x", arguments={}), "t1s1")
    log.add(result("pay", call_id="t1s1c1"), "t1s1")
    assert phase_of(log) == "calls"
    log.add(result("pay", call_id="t1s1c2"), "t1s1")
    assert phase_of(log) == "step"
    requested(log, "t1s2")
    log.add(ModelAttemptFailed(attempt=1, failure=FAILURE, delay_s=0.5), "t1s2")
    assert phase_of(log) == "answer"
    log.add(ModelAttemptStarted(attempt=2), "t1s2")
    state = folded(log.events)
    assert state.turn is not None
    assert (state.turn.attempt, state.turn.retries, state.turn.steps) == (2, 1, 2)
    log.add(StepFailed(failure=FAILURE), "t1s2")
    assert phase_of(log) == "step_failed"
    requested(log, "t1s3")
    log.add(committed(TextBlock(text="Done.")), "t1s3")
    assert phase_of(log) == "end"
    log.add(TurnCompleted(message=log.events[-1].seq), "t1")
    assert phase_of(log) is None
    last = folded(log.events).last
    assert last is not None
    assert (last.id, last.status, last.steps) == ("t1", "completed", 3)


ENDINGS: dict[str, Any] = {
    "completed": TurnCompleted(),
    "failed": TurnFailed(failure=FAILURE),
    "cancelled": TurnCancelled(),
}


@pytest.mark.parametrize(("status", "event"), ENDINGS.items())
def test_an_ended_turn_is_the_last_one_and_its_approvals_are_closed(status: str, event: Any) -> None:
    """Whatever the ending, nothing of the turn waits any more."""
    log = begun()
    requested(log)
    log.add(committed(call("pay")), "t1s1")
    log.add(asked("a1", "t1s1c1"), "t1s1")
    log.add(event, "t1")
    state = folded(log.events)
    assert state.turn is None
    assert state.last is not None
    assert (state.last.status, state.open_approvals) == (status, ())


def asked(id: str, call_id: str, replaces: str | None = None) -> ApprovalRequested:
    return ApprovalRequested(
        id=id, call=CallId(call_id), hash=digest(b"x"), name="pay", arguments={}, replaces=replaces
    )


def test_a_suspended_turn_opens_when_all_it_waits_for_is_decided() -> None:
    """One decision of two is not enough; one decided twice or unknown changes nothing."""
    log = begun()
    requested(log)
    log.add(committed(call("pay", "t1s1c1"), call("pay", "t1s1c2")), "t1s1")
    log.add(asked("a1", "t1s1c1"), "t1s1")
    log.add(asked("a2", "t1s1c2"), "t1s1")
    log.add(TurnSuspended(approvals=("a1", "a2")), "t1")

    def status() -> tuple[str, list[str]]:
        state = folded(log.events)
        assert state.turn is not None
        return state.turn.status, [a.request.id for a in state.open_approvals]

    assert status() == ("suspended", ["a1", "a2"])
    log.add(ApprovalDecided(id="a2", decision="approved", by="me"), "t1s1")
    assert status() == ("suspended", ["a1"])
    log.add(ApprovalDecided(id="a2", decision="denied", by="late"), "t1s1")
    log.add(ApprovalDecided(id="a9", decision="denied", by="lost"), "t1s1")
    assert status() == ("suspended", ["a1"])
    log.add(ApprovalDecided(id="a1", decision="denied", by="me"), "t1s1")
    assert status() == ("open", [])
    decisions = [a.decision.decision for a in folded(log.events).approvals.values() if a.decision]
    assert decisions == ["denied", "approved"]


def test_an_approval_asked_again_replaces_the_old_one() -> None:
    """The replaced approval is used; the call waits for the new one."""
    log = begun()
    requested(log)
    log.add(committed(call("pay")), "t1s1")
    log.add(asked("a1", "t1s1c1"), "t1s1")
    log.add(asked("a2", "t1s1c1", replaces="a1"), "t1s1")
    state = folded(log.events)
    assert state.turn is not None
    assert [a.request.id for a in state.open_approvals] == ["a2"]
    assert state.turn.calls[CallId("t1s1c1")].approval == "a2"


def test_a_cancel_opens_a_suspended_turn() -> None:
    """So that the loop closes it."""
    log = begun()
    requested(log)
    log.add(committed(call("pay")), "t1s1")
    log.add(asked("a1", "t1s1c1"), "t1s1")
    log.add(TurnSuspended(approvals=("a1",)), "t1")
    log.add(CancelRequested(cause="enough"), "t1")
    turn = folded(log.events).turn
    assert turn is not None
    assert (turn.status, turn.suspended) == ("open", ())
    assert turn.cancel is not None


def test_inputs_wait_until_they_are_delivered() -> None:
    """Queued and steering inputs stand apart; their keys are remembered for ever."""
    log = begun()
    queued = log.add(InputAccepted(message=user_message("later"), key="k2"))
    steer = log.add(InputAccepted(message=user_message("now"), delivery="steer"))
    state = folded(log.events)
    assert (list(state.waiting), state.steering) == ([queued, steer], (steer,))
    assert state.keys == {"k": 1, "k2": queued}
    log.add(InputDelivered(inputs=(steer,), place="step"), "t1")
    assert list(folded(log.events).waiting) == [queued]


def test_usage_and_cost_are_summed_and_an_unknown_price_makes_the_sum_unknown() -> None:
    """Counts that were not reported stay None; one answer without a price leaves no cost."""
    log = begun()
    cost = Cost(micros=10, prices="p")
    log.add(committed(TextBlock(text="a"), usage=Usage(input_tokens=5), cost=cost), "t1s1")
    log.add(committed(TextBlock(text="b"), usage=Usage(input_tokens=7, output_tokens=1), cost=cost), "t1s2")
    turn = folded(log.events).turn
    assert turn is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.reasoning_tokens) == (12, 1, None)
    assert turn.cost == Cost(micros=20, prices="p")
    log.add(committed(TextBlock(text="c")), "t1s3")
    turn = folded(log.events).turn
    assert turn is not None
    assert turn.cost is None


def test_a_step_that_failed_before_its_request_is_counted() -> None:
    """Its number is not used again."""
    log = begun()
    log.add(StepFailed(failure=FAILURE), "t1s1")
    turn = folded(log.events).turn
    assert turn is not None
    assert (turn.steps, turn.step) == (1, "t1s1")


def test_a_fact_of_a_turn_without_a_turn_is_no_log_of_ours() -> None:
    """The fold refuses what cannot be."""
    log = Log()
    requested(log)
    with pytest.raises(AssertionError):
        folded(log.events)
