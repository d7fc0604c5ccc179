"""A request in a session's inbox becomes one event, however often it is looked at."""

import logging
import time
from typing import Any

import anyio
import pytest

from spine.agent import Agent
from spine.config import Settings
from spine.errors import AppendOutcomeUnknown, ValueTooLarge
from spine.runtime import Runtime
from spine.store import InboxEntry
from spine.stores.memory import MemoryStore
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter
from spine.values import SessionId

pytestmark = pytest.mark.anyio

S = SessionId("s")
ALONE = Settings(installed_plugins=False)
CANCEL = b'{"by":null,"cause":"stop"}'


async def recorded(store: MemoryStore, looks: int) -> list[str]:
    """The events that come of what lies in the inbox, looked at several times before anything is committed."""
    model = ScriptedAdapter(say("One."))
    async with Runtime.open(store, model=model, settings=ALONE) as runtime:
        session = await runtime.session(S, Agent("p:m"))
        await session.run("Go.")
        store.put_inbox(S, "c", "cancel", CANCEL)
        store.put_inbox(S, "odd", "nonsense", b"{}")
        entries = store.inbox(S)
        events = [event for _ in range(looks) for event in session._inbox.record(entries)]
        await session.log.commit()
        return [type(event).__name__ for event in events]


async def test_a_request_whose_batch_is_on_its_way_is_not_taken_again() -> None:
    """The store still shows it until the transaction that takes it out is done."""
    store = MemoryStore()
    assert await recorded(store, 3) == ["CancelRequested"]
    assert [entry.key for entry in store.inbox(S)] == ["odd"]


async def test_what_does_not_fit_stays_and_is_told_once(caplog: Any) -> None:
    """It keeps nobody else waiting, and fills no log file."""
    with caplog.at_level(logging.WARNING, "spine"):
        await recorded(MemoryStore(), 3)
    assert [record.getMessage().count("was not taken") for record in caplog.records] == [1]


class Slow(MemoryStore):
    """A store whose first look into the inbox comes back late."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.looks = True, 0

    def inbox(self, session: SessionId) -> list[InboxEntry]:
        entries = super().inbox(session)
        self.looks += bool(entries)
        if self.looks == 1 and entries:
            time.sleep(0.1)
        return entries


async def test_whoever_looked_long_ago_takes_nothing_again(monkeypatch: Any) -> None:
    """What was taken meanwhile is remembered by nobody."""
    monkeypatch.setattr("spine.keeping.INBOX_S", 60)
    store = Slow()
    async with Runtime.open(store, model=ScriptedAdapter(say("One.")), settings=ALONE) as runtime:
        session = await runtime.session(S, Agent("p:m"))
        await session.run("Go.")
        store.put_inbox(S, "c", "cancel", CANCEL)
        async with anyio.create_task_group() as group:
            group.start_soon(session.take_inbox)
            while not store.looks:
                await anyio.sleep(0.001)
            for _ in range(2):
                await session.take_inbox()
        assert [row.type for row in session.log.rows()].count("cancel.requested") == 1


async def test_what_was_asked_while_nobody_had_the_session_open_is_taken_when_it_is_opened(monkeypatch: Any) -> None:
    monkeypatch.setattr("spine.keeping.INBOX_S", 60)
    store = MemoryStore()
    async with Runtime.open(store, model=ScriptedAdapter(say("One.")), settings=ALONE) as runtime:
        await (await runtime.session(S, Agent("p:m"))).run("Go.")
    store.put_inbox(S, "c", "cancel", CANCEL)
    async with Runtime.open(store, model=ScriptedAdapter(), settings=ALONE) as runtime:
        session = await runtime.session(S, Agent("p:m"))
        assert [row.type for row in session.log.rows()].count("cancel.requested") == 1


async def test_what_was_taken_is_not_remembered_for_ever() -> None:
    store = MemoryStore()
    async with Runtime.open(store, model=ScriptedAdapter(say("One.")), settings=ALONE) as runtime:
        session = await runtime.session(S, Agent("p:m"))
        await session.run("Go.")
        for number in range(50):
            store.put_inbox(S, f"c{number}", "cancel", CANCEL)
            await session.take_inbox()
        assert [row.type for row in session.log.rows()].count("cancel.requested") == 50
        assert len(session._inbox._seen) == 1


class Forgetful(MemoryStore):
    """A store whose first answers to a request are lost: it arrived, or it did not."""

    def __init__(self, lost: int, arrives: bool) -> None:
        super().__init__()
        self.lost, self.arrives = lost, arrives

    def put_inbox(self, session: SessionId, key: str, kind: str, data: bytes) -> bool:
        if not self.lost:
            return super().put_inbox(session, key, kind, data)
        self.lost -= 1
        if self.arrives:
            super().put_inbox(session, key, kind, data)
        raise AppendOutcomeUnknown("the line is dead")


async def begun(store: MemoryStore) -> Runtime:
    """A runtime on `store` that has the session with a turn."""
    runtime = Runtime.open(store, model=ScriptedAdapter(say("One.")), settings=ALONE)
    async with runtime:
        await (await runtime.session(S, Agent("p:m"))).run("Go.")
    return runtime


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("lost", [1, 3])
async def test_a_request_whose_answer_was_lost_is_queued_once(lost: int, arrives: bool) -> None:
    store = Forgetful(lost, arrives)
    runtime = await begun(store)
    assert runtime.send(S, "cancel", {"cause": "stop", "by": None}, key="k") is True
    assert runtime.send(S, "cancel", {"cause": "stop", "by": None}, key="k") is False
    assert [(entry.key, entry.data) for entry in store.inbox(S)] == [("k", b'{"by":null,"cause":"stop"}')]


async def test_a_sender_whose_every_answer_is_lost_is_told(monkeypatch: Any) -> None:
    monkeypatch.setattr("spine.inbox.SETTLE_WAITS_S", (0.0, 0.0))
    runtime = await begun(Forgetful(3, arrives=False))
    with pytest.raises(AppendOutcomeUnknown):
        runtime.send(S, "cancel", {"cause": "stop", "by": None}, key="k")


async def test_what_no_log_takes_is_refused_before_it_is_queued() -> None:
    """Its sender would wait for ever, and the session would look at it for ever."""
    store = MemoryStore()
    runtime = await begun(store)
    many = ["x" * 1000] * 1100
    with pytest.raises(ValueTooLarge):
        runtime.send(S, "input", {"message": {"role": "user", "content": many}}, key="k")
    assert store.inbox(S) == []
