"""How fast this machine is now, next to the one that the bounds were written for.

The bounds are process CPU times of one machine. Small programs whose cost was published for it run here too, and the
median of (cost here / cost there) is the calibration: 2.0 means that everything takes twice as long here and now.
"""

import hashlib
import json
import statistics
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import anyio
import attrs

from benchmarks.floors import bare_loop
from benchmarks.timing import cpu_per_await, cpu_per_call

__all__ = ["Block", "calibration", "measure_blocks"]

FLOOR_STEPS: Final = 100


@attrs.frozen
class Block:
    """A building block: its cost here and on the machine of the bounds, in µs."""

    what: str
    here: float
    there: float

    @property
    def factor(self) -> float:
        """How many times longer it takes here."""
        return self.here / self.there


async def _nothing() -> None:
    return None


async def _items(count: int) -> AsyncGenerator[int, None]:
    for number in range(count):
        yield number


async def _exhaust() -> None:
    async for _ in _items(1000):
        pass


async def _close_early() -> None:
    async with aclosing(_items(1)) as items:
        async for _ in items:
            pass


async def _cancel_scope() -> None:
    with anyio.CancelScope():
        pass


async def _task_group() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_nothing)


_EVENT: Final = json.dumps(
    {
        "seq": 41,
        "type": "tool.completed",
        "turn": "t1",
        "step": "t1s2",
        "data": {"call": "t1s2c1", "result": {"content": [{"type": "text", "text": "x" * 231}], "is_error": False}},
        "numbers": [1, 2.5, 3, 4.75, 5],
        "usage": {"input_tokens": 1512, "output_tokens": 24, "cache_read_tokens": 1408},
    },
    separators=(",", ":"),
).encode()
"""A JSON event of 483 bytes."""


async def _awaited(what: str, there: float, work: Any, calls: int, share: int = 1) -> Block:
    return Block(what, await cpu_per_await(work, calls=calls) / share * 1e6, there)


def _called(what: str, there: float, work: Any, calls: int) -> Block:
    return Block(what, cpu_per_call(work, calls=calls) * 1e6, there)


async def _all_blocks(calls: int) -> list[Block]:
    payload = b"z" * 500
    return [
        await _awaited(
            "a step of the bare loop", 12.5, lambda: bare_loop(FLOOR_STEPS), max(1, calls // 200), FLOOR_STEPS
        ),
        await _awaited("await", 0.14, _nothing, calls * 5),
        await _awaited("async generator, an item", 0.13, _exhaust, max(1, calls // 200), 1000),
        await _awaited("aclosing", 2.3, _close_early, calls),
        await _awaited("cancel scope", 4.4, _cancel_scope, calls),
        await _awaited("task group, one child", 37, _task_group, max(1, calls // 10)),
        _called("JSON event of 483 bytes", 3.9, lambda: json.loads(_EVENT), calls),
        _called("SHA-256 of 500 bytes", 0.7, lambda: hashlib.sha256(payload).digest(), calls),
    ]


def measure_blocks(calls: int) -> list[Block]:
    """All building blocks, measured now in rounds of about `calls` calls; the first is the floor of T1."""
    return anyio.run(_all_blocks, calls)


def calibration(blocks: list[Block]) -> float:
    """The median factor of the blocks."""
    return statistics.median(block.factor for block in blocks)
