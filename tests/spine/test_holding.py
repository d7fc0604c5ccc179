"""Erasing while sessions are open: they stand still, read their logs anew, and go on."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from spine import Agent, Runtime
from spine.config import Settings
from spine.errors import SessionBusy, SessionOwned, UsageError
from spine.log import Synchronised
from spine.owning import this_process
from spine.proof.verify import verify
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing import ScriptedAdapter, call, say
from spine.tools import Tool, ToolDefinition
from spine.values import SessionId, digest

pytestmark = pytest.mark.anyio

SECRET = "the secret of a person"
LONG = f"{SECRET}, at length: " + "x" * 70_000
ALONE = Settings(installed_plugins=False)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: Any, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")


def opened(store: Any, *answers: Any) -> Runtime:
    return Runtime.open(store, model=ScriptedAdapter(*answers), settings=ALONE)


def seqs_of(runtime: Runtime, session: str, kind: str) -> list[int]:
    return [row.seq for row in runtime.reader(session).rows(types=(kind,))]


async def test_an_open_session_forgets_what_is_erased_and_goes_on(store: Any) -> None:
    """Its history, its next request, its forks and whoever follows it; every request is proven as far as it can be."""
    async with opened(store, say("one"), say("two"), say("three")) as runtime:
        session = await runtime.session("s", Agent("scripted:demo", instructions=LONG))
        await session.run(SECRET)
        fork = await session.fork("child")
        heard: list[str] = []

        async def follow() -> None:
            async for event in session.follow():
                heard.append("live" if isinstance(event, Synchronised) else event.type)
                if heard[-1] == "turn.completed" and heard.count("turn.completed") == 2:
                    return

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            while "live" not in heard:
                await anyio.sleep(0.001)
            done = await runtime.erase(
                "s", seqs_of(runtime, "s", "input.accepted"), (digest(LONG.encode()),), reason="asked for"
            )
            assert done.sessions == ("s", "child")
            assert [SECRET in str([*each.history()]) for each in (session, fork)] == [False, False]
            assert await runtime.session("s", session.agent) is session
            assert (await session.run("again")).text == "two"
        assert (await fork.run("and here")).text == "three"
        assert heard.count("content.erased") == 1
        for id in ("s", "child"):
            found = verify(runtime.reader(id))
            assert (found.verdict, found.problems) == ("ok", ())
        last = runtime.reader("s").request(seqs_of(runtime, "s", "model.requested")[-1])
        assert [block.text for block in last.system] == [LONG]
        assert SECRET not in str(last.messages)


async def test_nothing_is_erased_while_a_turn_runs_there_or_in_a_fork_and_the_turn_is_not_disturbed(store: Any) -> None:
    refused: list[str] = []

    async def look(arguments: Any, context: Any) -> str:
        for id in ("s", "child"):
            try:
                await runtime.erase(id, [2], reason="asked for")
            except SessionBusy as error:
                refused.append(error.message)
        return "looked"

    tool = Tool(definition=ToolDefinition(name="look", parameters={"type": "object"}), handler=look)
    async with opened(store, say("one"), call("look"), say("two"), say("three")) as runtime:
        session = await runtime.session("s", Agent("scripted:demo", tools=(tool,)))
        await session.run(SECRET)
        child = await session.fork("child")
        assert (await child.run("now")).status == "completed"
        assert len(refused) == 2
        assert (await session.run("now")).text == "three"
        assert SECRET in str([*session.history()])


async def test_a_session_goes_on_when_its_erasure_was_refused(store: Any) -> None:
    """Because another process owns a fork, say; nothing is erased then."""
    async with opened(store, say("one"), say("two")) as runtime:
        session = await runtime.session("s", Agent("scripted:demo"))
        await session.run(SECRET)
        await runtime.fork("s", "child")
        store.claim(SessionId("child"), this_process(1, 77), now=runtime._clock.now(), lease_us=60_000_000)
        with pytest.raises(SessionOwned):
            await runtime.erase("s", [2], reason="asked for")
        with pytest.raises(UsageError):
            await runtime.erase("s", [2000], reason="asked for")
        with pytest.raises(UsageError, match="reason"):
            await runtime.erase("s", [2], reason=" ")
        assert (await session.run("again")).text == "two"
        assert SECRET in str([*session.history()])


async def test_meanwhile_appends_are_refused_and_closing_is_not_undone() -> None:
    store = MemoryStore()
    async with opened(store, say("one")) as runtime:
        session = await runtime.session("s", Agent("scripted:demo"))
        await session.run(SECRET)
        await session.log.hold(session.check_idle, SessionBusy("held"))
        for attempt in (partial(session.run, "now"), partial(session.submit, "now"), partial(session.rename, "now")):
            with pytest.raises(SessionBusy, match="held"):
                await attempt()
        assert await runtime.session("s", session.agent) is session
        await session.close()
        assert not session.log.is_held
        with pytest.raises(UsageError, match="closed"):
            await session.rename("later")
        assert (await runtime.session("s", session.agent)) is not session


async def test_a_request_that_is_looked_at_meanwhile_is_taken_afterwards() -> None:
    store = MemoryStore()
    async with opened(store, say("one"), say("two")) as runtime:
        session = await runtime.session("s", Agent("scripted:demo"))
        await session.run(SECRET)
        await session.log.hold(session.check_idle, SessionBusy("held"))
        runtime.send("s", "cancel", {"cause": "stop", "by": None}, key="k")
        await session.take_inbox()
        assert len(store.inbox(session.id)) == 1
        runtime._release(session.id)
        await session.reload(runtime._claim(session.id))
        await session.take_inbox()
        assert (store.inbox(session.id), seqs_of(runtime, "s", "cancel.requested")) == ([], [session.log.seq])


async def test_a_session_that_is_not_open_is_erased_as_well(store: Any) -> None:
    async with opened(store, say("one")) as runtime:
        session = await runtime.session("s", Agent("scripted:demo"))
        await session.run(SECRET)
        await session.close()
        assert (await runtime.erase("s", [2], reason="asked for")).events == (2,)
        again = await runtime.session("s", session.agent)
        assert SECRET not in str([*again.history()])
