"""A store that answers late keeps nobody waiting but those who ask it: its reads are made on a thread."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from spine import Agent, Runtime
from spine.config import Settings
from spine.cursors import Cursor
from spine.log import Synchronised
from spine.store import Row
from spine.stores.memory import MemoryStore
from spine.testing.crashes import ProcessDied, crashing
from spine.testing.script import call, say
from spine.testing.scripted import ScriptedAdapter
from spine.tools import Tool, ToolDefinition
from spine.values import SessionId

pytestmark = pytest.mark.anyio

S = SessionId("s")
SLOW_S = 0.2
ALONE = Settings(installed_plugins=False)


class Slow(MemoryStore):
    """A store whose reads take 200 ms, once `is_slow`; it notes how often the event loop's task ran in each."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.is_slow, self.ticks = True, False, 0
        self.ran: list[int] = []

    def _take_long(self) -> None:
        if self.is_slow:
            before = self.ticks
            time.sleep(SLOW_S)
            self.ran.append(self.ticks - before)

    def read(self, *arguments: Any, **named: Any) -> Iterator[Row]:
        self._take_long()
        return super().read(*arguments, **named)

    def head(self, *arguments: Any) -> Any:
        self._take_long()
        return super().head(*arguments)

    def contents(self, *arguments: Any) -> Any:
        self._take_long()
        return super().contents(*arguments)


@asynccontextmanager
async def ticking(store: Slow) -> AsyncIterator[None]:
    """Let a task run on the event loop, and the store be slow."""

    async def tick() -> None:
        while True:
            store.ticks += 1
            await anyio.sleep(0.005)

    store.is_slow = True
    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        yield
        group.cancel_scope.cancel()
    store.is_slow = False


def opened(store: Any, *answers: Any) -> Runtime:
    return Runtime.open(store, model=ScriptedAdapter(*answers), settings=ALONE)


async def test_others_run_while_a_session_is_opened_forked_and_followed() -> None:
    """As a stream of its own, from outside, and by whoever only reads."""
    store, agent = Slow(), Agent("p:m")
    async with opened(store, say("One.")) as runtime:
        await (await runtime.session("s", agent)).run("Go.")
    async with opened(store, say("Two."), say("Three.")) as runtime, ticking(store):
        session = await runtime.open_session("s", agent)
        followed: list[Any] = []
        async for item in runtime.follow("s"):
            followed.append(item)
            if isinstance(item, Synchronised):
                break
        async with session.stream("Again.") as stream:
            streamed = [event async for event in stream]
        fork = await session.fork("child", seq=session.log.head[0])
        await fork.run("And here.")
    assert [item.seq for item in followed[:-1]] == list(range(1, followed[-1].seq + 1))
    assert [event.seq for event in streamed] == list(range(followed[-1].seq + 1, session.log.head[0] + 1))
    assert len(store.ran) > 8
    assert min(store.ran) > 0, store.ran


@pytest.mark.parametrize("died_at", ["model.requested", "model.chunks", "message.committed"])
async def test_others_run_while_a_crashed_turn_is_gone_on_with(died_at: str) -> None:
    """Its request is rebuilt from the log, and what had come of the answer is looked for."""
    store = Slow()
    tool = Tool(definition=ToolDefinition(name="look", parameters={"type": "object"}), handler=lambda *given: "seen")
    agent = Agent("p:m", tools=[tool])
    dying, _ = crashing(store, lambda row: row.type == died_at)
    with pytest.raises(ProcessDied):
        async with opened(dying, say("So. ") + call("look"), say("Done.")) as runtime:
            await (await runtime.session("s", agent)).run("Go.")
    held = store.owner(S)
    assert held is not None
    store.renew(held[0], until=0)
    answers = [say("Done.")] if died_at == "message.committed" else [call("look"), say("Done.")]
    async with opened(store, *answers) as runtime, ticking(store):
        turn = await (await runtime.session("s", agent)).resume()
    assert turn is not None
    assert turn.text == "Done."
    assert min(store.ran) > 0, store.ran


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_reader_that_is_cancelled_reads_on_from_the_same_place(anyio_backend: str) -> None:
    """What a thread goes on reading for it is neither lost nor given twice: asyncio's cancel waits for no thread."""
    store = Slow()
    async with opened(store, say("One.")) as runtime:
        session = await runtime.session("s", Agent("p:m"))
        await session.run("Go.")
        cursor, seqs = Cursor(runtime.reader("s"), 0), []
        store.is_slow = True
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cursor.next(), 0.01)
        while (event := await cursor.next()) is not None:
            seqs.append(event.seq)
        store.is_slow = False
    assert seqs == list(range(1, session.log.head[0] + 1))
