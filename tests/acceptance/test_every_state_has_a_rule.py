"""Every state that a turn can be in has exactly one way to go on: a bounded search over the real fold.

From a session in which nothing happened, every event that loop, people or recovery may write next is folded in, for up
to two calls of every effect, two cancels and two crashes; states that look the same to the loop count once. In each
of them the loop's table has a move, each call that was cut off has a resolution, and an end can be reached.
"""

import copy
from collections.abc import Iterator
from typing import Any, get_args

import attrs
import pytest

from spine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    MessageCommitted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelRequested,
    StepFailed,
    ToolCompleted,
    ToolResolved,
    ToolStarted,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    TurnSuspended,
)
from spine.llm.errors import Failure
from spine.llm.usage import Usage
from spine.loop import _MOVES
from spine.messages import Message, ToolCallBlock, ToolResultBlock
from spine.projectors.status import STATUS_RULES, CallState, Phase, SessionStatus
from spine.recovery import RULES, UNSURE, resolve
from spine.tools import AfterCrash, Effect
from spine.values import Digest

EFFECTS: tuple[Effect, ...] = get_args(Effect)
ENDED = ("turn.completed", "turn.failed", "turn.cancelled")
FAILURE = Failure(category="server_error", message="x")
DIGEST = Digest("1:00")


@attrs.frozen
class Envelope:
    """What a rule reads of an event beside its data."""

    seq: int
    at: int
    place: str | None


@attrs.define
class State:
    """A folded session, and how many cancels and crashes may still come. `resumed`: a crash was just now."""

    status: SessionStatus
    seq: int = 0
    cancels: int = 2
    crashes: int = 2
    resumed: bool = False

    def key(self) -> Any:
        """Everything that the loop looks at."""
        turn = self.status.turn
        if turn is None:
            return (None, self.status.last is not None, self.cancels, self.crashes)
        calls = tuple(_look(self.status, call) for call in turn.calls.values())
        waits = tuple(turn.suspended)
        return (turn.phase, turn.status, turn.steps, turn.cancel is not None, waits, calls, self.cancels, self.crashes)

    def after(self, kind: str, data: Any, place: str | None) -> "State":
        """The state once one more event is folded in."""
        made = copy.deepcopy(self)
        made.seq += 1
        STATUS_RULES[kind](made.status, Envelope(made.seq, made.seq, place), data)
        return made


def _look(status: SessionStatus, call: CallState) -> Any:
    approval = status.approvals.get(call.approval) if call.approval else None
    decision = None if approval is None else (approval.decision and approval.decision.decision) or "open"
    effect = None if call.started is None else call.started.effect
    return (effect, call.completed is not None, call.resolved, decision)


def next_states(state: State, calls: int) -> Iterator[State]:
    """Every state that one event, or a crash, makes of this one."""
    turn = state.status.turn
    if turn is None:
        if state.status.last is None:
            yield state.after("turn.started", TurnStarted(inputs=()), "t1")
        return
    if state.crashes and not state.resumed:
        yield attrs.evolve(copy.deepcopy(state), crashes=state.crashes - 1, resumed=True)
    if turn.cancel is not None:
        if any(call.completed is None for call in turn.calls.values()) and turn.phase == "calls":
            yield from (_complete(state, id, "interrupted") for id in _open_calls(state)[:1])
        else:
            yield state.after("turn.cancelled", TurnCancelled(cause="x"), "t1")
        return
    if state.cancels:
        yield attrs.evolve(state.after("cancel.requested", CancelRequested(cause="x"), "t1"), cancels=state.cancels - 1)
    if turn.status == "suspended":
        for decision in ("approved", "denied"):
            decided = ApprovalDecided(id=turn.suspended[0], decision=decision, by="x", channel="x")
            yield state.after("approval.decided", decided, "t1s1")
        return
    moved = attrs.evolve(state, resumed=False)
    yield from _WAYS[turn.phase](moved, calls)


def _in_step(state: State, calls: int) -> Iterator[State]:
    turn = state.status.turn
    assert turn is not None
    if turn.steps < 2:
        yield state.after("model.requested", ModelRequested(digest=DIGEST, frame=1), f"t1s{turn.steps + 1}")
    yield state.after("step.failed", StepFailed(failure=FAILURE), f"t1s{turn.steps + 1}")
    yield state.after("turn.failed", TurnFailed(failure=FAILURE), "t1")


def _in_answer(state: State, calls: int) -> Iterator[State]:
    turn = state.status.turn
    assert turn is not None
    if turn.attempt < 2:
        failed = ModelAttemptFailed(attempt=turn.attempt, failure=FAILURE, delay_s=0.0, usage=Usage())
        yield state.after("model.attempt_failed", failed, turn.step).after(
            "model.attempt_started", ModelAttemptStarted(attempt=turn.attempt + 1), turn.step
        )
    yield state.after("step.failed", StepFailed(failure=FAILURE), turn.step)
    for count in range(calls + 1 if turn.steps == 1 else 1):
        blocks = tuple(ToolCallBlock(id=f"{turn.step}c{n}", name="t", arguments={}) for n in range(1, count + 1))
        for reason in ("tool_use", "max_tokens") if count else ("end_turn", "pause"):
            message = MessageCommitted(message=Message(role="assistant", content=blocks), stop_reason=reason)
            yield state.after("message.committed", message, turn.step)


