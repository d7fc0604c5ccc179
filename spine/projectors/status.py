"""Where a session stands (floor 6): its open turn, waiting inputs and approvals, folded from the log.

The loop starts from this state and from nothing else, so a fresh turn, a resumed one and one after a restart take the
same path. The table of endings stands here: calls decide first, then the stop reason.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from spine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    Envelope,
    InputAccepted,
    InputDelivered,
    MessageCommitted,
    ModelAttemptFailed,
    ModelRequested,
    RecordedEvent,
    SessionCreated,
    SessionRenamed,
    SessionResumed,
    StepFailed,
    ToolCompleted,
    ToolResolved,
    ToolRevised,
    ToolStarted,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from spine.frozen import define
from spine.llm.errors import Failure
from spine.llm.response import StopReason
from spine.llm.usage import Cost, Usage, add_usage
from spine.messages import ToolCallBlock
from spine.tools import ToolOutcome
from spine.values import CallId, StepId, TurnId, turn_of

Phase = Literal["step", "answer", "calls", "end", "step_failed"]
"""What an open turn waits for: a step may begin; a request has no answer yet; calls of the last message have no
result yet; the last message ends the turn; the step failed and nobody decided what follows."""

Ending = Literal["run", "drop_then_step", "drop_then_end", "step", "end", "fail"]

_WITH_CALLS: dict[StopReason, Ending] = {
    "end_turn": "run",
    "tool_use": "run",
    "stop_sequence": "run",
    "pause": "run",
    "unknown": "run",
    "max_tokens": "drop_then_step",
    "refusal": "drop_then_end",
    "content_filter": "drop_then_end",
    "context_window": "drop_then_end",
}
_WITHOUT_CALLS: dict[StopReason, Ending] = {
    "end_turn": "end",
    "tool_use": "end",
    "stop_sequence": "end",
    "max_tokens": "end",
    "refusal": "end",
    "content_filter": "end",
    "unknown": "end",
    "pause": "step",
    "context_window": "fail",
}
INCOMPLETE: frozenset[StopReason] = frozenset(("max_tokens", "refusal", "content_filter"))
"""Stop reasons after which a turn's answer was cut."""


def ending(has_calls: bool, stop_reason: StopReason) -> Ending:
    """What follows an answer with or without calls.

    Its calls run; or they are dropped as not started, and then a step or the end follows; or, without calls, the next
    step, the end of the turn, or a failed step.
    """
    return (_WITH_CALLS if has_calls else _WITHOUT_CALLS)[stop_reason]


@define(weakref_slot=False)
class CallState:
    """One call of the last message."""

    block: ToolCallBlock
    started: ToolStarted | None = None
    """How it began; forgotten with its completion, unless it began with other arguments than the block's."""
    completed: ToolCompleted | None = None
    revised: bool = False
    resolved: str | None = None
    """What recovery decided about it last; None: it was never cut off."""
    approval: str | None = None
    """The open or decided approval that is about this call."""

    @property
    def outcome(self) -> ToolOutcome | None:
        """What came back; None while the call has no result."""
        return None if self.completed is None else self.completed.outcome


@define
class ApprovalState:
    """An approval, and what was decided; `decision` None while it is open."""

    request: ApprovalRequested
    seq: int
    at: int
    turn: TurnId | None
    decision: ApprovalDecided | None = None
    used: bool = False
    """The decided call was answered, or asked again."""


@define
class TurnState:
    """A turn, open or ended."""

    id: TurnId
    seq: int
    at: int
    """Recorded time of `turn.started`, microseconds since 1970 UTC."""
    started: TurnStarted
    phase: Phase = "step"
    steps: int = 0
    step: StepId = StepId("")
    """The current step; `t1s0` before the first."""
    attempt: int = 0
    """Attempts of the current step so far."""
    retries: int = 0
    requested: int = 0
    """Seq of the current step's `model.requested`."""
    calls: dict[CallId, CallState] = attrs.Factory(dict)
    """Calls of the last message, in order."""
    all_calls: list[CallState] = attrs.Factory(list)
    """Every call of the turn, in order."""
    answer: tuple[int, MessageCommitted] | None = None
    """The last committed message with its seq."""
    failure: Failure | None = None
    cancel: CancelRequested | None = None
    suspended: tuple[str, ...] = ()
    usage: Usage = Usage()
    has_unreported: bool = False
    """Whether some answer did not report both input and output tokens."""
    spent_micros: int = 0
    """What the answers with a known cost cost, in millionths."""
    has_unpriced: bool = False
    """Whether the cost of some answer is not known."""
    currency: str = "USD"
    prices: str = ""
    status: Literal["open", "completed", "failed", "cancelled", "suspended"] = "open"
    complete: bool = True
    ended_at: int | None = None

    def begin_step(self, number: int) -> None:
        """Step `number` of the turn is the current one from now on."""
        self.steps = number
        self.step = StepId(f"{self.id}s{number}")

    @property
    def ending(self) -> Ending | None:
        """What the last message asks for, None before there is one."""
        return None if self.answer is None else ending(bool(self.calls), self.answer[1].stop_reason)

    @property
    def cost(self) -> Cost | None:
        """The sum, None when some answer has no price."""
        if self.has_unpriced or not self.prices:
            return None
        return Cost(micros=self.spent_micros, currency=self.currency, prices=self.prices)


