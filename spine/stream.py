"""A turn that is watched while it runs (floor 11): live text, and events as they are committed."""

from collections import deque
from collections.abc import AsyncIterator

import anyio

from spine.events import MessageCommitted, RecordedEvent
from spine.llm.chunks import Chunk, TextDelta
from spine.log import SessionLog
from spine.turn import Turn

MAX_LIVE_ITEMS = 10_000


class TurnStream:
    """A turn that is watched while it runs. Iterating gives its committed events, `text()` the text as it arrives.

    What is not read in time is read from the log later; nothing is kept without bound.
    """

    def __init__(self, log: SessionLog) -> None:
        self.turn: Turn | None = None
        """The turn, once it ended."""
        self._log = log
        self._after = log.head[0]
        self._live: deque[str] = deque()
        self._has_lagged = False
        self._wake = anyio.Event()
        self._finished = False

    def take(self, chunk: Chunk) -> None:
        """A live chunk arrived."""
        if type(chunk) is not TextDelta:
            return
        if self._has_lagged or len(self._live) >= MAX_LIVE_ITEMS:
            self._has_lagged = True
        else:
            self._live.append(chunk.text)
        self._wake.set()

    def finish(self) -> None:
        """The turn ended."""
        self._finished = True
        self._wake.set()

    async def text(self) -> AsyncIterator[str]:
        """Pieces of the answer's text as they arrive, until the turn ends."""
        given = 0
        while True:
            while self._live:
                piece = self._live.popleft()
                given += len(piece)
                yield piece
            if self._has_lagged and self._finished:
                yield self._whole_text()[given:]
                return
            if self._finished and not self._live:
                return
            await self._wake.wait()
            self._wake = anyio.Event()

    def _whole_text(self) -> str:
        committed = self._log.read(after=self._after, types=("message.committed",))
        return "".join(event.data.message.text for event in committed if isinstance(event.data, MessageCommitted))

    async def __aiter__(self) -> AsyncIterator[RecordedEvent]:
        position = self._after
        while True:
            for event in self._log.read(after=position):
                position = event.seq
                yield event
            if self._finished and position >= self._log.head[0]:
                return
            with anyio.move_on_after(0.05):
                await self._log.changed(position)