def _open_calls(state: State) -> list[str]:
    assert state.status.turn is not None
    return [id for id, call in state.status.turn.calls.items() if call.completed is None]


def _complete(state: State, id: str, status: Any) -> State:
    result = ToolResultBlock(call_id=id, name="t", content=())
    return state.after("tool.completed", ToolCompleted(result=result, status=status), "t1s1")


def _ask(state: State, id: str) -> State:
    asked = f"a{len(state.status.approvals) + 1}"
    request = ApprovalRequested(id=asked, call=id, hash=DIGEST, name="t", arguments={})
    return state.after("approval.requested", request, "t1s1").after(
        "turn.suspended", TurnSuspended(approvals=(asked,)), "t1"
    )


def _in_calls(state: State, calls: int) -> Iterator[State]:
    turn = state.status.turn
    assert turn is not None
    id = _open_calls(state)[0]
    call = turn.calls[id]
    if turn.ending != "run":
        yield _complete(state, id, "not_started")
        return
    if call.started is None:
        yield _complete(state, id, "error")
        if call.approval is None:
            yield _ask(state, id)
        for effect in EFFECTS:
            started = ToolStarted(call=id, name="t", arguments={}, effect=effect)
            yield state.after("tool.started", started, turn.step)
        return
    yield _complete(state, id, "ok")
    for after_crash in get_args(AfterCrash):
        for can_reconcile in (True, False):
            yield from _resolved(state, id, call, resolve(
                call.started.effect, can_reconcile=can_reconcile, after_crash=after_crash
            ))  # fmt: skip


def _resolved(state: State, id: str, call: CallState, decision: str) -> Iterator[State]:
    if call.resolved is not None and call.resolved != "asked":
        return
    word = {"rerun": "rerun", "reconcile": "reconciled", "interrupt": "interrupted", "ask": "asked"}[decision]
    told = state.after("tool.resolved", ToolResolved(call=id, decision=word), "t1s1")
    if word in ("reconciled", "interrupted"):
        yield _complete(told, id, "ok" if word == "reconciled" else "interrupted")
    elif word == "asked" and call.resolved is None:
        yield _ask(told, id)
    elif word == "rerun":
        yield told


def _at_end(state: State, calls: int) -> Iterator[State]:
    turn = state.status.turn
    assert turn is not None
    assert turn.answer is not None
    completed = TurnCompleted(message=turn.answer[0], stop_reason=turn.answer[1].stop_reason, complete=True)
    yield state.after("turn.completed", completed, "t1")


def _after_failure(state: State, calls: int) -> Iterator[State]:
    turn = state.status.turn
    assert turn is not None
    yield state.after("turn.failed", TurnFailed(failure=FAILURE), "t1")
    if turn.steps < 2:
        yield state.after("model.requested", ModelRequested(digest=DIGEST, frame=1), f"t1s{turn.steps + 1}")


_WAYS = {
    "step": _in_step,
    "answer": _in_answer,
    "calls": _in_calls,
    "end": _at_end,
    "step_failed": _after_failure,
}


def check(state: State) -> None:
    """What must hold of a state for the next process to go on from it."""
    turn = state.status.turn
    if turn is None:
        return
    assert turn.phase in _MOVES, f"no move for a turn in phase {turn.phase}"
    assert (turn.status == "suspended") == bool(turn.suspended)
    if turn.phase in ("calls", "end"):
        assert turn.answer is not None
    if turn.phase == "calls":
        assert any(call.completed is None for call in turn.calls.values()), "nothing is left to do in phase calls"
    for call in turn.calls.values():
        if call.started is not None and call.completed is None:
            assert call.started.effect in RULES


@pytest.mark.parametrize(("calls", "least"), [(0, 30), (1, 300), (2, 5_000)])
def test_every_reachable_state_has_a_move_and_every_cut_call_a_resolution(calls: int, least: int) -> None:
    """Each look of a state is tried once; every state leads to an end."""
    start = State(SessionStatus())
    seen = {start.key()}
    edge, leads_to = [start], {}
    while edge:
        state = edge.pop()
        check(state)
        following = list(next_states(state, calls))
        leads_to[state.key()] = [each.key() for each in following]
        for each in following:
            if each.key() not in seen:
                seen.add(each.key())
                edge.append(each)
    ends = {key for key in seen if key[0] is None and key[1]}
    assert ends
    assert len(seen) >= least
    assert _all_reach(ends, leads_to) == seen


def _all_reach(ends: set[Any], leads_to: dict[Any, list[Any]]) -> set[Any]:
    good, grows = set(ends), True
    while grows:
        more = {key for key, following in leads_to.items() if key not in good and good.intersection(following)}
        good |= more
        grows = bool(more)
    return good


def test_the_tables_are_complete() -> None:
    """A phase, an effect or a wish that is added needs its rule in the same commit."""
    assert set(_MOVES) == set(get_args(Phase)) == set(_WAYS)
    assert set(RULES) == set(EFFECTS)
    assert set(UNSURE) == set(get_args(AfterCrash))
