"""A session turn by turn and step by step (floor 13): what was asked, answered, called and used; to compare and report.

Made from the log alone, from the same folds that people read: requests as rebuilt, transcript, usage.
"""

from collections.abc import Mapping, Sequence

import attrs

from spine.events import (
    CORE_EVENTS,
    InputAccepted,
    InputDelivered,
    MessageCommitted,
    ModelAttemptFailed,
    RecordedEvent,
    SessionCreated,
    SessionResumed,
)
from spine.messages import Message
from spine.projectors import SessionTranscript, SessionUsage
from spine.projectors.entries import Call, StepEntry, TurnEntry
from spine.projectors.figures import Figures
from spine.projectors.transcript import Transcript
from spine.projectors.usage import UsageReport
from spine.proof.request_view import RequestView, request_views
from spine.stored import StoredLog
from spine.values import CallId, SessionId, StepId, TurnId

__all__ = ["Course", "Step", "Turn", "course_of"]


@attrs.frozen(kw_only=True)
class Step:
    """One step. `request` is None where none went out, `answer` where none came back whole."""

    id: StepId
    entry: StepEntry
    request: RequestView | None = None
    figures: Figures = Figures()
    answer: MessageCommitted | None = None
    answered_at: int | None = None
    """When the answer was committed, in microseconds since 1970."""
    failed: tuple[ModelAttemptFailed, ...] = ()

    @property
    def calls(self) -> Mapping[CallId, Call]:
        """What the model called, in its order, and what became of it."""
        return {part.block.id: part for part in self.entry.parts if isinstance(part, Call)}


@attrs.frozen(kw_only=True)
class Turn:
    """One turn: its inputs, and the event that ended or suspended it; None while it is open."""

    inputs: tuple[Message, ...] = ()
    ending: RecordedEvent | None = None


@attrs.frozen(kw_only=True)
class Course:
    """A session, by turns and steps in order of the log."""

    session: SessionId
    transcript: Transcript
    usage: UsageReport
    turns: Mapping[TurnId, Turn]
    steps: Mapping[StepId, Step]
    versions: Mapping[str, str]
    """Of the runtime and each plugin, as said last."""
    agent: str


def course_of(reader: StoredLog, until: int | None = None) -> Course:
    """The course of a whole log, or of its events up to seq `until`. Raises `EventUnknown` and `LogBroken`."""
    views = {view.step: view for view in request_views(reader, until)}
    transcript, usage = reader.project_all((SessionTranscript(), SessionUsage()), until)
    facts = [event for event in reader.select(_READ, until) if type(event.data) in _DATA]
    answers = {event.place: event for event in facts if isinstance(event.data, MessageCommitted)}
    owners = [event.data for event in facts if isinstance(event.data, SessionCreated | SessionResumed)]
    failed: dict[str | None, list[ModelAttemptFailed]] = {}
    for fact in facts:
        if isinstance(fact.data, ModelAttemptFailed):
            failed.setdefault(fact.place, []).append(fact.data)
    steps = [
        _step(entry, views.get(entry.step), answers.get(entry.step), usage, failed.get(entry.step, ()))
        for entry in transcript.entries
        if isinstance(entry, StepEntry)
    ]
    return Course(
        session=reader.session,
        transcript=transcript,
        usage=usage,
        turns=_turns(transcript, facts),
        steps={step.id: step for step in steps},
        versions={name: str(value) for name, value in owners[-1].versions.items()} if owners else {},
        agent=owners[-1].agent.name if owners else "",
    )


_DATA = (MessageCommitted, ModelAttemptFailed, SessionCreated, SessionResumed, InputAccepted, InputDelivered)
_READ = frozenset(kind.name for kind in CORE_EVENTS if kind.data in _DATA)


def _step(
    entry: StepEntry,
    view: RequestView | None,
    answer: RecordedEvent | None,
    usage: UsageReport,
    failed: Sequence[ModelAttemptFailed],
) -> Step:
    return Step(
        id=entry.step,
        entry=entry,
        request=view,
        figures=usage.steps.get(entry.step, Figures()),
        answer=None if answer is None else answer.data,
        answered_at=None if answer is None else answer.at,
        failed=tuple(failed),
    )


def _turns(transcript: Transcript, facts: Sequence[RecordedEvent]) -> dict[TurnId, Turn]:
    turns: dict[TurnId, Turn] = {}
    accepted = {fact.seq: fact.data.message for fact in facts if isinstance(fact.data, InputAccepted)}
    for fact in facts:
        if isinstance(fact.data, InputDelivered) and fact.turn is not None:
            turn = turns.get(fact.turn, Turn())
            inputs = (*turn.inputs, *(accepted[seq] for seq in fact.data.inputs if seq in accepted))
            turns[fact.turn] = attrs.evolve(turn, inputs=inputs)
    for entry in transcript.entries:
        if isinstance(entry, TurnEntry) and entry.event.turn is not None:
            turns[entry.event.turn] = attrs.evolve(turns.get(entry.event.turn, Turn()), ending=entry.event)
    return turns
