"""Requests rebuilt from stored events alone (floor 8): the proof that the log says what the model saw."""

from collections.abc import Callable

from spine.codec import Codec
from spine.errors import LogBroken
from spine.events import ModelRequested, RecordedEvent, UnknownEvent
from spine.frozen import frozen
from spine.llm.request import ModelRequest
from spine.projectors.model_history import History, ModelHistory
from spine.requests import apply, frame_of, request_digest, request_from_frame
from spine.values import Digest, decode


@frozen
class Rebuilt:
    """A request rebuilt, with the digest that it has and the one that was recorded when it was sent."""

    seq: int
    request: ModelRequest
    digest: Digest
    recorded: Digest

    @property
    def is_equal(self) -> bool:
        """Whether the rebuilt request is the one that was sent."""
        return self.digest == self.recorded


class Rebuilder:
    """Fed with a session's events in order; `add` returns a `Rebuilt` at each `model.requested`.

    `content` gives bytes beside the log by digest and may raise `LogBroken`.
    """

    def __init__(self, codec: Codec, content: Callable[[Digest], bytes]) -> None:
        self._codec = codec
        self._content = content
        self._projector = ModelHistory()
        self._state = self._projector.initial()
        self._digests: dict[int, Digest] = {}
        self._inline: dict[Digest, bytes] = {}

    @property
    def history(self) -> History:
        """What a model would be shown after the events so far."""
        return self._state.view()

    def add(self, event: RecordedEvent) -> Rebuilt | None:
        """Fold one event in."""
        if isinstance(event.data, UnknownEvent):
            return None
        try:
            return self._rebuild(event) if event.type == "model.requested" else None
        finally:  # what cannot be rebuilt is a part of the history all the same
            if event.type == "content.added":
                self._digests[event.seq] = event.data.digest
                if event.data.text is not None:
                    self._inline[event.data.digest] = event.data.text.encode()
            if event.type in self._projector.types:
                self._projector.apply(self._state, event)

    def _by_digest(self, digest: Digest) -> bytes:
        return self._inline[digest] if digest in self._inline else self._content(digest)

    def _at(self, seq: int) -> bytes:
        if seq not in self._digests:
            raise LogBroken(f"seq {seq} is referred to as content and is none", seq=seq)
        return self._by_digest(self._digests[seq])

    def _rebuild(self, event: RecordedEvent) -> Rebuilt:
        data: ModelRequested = event.data
        if event.step is None:
            raise LogBroken(f"model.requested at seq {event.seq} stands in no step", seq=event.seq)
        frame = decode(self._at(data.frame))["request"]
        request = request_from_frame(self._codec, frame, event.step, self._state.view(), self._by_digest)
        for patch in data.patches:
            request = apply(self._codec, request, patch.changes, self._at)
        actual = request_digest(self._codec, frame_of(self._codec, request).digest, event.step, request.messages)
        return Rebuilt(event.seq, request, actual, data.digest)
