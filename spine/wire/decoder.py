"""The outer layers of every decoder (side room `wire`): bytes, then event-stream events or one JSON body.

The kind of body is told by its first byte that is no blank: content types lie. What its parts mean is a `Reading`'s
matter. Guarded here: the same parts for every cut of the bytes, chunks before an error are handed out first, and after
an error there is nothing but that error.
"""

from collections.abc import Callable
from typing import Any, Protocol

from spine.errors import ValueRefused
from spine.llm.chunks import Chunk
from spine.llm.errors import ProviderError, provider_error
from spine.llm.response import ModelResponse
from spine.wire.bodies import from_json
from spine.wire.draft import Draft, not_ours
from spine.wire.limits import WireLimits
from spine.wire.sse import EventStream

__all__ = ["BodyDecoder", "Reading"]

_BLANKS = b" \t\r\n\xef\xbb\xbf"


class Reading(Protocol):
    """What a protocol makes of the parts of one body; any of it may raise `ProviderError`."""

    draft: Draft

    @property
    def is_done(self) -> bool:
        """Whether the protocol's last word was seen."""

    def event(self, name: str, data: bytes) -> None:
        """Take one event of an event stream."""

    def whole(self, value: Any) -> None:
        """Take a body that is one JSON value."""

    def ended(self) -> None:
        """The body is over."""

    def response(self) -> ModelResponse:
        """The response; raises when the answer has no end."""


class BodyDecoder:
    """A `spine.llm.protocols.Decoder` of one 200 response, made of a `Reading`."""

    def __init__(self, reading: Reading, limits: WireLimits) -> None:
        self.error: ProviderError | None = None
        self._reading = reading
        self._draft = reading.draft
        self._event = reading.event
        self._limits = limits
        self._read: Callable[[bytes], None] = self._sniff
        self._events = EventStream(limits)
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._is_over = False

    @property
    def is_done(self) -> bool:
        """Whether the protocol's last word was seen."""
        return self._reading.is_done

    def feed(self, data: bytes) -> tuple[Chunk, ...]:
        """Take the next bytes of the body; `b""` ends it. See `spine.llm.protocols.Decoder`."""
        if self.error is not None:
            raise self.error
        out = self._draft.out = []
        try:
            if data:
                self._read(data)
            else:
                self._end()
        except ProviderError as error:
            self.error = error
        except ValueRefused as refused:
            self.error = provider_error("protocol_error", f"the provider sent what no event may hold: {refused}")
        if self.error is not None and not out:
            raise self.error
        return tuple(out)

    def finish(self) -> ModelResponse:
        """The response, or the reason why there is none."""
        if self.error is None and not self._is_over:
            self.feed(b"")
        if self.error is not None:
            raise self.error
        try:
            return self._reading.response()
        except ProviderError as error:
            self.error = error
            raise

    def _sniff(self, data: bytes) -> None:
        """Find out what kind of body this is; OpenRouter sends blanks for minutes before a JSON body."""
        data = data.lstrip(_BLANKS)
        if not data:
            return
        if data[:1] in (b"{", b"["):
            self._read = self._hold
        elif data[:1] == b"<":
            raise not_ours("a page")
        else:
            self._read = self._stream
        self._read(data)

    def _hold(self, data: bytes) -> None:
        self._body.append(data)
        self._body_bytes += len(data)
        if self._body_bytes > self._limits.response_bytes:
            raise provider_error(
                "protocol_error", f"the JSON answer is longer than {self._limits.response_bytes} bytes"
            )

    def _stream(self, data: bytes) -> None:
        for name, text in self._events.feed(data):
            self._event(name, text)

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._body:
            self._reading.whole(from_json(b"".join(self._body)))
        else:
            self._last_events()
        self._reading.ended()

    def _last_events(self) -> None:
        """An event without its blank line is taken; half a line at the end of a cut stream is no broken JSON."""
        try:
            for name, text in self._events.finish():
                self._event(name, text)
        except ProviderError as error:
            if error.category != "protocol_error":
                raise
        if self._events.ignored and not self._draft.has_begun:
            raise not_ours("text that is neither JSON nor an event stream")
