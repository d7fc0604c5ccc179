"""What is measured: one agent, one tool, one scripted model, four hooks.

A step is three text deltas, one call of an async function tool with one string argument, and usage; a turn of n steps
is n such steps and a closing answer, so its cost is divided by n + 1.
"""

import gc
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import Final

import anyio
import attrs

from benchmarks import quiet_hooks
from benchmarks.timing import Meter
from spine import Agent, Limits, Runtime, tool
from spine.config import Settings
from spine.session import Session
from spine.testing.script import Entry, call, say, usage
from spine.testing.scripted import ScriptedAdapter

__all__ = ["FULL", "TINY", "Sizes", "cpu_a_step", "look", "open_runtime", "open_session", "script", "time_turns"]

USAGE: Final = usage(input_tokens=1512, cache_read_tokens=1408, output_tokens=24)
STEP: Final = say(chunks=["Let me ", "look that ", "up."]) + call("look", word="spine") + USAGE
LAST: Final = say(chunks=["It is ", "all ", "done."]) + USAGE


@attrs.frozen(kw_only=True)
class Sizes:
    """How much of everything is done; `repeats` is the number of times each figure is taken."""

    repeats: int
    turn: int
    """Steps of an ordinary turn."""
    long_turn: int
    longest_turn: int
    first_turns: int
    durable_turn: int
    stored_steps: int
    """Steps of the stored session that is read again."""
    chunks: int
    fragments: int
    small_calls: tuple[int, int]
    """Calls, and fragments of each, with the same number of fragments in sum."""
    sessions: int
    steps_each: int
    calls: int
    """Rounds of a small operation."""
    processes: int


FULL: Final = Sizes(
    repeats=9,
    turn=100,
    long_turn=1000,
    longest_turn=5000,
    first_turns=200,
    durable_turn=500,
    stored_steps=20_000,
    chunks=5000,
    fragments=4000,
    small_calls=(20, 200),
    sessions=1000,
    steps_each=10,
    calls=2000,
    processes=9,
)
TINY: Final = Sizes(
    repeats=3,
    turn=5,
    long_turn=10,
    longest_turn=20,
    first_turns=3,
    durable_turn=5,
    stored_steps=20,
    chunks=20,
    fragments=40,
    small_calls=(4, 10),
    sessions=4,
    steps_each=2,
    calls=20,
    processes=1,
)
"""For the harness's own test; no figure of it means anything."""


@tool(effect="read_only")
async def look(word: str) -> str:
    """Look a word up."""
    return "found " + word


def script(steps: int) -> list[Entry]:
    """The model's answers in a turn of `steps` steps."""
    return [STEP] * steps + [LAST]


def agent(steps: int) -> Agent:
    """The agent, with room for one turn of `steps` steps."""
    return Agent("scripted:m", instructions="Be brief.", tools=[look], limits=Limits(steps=steps + 1))


@asynccontextmanager
async def open_runtime(
    store: str, entries: Sequence[Entry], plugins: Sequence[ModuleType] = (quiet_hooks,)
) -> AsyncIterator[Runtime]:
    """A runtime that knows nothing of this machine, whose model plays `entries`, by default with four quiet hooks."""
    settings = Settings(installed_plugins=False)
    model = ScriptedAdapter(*entries)
    async with Runtime.open(store, model=model, plugins=plugins, settings=settings) as runtime:
        yield runtime


async def open_session(runtime: Runtime, steps: int, name: str = "s") -> Session:
    """A session of the agent with room for `steps` steps."""
    return await runtime.session(name, agent(steps))


async def time_turns(store: str, steps: int, turns: int, plugins: Sequence[ModuleType] = (quiet_hooks,)) -> list[Meter]:
    """Run a turn of `steps` steps in each of `turns` new sessions of one warm runtime; what each of them took.

    One turn before them pays for what a runtime prepares once.
    """
    meters = []
    async with open_runtime(store, script(steps) * (turns + 1), plugins) as runtime:
        for number in range(turns + 1):
            session = await open_session(runtime, steps, f"s{number}")
            gc.collect()
            with Meter() as meter:
                turn = await session.run("go")
            assert turn.steps == steps + 1, turn.steps
            meters.append(meter)
    return meters[1:]


def cpu_a_step(store: str, steps: int, turns: int, plugins: Sequence[ModuleType] = (quiet_hooks,)) -> float:
    """CPU µs of a step: the median over `turns` turns of `steps` steps."""
    meters = anyio.run(partial(time_turns, store, steps, turns, plugins))
    return statistics.median(meter.cpu_s for meter in meters) / (steps + 1) * 1e6