@define
class SessionStatus:
    """The fold's state."""

    created: SessionCreated | None = None
    contract: str | None = None
    """Contract digest of the agent that last owned the session."""
    title: str | None = None
    turns: int = 0
    turn: TurnState | None = None
    """The open (or suspended) turn; None between turns."""
    last: TurnState | None = None
    """The turn that ended last."""
    waiting: dict[int, InputAccepted] = attrs.Factory(dict)
    """Inputs accepted and not yet delivered, by seq."""
    keys: dict[str, int] = attrs.Factory(dict)
    """Keys of accepted inputs, against double sending, each with its seq."""
    approvals: dict[str, ApprovalState] = attrs.Factory(dict)

    @property
    def steering(self) -> tuple[int, ...]:
        """Inputs for the next step."""
        if not self.waiting:
            return ()
        return tuple(seq for seq, data in self.waiting.items() if data.delivery == "steer")

    @property
    def open_approvals(self) -> tuple[ApprovalState, ...]:
        """Approvals that nobody decided yet."""
        return tuple(a for a in self.approvals.values() if a.decision is None and not a.used)


class Status:
    """The projector `status`."""

    name = "status"

    def __init__(self) -> None:
        self.types = frozenset(STATUS_RULES)

    def initial(self) -> SessionStatus:
        """A session in which nothing happened."""
        return SessionStatus()

    def apply(self, state: SessionStatus, event: RecordedEvent) -> SessionStatus:
        """Fold one event in; the state is changed in place."""
        STATUS_RULES[event.type](state, event, event.data)
        return state


def _created(state: SessionStatus, event: Envelope, data: SessionCreated) -> None:
    state.created = data
    state.title = data.title
    state.contract = data.agent.contract


def _resumed(state: SessionStatus, event: Envelope, data: SessionResumed) -> None:
    state.contract = data.agent.contract


def _renamed(state: SessionStatus, event: Envelope, data: SessionRenamed) -> None:
    state.title = data.title


def _accepted(state: SessionStatus, event: Envelope, data: InputAccepted) -> None:
    state.waiting[event.seq] = data
    if data.key is not None:
        state.keys[data.key] = event.seq


def _delivered(state: SessionStatus, event: Envelope, data: InputDelivered) -> None:
    for seq in data.inputs:
        state.waiting.pop(seq, None)


def _turn_started(state: SessionStatus, event: Envelope, data: TurnStarted) -> None:
    state.turns += 1
    state.turn = TurnState(id=TurnId(f"t{state.turns}"), seq=event.seq, at=event.at, started=data)
    state.turn.begin_step(0)


def _requested(state: SessionStatus, event: Envelope, data: ModelRequested) -> None:
    turn = _open(state)
    turn.phase = "answer"
    turn.steps += 1
    turn.step = StepId(event.place or f"{turn.id}s{turn.steps}")
    turn.requested = event.seq
    turn.attempt = 1
    turn.failure = None


def _attempt_started(state: SessionStatus, event: Envelope, data: Any) -> None:
    turn = _open(state)
    turn.attempt = data.attempt
    turn.retries += 1


def _attempt_failed(state: SessionStatus, event: Envelope, data: ModelAttemptFailed) -> None:
    _open(state).failure = data.failure


def _committed(state: SessionStatus, event: Envelope, data: MessageCommitted) -> None:
    turn = _open(state)
    turn.failure = None
    turn.answer = (event.seq, data)
    calls = data.message.tool_calls
    turn.calls = {block.id: CallState(block) for block in calls}
    turn.all_calls.extend(turn.calls.values())
    turn.usage = add_usage(turn.usage, data.usage)
    if data.usage.input_tokens is None or data.usage.output_tokens is None:
        turn.has_unreported = True
    if data.cost is None:
        turn.has_unpriced = True
    else:
        turn.spent_micros += data.cost.micros
        turn.currency, turn.prices = data.cost.currency, data.cost.prices
    turn.phase = "calls" if calls else _after(turn)


