"""The words of a transcript (floor 6): entries become blocks of marked lines, which every renderer sets its own way.

The rule guarded here: prose (what a model, a tool or a person wrote) and facts (what the runtime says) are different
lines, and foreign text inside a fact is one line. So nothing written by anybody can pass for a fact.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from spine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    HistoryCompacted,
    HookFailed,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    RecordedEvent,
    SessionForked,
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
)
from spine.frozen import frozen
from spine.messages import Message
from spine.projectors.entries import Call, InputEntry, StepEntry, Told, TurnEntry, patches_of
from spine.projectors.lines import Line, content_lines, labelled, result_lines
from spine.projectors.phrases import call_text, duration, json_text, kind_of, listed, with_reason
from spine.projectors.visible import one_line

Kind = Literal["header", "input", "step", "turn", "fact"]


@frozen
class Block:
    """A heading (one harmless line, None when there is none) and its lines. `at` in microseconds since 1970 UTC."""

    kind: Kind
    heading: str | None
    lines: tuple[Line, ...] = ()
    at: int | None = None


def to_blocks(transcript: Told, *, source: str | None = None) -> Iterator[Block]:
    """The blocks of a transcript, its header first. `source` is named in the header: the store it was read from."""
    title = "" if transcript.title is None else f" {json_text(transcript.title)}"
    names = [*transcript.routes, *([] if source is None else [source])]
    yield Block("header", " · ".join([f"{one_line(transcript.session or 'no session')}{title}", *map(one_line, names)]))
    shown_failure = None
    for entry in transcript.entries:
        match entry:
            case InputEntry():
                yield _input_block(entry)
            case StepEntry():
                yield Block("step", f"ASSISTANT {one_line(entry.step)}".rstrip(), tuple(_step_lines(entry)), entry.at)
                shown_failure = _last_failure(entry)
            case TurnEntry():
                yield _turn_block(entry, shown_failure)
            case _:
                heading, lines = _FACTS[type(entry.data)](entry)
                yield Block("fact", heading, tuple(lines), entry.at)


# ---------------------------------------------------------------------------------------------------------- inputs


def _input_block(entry: InputEntry) -> Block:
    message = entry.message
    lines = labelled(content_lines(message.content))
    if entry.place == "step":
        lines = (Line("+", line.text) if line.mark == "" else line for line in lines)
    heading = _speaker(message) + (" (waiting)" if entry.place is None else "")
    return Block("input", heading, tuple(lines), entry.event.at)


def _speaker(message: Message) -> str:
    if message.role == "assistant":  # part of the input, nothing this session's model said
        return "ASSISTANT (given)"
    kind = "" if message.kind in (None, "user", "steering") else f" ({one_line(message.kind or '')})"
    return message.role.upper() + kind


# ----------------------------------------------------------------------------------------------------------- steps


def _step_lines(step: StepEntry) -> Iterator[Line]:
    yield from labelled(_part_lines(step))
    if step.is_open:
        yield Line("~", "the answer is not finished")


def _part_lines(step: StepEntry) -> Iterator[Line]:
    written: list[Any] = []
    for part in step.parts:
        if not isinstance(part, Call | RecordedEvent):
            written.append(part)
            continue
        yield from content_lines(written)
        written = []
        yield from _call_lines(part) if isinstance(part, Call) else _STEP_FACTS[type(part.data)](part.data, step)
    yield from content_lines(written)


def _call_lines(call: Call) -> Iterator[Line]:
    block = call.block
    shown = call_text(block.name, block.arguments, block.arguments_text, call.order)
    yield Line(">", shown)
    for fact in call.facts:
        data = fact.data
        if isinstance(data, ToolStarted | ApprovalRequested):
            run = call_text(data.name, data.arguments, None, call.order)
            if run != shown:
                yield Line(">", f"changed{_by_plugins(fact)} to {run}")
                shown = run
        yield from _CALL_FACTS[type(data)](call, fact)


def _by_plugins(fact: RecordedEvent) -> str:
    plugins = listed(patch.plugin for patch in patches_of(fact))
    return f" by {plugins}" if plugins else ""


def _started(call: Call, fact: RecordedEvent) -> Iterator[Line]:
    yield from ()


def _asked(call: Call, fact: RecordedEvent) -> Iterator[Line]:
    data: ApprovalRequested = fact.data
    yield Line("?", with_reason("approval asked again" if data.replaces else "approval asked", data.reason))


def _decided(call: Call, fact: RecordedEvent) -> Iterator[Line]:
    data: ApprovalDecided = fact.data
    yield Line("?", with_reason(f"{data.decision} by {one_line(data.by)}", data.reason))


def _resolved(call: Call, fact: RecordedEvent) -> Iterator[Line]:
    data: ToolResolved = fact.data
    yield Line("!", with_reason(f"recovery decided: {data.decision}", data.reason))


def _completed(call: Call, fact: RecordedEvent) -> Iterator[Line]:
    data: ToolCompleted = fact.data
    if call.completed is data:
        yield from result_lines(call.result or data.result, data.status)


def _revised(call: Call, fact: RecordedEvent) -> Iterator[Line]:
    data: ToolRevised = fact.data
    if call.revised is data:
        if call.completed is None:
            yield from result_lines(data.result, "ok")
        yield Line("!", f"the outcome was revised{_by_plugins(fact)}; what the tool returned is in the log")


_CALL_FACTS: Mapping[type, Callable[[Call, RecordedEvent], Iterator[Line]]] = {
    ToolStarted: _started,
    ApprovalRequested: _asked,
    ApprovalDecided: _decided,
    ToolResolved: _resolved,
    ToolCompleted: _completed,
    ToolRevised: _revised,
}

# ----------------------------------------------------------------------------------------------------------- facts


def _attempt_failed(data: ModelAttemptFailed, step: StepEntry) -> Iterator[Line]:
    text = f"attempt {data.attempt} failed: {kind_of(data.failure)}"
    if data.discarded:
        text += ", what it had written was withdrawn"
    if step.attempts > data.attempt:
        text += ", tried again" + ("" if data.delay_s is None else f" after {duration(data.delay_s)}")
    elif data.delay_s is not None:
        text += f", next attempt in {duration(data.delay_s)}"
    yield Line("!", text)


def _attempt_started(data: ModelAttemptStarted, step: StepEntry) -> Iterator[Line]:
    yield Line("!", f"attempt {data.attempt - 1} has no known end, tried again")


def _interrupted(data: MessageInterrupted, step: StepEntry) -> Iterator[Line]:
    failure = "" if data.failure is None else f", {kind_of(data.failure)}"
    yield Line("~", one_line(data.note) if data.note else f"interrupted ({data.cause}{failure})")


def _step_failed(data: StepFailed, step: StepEntry) -> Iterator[Line]:
    yield Line("!", with_reason(f"step failed: {kind_of(data.failure)}", data.failure.message))


def _hook_failed(data: HookFailed, step: StepEntry | None) -> Iterator[Line]:
    yield Line("!", with_reason(f"hook {one_line(data.hook)} of {one_line(data.plugin)} failed", data.error))


def _cancel_requested(data: CancelRequested, step: StepEntry | None) -> Iterator[Line]:
    if data.failure is not None:
        yield Line("~", with_reason("stopped by a limit", data.failure.message))
        return
    by = "" if data.by is None else f" by {one_line(data.by)}"
    yield Line("~", with_reason(f"cancel requested{by}", None if data.cause == "cancelled" else data.cause))


_STEP_FACTS: Mapping[type, Callable[[Any, StepEntry], Iterator[Line]]] = {
    ModelAttemptFailed: _attempt_failed,
    ModelAttemptStarted: _attempt_started,
    MessageInterrupted: _interrupted,
    StepFailed: _step_failed,
    HookFailed: _hook_failed,
    CancelRequested: _cancel_requested,
}


def _fork_fact(event: RecordedEvent) -> tuple[str | None, Iterable[Line]]:
    data: SessionForked = event.data
    return f"forked from {one_line(data.parent)} at seq {data.seq}", ()


def _resumed_fact(event: RecordedEvent) -> tuple[str | None, Iterable[Line]]:
    data: SessionResumed = event.data
    return "resumed with changes", (Line("!", one_line(change)) for change in data.changes)


def _repeat_fact(event: RecordedEvent) -> tuple[str | None, Iterable[Line]]:
    data: TurnStarted = event.data
    kept = ", going on from its partial answer" if data.repeats and data.repeats.keep_partial else ""
    return f"turn {one_line(event.turn or '?')} repeats {data.repeats.turn if data.repeats else '?'}{kept}", ()


def _compaction_fact(event: RecordedEvent) -> tuple[str | None, Iterable[Line]]:
    data: HistoryCompacted = event.data
    return "SUMMARY (in place of earlier history)", labelled(content_lines(data.summary.content))


_FACTS: Mapping[type, Callable[[RecordedEvent], tuple[str | None, Iterable[Line]]]] = {
    SessionForked: _fork_fact,
    SessionResumed: _resumed_fact,
    TurnStarted: _repeat_fact,
    HistoryCompacted: _compaction_fact,
    HookFailed: lambda event: (None, _hook_failed(event.data, None)),
    CancelRequested: lambda event: (None, _cancel_requested(event.data, None)),
}

# ----------------------------------------------------------------------------------------------------------- turns


def _turn_block(entry: TurnEntry, shown_failure: object) -> Block:
    event = entry.event
    how = _ENDINGS[type(event.data)](event.data)
    counts = f": {entry.figures}" if entry.figures.steps else ""
    lines: tuple[Line, ...] = ()
    if isinstance(event.data, TurnFailed) and event.data.failure != shown_failure:
        lines = (Line("!", with_reason(kind_of(event.data.failure), event.data.failure.message)),)
    return Block("turn", f"turn {one_line(event.turn or '?')} {how}{counts}", lines, event.at)


def _last_failure(step: StepEntry) -> object:
    last = step.parts[-1] if step.parts else None
    return last.data.failure if type(last) is RecordedEvent and type(last.data) is StepFailed else None


def _completed_how(data: TurnCompleted) -> str:
    if not data.complete:
        return f"completed (incomplete: {data.stop_reason})"
    return "completed (stop reason unknown)" if data.stop_reason == "unknown" else "completed"


_ENDINGS: Mapping[type, Callable[[Any], str]] = {
    TurnCompleted: _completed_how,
    TurnFailed: lambda data: f"failed ({kind_of(data.failure)})",
    TurnCancelled: lambda data: "cancelled" + ("" if data.cause == "cancelled" else f" ({one_line(data.cause)})"),
    TurnSuspended: lambda data: f"suspended until {listed(data.approvals)} {_is_decided(data)}",
}


def _is_decided(data: TurnSuspended) -> str:
    return "is decided" if len(data.approvals) == 1 else "are decided"
