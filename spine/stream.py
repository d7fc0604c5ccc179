"""A turn that is watched while it runs (floor 11): live text, and events as they are committed."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskStatus

from spine.commits import off_loop
from spine.cursors import Cursor
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

    def text(self) -> AsyncIterator[str]:
        """Pieces of the answer's text as they arrive, until the turn ends."""
        return _Pieces(self)

    def __aiter__(self) -> AsyncIterator[RecordedEvent]:
        return _Events(self)

    def _whole_text(self) -> str:
        committed = self._log.read(after=self._after, types=("message.committed",))
        return "".join(event.data.message.text for event in committed if isinstance(event.data, MessageCommitted))


@asynccontextmanager
async def watched(
    stream: TurnStream, drive: Callable[[TaskStatus[None]], Awaitable[Turn]], stop: Callable[[], Awaitable[None]]
) -> AsyncIterator[TurnStream]:
    """Run the turn that `drive` begins and ends while the block watches it; leaving the block early calls `stop`.

    What the block or the turn raises goes on as it is, not inside a group.
    """

    async def run(*, task_status: TaskStatus[None]) -> None:
        try:
            stream.turn = await drive(task_status)
        finally:
            stream.finish()

    try:
        async with anyio.create_task_group() as group:
            await group.start(run)
            try:
                yield stream
            finally:
                if stream.turn is None:
                    await stop()
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) > 1:
            raise
        raise errors.exceptions[0] from errors.exceptions[0].__cause__


# Classes, not async generators: whoever leaves one half-way has nothing to close.


class _Pieces:
    def __init__(self, stream: TurnStream) -> None:
        self._stream = stream
        self._given = 0
        self._is_over = False

    def __aiter__(self) -> "_Pieces":
        return self

    async def __anext__(self) -> str:
        stream = self._stream
        while not self._is_over:
            if stream._live:
                piece = stream._live.popleft()
                self._given += len(piece)
                return piece
            if stream._finished:
                self._is_over = True
                whole = await off_loop(stream._log.store, stream._whole_text) if stream._has_lagged else ""
                rest = whole[self._given :]
                if rest:
                    return rest
                break
            await stream._wake.wait()
            stream._wake = anyio.Event()
        raise StopAsyncIteration


class _Events:
    def __init__(self, stream: TurnStream) -> None:
        self._stream = stream
        self._cursor = Cursor(stream._log, stream._after)

    def __aiter__(self) -> "_Events":
        return self

    async def __anext__(self) -> RecordedEvent:
        log = self._stream._log
        while True:
            event = await self._cursor.next()
            if event is not None:
                return event
            if self._stream._finished and self._cursor.position >= log.head[0]:
                raise StopAsyncIteration
            with anyio.move_on_after(0.05):  # the end of a turn wakes nobody who waits for an event
                await log.changed(self._cursor.position)
