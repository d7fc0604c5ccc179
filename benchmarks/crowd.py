"""T15, T16: many sessions at once in one runtime."""

import statistics
from functools import partial

import anyio

from benchmarks.figures import Figure
from benchmarks.floors import bare_loop
from benchmarks.timing import MemoryMeter, Meter
from benchmarks.workload import Sizes, open_runtime, open_session, script
from spine.session import Session
from spine.testing.script import Entry

__all__ = ["measure_crowd", "measure_crowd_memory"]


async def _run(session: Session) -> None:
    await session.run("go")


async def _crowd(sessions: int, steps: int, *, together: bool) -> float:
    """Steps a CPU second of `sessions` sessions, all at once or one after the other."""
    async with open_runtime("memory:", _answers(sessions, steps, together=together)) as runtime:
        opened = [await open_session(runtime, steps, f"s{number}") for number in range(sessions)]
        with Meter() as meter:
            if together:
                async with anyio.create_task_group() as group:
                    for session in opened:
                        group.start_soon(_run, session)
            else:
                for session in opened:
                    await session.run("go")
        assert all(session.turn is not None and session.turn.status == "completed" for session in opened)
    return sessions * (steps + 1) / meter.cpu_s


def _answers(sessions: int, steps: int, *, together: bool) -> list[Entry]:
    one = script(steps)
    if not together:
        return one * sessions
    # One script for all of them: every session is at the same step when the others are.
    return [entry for entry in one for _ in range(sessions)]


async def _bare_crowd(sessions: int, steps: int) -> float:
    with Meter() as meter:
        async with anyio.create_task_group() as group:
            for _ in range(sessions):
                group.start_soon(bare_loop, steps)
    return sessions * steps / meter.cpu_s


def measure_crowd(sizes: Sizes) -> list[Figure]:
    """T15, T16: steps a second of many sessions at once, and what that keeps of their rate one at a time."""
    rounds = []
    for _ in range(3):
        bare = anyio.run(_bare_crowd, sizes.sessions, sizes.steps_each)
        alone = anyio.run(partial(_crowd, max(1, sizes.sessions // 5), sizes.steps_each, together=False))
        crowd = anyio.run(partial(_crowd, sizes.sessions, sizes.steps_each, together=True))
        rounds.append((crowd, bare, crowd / alone))
    crowd, bare, kept = (statistics.median(column) for column in zip(*rounds, strict=True))
    return [Figure("T15", crowd, bare), Figure("T16", kept, None)]


def measure_crowd_memory(sizes: Sizes) -> list[Figure]:
    """T15: the most memory a session takes while all of them run, from opening on, its stored rows included."""

    async def peak() -> float:
        answers = _answers(sizes.sessions, sizes.steps_each, together=True)
        async with open_runtime("memory:", answers) as runtime:
            with MemoryMeter() as memory:
                opened = [await open_session(runtime, sizes.steps_each, f"s{n}") for n in range(sizes.sessions)]
                async with anyio.create_task_group() as group:
                    for session in opened:
                        group.start_soon(_run, session)
        return memory.peak / sizes.sessions / 1000

    return [Figure("T15 memory", anyio.run(peak), None)]
