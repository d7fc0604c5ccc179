"""Reading a stored log on from where one stands (floor 8): a few events at a time, so that a slow reader holds few.

Nobody else waits for a store that answers late: it is asked on a thread.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from spine.commits import off_loop
from spine.events import RecordedEvent
from spine.stored import StoredLog

__all__ = ["Cursor"]

READ_AHEAD = 64
"""Events that are read at most and not yet given."""


class Cursor:
    """Stored events after a position, one by one."""

    # A class, not an async generator: one that is left half-way would have to be closed by whoever left it.

    def __init__(self, log: StoredLog, after: int) -> None:
        self.position = after
        """The seq of the event that was given last."""
        self._log = log
        self._stored: Iterator[RecordedEvent] | None = None
        self._ready: deque[RecordedEvent] = deque()
        self._is_at_end = False

    async def next(self) -> RecordedEvent | None:
        """The next event; None once after the last one, and after that whatever was committed meanwhile."""
        if not self._ready and not self._is_at_end:
            await self._read()
        if not self._ready:
            self._is_at_end = False
            return None
        event = self._ready.popleft()
        self.position = event.seq
        return event

    async def _read(self) -> None:
        # Whoever is cancelled here begins anew: nothing that a thread may still be reading is used again.
        stored, self._stored = self._stored or self._log.read(after=self.position), None
        some, is_whole = await off_loop(self._log.store, _some, stored)
        self._ready.extend(some)
        self._is_at_end = is_whole and len(some) < READ_AHEAD
        self._stored = stored if len(some) == READ_AHEAD else None


def _some(stored: Iterator[RecordedEvent]) -> tuple[list[RecordedEvent], bool]:
    """A few of the next events; False with those before one that cannot be read, which raises when it is the first."""
    some: list[RecordedEvent] = []
    try:
        some.extend(islice(stored, READ_AHEAD))
    except Exception:
        if not some:
            raise
        return some, False
    return some, True
