"""Time and waiting, injected everywhere (floor 1): nothing reads a clock of its own."""

import time
from typing import Protocol

import anyio


class Clock(Protocol):
    """What the runtime needs of time."""

    def now(self) -> int:
        """Microseconds since 1970 UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    async def sleep(self, delay_s: float) -> None:
        """Wait, as a retry does; a fake clock moves itself forward instead."""

    async def pause(self, delay_s: float) -> None:
        """Wait for time to pass by itself; a fake clock waits until somebody moves it."""


class SystemClock:
    """The real time."""

    def now(self) -> int:
        """Microseconds since 1970 UTC."""
        return time.time_ns() // 1000

    monotonic = staticmethod(time.monotonic)
    """Seconds; never goes back. Read for every chunk, so without a function around it."""

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        await anyio.sleep(delay_s)

    async def pause(self, delay_s: float) -> None:
        """Wait for time to pass."""
        await anyio.sleep(delay_s)