def _after(turn: TurnState) -> Phase:
    return "step" if turn.ending in ("run", "drop_then_step", "step") else "end"


def _tool_started(state: SessionStatus, event: Envelope, data: ToolStarted) -> None:
    call = _open(state).calls.get(data.call)
    if call is not None:
        call.started = data


def _tool_resolved(state: SessionStatus, event: Envelope, data: ToolResolved) -> None:
    call = _open(state).calls.get(data.call)
    if call is not None:
        call.resolved = data.decision


def _tool_completed(state: SessionStatus, event: Envelope, data: ToolCompleted) -> None:
    turn = _open(state)
    call = turn.calls.get(data.call)
    if call is None:
        return
    call.completed = data
    if call.started is not None and call.started.requested is None:
        call.started = None
    if call.approval is not None:
        state.approvals[call.approval].used = True
    for other in turn.calls.values():
        if other.completed is None:
            return
    turn.phase = _after(turn)


def _tool_revised(state: SessionStatus, event: Envelope, data: ToolRevised) -> None:
    call = _open(state).calls.get(data.call)
    if call is not None:
        call.revised = True


def _step_failed(state: SessionStatus, event: Envelope, data: StepFailed) -> None:
    turn = _open(state)
    turn.phase = "step_failed"
    turn.failure = data.failure
    step = (event.place or "").partition("s")[2]
    if step:  # a step may fail before it makes its request
        turn.begin_step(max(turn.steps, int(step)))


def _cancel_requested(state: SessionStatus, event: Envelope, data: CancelRequested) -> None:
    turn = state.turn
    if turn is not None:
        turn.cancel = data
        turn.suspended = ()
        turn.status = "open"


def _approval_requested(state: SessionStatus, event: Envelope, data: ApprovalRequested) -> None:
    turn = turn_of(event.place) if event.place else None
    state.approvals[data.id] = ApprovalState(request=data, seq=event.seq, at=event.at, turn=turn)
    if data.replaces is not None and data.replaces in state.approvals:
        state.approvals[data.replaces].used = True
    call = _open(state).calls.get(data.call)
    if call is not None:
        call.approval = data.id


def _approval_decided(state: SessionStatus, event: Envelope, data: ApprovalDecided) -> None:
    approval = state.approvals.get(data.id)
    if approval is None or approval.used or approval.decision is not None:
        return
    approval.decision = data
    turn = state.turn
    if turn is not None and turn.suspended and all(state.approvals[id].decision for id in turn.suspended):
        turn.suspended = ()
        turn.status = "open"


def _turn_suspended(state: SessionStatus, event: Envelope, data: Any) -> None:
    turn = _open(state)
    turn.suspended = data.approvals
    turn.status = "suspended"


def _turn_completed(state: SessionStatus, event: Envelope, data: TurnCompleted) -> None:
    _open(state).complete = data.complete
    _close(state, event, "completed")


def _turn_failed(state: SessionStatus, event: Envelope, data: TurnFailed) -> None:
    _open(state).failure = data.failure
    _close(state, event, "failed")


def _turn_cancelled(state: SessionStatus, event: Envelope, data: TurnCancelled) -> None:
    _close(state, event, "cancelled")


def _close(state: SessionStatus, event: Envelope, status: Literal["completed", "failed", "cancelled"]) -> None:
    turn = _open(state)
    turn.status = status
    turn.ended_at = event.at
    for approval in state.approvals.values():
        if approval.turn == turn.id:
            approval.used = True
    state.last, state.turn = turn, None


def _open(state: SessionStatus) -> TurnState:
    if state.turn is None:
        raise AssertionError("a fact of a turn without an open turn")
    return state.turn


STATUS_RULES: Mapping[str, Callable[[SessionStatus, Envelope, Any], None]] = {
    "session.created": _created,
    "session.resumed": _resumed,
    "session.renamed": _renamed,
    "input.accepted": _accepted,
    "input.delivered": _delivered,
    "turn.started": _turn_started,
    "model.requested": _requested,
    "model.attempt_started": _attempt_started,
    "model.attempt_failed": _attempt_failed,
    "message.committed": _committed,
    "tool.started": _tool_started,
    "tool.resolved": _tool_resolved,
    "tool.completed": _tool_completed,
    "tool.revised": _tool_revised,
    "step.failed": _step_failed,
    "cancel.requested": _cancel_requested,
    "approval.requested": _approval_requested,
    "approval.decided": _approval_decided,
    "turn.suspended": _turn_suspended,
    "turn.completed": _turn_completed,
    "turn.failed": _turn_failed,
    "turn.cancelled": _turn_cancelled,
    "history.compacted": lambda state, event, data: None,
}
"""What each event does to the state, which is changed in place; the same rules fold stored rows."""
