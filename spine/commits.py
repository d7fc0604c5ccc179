"""How batches reach the store (floor 7): on this thread, or joined with others on a worker thread."""

from collections import deque
from collections.abc import Sequence
from functools import partial

import anyio
import anyio.to_thread

from spine.errors import AppendOutcomeUnknown, StoreError
from spine.store import Append, Store

COMMIT_TIMEOUT_S = 2.0


class Writer:
    """One per store: joins the commits of concurrent sessions into one transaction while another one is under way."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue: deque[tuple[Append, list[Exception | None], anyio.Event]] = deque()
        self._busy = False
        self._limiter: anyio.CapacityLimiter | None = None

    def write_now(self, batch: Append) -> None:
        """Store a batch on this thread, for stores that do not wait."""
        verdict = self.store.append((batch,))[0]
        if verdict is not None:
            raise verdict

    async def write(self, batch: Append) -> None:
        """Store a batch from a worker thread; shielded, and `AppendOutcomeUnknown` after two seconds."""
        verdict: list[Exception | None] = []
        done = anyio.Event()
        self._queue.append((batch, verdict, done))
        with anyio.move_on_after(COMMIT_TIMEOUT_S, shield=True) as scope:
            if self._busy:
                await done.wait()
            while not done.is_set():
                await self._lead()
        if scope.cancelled_caught and not done.is_set():
            raise AppendOutcomeUnknown(
                f"session {batch.session}: no answer to a commit within {COMMIT_TIMEOUT_S:g} s; reopen the session"
            )
        if verdict[0] is not None:
            raise verdict[0]

    async def _lead(self) -> None:
        self._busy = True
        batches = list(self._queue)
        self._queue.clear()
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(1)
        try:
            store = partial(self.store.append, [entry[0] for entry in batches])
            verdicts: Sequence[Exception | None] = await anyio.to_thread.run_sync(
                store, limiter=self._limiter, abandon_on_cancel=True
            )
        except StoreError as error:
            verdicts = [error] * len(batches)
        finally:
            self._busy = False
        for (_, verdict, done), result in zip(batches, verdicts, strict=True):
            verdict.append(result)
            done.set()
