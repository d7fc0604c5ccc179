"""The projector `transcript` (floor 6): what a person saw, partial output and failures included.

Inputs stand where history took them, outcomes with their call, and a call's approvals with the call. Left out are
chunks that a whole answer replaced, progress of tools, and whatever only concerns the building of requests.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from spine.drafts import maker
from spine.events import (
    CORE_EVENTS,
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    HistoryCompacted,
    HookFailed,
    InputAccepted,
    InputDelivered,
    MessageCommitted,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelChunks,
    ModelRequested,
    RecordedEvent,
    SessionCreated,
    SessionForked,
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
    TurnSuspended,
    UnknownEvent,
)
from spine.frozen import define, frozen
from spine.llm.assemble import Assembler
from spine.messages import ContentBlock, ToolCallBlock
from spine.projectors.entries import Call, Entry, InputEntry, StepEntry, TurnEntry
from spine.projectors.figures import TALLY_RULES, Tallies
from spine.projectors.html import to_html_fragment
from spine.projectors.projector import refuse_unknown
from spine.projectors.text import to_text
from spine.values import CallId, SessionId, StepId


@frozen(kw_only=True, eq=False)
class Transcript:
    """What happened in a session, for people.

    Equal to any other transcript, or any text, that reads the same; `str()` and `text` are the uncut text form.
    """

    session: SessionId | None = None
    title: str | None = None
    routes: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def text(self) -> str:
        """The text form: nothing cut, no times, no newline at the end."""
        return to_text(self)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Transcript):
            return self.text == other.text
        return self.text == other if isinstance(other, str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def _repr_html_(self) -> str:
        return to_html_fragment(self)


# ----------------------------------------------------------------------------------------------------------- state


@define
class _Call:
    block: ToolCallBlock
    requested: ModelRequested | None
    facts: tuple[RecordedEvent, ...] = ()


@define
class _Step:
    step: str
    event: RecordedEvent
    requested: ModelRequested | None = None
    parts: list[ContentBlock | _Call | RecordedEvent] = attrs.Factory(list)
    attempts: int = 0
    is_answering: bool = False
    """A request is out, and neither an answer nor its failure is known."""
    chunks: tuple[ModelChunks, ...] = ()


@define
class TranscriptState:
    """The fold's state; `SessionTranscript.view` makes a transcript of it."""

    session: SessionId | None = None
    title: str | None = None
    entries: list[InputEntry | _Step | TurnEntry | RecordedEvent] = attrs.Factory(list)
    waiting: dict[int, RecordedEvent] = attrs.Factory(dict)
    """Inputs not yet delivered, by seq."""
    step: _Step | None = None
    calls: dict[CallId, _Call] = attrs.Factory(dict)
    approvals: dict[str, _Call] = attrs.Factory(dict)
    suspended: RecordedEvent | None = None
    undecided: set[str] = attrs.Factory(set)
    tallies: Tallies = attrs.Factory(Tallies)


class SessionTranscript:
    """The projector `transcript`."""

    name = "transcript"
    skips_replaced_chunks = True

    def __init__(self) -> None:
        self.types = frozenset(kind.name for kind in CORE_EVENTS if kind.data in _ALL_RULES)

    def initial(self) -> TranscriptState:
        """A session in which nothing happened."""
        return TranscriptState()

    def apply(self, state: TranscriptState, event: RecordedEvent) -> TranscriptState:
        """Fold one event in; the state is changed in place. Raises `EventUnknown` for one that must be known."""
        data = event.data
        state.session = event.session
        count, rule = _ALL_RULES.get(type(data), _NO_RULES)
        if count is not None:
            count(state.tallies, event, data)
        if rule is not None:
            rule(state, event, data)
        return state

    def view(self, state: TranscriptState) -> Transcript:
        """The transcript of everything folded so far."""
        tallies = state.tallies
        routes = {place: tallies.route(tally) for place, tally in tallies.steps.items()}
        entries: list[Entry] = [
            _finished(entry, routes, tallies) if isinstance(entry, _Step) else entry for entry in state.entries
        ]
        if state.suspended is not None:
            entries.append(TurnEntry(event=state.suspended, figures=tallies.turn(state.suspended.turn)))
        entries.extend(InputEntry(event=event, place=None) for event in state.waiting.values())
        asked = tuple(dict.fromkeys(filter(None, routes.values())))
        return Transcript(session=state.session, title=state.title, routes=asked, entries=tuple(entries))


