"""What must hold when a scenario has been played (floor 14): its own expectations, and what holds in every log."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spine.events import RecordedEvent
from spine.projectors import SessionTranscript, fold
from spine.projectors.status import Status
from spine.proof.verify import Verification, report
from spine.testing.scenarios.scenario import Expected, ExpectedTurn
from spine.turn import Turn, make_turn

__all__ = ["failed_expectations", "failed_invariants", "transcript_of", "turns_of"]

_ENDINGS: Final = frozenset(("turn.completed", "turn.failed", "turn.cancelled", "turn.suspended"))


# ----------------------------------------------------------------------------------------------------- invariants


def failed_invariants(events: Sequence[RecordedEvent], verification: Verification | None) -> Iterator[str]:
    """A sentence for each thing that holds in no good log: chain, requests, calls."""
    if verification is None:
        yield "nothing was recorded"
        return
    if verification.verdict != "ok":
        yield " ".join(report(verification).split())
    asked = [call.id for event in _of(events, "message.committed") for call in event.data.message.tool_calls]
    answered = [event.data.call for event in _of(events, "tool.completed")]
    ends = [event.type for event in events if event.type in _ENDINGS]
    if ends and ends[-1] != "turn.suspended" and sorted(asked) != sorted(answered):
        yield f"the calls {', '.join(asked)} were asked for, answered are {', '.join(answered) or 'none'}"


# --------------------------------------------------------------------------------------------------- expectations


def failed_expectations(expected: Expected, events: Sequence[RecordedEvent]) -> Iterator[str]:
    """A sentence for each expectation that is not met; the transcript is compared elsewhere."""
    if expected.turns is not None:
        yield from _turns(expected.turns, turns_of(events))
    for name, found in _LISTS.items():
        wanted = getattr(expected, name)
        if wanted is not None and (actual := tuple(found(events))) != wanted:
            yield f"expected {name} {_listed(wanted)}; found {_listed(actual)}"
    yield from _in_order(expected.events, events)
    for event in events:
        if event.type in expected.never:
            yield f"{event.type} must never occur; it did at seq {event.seq}"


def _turns(wanted: Sequence[ExpectedTurn], found: Sequence[Turn]) -> Iterator[str]:
    if len(wanted) != len(found):
        yield f"expected {len(wanted)} turns; found {len(found)}: {_listed([turn.status for turn in found])}"
    for expectation, turn in zip(wanted, found, strict=False):
        for name, read in _OF_TURN.items():
            value = getattr(expectation, name)
            if value is not None and read(turn) != value:
                yield f"turn {turn.id}: expected {name} {value}; found {read(turn)}{_why(turn)}"


def _why(turn: Turn) -> str:
    return "" if turn.error is None else f" ({turn.error.category}: {turn.error.message})"


_OF_TURN: Final[Mapping[str, Callable[[Turn], Any]]] = {
    "status": lambda turn: turn.status,
    "steps": lambda turn: turn.steps,
    "retries": lambda turn: turn.retries,
    "tool_calls": lambda turn: len(turn.tool_calls),
    "stop_reason": lambda turn: turn.stop_reason,
    "text": lambda turn: turn.text,
    "error": lambda turn: None if turn.error is None else turn.error.category,
}


def _names_by_call(events: Sequence[RecordedEvent]) -> dict[str, str]:
    messages = _of(events, "message.committed")
    return {call.id: call.name for event in messages for call in event.data.message.tool_calls}


def _finished(events: Sequence[RecordedEvent]) -> Iterator[str]:
    names = _names_by_call(events)
    return (names.get(event.data.call, event.data.call) for event in _of(events, "tool.completed"))


def _outcomes(events: Sequence[RecordedEvent]) -> Iterator[str]:
    status = {event.data.call: event.data.status for event in _of(events, "tool.completed")}
    return (status[call] for call in _names_by_call(events) if call in status)


_LISTS: Final[Mapping[str, Callable[[Sequence[RecordedEvent]], Iterable[str]]]] = {
    "calls": lambda events: (event.data.name for event in _of(events, "tool.started")),
    "finished": _finished,
    "outcomes": _outcomes,
}


def _in_order(wanted: Sequence[str], events: Sequence[RecordedEvent]) -> Iterator[str]:
    rest = iter(events)
    for position, kind in enumerate(wanted):
        if not any(event.type == kind for event in rest):
            after = f" after {wanted[position - 1]}" if position else ""
            yield f"expected {kind}{after}; there is none"
            return


def _of(events: Sequence[RecordedEvent], kind: str) -> Iterator[RecordedEvent]:
    return (event for event in events if event.type == kind)


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


# ---------------------------------------------------------------------------------------------- views of the log


def turns_of(events: Sequence[RecordedEvent]) -> list[Turn]:
    """Each turn as the log leaves it, in order; one that is still open as it stands."""
    projector, turns = Status(), dict[str, Turn]()
    state = projector.initial()
    for event in events:
        if event.type in projector.types:
            projector.apply(state, event)
        turn = state.turn or state.last
        if turn is not None:
            turns[turn.id] = make_turn(state, turn, (event.seq, event.hash), event.at)
    return list(turns.values())


def transcript_of(events: Sequence[RecordedEvent]) -> str:
    """The session's transcript as text, without a newline at its end."""
    return fold(SessionTranscript(), events).text
