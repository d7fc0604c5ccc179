"""Commits that nobody waits for (floor 11): what a session appends outside of a turn is durable soon all the same."""

from collections.abc import Callable

import anyio

from spine.commits import at_next_tick
from spine.host import contained
from spine.log import SessionLog

__all__ = ["Pending"]


class Pending:
    """The logs of a runtime with something appended; belongs to one event loop."""

    def __init__(self) -> None:
        self._logs: set[SessionLog] = set()
        self._wake = anyio.Event()
        self._call_soon: Callable[[Callable[[], object]], object] | None = None

    def start(self) -> None:
        """From here on a tick of the running loop is waited for, and what is then still pending is committed."""
        self._call_soon = at_next_tick()

    def note(self, log: SessionLog) -> None:
        """Something was appended to a log that had nothing pending."""
        if not self._logs and self._call_soon is not None:
            self._call_soon(self._look)
        self._logs.add(log)

    def _look(self) -> None:
        """At the next tick: is anything still pending? Mostly a commit took it, and no task need wake up."""
        self._logs = {log for log in self._logs if log.has_pending and not log.is_closed}
        if self._logs:
            self._wake.set()

    async def commit(self) -> None:
        """Commit what was noted and nobody else committed, for ever."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._logs:
                log = self._logs.pop()
                if log.has_pending and not log.is_closed:
                    await contained(log.commit)