def _finished(step: _Step, routes: Mapping[str, str | None], tallies: Tallies) -> StepEntry:
    parts = step.parts + _arriving(step) if step.is_answering else step.parts
    return _make_entry(
        step.step,
        step.event.at,
        step.event.seq,
        routes.get(step.step),
        tuple([_finished_call(part, tallies) if type(part) is _Call else part for part in parts]),
        step.attempts,
        step.is_answering,
    )


def _finished_call(call: _Call, tallies: Tallies) -> Call:
    order = {} if call.requested is None else tallies.contents.parameter_order(call.requested)
    return _make_call(call.block, order.get(call.block.name, ()), call.facts)


_make_entry: Callable[..., StepEntry] = maker(StepEntry)
_make_call: Callable[..., Call] = maker(Call)


def _arriving(step: _Step) -> list[Any]:
    assembler = Assembler(StepId(step.step))
    for flush in step.chunks:
        for chunk in flush.chunks:
            assembler.add(chunk)
    content = assembler.message().content
    return [_Call(block, step.requested) if type(block) is ToolCallBlock else block for block in content]


# ----------------------------------------------------------------------------------------------------------- rules


def _created(state: TranscriptState, event: RecordedEvent, data: SessionCreated) -> None:
    state.title = data.title


def _told(state: TranscriptState, event: RecordedEvent, data: SessionForked | HistoryCompacted) -> None:
    state.entries.append(event)


def _renamed(state: TranscriptState, event: RecordedEvent, data: SessionRenamed) -> None:
    state.title = data.title


def _resumed(state: TranscriptState, event: RecordedEvent, data: SessionResumed) -> None:
    # A resumption that changed nothing is no more visible to a person than a pause.
    if data.changes:
        state.entries.append(event)


def _accepted(state: TranscriptState, event: RecordedEvent, data: InputAccepted) -> None:
    state.waiting[event.seq] = event


def _delivered(state: TranscriptState, event: RecordedEvent, data: InputDelivered) -> None:
    for seq in data.inputs:
        accepted = state.waiting.pop(seq, None)
        if accepted is not None:
            state.entries.append(InputEntry(event=accepted, place=data.place))


def _turn_started(state: TranscriptState, event: RecordedEvent, data: TurnStarted) -> None:
    state.step = None
    if data.repeats is not None:
        state.entries.append(event)


def _turn_ended(state: TranscriptState, event: RecordedEvent, data: Any) -> None:
    state.suspended = state.step = None
    state.entries.append(TurnEntry(event=event, figures=state.tallies.turn(event.turn)))


def _suspended(state: TranscriptState, event: RecordedEvent, data: TurnSuspended) -> None:
    state.suspended = event
    state.undecided = set(data.approvals)


def _requested(state: TranscriptState, event: RecordedEvent, data: ModelRequested) -> None:
    state.step = step = _Step(event.place or "", event, data)
    step.attempts, step.is_answering = 1, True  # each keyword would cost as much as the rest of the call
    state.entries.append(step)


def _step_of(state: TranscriptState, event: RecordedEvent) -> _Step:
    step = state.step
    if step is None or (event.place is not None and step.step != event.place):
        # A step that failed before its request went out.
        state.step = step = _Step(event.place or "", event)
        state.entries.append(step)
    return step


def _attempt_started(state: TranscriptState, event: RecordedEvent, data: ModelAttemptStarted) -> None:
    step = _step_of(state, event)
    if step.is_answering:  # nobody recorded how the one before it ended: the process died
        step.parts.append(event)
    step.attempts = data.attempt
    step.is_answering = True
    step.chunks = ()


def _attempt_failed(state: TranscriptState, event: RecordedEvent, data: ModelAttemptFailed) -> None:
    step = _step_of(state, event)
    if data.discarded:
        step.parts.extend(_arriving(step))
        step.chunks = ()
    step.parts.append(event)
    step.is_answering = False


def _chunks(state: TranscriptState, event: RecordedEvent, data: ModelChunks) -> None:
    if state.step is not None:
        state.step.chunks += (data,)


def _committed(state: TranscriptState, event: RecordedEvent, data: MessageCommitted) -> None:
    step = _step_of(state, event)
    step.is_answering = False
    step.chunks = ()
    _write(state, step, data.message.content)


