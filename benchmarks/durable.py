"""T5-T7: steps on disk: their CPU time, the commits they need, and the bytes they leave."""

import os
import sqlite3
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from types import ModuleType

import anyio

from benchmarks import awaiting_hooks, quiet_hooks
from benchmarks.figures import Figure
from benchmarks.floors import event_payloads, write_steps
from benchmarks.timing import Meter
from benchmarks.workload import Sizes, open_runtime, open_session, script

__all__ = ["measure_bytes", "measure_commits", "measure_durable"]


async def _durable_turn(url: str, steps: int, plugins: Sequence[ModuleType] = (quiet_hooks,)) -> tuple[Meter, int]:
    """One turn in a new runtime, after a short one that warms it: what it took, and its commits."""
    async with open_runtime(url, script(1) + script(steps), plugins) as runtime:
        await (await open_session(runtime, 1, "warm")).run("go")
        session = await open_session(runtime, steps)
        with Meter() as meter:
            await session.run("go")
        return meter, session.log.commits


def measure_durable(sizes: Sizes) -> list[Figure]:
    """T5: a durable step, next to the same payloads written by hand; relaxed (the bound) and full."""
    steps = sizes.durable_turn
    figures: dict[str, list[float]] = {"T5": [], "T5 full": [], "T5 wall": []}
    floors: dict[str, list[float]] = {"T5": [], "T5 full": [], "T5 wall": []}
    for _ in range(max(3, sizes.repeats // 2)):
        with tempfile.TemporaryDirectory() as folder:
            relaxed, _ = _turn_in(folder, "relaxed", steps)
            full, _ = _turn_in(folder, "full", steps)
            payloads = event_payloads(os.path.join(folder, "relaxed.db"))
            by_hand = [_by_hand(folder, payloads, synchronous) for synchronous in ("NORMAL", "FULL")]
        for key, meter, floor, kind in (
            ("T5", relaxed, by_hand[0], "cpu_s"),
            ("T5 full", full, by_hand[1], "cpu_s"),
            ("T5 wall", full, by_hand[1], "wall_s"),
        ):
            figures[key].append(getattr(meter, kind) / (steps + 1) * 1e6)
            floors[key].append(getattr(floor, kind) / (steps + 1) * 1e6)
    return [Figure(key, statistics.median(figures[key]), statistics.median(floors[key])) for key in figures]


def _turn_in(folder: str, durability: str, steps: int) -> tuple[Meter, int]:
    url = f"sqlite:{folder}/{durability}.db" + ("?durability=relaxed" if durability == "relaxed" else "")
    return anyio.run(partial(_durable_turn, url, steps))


def _by_hand(folder: str, payloads: Sequence[bytes], synchronous: str) -> Meter:
    with Meter() as meter:
        write_steps(os.path.join(folder, f"hand-{synchronous}.db"), payloads, synchronous=synchronous)
    return meter


def measure_commits(sizes: Sizes) -> list[Figure]:
    """T6: transactions of a step with `synchronous=FULL`; what a turn needs beside its steps is taken off."""
    figures = []
    for key, hooks in (("T6", quiet_hooks), ("T6 awaiting", awaiting_hooks)):
        few, many = (_commits(steps, hooks) for steps in (sizes.turn, 2 * sizes.turn))
        figures.append(Figure(key, (many - few) / sizes.turn, 2.0))
    return figures


def _commits(steps: int, hooks: ModuleType) -> int:
    with tempfile.TemporaryDirectory() as folder:
        _, commits = anyio.run(partial(_durable_turn, f"sqlite:{folder}/spine.db", steps, (hooks,)))
    return commits


# ---------------------------------------------------------------------------------------------------------- bytes


def measure_bytes(sizes: Sizes) -> list[Figure]:
    """T7: bytes on disk after a checkpoint: the slope between two lengths, the whole file, and the slope's growth."""
    lengths = (sizes.turn, sizes.long_turn, sizes.longest_turn)
    (short, medium, long), payload = _file_sizes(lengths)
    slope = (medium - short) / (lengths[1] - lengths[0])
    steep = (long - medium) / (lengths[2] - lengths[1])
    return [
        Figure("T7", steep, payload),
        Figure("T7 file", medium / (lengths[1] + 1), payload),
        Figure("T7 growth", steep / slope, 1.0),
    ]


def _file_sizes(lengths: Sequence[int]) -> tuple[list[int], float]:
    """Bytes of the files of turns of these lengths, and the payload bytes of a step of the last one."""
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        for steps in lengths:
            path = os.path.join(folder, f"{steps}.db")
            anyio.run(partial(_durable_turn, f"sqlite:{path}?durability=relaxed", steps))
            sizes.append(_checkpointed(path))
        payloads = event_payloads(path)
    return sizes, sum(map(len, payloads)) / (lengths[-1] + 1)


def _checkpointed(path: str) -> int:
    """Bytes of a database and of what lies beside it, after a checkpoint."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return sum(os.path.getsize(path + end) for end in ("", "-wal", "-shm") if os.path.exists(path + end))
