"""Threads for synchronous tool handlers, with a bound on those that nobody waits for any more (floor 1).

A thread cannot be stopped. When its caller is cancelled or out of time, the thread goes on alone: it is counted and
named here until it ends, and while too many of them run no new one is started. Works on asyncio and trio alike.
"""

import threading
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

import anyio
import anyio.to_thread

__all__ = ["Job", "ThreadsExhausted", "Workers"]

T = TypeVar("T")


class ThreadsExhausted(Exception):
    """Too many abandoned threads still run; `count` of them. Nothing was started."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} abandoned threads still run")
        self.count = count


class Job(Generic[T]):
    """One call on its way through a thread. `label` names it to people."""

    __slots__ = ("function", "is_abandoned", "label", "state")

    def __init__(self, label: str, function: Callable[[], T]) -> None:
        self.label = label
        self.function = function
        self.state: Literal["waiting", "running", "ended"] = "waiting"
        self.is_abandoned = False


class Workers:
    """A bounded set of threads, shared by all sessions of a runtime.

    At most `max_threads` run for callers that wait, and at most `max_abandoned` for callers that gave up.
    """

    def __init__(self, *, max_threads: int = 40, max_abandoned: int = 20) -> None:
        self._limiter = anyio.CapacityLimiter(max_threads)
        self._max_abandoned = max_abandoned
        self._abandoned: set[Job[object]] = set()
        # Threads and the event loop both change a job's state; without it, a call reported as never started could run.
        self._lock = threading.Lock()

    @property
    def abandoned(self) -> tuple[str, ...]:
        """The labels of calls whose threads still run although nobody waits for them, sorted."""
        with self._lock:
            return tuple(sorted(job.label for job in self._abandoned))

    async def run(self, job: Job[T]) -> T:
        """Run a job in a thread, with the caller's context variables, and return or raise what its function does.

        Raises `ThreadsExhausted` before anything started. On cancellation the job's `state` tells what became of it:
        `waiting` never runs, `running` goes on as an abandoned thread, `ended` was just too late.
        """
        count = len(self.abandoned)
        if count >= self._max_abandoned:
            raise ThreadsExhausted(count)
        try:
            return await anyio.to_thread.run_sync(self._work, job, limiter=self._limiter, abandon_on_cancel=True)
        finally:
            self._leave(job)

    def _work(self, job: Job[T]) -> T:
        with self._lock:
            if job.is_abandoned:
                raise ThreadsExhausted(0)  # goes nowhere: nobody waits for this thread
            job.state = "running"
        try:
            return job.function()
        finally:
            with self._lock:
                job.state = "ended"
                self._abandoned.discard(job)

    def _leave(self, job: Job[T]) -> None:
        with self._lock:
            job.is_abandoned = job.state != "ended"
            if job.state == "running":
                self._abandoned.add(job)  # type: ignore[arg-type]
