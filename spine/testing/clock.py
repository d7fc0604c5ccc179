"""A clock, random numbers and ids for tests: waits take no time, and every run sees the same values (floor 14).

The clock stands still until something waits on it or moves it, so the times in a log depend on what happened and on
nothing else. Sleepers wake in the order of their times, whatever the machine does.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

import anyio
import attrs
from anyio.lowlevel import checkpoint

from spine.errors import UsageError

__all__ = ["START", "FakeClock", "FakeIds", "FakeRandom"]

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
"""When a fake clock begins, unless told otherwise."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SETTLING = 3
"""Checkpoints before a sleeper moves the clock, by which whoever is about to sleep for less is asleep; and after it, by
which those who waited for that time have acted: what is cut off then does not come back."""


@attrs.define(eq=False)
class _Sleeper:
    due: int
    woken: anyio.Event = attrs.Factory(anyio.Event)


class FakeClock:
    """Fake time, in the shape that `Runtime.open(clock=)` wants; for one event loop at a time."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise UsageError(f"a fake clock starts at {start}, which has no time zone; datetime(…, tzinfo=UTC) has one")
        self._start = (start - _EPOCH) // timedelta(microseconds=1)
        self._elapsed = 0
        self._sleeping: list[_Sleeper] = []
        self._pausing: list[_Sleeper] = []

    def now(self) -> int:
        """Fake time in microseconds since 1970 UTC."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Fake seconds since the clock was made."""
        return self._elapsed / 1_000_000

    def advance(self, delay_s: float) -> None:
        """Move time forward by `delay_s` seconds and wake every pause that is over."""
        self._move_to(self._elapsed + _microseconds(delay_s))

    async def sleep(self, delay_s: float) -> None:
        """Move time forward by `delay_s`, after every sleeper that is due earlier; takes no real time."""
        sleeper = _Sleeper(self._elapsed + _microseconds(delay_s))
        self._sleeping.append(sleeper)
        try:
            await _settle()
            while (first := min(self._sleeping, key=lambda each: each.due)) is not sleeper:
                await first.woken.wait()
            if self._move_to(max(sleeper.due, self._elapsed)):
                await _settle()
        finally:
            self._sleeping.remove(sleeper)
            sleeper.woken.set()

    async def pause(self, delay_s: float) -> None:
        """Wait until others have moved time forward by `delay_s`: with `advance`, or by sleeping."""
        pause = _Sleeper(self._elapsed + _microseconds(delay_s))
        if pause.due <= self._elapsed:
            await checkpoint()
            return
        self._pausing.append(pause)
        try:
            await pause.woken.wait()
        finally:
            if pause in self._pausing:
                self._pausing.remove(pause)

    def _move_to(self, elapsed: int) -> bool:
        """Whether a pause was over then."""
        self._elapsed = elapsed
        over = [pause for pause in self._pausing if pause.due <= elapsed]
        self._pausing = [pause for pause in self._pausing if pause.due > elapsed]
        for pause in over:
            pause.woken.set()
        return bool(over)


async def _settle() -> None:
    for _ in range(_SETTLING):
        await checkpoint()


def _microseconds(delay_s: float) -> int:
    if not delay_s >= 0:
        raise UsageError(f"a fake clock was asked to wait {delay_s} s; time never goes back")
    return round(delay_s * 1_000_000)


class FakeRandom:
    """Numbers in [0, 1) in the shape of `random.random`: those given, again and again."""

    def __init__(self, *numbers: float) -> None:
        """By default every number is 0.5."""
        self._numbers = numbers or (0.5,)
        self._asked = count()

    def __call__(self) -> float:
        """The next number."""
        return self._numbers[next(self._asked) % len(self._numbers)]


class FakeIds:
    """Ids that count: `session-1`, `session-2`, …"""

    def __init__(self, prefix: str = "session") -> None:
        self._next: Callable[[], str] = map(f"{prefix}-{{}}".format, count(1)).__next__

    def __call__(self) -> str:
        """The next id."""
        return self._next()
