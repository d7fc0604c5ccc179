"""How batches reach the store (floor 7): on this thread, or joined with others on one worker thread.

While a transaction is under way the batches of other sessions queue up; together they are the next one. A batch under
way is never given up: a task that is cancelled waits for the answer first.

An answer that was lost is looked for before anything else happens: the same batches are appended again, and the store
compares them with its head. So they are there once, whether the first try had arrived or not.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

import anyio
import anyio.to_thread
import attrs
from anyio.lowlevel import EventLoopToken, current_token

from spine.errors import AppendOutcomeUnknown, StoreBusy, StoreUnavailable
from spine.frozen import define
from spine.store import Append, Store

T = TypeVar("T")

COMMIT_TIMEOUT_S = 2.0
"""How long the store may take over one transaction."""
QUEUE_TIMEOUT_S = 30.0
"""How long a batch may wait for its turn; it was then never tried."""
SETTLE_WAITS_S: Final = (0.0, 0.05, 0.2, 0.5)
"""Waits before each try to learn what became of a commit without an answer."""


@define(eq=False)
class _Entry:
    """A batch on its way, and the store's verdict once it has one."""

    batch: Append
    done: anyio.Event = attrs.Factory(anyio.Event)
    verdict: Exception | None = None
    began: float | None = None
    """When the worker thread took it; the clock of the deadline, which a busy event loop must not run down."""
    is_answered: bool = False
    """The store has answered; the loop may not know it yet."""

    def is_overdue(self, queued: float) -> bool:
        """Whether nothing can be hoped for: no answer from the store, or no turn, within the bound."""
        now = time.monotonic()
        if self.began is None:
            return now - queued > QUEUE_TIMEOUT_S
        return not self.is_answered and now - self.began > COMMIT_TIMEOUT_S


class Writer:
    """One per store: joins the commits of concurrent sessions. Its methods belong to one event loop."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue: deque[_Entry] = deque()
        self._is_busy = False
        self._thread: ThreadPoolExecutor | None = None
        self._loop: EventLoopToken | None = None

    def write_now(self, batch: Append) -> None:
        """Store a batch on this thread, for stores that do not wait."""
        verdict = append_settled(self.store, (batch,))[0]
        if verdict is not None:
            raise verdict

    async def write(self, batch: Append) -> BaseException | None:
        """Store a batch on the worker thread; `AppendOutcomeUnknown` when the store gives no answer within two seconds.

        A batch that never got its turn, because another one hangs, is `StoreBusy` after 30 seconds.

        Returns the cancellation that came meanwhile, if any: the caller settles its books first and then raises it.
        """
        entry = _Entry(batch)
        cancelled: BaseException | None = None
        self._queue.append(entry)
        if not self._is_busy:
            self._start()
        queued = time.monotonic()
        while not entry.done.is_set():
            with anyio.move_on_after(COMMIT_TIMEOUT_S / 4, shield=True) as scope:
                try:
                    await entry.done.wait()
                except anyio.get_cancelled_exc_class() as exc:
                    if scope.cancel_called:
                        raise
                    cancelled = exc  # asyncio's own `task.cancel()` knows no shield
            if not entry.done.is_set() and entry.is_overdue(queued):
                self._give_up(entry)
        if entry.verdict is not None:
            raise entry.verdict
        return cancelled

    def close(self) -> None:
        """Let the worker thread end once it is idle."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    def _start(self) -> None:
        entries = list(self._queue)
        self._queue.clear()
        self._is_busy = True
        if self._thread is None:
            self._thread, self._loop = ThreadPoolExecutor(1, "spine-writer"), current_token()
        self._thread.submit(self._store, entries)

    def _store(self, entries: Sequence[_Entry]) -> None:
        """One transaction; runs on the worker thread."""
        began = time.monotonic()
        for entry in entries:
            entry.began = began
        try:
            verdicts = append_settled(self.store, [entry.batch for entry in entries])
        except Exception as error:
            verdicts = [error] * len(entries)
        for entry in entries:
            entry.is_answered = True
        assert self._loop is not None
        call_soon(self._loop, self._finish, entries, verdicts)

    def _finish(self, entries: Sequence[_Entry], verdicts: Sequence[Exception | None]) -> None:
        self._is_busy = False
        for entry, verdict in zip(entries, verdicts, strict=True):
            entry.verdict = verdict
            entry.done.set()
        if self._queue:
            self._start()

    def _give_up(self, entry: _Entry) -> NoReturn:
        session = entry.batch.session
        if entry in self._queue:  # never tried: it must not be stored behind its session's back
            self._queue.remove(entry)
            raise StoreBusy(
                f"session {session}: its batch had no turn within {QUEUE_TIMEOUT_S:g} s; nothing was stored"
            )
        raise AppendOutcomeUnknown(
            f"session {session}: no answer to a commit within {COMMIT_TIMEOUT_S:g} s; reopen the session"
        )


def append_settled(store: Store, batches: Sequence[Append]) -> Sequence[Exception | None]:
    """The store's verdicts; those of a commit without an answer are learnt by appending the same again.

    Raises `AppendOutcomeUnknown` when no answer comes within a second.
    """
    try:
        return store.append(batches)
    except AppendOutcomeUnknown as lost:
        for wait_s in SETTLE_WAITS_S:
            time.sleep(wait_s)
            with suppress(AppendOutcomeUnknown, StoreUnavailable, StoreBusy):
                return store.append(batches)
        raise lost


async def off_loop(store: Store, function: Callable[..., T], *arguments: Any) -> T:
    """What a function that asks the store gives; on a thread where the store waits: nobody else must wait with it."""
    return await anyio.to_thread.run_sync(function, *arguments) if store.waits else function(*arguments)


def at_next_tick() -> Callable[[Callable[[], object]], object]:
    """The running loop's way to call a function at its next tick, cheaper than waking a task; for its own thread."""
    native: Any = current_token().native_token
    return getattr(native, "call_soon", None) or native.run_sync_soon  # type: ignore[no-any-return]


def call_soon(loop: EventLoopToken, function: Callable[..., None], *arguments: object) -> None:
    """Let a loop call a function soon; from any thread. Raises `RuntimeError` when the loop has ended."""
    # Not `anyio.from_thread.run_sync`: that waits for the loop, for ever when the loop ends just then.
    native = loop.native_token
    call: Callable[..., object] = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon  # type: ignore[attr-defined]
    call(function, *arguments)
