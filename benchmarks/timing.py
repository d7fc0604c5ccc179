"""How time and memory are taken: process CPU time, medians, and what other processes say of themselves."""

import gc
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence

import attrs

__all__ = ["Child", "MemoryMeter", "Meter", "child", "cpu_per_await", "cpu_per_call", "median_of", "wall_of"]


@attrs.define
class Meter:
    """CPU and wall seconds of this process between `__enter__` and `__exit__`; garbage is not collected before."""

    cpu_s: float = 0.0
    wall_s: float = 0.0

    def __enter__(self) -> "Meter":
        self.wall_s = time.perf_counter()
        self.cpu_s = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s = time.process_time() - self.cpu_s
        self.wall_s = time.perf_counter() - self.wall_s


@attrs.define
class MemoryMeter:
    """Bytes that Python allocated and kept, and the most it held at once, between `__enter__` and `__exit__`."""

    kept: int = 0
    peak: int = 0
    _before: int = 0

    def __enter__(self) -> "MemoryMeter":
        gc.collect()
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_: object) -> None:
        gc.collect()
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self.kept, self.peak = now - self._before, peak - self._before


def median_of(repeats: int, measure: Callable[[], float]) -> float:
    """The median of `repeats` measurements."""
    return statistics.median(measure() for _ in range(repeats))


def cpu_per_call(work: Callable[[], object], *, calls: int, repeats: int = 7) -> float:
    """CPU seconds of one call: the median over `repeats` rounds of `calls` calls."""

    def round_() -> float:
        with Meter() as meter:
            for _ in range(calls):
                work()
        return meter.cpu_s / calls

    return median_of(repeats, round_)


async def cpu_per_await(work: Callable[[], Awaitable[object]], *, calls: int, repeats: int = 7) -> float:
    """CPU seconds of one awaited call: the median over `repeats` rounds of `calls` calls."""
    seconds = []
    for _ in range(repeats):
        with Meter() as meter:
            for _ in range(calls):
                await work()
        seconds.append(meter.cpu_s / calls)
    return statistics.median(seconds)


# ---------------------------------------------------------------------------------------------- other processes


@attrs.frozen
class Child:
    """What a cold process said of itself: CPU seconds from its start, and the most memory it held, in bytes."""

    cpu_s: float
    memory: int


_CONFESSION = """
import resource, sys, time
cpu, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:  # ru_maxrss is inherited from the parent on Linux
    with open("/proc/self/status") as status:
        memory = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
except OSError:
    memory //= 1024 if sys.platform == "darwin" else 1
print(cpu, memory * 1024)
"""


def child(code: str, repeats: int) -> Child:
    """Run `code` in fresh interpreters, one more than `repeats` (the first compiles), and give medians."""
    found = [_one_child(code) for _ in range(repeats + 1)][1:]
    return Child(statistics.median(each.cpu_s for each in found), int(statistics.median(each.memory for each in found)))


def _one_child(code: str) -> Child:
    command = [sys.executable, "-c", code + _CONFESSION]
    done = subprocess.run(command, env=_environ(), capture_output=True, text=True, check=True)
    cpu, memory = done.stdout.split()[-2:]
    return Child(float(cpu), int(memory))


def wall_of(command: Sequence[str], *, cwd: str | None = None, environ: dict[str, str] | None = None) -> float:
    """Wall seconds of one process. Raises `CalledProcessError` with what it said when its status is not 0."""
    began = time.perf_counter()
    subprocess.run(command, cwd=cwd, env={**_environ(), **(environ or {})}, capture_output=True, check=True)
    return time.perf_counter() - began


def _environ() -> dict[str, str]:
    """Our own, but that compiled files are kept: what is measured is a start, not the compiler."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
