"""A log as lines, one for each event or for each attempt with its chunks (floor 6): what `spine log` prints."""

from collections.abc import Iterable, Iterator

import attrs

from spine.events import (
    MessageCommitted,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelChunks,
    ModelRequested,
    RecordedEvent,
    StepFailed,
)
from spine.frozen import frozen
from spine.projectors.descriptions import describe
from spine.projectors.log_context import LogContext


@frozen(kw_only=True)
class LogLine:
    """One line of a log. `step` is the step or call it is about, empty for what concerns a turn or the session."""

    seq: int
    at: int
    """Microseconds since 1970 UTC."""
    step: str
    type: str
    what: str
    event: RecordedEvent


_ATTEMPT_BEGINS = frozenset((ModelRequested, ModelAttemptStarted))
_ATTEMPT_ENDS = frozenset((*_ATTEMPT_BEGINS, ModelAttemptFailed, MessageCommitted, MessageInterrupted, StepFailed))


def log_lines(events: Iterable[RecordedEvent], *, chunks: bool = False) -> Iterator[LogLine]:
    """The lines of a log from its first event on (from a later one, with less in them).

    Without `chunks` those of an attempt are named on the attempt's line, which therefore comes when the attempt ended.
    """
    context = LogContext()
    held: list[LogLine] = []
    seqs: list[int] = []
    for event in events:
        kind = type(event.data)
        line = _line(event, context)
        if chunks:
            yield line
        elif kind is ModelChunks and held:
            seqs.append(event.seq)
        else:
            if kind in _ATTEMPT_ENDS:
                yield from _with_chunks(held, seqs)
                held, seqs = [], []
            if held or kind in _ATTEMPT_BEGINS:
                held.append(line)
            else:
                yield line
    yield from _with_chunks(held, seqs)


def _line(event: RecordedEvent, context: LogContext) -> LogLine:
    what, step = describe(event, context), context.place(event)
    context.follow(event)
    return LogLine(seq=event.seq, at=event.at, step=step, type=event.type, what=what, event=event)


def _with_chunks(held: list[LogLine], seqs: list[int]) -> Iterator[LogLine]:
    for line in held:
        if seqs and line is held[0]:
            yield attrs.evolve(line, what=f"{line.what} · {_seq_ranges(seqs)}")
        else:
            yield line


def _seq_ranges(seqs: list[int]) -> str:
    ranges: list[list[int]] = []
    for seq in seqs:
        if ranges and seq == ranges[-1][1] + 1:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq])
    names = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return f"{'chunk' if len(seqs) == 1 else 'chunks'} {', '.join(names)}"
