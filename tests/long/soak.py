"""Many sessions in one runtime for a long time, one in a hundred of them hostile: memory, lag and progress.

python soak.py [--count 5000] [--seconds 3600] [--where FOLDER] [--loop asyncio] [--seed 1]

COUNT sessions are open at once in one SQLite file, each with a user who runs one turn after the other until the time is
over; mostly they wait for a slow provider. After some turns a session is closed and gives way to a new one, so that all
there is stays the same but for what would leak. At the end the turns that lie in some of the sessions are compared with
those that ended.
Hostile sessions have tools that raise, hang until they are cut, return what is no result or far too much, and a model
that breaks the contract. Everybody else must complete every turn. Memory is sampled all the while; its slope is a
least-squares line over the last 80 %. The loop's lag is how late a timer of 50 ms fires. Prints one line of figures.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from conditions import conditions, count

from spine import Agent, Runtime
from spine.config import Settings
from spine.llm.chunks import TextDelta
from spine.testing.script import call, say
from spine.testing.scripted import prepare
from spine.tools import Tool, ToolDefinition
from spine.values import SessionId

TURNS_EACH = 2
PROVIDER_S = 15.0
"""How long an answer takes in the middle, in a run of at least twenty times as long."""
SAMPLE_S = 1.0
COMPARED = 500
"""Sessions that are read again at the end."""
ENDINGS = frozenset(("turn.completed", "turn.failed", "turn.cancelled"))
HOSTILE = ("raises", "hangs", "huge", "nonsense", "liar")


def resident_mb() -> float:
    """Memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def tool(name: str) -> Tool:
    """A tool that is as its name says."""

    async def handler(arguments: Any, context: Any) -> Any:
        match name:
            case "raises":
                raise RuntimeError("hostile")
            case "hangs":
                await anyio.sleep_forever()
            case "huge":
                return "x" * 2_000_000
            case "nonsense":
                return object()
        await checkpoint()
        return "looked"

    definition = ToolDefinition(name=name, parameters={"type": "object"})
    return Tool(definition=definition, handler=handler, timeout_s=0.2 if name == "hangs" else None)


class Model:
    """Calls the session's tool, then says something; for liars it breaks its contract."""

    protocol = "soak"

    def __init__(self, rng: random.Random, seconds: float) -> None:
        self._rng = rng
        self._seconds = seconds

    def check(self, request: Any) -> None:
        """Takes anything."""

    async def stream(self, request: Any) -> Any:
        """One attempt; it takes its time, as a provider does."""
        await anyio.sleep(self._rng.uniform(0.2, 1.8) * self._seconds)
        name = request.tools[0].name
        if name == "liar":
            yield TextDelta(index=0, text="never an end")
            return
        asked = request.messages[-1].role != "tool"
        for item in prepare(call(name) if asked else say("That is what I found.")).items:
            yield item
        await checkpoint()

    async def aclose(self) -> None:
        """Nothing."""


async def soak(given: argparse.Namespace) -> dict[str, Any]:
    """Run it; counts, samples of memory, lags."""
    rng = random.Random(given.seed)
    counts: Counter[str] = Counter()
    ages: Counter[int] = Counter()
    memory: list[tuple[float, float]] = []
    lags: Counter[int] = Counter()  # by milliseconds: a list of them would be the growth that is looked for
    began = time.monotonic()
    end, provider_s = began + given.seconds, min(PROVIDER_S, given.seconds / 20)
    settings = Settings(installed_plugins=False)
    agents = {kind: Agent("soak:model", tools=[tool(kind)]) for kind in (*HOSTILE, "look")}
    url = f"sqlite:{given.folder}/soak.db?durability=relaxed"
    async with Runtime.open(url, model=Model(rng, provider_s), settings=settings) as runtime:

        async def use(number: int) -> None:
            kind = HOSTILE[number // 100 % len(HOSTILE)] if number % 100 == 0 else "look"
            await anyio.sleep(rng.random() * provider_s)  # they do not come all at once
            while time.monotonic() < end:
                session = await runtime.session(name_of(number), agents[kind])
                ages[number] += 1
                ended = await session.run("Look.", check=False)
                counts["turns"] += 1
                counts["wrong"] += kind == "look" and ended.status != "completed"
                counts["hostile"] += kind != "look"
                if ages[number] % TURNS_EACH == 0:
                    await session.close()

        def name_of(number: int) -> str:
            return f"s{number}-{ages[number] // TURNS_EACH}"

        async def sample() -> None:
            while True:
                before = time.monotonic()
                await anyio.sleep(0.05)
                lags[round((time.monotonic() - before - 0.05) * 1000)] += 1
                if not memory or time.monotonic() - memory[-1][0] > SAMPLE_S:
                    memory.append((time.monotonic(), resident_mb()))

        async with anyio.create_task_group() as group:
            group.start_soon(sample)
            async with anyio.create_task_group() as users:
                for number in range(given.count):
                    users.start_soon(use, number)
            group.cancel_scope.cancel()
        for number in rng.sample(sorted(ages), min(COMPARED, len(ages))):
            ages[number] -= 1
            kept = sum(row.type in ENDINGS for row in runtime.store.read(SessionId(name_of(number))))
            counts["lost"] += ages[number] % TURNS_EACH + 1 - kept
    return {"counts": counts, "memory": memory, "lags": sorted(lags.items()), "seconds": time.monotonic() - began}


def slope_mb_per_minute(samples: list[tuple[float, float]]) -> float:
    """Of the last 80 % of the samples."""
    late = samples[len(samples) // 5 :]
    mean_t = sum(t for t, _ in late) / len(late)
    mean_m = sum(m for _, m in late) / len(late)
    spread = sum((t - mean_t) ** 2 for t, _ in late) or 1.0
    return 60 * sum((t - mean_t) * (m - mean_m) for t, m in late) / spread


def percentile(counted: list[tuple[int, int]], share: float) -> int:
    """The value below which `share` of all are, of values in order with their counts; 0 for none."""
    left = share * sum(count for _, count in counted)
    for value, number in counted:
        left -= number
        if left <= 0:
            return value
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Soak and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=5000, help="sessions")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--loop", default="asyncio", choices=("asyncio", "trio"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--where", type=Path, default=Path("/dev/shm"))
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="spine-soak-", dir=given.where) as given.folder:
        found = anyio.run(soak, given, backend=given.loop)
    counts, lags = found["counts"], found["lags"]
    print(
        f"soak: {count(given.count)} sessions, {count(counts['turns'])} turns ({count(counts['hostile'])} hostile) in "
        f"{found['seconds']:.0f} s · wrong {counts['wrong']} · lost {counts['lost']} · "
        f"memory {found['memory'][-1][1]:.0f} MB, slope {slope_mb_per_minute(found['memory']):+.2f} MB/min · "
        f"loop lag p99 {percentile(lags, 0.99)} ms, most {percentile(lags, 1)} ms · "
        + conditions(given.where, seed=given.seed, sync="relaxed", loop=given.loop)
    )
    return 1 if counts["wrong"] or counts["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
