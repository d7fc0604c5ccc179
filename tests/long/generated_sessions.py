"""Sessions made from a seed, played by the real loop on a clock of its own: the same log wherever they are played."""

import random
from typing import Any

from spine import Agent, Runtime
from spine.config import Settings
from spine.errors import SpineError
from spine.llm.retry import RetryPolicy
from spine.stores.memory import MemoryStore
from spine.testing.clock import FakeClock, FakeRandom
from spine.testing.script import Entry, call, call_text, fail, refuse, say, stop, think, usage
from spine.testing.scripted import ScriptedAdapter
from spine.tools import Tool, ToolDefinition
from spine.values import SessionId

NAME = SessionId("s")
WORDS = ("so", "then", "Grüße", "日本", "1.50 €", "\u202ereversed", "i̇stanbul", "\ud800 half", "ß", "emoji 🙂")
EFFECTS: tuple[Any, ...] = ("read_only", "idempotent", "irreversible")


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randrange(1, 6)))


def _entry(rng: random.Random) -> Entry:
    kind = rng.choice(("say", "say", "think", "call", "call", "calls", "broken", "fail", "refuse", "cut", "pause"))
    match kind:
        case "say":
            return say(_text(rng)) + usage(input_tokens=rng.randrange(99), output_tokens=rng.randrange(99))
        case "think":
            return think(_text(rng)) + say(_text(rng))
        case "call":
            return say(_text(rng)) + call(rng.choice("abc"), text=_text(rng), n=rng.randrange(2**70))
        case "calls":
            return call("a", n=1) + call("b", n=2) + call(rng.choice(("c", "nobody")), n=3)
        case "broken":
            return call_text("a", rng.choice(("{", "[]", "nonsense")))
        case "fail":
            return fail("overloaded", retry_after_s=rng.randrange(5))
        case "refuse":
            return refuse(_text(rng))
        case "cut":
            return call("a") + stop("max_tokens")
        case _:
            return say(_text(rng)) + stop("pause")


def _tool(name: str, rng: random.Random, clock: FakeClock) -> Tool:
    answers = [_text(rng) for _ in range(4)]
    fails, delay_s = rng.random() < 0.2, "bca".index(name) / 100

    async def handler(arguments: Any, context: Any) -> Any:
        await clock.sleep(delay_s)  # trio lets tasks that are due together run in any order
        if fails and int(arguments.get("n", 0)) % 2:
            raise ValueError(answers[0])
        return {"n": arguments.get("n"), "text": answers[len(context.call) % 4]}

    definition = ToolDefinition(name=name, parameters={"type": "object"})
    return Tool(definition=definition, handler=handler, effect=rng.choice(EFFECTS), parallel=rng.random() < 0.5)


async def play(seed: int) -> MemoryStore:
    """A store with one session made from `seed`: some turns, with everything that a script can do."""
    rng = random.Random(seed)
    clock, store = FakeClock(), MemoryStore()
    store.close = lambda: None  # type: ignore[method-assign]  # it outlives its runtime
    model = ScriptedAdapter(*(_entry(rng) for _ in range(40)), clock=clock)
    agent = Agent("scripted:demo", instructions=_text(rng), tools=[_tool(name, rng, clock) for name in "abc"])
    options: dict[str, Any] = {"settings": Settings(installed_plugins=False), "random": FakeRandom()}
    async with Runtime.open(store, model=model, clock=clock, retry=RetryPolicy(attempts=2), **options) as runtime:
        session = await runtime.session(NAME, agent)
        for _ in range(rng.randrange(1, 5)):
            try:
                turn = await session.run(_text(rng), check=False)
                if turn.status == "failed" and rng.random() < 0.5:
                    await session.retry(keep_partial=rng.random() < 0.5, check=False)
            except SpineError:  # the script ran out: the log ends here
                break
    return store
