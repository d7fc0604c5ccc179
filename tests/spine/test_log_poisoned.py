"""A log whose projections or observers fail: the store never gets what memory could not fold."""

import logging
from typing import Any

import pytest

from spine import Agent, Runtime
from spine.config import Settings
from spine.events import SessionRenamed
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


async def opened(work: Any) -> None:
    settings = Settings(installed_plugins=False)
    async with Runtime.open("memory:", model=ScriptedAdapter(say("ok")), settings=settings) as runtime:
        await work(await runtime.session("s", Agent("scripted:demo")))


async def test_an_observer_that_raises_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """The others are told, the event is recorded, the turn goes on."""
    seen: list[str] = []

    def broken(event: Any) -> None:
        raise KeyError("mine")

    async def work(session: Any) -> None:
        session.log.observe(broken)
        session.log.observe(lambda event: seen.append(event.type))
        with caplog.at_level(logging.ERROR, "spine"):
            turn = await session.run("Go.")
        assert turn.status == "completed"
        assert seen == [event.type for event in session.log.read()]
        assert "an observer of session s failed at seq 1" in caplog.text

    await opened(work)


async def test_an_event_that_cannot_be_projected_closes_the_log() -> None:
    """What was pending is dropped with it; the store keeps what was committed before."""

    async def work(session: Any) -> None:
        await session.run("Go.")
        log = session.log
        head = log.head
        log.append(SessionRenamed(title="pending"))

        def broken(kind: str, envelope: Any, data: Any) -> None:
            raise RuntimeError("no fold")

        log._project = broken
        with pytest.raises(RuntimeError, match="no fold"):
            log.append(SessionRenamed(title="poison"))
        assert log.is_closed
        assert not log.has_pending
        with pytest.raises(RuntimeError, match="no fold"):
            await log.commit()
        assert log.head == head
        assert [row.seq for row in log.store.read("s")][-1] == head[0]

    await opened(work)
