"""The sessions that golden logs are made of: everything that the loop writes, with fake time and chance."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import attrs

from spine import Agent, Runtime
from spine.codec import Codec
from spine.config import Settings
from spine.erasing import erase
from spine.hooks import Ask, Compact, Deny, hookimpl
from spine.messages import user_message
from spine.store import Append, Owner, Store
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.testing import FakeClock, FakeRandom, ScriptedAdapter, call, fail, say, think, usage
from spine.testing.demo import play_demo
from spine.tools import Tool, ToolDefinition
from spine.values import SessionId

BUSY, CHILD, ERASED, CRASHED = map(SessionId, ("busy", "child", "erased", "crashed"))
DEMO = SessionId("refund-1017")
OWNER = Owner("golden", "host", 1, 1)
NOW = 1_790_000_000_000_000
LONG = "A long text. " * 6_000


def _look(arguments: Any, context: Any) -> Any:
    context.progress("half way", {"share": 0.5})
    if arguments.get("fail"):
        raise ValueError("it broke")
    return LONG if arguments.get("long") else {"found": arguments.get("what", "nothing"), "é": [1, 2.5, None]}


def agent() -> Agent:
    """One with a tool of each effect."""
    look = Tool(definition=ToolDefinition(name="look"), handler=_look, effect="read_only", parallel=True)
    pay = Tool(definition=ToolDefinition(name="pay"), handler=_look, effect="irreversible", approval="ask")
    return Agent("scripted:demo", name="golden", instructions="Keep these logs readable.", tools=(look, pay))


def plugin() -> ModuleType:
    """Patches a request, asks, denies, revises, compacts, and fails as an observer."""
    module = ModuleType("spine_golden")

    @hookimpl
    async def spine_pre_step(request: Any, context: Any, call_next: Any) -> Any:
        if request.messages[-1].text == "Compact.":
            return Compact(summary=user_message("So far: looked.", kind="summary"), until=20)
        return await call_next(request.evolve(temperature=0.5, metadata={"by": "golden"}))

    @hookimpl
    async def spine_pre_execute(call: Any, context: Any, call_next: Any) -> Any:
        what = call.arguments.get("what")
        if what == "denied":
            return Deny("not today")
        if what == "asked":
            return Ask("look first")
        return await call_next(call.evolve(arguments=call.arguments.evolve(seen=True)) if what == "patched" else call)

    @hookimpl
    async def spine_post_execute(call: Any, outcome: Any, call_next: Any) -> Any:
        return await call_next(outcome.evolve(content=()) if call.arguments.get("what") == "hidden" else outcome)

    @hookimpl
    async def spine_post_step(response: Any) -> None:
        if response.message.text == "Observe.":
            raise RuntimeError("the observer broke")

    for hook in (spine_pre_step, spine_pre_execute, spine_post_execute, spine_post_step):
        setattr(module, hook.__name__, hook)
    return module


TURNS = (
    ("Look.", think("Hm.") + say("So.") + call("look", what="a") + call("look", what="patched"), say("Seen.")),
    ("Fail.", call("look", fail=True) + call("nope") + call("look", what="denied"), say("Observe.")),
    ("Retry.", fail("overloaded", retry_after_s=1), say("Again.") + usage(input_tokens=10, output_tokens=2)),
    ("Hide.", call("look", what="hidden") + call("look", long=True), say("Hidden.")),
    ("Break.", say("Half an ans") + fail("connection")),
    ("Compact.", say("Short now.")),
    ("Pay.", call("pay", what="x") + call("look", what="asked"), say("Paid or not.")),
    ("Stop.", call("pay", what="y")),
)


@asynccontextmanager
async def opened(store: Store, *entries: Any) -> AsyncIterator[Runtime]:
    """A runtime with fake time and chance that plays `entries`."""
    options: dict[str, Any] = {"clock": FakeClock(), "random": FakeRandom(), "plugins": [plugin()]}
    settings = Settings(installed_plugins=False)
    async with Runtime.open(store, model=ScriptedAdapter(*entries), settings=settings, **options) as runtime:
        yield runtime


async def play_busy(store: Store) -> None:
    """A session with nearly all that can happen."""
    async with opened(store, *(entry for _, *entries in TURNS for entry in entries)) as runtime:
        session = await runtime.session(BUSY, agent(), metadata={"customer": "C-1"}, scope="shop")
        for text, *_ in TURNS:
            turn = await session.run([user_message("Context.", kind="context"), user_message(text)], check=False)
            while turn.status == "suspended" and text == "Pay.":
                decide = session.approve if turn.approvals[0].id == "a1" else session.deny
                turn = await decide(turn.approvals[0].id, by="me", reason="so it is")
            await session.cancel("enough", by="me")
        await session.rename("Golden \u2013 \u00fc")


async def play_crashed(store: Store) -> None:
    """The first turn again, by another process that finds a call that had started and a changed agent."""
    whole = MemoryStore()
    await play_busy(whole)
    rows = list(whole.read(BUSY))
    cut = next(number for number, row in enumerate(rows, 1) if row.type == "tool.started")
    claim = store.claim(BUSY, OWNER, now=NOW, lease_us=1)
    log = StoredLog(whole, Codec(), BUSY)
    store.append([Append(BUSY, claim.token, 0, log.genesis, tuple(rows[:cut]))])
    store.release(BUSY, OWNER)
    async with opened(store, say("Seen after all.")) as runtime:
        session = await runtime.session(BUSY, attrs.evolve(agent(), name="golden two"), scope="shop")
        await session.resume()


async def play_all() -> dict[str, tuple[Store, SessionId]]:
    """Every golden session by name, each in the store that it was played in."""
    demo, busy, crashed = MemoryStore(), MemoryStore(), MemoryStore()
    await play_demo(demo)
    await play_busy(busy)
    await play_crashed(crashed)
    seq = next(row.seq for row in busy.read(BUSY) if row.type == "tool.started")
    async with opened(busy, say("On another way.")) as runtime:
        session = await runtime.session(BUSY, agent())
        child = await session.fork(CHILD, seq=seq)
        await child.run("Go another way.")
        await session.fork(ERASED, seq=60)
    erased = StoredLog(busy, Codec(), ERASED)
    wanted = [row.seq for row in erased.rows(types=("input.accepted", "message.committed", "tool.completed"))][:5]
    gone = MemoryStore()  # what is erased there would be erased in the sessions that share it
    _copy(erased, gone)
    erase(StoredLog(gone, Codec(), ERASED), wanted, reason="golden", by="me", owner=OWNER, now=NOW)
    return {
        "demo": (demo, DEMO),
        "busy": (busy, BUSY),
        "crashed": (crashed, BUSY),
        "child": (busy, CHILD),
        "erased": (gone, ERASED),
    }


def _copy(log: StoredLog, store: Store) -> None:
    claim = store.claim(log.session, OWNER, now=NOW, lease_us=1)
    rows = tuple(log.rows())
    contents = tuple(log.store.contents(log.store._contents).values())  # type: ignore[attr-defined]
    store.append([Append(log.session, claim.token, 0, log.genesis, rows, contents)])
    store.release(log.session, OWNER)
