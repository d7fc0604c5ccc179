"""The history a model is shown (floor 6): selects and orders messages that events already hold, and words nothing.

Rules: an input joins at its delivery; results stand right after their message, in call order, whatever the order they
came in; a compaction replaces everything before it; text that a cancel cut off stays (the person saw it), text that
a failure cut off does not, unless the turn is repeated with `keep_partial`; a repeated turn's step messages go.
Append-only otherwise, so that views are slices of one growing list and a step costs what is new.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import attrs

from spine.drafts import maker
from spine.events import (
    Envelope,
    HistoryCompacted,
    InputAccepted,
    InputDelivered,
    MessageCommitted,
    MessageInterrupted,
    RecordedEvent,
    ToolCompleted,
    ToolRevised,
    TurnStarted,
)
from spine.frozen import define
from spine.messages import Message, TextBlock, ToolCallBlock, ToolResultBlock
from spine.values import CallId, TurnId, turn_of

CHAIN_START = hashlib.sha256(b"agent-spine/1/history\n").digest()
MessageBytes = Callable[[Message], bytes]
"""The canonical bytes of a message."""


@define
class _Track:
    """One growing history: messages, the seq each came from, and the running hash of the first `hashed`."""

    messages: list[Message] = attrs.Factory(list)
    seqs: list[int] = attrs.Factory(list)
    hashed: int = 0
    hash: bytes = CHAIN_START

    def add(self, message: Message, seq: int) -> None:
        self.messages.append(message)
        self.seqs.append(seq)

    def cut(self, keep: Callable[[Message, int], bool]) -> "_Track":
        kept = [(m, s) for m, s in zip(self.messages, self.seqs, strict=True) if keep(m, s)]
        return _Track([m for m, _ in kept], [s for _, s in kept])


class History(Sequence[Message]):
    """An immutable view of the history at one moment; costs nothing to make."""

    __slots__ = ("_length", "_track")

    def __init__(self, track: _Track, length: int) -> None:
        self._track = track
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple(self._track.messages[i] for i in range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            raise IndexError(f"message {index} of {self._length}")
        return self._track.messages[index if index >= 0 else self._length + index]

    def __iter__(self) -> Iterator[Message]:
        messages = self._track.messages
        return (messages[i] for i in range(self._length))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, History) and other._track is self._track:
            return self._length == other._length
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((id(self._track), self._length))

    def __repr__(self) -> str:
        return f"History({self._length} messages)"

    @property
    def seqs(self) -> tuple[int, ...]:
        """For each message, the seq of the event it came from."""
        return tuple(self._track.seqs[: self._length])

    def running_hash(self, message_bytes: MessageBytes) -> bytes:
        """h(n) with h(i) = SHA-256(h(i-1) + SHA-256(message i)); only what is new since the last call is hashed."""
        track, length = self._track, self._length
        # An old view, asked again after a newer one, begins anew.
        done, value = (track.hashed, track.hash) if track.hashed <= length else (0, CHAIN_START)
        for i in range(done, length):
            value = next_hash(value, message_bytes(track.messages[i]))
        if length >= track.hashed:
            track.hashed, track.hash = length, value
        return value

    def same_start(self, other: "History") -> int:
        """How many messages both begin with, told by identity."""
        return min(self._length, other._length) if self._track is other._track else 0


def next_hash(value: bytes, message: bytes) -> bytes:
    """One step of the running hash."""
    return hashlib.sha256(value + hashlib.sha256(message).digest()).digest()


@define
class HistoryState:
    """The fold's state: the settled track, results waiting for their call's turn, inputs not yet delivered."""

    track: _Track = attrs.Factory(_Track)
    inputs: dict[int, Message] = attrs.Factory(dict)
    waiting: dict[CallId, tuple[int, ToolResultBlock] | None] = attrs.Factory(dict)
    """Calls of the last message in order, each with its result once that is there."""
    settled_at: int = 0
    """Where in the track the results of the last message begin, once they are all there."""
    turn_began: dict[TurnId, int] = attrs.Factory(dict)
    partial: tuple[int, Message] | None = None
    """Text that a failure cut off, for `keep_partial`."""

    def view(self) -> History:
        """The history now. Results whose call is still running are left out, later ones keep their place."""
        if self.waiting and self.settled_at == 0:
            if None in self.waiting.values():
                track = self.track.cut(lambda m, s: True)
                _add_results(track, self.waiting)
                return History(track, len(track.messages))
            self.settled_at = len(self.track.messages)
            _add_results(self.track, self.waiting)
        return History(self.track, len(self.track.messages))

    def settle(self) -> None:
        """Fix the results of the last message in their place; nothing can come before them any more."""
        if self.waiting:
            if self.settled_at == 0:
                _add_results(self.track, self.waiting)
            self.waiting = {}
        self.settled_at = 0

    def revise(self, seq: int, result: ToolResultBlock) -> None:
        """Put another result in the place of one that no request has shown."""
        self.waiting[result.call_id] = (seq, result)
        if self.settled_at:  # a view has been given out: it keeps the old list
            at = self.settled_at
            old = self.track
            hashed = (old.hashed, old.hash) if old.hashed <= at else (0, CHAIN_START)
            self.track = _Track(old.messages[:at], old.seqs[:at], *hashed)
            self.settled_at = 0


def _add_results(track: _Track, results: dict[CallId, tuple[int, ToolResultBlock] | None]) -> None:
    for entry in results.values():
        if entry is not None:
            seq, result = entry
            track.add(_make_message("tool", (result,)), seq)


_make_message: Callable[..., Message] = maker(Message, "role", "content")


class ModelHistory:
    """The projector `model_history`; `HistoryState.view()` is what it projects."""

    name = "model_history"

    def __init__(self) -> None:
        self.types = frozenset(HISTORY_RULES)

    def initial(self) -> HistoryState:
        """The history of a session in which nothing happened."""
        return HistoryState()

    def apply(self, state: HistoryState, event: RecordedEvent) -> HistoryState:
        """Fold one event in; the state is changed in place, views given out before stay as they were."""
        HISTORY_RULES[event.type](state, event, event.data)
        return state


def _accept(state: HistoryState, event: Envelope, data: InputAccepted) -> None:
    state.inputs[event.seq] = data.message


def _deliver(state: HistoryState, event: Envelope, data: InputDelivered) -> None:
    state.settle()
    for accepted in data.inputs:
        state.track.add(state.inputs.pop(accepted), accepted)


def _start_turn(state: HistoryState, event: Envelope, data: TurnStarted) -> None:
    state.settle()
    if event.place is not None:
        state.turn_began[turn_of(event.place)] = event.seq
    repeats = data.repeats
    if repeats is None:
        return
    if repeats.keep_partial:
        if state.partial is not None:
            state.track.add(state.partial[1], state.partial[0])
    else:
        began = state.turn_began[repeats.turn]
        state.track = state.track.cut(lambda m, s: s < began or m.role == "user")
    state.partial = None


def _commit_message(state: HistoryState, event: Envelope, data: MessageCommitted) -> None:
    state.settle()
    state.partial = None
    state.track.add(data.message, event.seq)
    state.waiting = {block.id: None for block in data.message.content if type(block) is ToolCallBlock}


def _interrupt_message(state: HistoryState, event: Envelope, data: MessageInterrupted) -> None:
    state.settle()
    texts = tuple(b for b in (data.message.content if data.message else ()) if type(b) is TextBlock)
    kept = data.message.evolve(content=texts) if data.message and texts else None
    if data.cause == "cancelled":
        if kept is not None:
            state.track.add(kept, event.seq)
    else:
        state.partial = None if kept is None else (event.seq, kept)


def _complete(state: HistoryState, event: Envelope, data: ToolCompleted) -> None:
    if data.call in state.waiting:
        state.revise(event.seq, data.result)


def _revise(state: HistoryState, event: Envelope, data: ToolRevised) -> None:
    if data.call in state.waiting:
        state.revise(event.seq, data.result)


def _compact(state: HistoryState, event: Envelope, data: HistoryCompacted) -> None:
    state.settle()
    kept = state.track.cut(lambda m, s: s > data.until)
    state.track = _Track([data.summary, *kept.messages], [event.seq, *kept.seqs])


HISTORY_RULES: Mapping[str, Callable[[HistoryState, Envelope, Any], None]] = {
    "input.accepted": _accept,
    "input.delivered": _deliver,
    "turn.started": _start_turn,
    "model.requested": lambda state, event, data: state.settle(),
    "message.committed": _commit_message,
    "message.interrupted": _interrupt_message,
    "tool.completed": _complete,
    "tool.revised": _revise,
    "history.compacted": _compact,
}
"""What each event does to the state, which is changed in place; the same rules fold stored rows."""
