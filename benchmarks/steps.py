"""T1-T4: steps in memory, their growth with the length of the session, their memory, and the first turn."""

import statistics
from functools import partial

import anyio

from benchmarks.figures import Figure
from benchmarks.floors import BareEvent, bare_loop
from benchmarks.timing import MemoryMeter, Meter
from benchmarks.workload import LAST, Sizes, cpu_a_step, open_runtime, open_session, script

__all__ = ["measure_first_turn", "measure_growth", "measure_memory", "measure_step"]

_TURNS_A_ROUND = 3
_GROWTH_ROUNDS = 3


async def _bare_turns(steps: int, turns: int) -> list[float]:
    costs = []
    for _ in range(turns):
        with Meter() as meter:
            await bare_loop(steps)
        costs.append(meter.cpu_s)
    return costs


def bare_cpu_a_step(steps: int, turns: int) -> float:
    """CPU µs of a step of the bare loop: the median over `turns` turns."""
    return statistics.median(anyio.run(partial(_bare_turns, steps, turns))) / steps * 1e6


def measure_step(sizes: Sizes) -> list[Figure]:
    """T1: one step of a turn in memory; figure and floor are taken in turns, so that both see the same machine."""
    ours, bare = [], []
    for _ in range(sizes.repeats):
        bare.append(bare_cpu_a_step(sizes.turn, sizes.repeats))
        ours.append(cpu_a_step("memory:", sizes.turn, _TURNS_A_ROUND))
    return [Figure("T1", statistics.median(ours), statistics.median(bare))]


def measure_growth(sizes: Sizes) -> list[Figure]:
    """T2: what a step costs in a long session, over what it costs in a short one; taken in turns."""
    growth: dict[str, list[float]] = {"T2": [], "T2 long": []}
    for _ in range(_GROWTH_ROUNDS):
        for key, steps in (("T2", sizes.long_turn), ("T2 long", sizes.longest_turn)):
            short = cpu_a_step("memory:", sizes.turn, 2 * _TURNS_A_ROUND)
            growth[key].append(cpu_a_step("memory:", steps, 1) / short)
    return [Figure(key, statistics.median(ratios), 1.0) for key, ratios in growth.items()]


def measure_memory(sizes: Sizes) -> list[Figure]:
    """T3: what a step of the longest turn leaves in memory, the stored rows included; the turn must end."""
    steps = sizes.longest_turn

    async def kept() -> float:
        async with open_runtime("memory:", script(steps)) as runtime:
            session = await open_session(runtime, steps)
            with MemoryMeter() as memory:
                turn = await session.run("go")
            assert turn.status == "completed", turn.status
            return memory.kept / (steps + 1) / 1000

    return [Figure("T3", anyio.run(kept), _bare_memory(steps))]


def _bare_memory(steps: int) -> float:
    """Five events a step, each with a payload of its own, in a list: KB a step."""
    with MemoryMeter() as memory:
        log = [
            BareEvent("bare", seq, "completed", 1, seq, "t1", f"t1s{seq // 5}", b"%120d" % seq)
            for seq in range(5 * steps)
        ]
    return memory.kept / len(log) * 5 / 1000


def measure_first_turn(sizes: Sizes) -> list[Figure]:
    """T4: opening a new session and running its first turn, which has one step; alone, and in a new runtime."""
    warm = statistics.median(anyio.run(partial(_first_turns, sizes.first_turns)))
    cold = statistics.median(anyio.run(partial(_first_turns, 1))[0] for _ in range(sizes.repeats))
    floor = bare_cpu_a_step(1, sizes.first_turns) / 1e3
    return [Figure("T4", warm * 1e3, floor), Figure("T4 cold", cold * 1e3, floor)]


async def _first_turns(turns: int) -> list[float]:
    """CPU seconds of each of `turns` first turns of new sessions in one new runtime."""
    costs = []
    async with open_runtime("memory:", [LAST] * turns) as runtime:
        for number in range(turns):
            with Meter() as meter:
                session = await open_session(runtime, 0, f"s{number}")
                await session.run("go")
            costs.append(meter.cpu_s)
    return costs