def _interrupted(state: TranscriptState, event: RecordedEvent, data: MessageInterrupted) -> None:
    step = _step_of(state, event)
    step.is_answering = False
    step.chunks = ()
    # What had arrived was seen before the failure or the cancel that is recorded before it.
    end = len(step.parts)
    while end and _cuts_this_answer(step, step.parts[end - 1]):
        end -= 1
    causes, step.parts[end:] = step.parts[end:], []
    if data.message is not None:
        _write(state, step, data.message.content)
    step.parts += [*causes, event]


def _cuts_this_answer(step: _Step, part: object) -> bool:
    match part:
        case RecordedEvent(data=ModelAttemptFailed(attempt=attempt)):
            return attempt == step.attempts
        case _:
            return isinstance(part, RecordedEvent) and isinstance(part.data, CancelRequested)


def _write(state: TranscriptState, step: _Step, content: Iterable[ContentBlock]) -> None:
    for block in content:
        if type(block) is ToolCallBlock:
            call = state.calls[block.id] = _Call(block, step.requested)
            step.parts.append(call)
        else:
            step.parts.append(block)


def _step_failed(state: TranscriptState, event: RecordedEvent, data: StepFailed) -> None:
    step = _step_of(state, event)
    step.is_answering = False
    step.parts.append(event)


def _noted(state: TranscriptState, event: RecordedEvent, data: HookFailed | CancelRequested) -> None:
    step = state.step
    if step is not None and (event.place is None or event.turn == event.place or step.step == event.place):
        step.parts.append(event)
    else:
        state.entries.append(event)


def _of_call(state: TranscriptState, event: RecordedEvent, data: Any) -> None:
    call = state.calls.get(data.call)
    if call is None:  # its message is not in this log: an import, or a log read from its middle
        call = state.calls[data.call] = _Call(_block_of(data), None)
        _step_of(state, event).parts.append(call)
    call.facts += (event,)


def _block_of(data: ToolStarted | ToolCompleted | ToolRevised | ToolResolved | ApprovalRequested) -> ToolCallBlock:
    match data:
        case ToolStarted(name=name, arguments=arguments) | ApprovalRequested(name=name, arguments=arguments):
            return ToolCallBlock(id=data.call, name=name, arguments=arguments)
        case ToolCompleted(result=result) | ToolRevised(result=result):
            return ToolCallBlock(id=data.call, name=result.name, arguments_text="unknown")
        case _:
            return ToolCallBlock(id=data.call, name=data.call, arguments_text="unknown")


def _asked(state: TranscriptState, event: RecordedEvent, data: ApprovalRequested) -> None:
    _of_call(state, event, data)
    state.approvals[data.id] = state.calls[data.call]


def _decided(state: TranscriptState, event: RecordedEvent, data: ApprovalDecided) -> None:
    call = state.approvals.get(data.id)
    if call is not None:
        call.facts += (event,)
    state.undecided.discard(data.id)
    if not state.undecided:
        state.suspended = None


def _unknown(state: TranscriptState, event: RecordedEvent, data: UnknownEvent) -> None:
    refuse_unknown(event)


_RULES: Mapping[type, Callable[[TranscriptState, RecordedEvent, Any], None]] = {
    SessionCreated: _created,
    SessionForked: _told,
    SessionRenamed: _renamed,
    SessionResumed: _resumed,
    InputAccepted: _accepted,
    InputDelivered: _delivered,
    TurnStarted: _turn_started,
    TurnCompleted: _turn_ended,
    TurnFailed: _turn_ended,
    TurnCancelled: _turn_ended,
    TurnSuspended: _suspended,
    ModelRequested: _requested,
    ModelAttemptStarted: _attempt_started,
    ModelAttemptFailed: _attempt_failed,
    ModelChunks: _chunks,
    MessageCommitted: _committed,
    MessageInterrupted: _interrupted,
    StepFailed: _step_failed,
    HookFailed: _noted,
    CancelRequested: _noted,
    HistoryCompacted: _told,
    ToolStarted: _of_call,
    ToolCompleted: _of_call,
    ToolRevised: _of_call,
    ToolResolved: _of_call,
    ApprovalRequested: _asked,
    ApprovalDecided: _decided,
    UnknownEvent: _unknown,
}
"""By class of the data: how an event changes the state."""
_ALL_RULES = {kind: (TALLY_RULES.get(kind), _RULES.get(kind)) for kind in {*TALLY_RULES, *_RULES}}
_NO_RULES = (None, None)
