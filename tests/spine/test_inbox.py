"""A request in a session's inbox becomes one event, however often it is looked at."""

import logging
from typing import Any

import pytest

from spine.agent import Agent
from spine.config import Settings
from spine.runtime import Runtime
from spine.stores.memory import MemoryStore
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter
from spine.values import SessionId

pytestmark = pytest.mark.anyio

S = SessionId("s")
CANCEL = b'{"by":null,"cause":"stop"}'


async def recorded(store: MemoryStore, looks: int) -> list[str]:
    """The events that come of what lies in the inbox, looked at several times before anything is committed."""
    model = ScriptedAdapter(say("One."))
    async with Runtime.open(store, model=model, settings=Settings(installed_plugins=False)) as runtime:
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
