"""Failpoints: every place of a run is found, each can be struck, and a run that is only watched is the same run."""

import types
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from spine import Agent, Runtime
from spine.clock import SystemClock
from spine.config import Settings
from spine.errors import SpineError, StoreUnavailable
from spine.hooks import hookimpl
from spine.llm.retry import RetryPolicy
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing import Failpoint, Failpoints, ScriptedAdapter, call, fail, say
from spine.tools import Tool, ToolDefinition

pytestmark = pytest.mark.anyio
SCRIPT = (fail("overloaded", retry_after_s=0), call("pay") + call("ship"), say("Done."))
EXPECTED = {
    "store.claim.before", "store.claim.after", "store.append.before", "store.append.after", "store.release.after",
    "model.ask", "model.item", "model.end",
    "tool.pay.before", "tool.pay.after", "tool.ship.before", "tool.ship.after",
    "hook.guard.spine_pre_execute.before", "hook.guard.spine_pre_execute.after",
    "clock.sleep.before", "clock.sleep.after",
}  # fmt: skip


def plugin() -> types.ModuleType:
    async def pre_execute(call: Any, call_next: Any) -> Any:
        return await call_next(call)

    module = types.ModuleType("spine_guard")
    module.spine_pre_execute = hookimpl(specname="spine_pre_execute")(pre_execute)  # type: ignore[attr-defined]
    return module


async def pay(arguments: Any, context: Any) -> str:
    return "paid"


def ship(arguments: Any, context: Any) -> str:
    return "shipped"


def agent() -> Agent:
    return Agent("scripted:demo", tools=[tool("pay", pay), tool("ship", ship)])


def tool(name: str, handler: Callable[..., Any]) -> Tool:
    return Tool(definition=ToolDefinition(name=name, parameters={"type": "object"}), handler=handler)


async def run(failpoints: Failpoints, store: Any) -> Any:
    """One turn with everything in it; its turn and the types of its events."""
    async with Runtime.open(
        failpoints.store(store),
        model=failpoints.model(ScriptedAdapter(*SCRIPT)),
        plugins=[failpoints.plugin(plugin())],
        clock=failpoints.clock(SystemClock()),
        settings=Settings(installed_plugins=False),
        retry=RetryPolicy(base_s=0),
    ) as runtime:
        session = await runtime.session("s", failpoints.agent(agent()))
        turn = await failpoints.drive(session.run("Go.", check=False))
        return turn, [event.type for event in session.log.read()]


async def test_a_run_passes_every_kind_of_place(tmp_path: Any) -> None:
    """Calls of the store, pieces of an answer, tools on the loop and in threads, hooks, waits, suspensions."""
    failpoints = Failpoints()
    turn, _ = await run(failpoints, SqliteStore(tmp_path / "a.db"))
    names = {hit.name for hit in failpoints.hits}
    assert turn.status == "completed"
    assert names >= EXPECTED
    awaits = [name for name in names if name.startswith("await.")]
    assert any("commits.Writer.write" in name for name in awaits)
    assert any("threads.Workers.run" in name for name in awaits)
    assert len(set(failpoints.hits)) == len(failpoints.hits), "a failpoint names one moment"


async def test_a_watched_run_is_the_same_run() -> None:
    """Nothing is added to the log, and nothing in another order."""
    watched = await run(Failpoints(), MemoryStore())
    async with Runtime.open(
        "memory:",
        model=ScriptedAdapter(*SCRIPT),
        plugins=[plugin()],
        settings=Settings(installed_plugins=False),
        retry=RetryPolicy(base_s=0),
    ) as runtime:
        session = await runtime.session("s", agent())
        turn = await session.run("Go.")
        assert watched == (watched[0], [event.type for event in session.log.read()])
        assert watched[0].text == turn.text


RAISED = {
    "model.item": ("failed", "protocol_error"),
    "hook.guard.spine_pre_execute.before": ("failed", "hook_failed"),
    "tool.pay.after": ("completed", None),
    "tool.ship.before": ("completed", None),
}


@pytest.mark.parametrize("name", RAISED)
async def test_what_is_raised_at_a_place_comes_out_of_its_call(name: str) -> None:
    def act() -> None:
        raise LookupError("struck")

    failpoints = Failpoints(Failpoint(name, 1), act)
    turn, _ = await run(failpoints, MemoryStore())
    assert failpoints.has_struck
    assert (turn.status, turn.error and turn.error.category) == RAISED[name]


@pytest.mark.parametrize("name", ["store.append.before", "store.append.after"])
async def test_a_store_that_fails_fails_as_a_store_does(name: str) -> None:
    def act() -> None:
        raise StoreUnavailable("struck")

    with pytest.raises(StoreUnavailable, match="struck"):
        await run(Failpoints(Failpoint(name, 2), act), MemoryStore())


async def test_an_await_that_ends_in_an_error_raises_it_there(tmp_path: Any) -> None:
    """The exception comes out of the wait itself, and the log stays one that can be gone on from."""
    watching = Failpoints()
    await run(watching, SqliteStore(tmp_path / "a.db"))
    places = [hit for hit in watching.hits if hit.name.startswith("await.") and "commits.Writer.write" in hit.name]

    def act() -> None:
        raise LookupError("struck")

    with pytest.raises((LookupError, SpineError)):
        await run(Failpoints(places[0], act), SqliteStore(tmp_path / "b.db"))


@pytest.mark.parametrize("name", ["model.ask", "tool.pay.after", "hook.guard.spine_pre_execute.before"])
async def test_a_place_that_hangs_is_left_by_a_cancel(name: str) -> None:
    struck = anyio.Event()
    failpoints = Failpoints(Failpoint(name, 1), struck.set, hangs=True)
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                await struck.wait()
                scope.cancel()

            group.start_soon(cancel)
            await run(failpoints, MemoryStore())
    assert scope.cancelled_caught


def test_a_place_reads_as_its_name_and_number() -> None:
    assert [str(Failpoint("model.ask")), str(Failpoint("model.ask", 3))] == ["model.ask", "model.ask#3"]
