"""While sessions are open their leases are kept and their inboxes looked into, whatever the store does meanwhile."""

import logging
import threading
from typing import Any

import anyio
import pytest

from spine import keeping
from spine.agent import Agent
from spine.config import Settings
from spine.errors import SessionOwned, StoreBusy
from spine.keeping import INBOX_S, LEASE_US, RENEW_EVERY
from spine.messages import user_message
from spine.runtime import Runtime
from spine.stores.memory import MemoryStore
from spine.testing.clock import FakeClock
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter
from spine.values import SessionId

pytestmark = pytest.mark.anyio

S = SessionId("s")
AGENT = Agent("p:m")


class WaitingStore(MemoryStore):
    """A store that waits as a database does: it notes on which threads it is asked, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = True
        self.threads: dict[str, set[int]] = {}
        self.failing = 0

    def _ask(self, method: str) -> None:
        self.threads.setdefault(method, set()).add(threading.get_ident())
        if self.failing:
            self.failing -= 1
            raise StoreBusy("locked")

    def renew(self, owner: Any, *, until: int) -> None:
        self._ask("renew")
        super().renew(owner, until=until)

    def waiting(self) -> Any:
        self._ask("waiting")
        return super().waiting()

    def inbox(self, session: Any) -> Any:
        self._ask("inbox")
        return super().inbox(session)


def opened(store: Any, clock: Any = None, *script: Any) -> Runtime:
    model = ScriptedAdapter(*(script or (say("x"),) * 3))
    return Runtime.open(store, model=model, clock=clock, settings=Settings(installed_plugins=False))


async def passed(clock: FakeClock, seconds: float) -> None:
    """Let fake time pass in the steps that `keep` waits for, with a moment for its threads after each."""
    for _ in range(int(seconds / INBOX_S)):
        clock.advance(INBOX_S)
        await anyio.sleep(0.002)


@pytest.mark.parametrize("made", [MemoryStore, WaitingStore])
async def test_the_lease_of_an_open_session_outlives_its_length(made: Any) -> None:
    """Nobody gets a session whose owner lives, however long it is open."""
    clock, store = FakeClock(), made()
    async with opened(store, clock) as owner, opened(store, clock) as other:
        session = await owner.session(S, AGENT)
        await session.run("Go.")
        began = clock.now()
        await passed(clock, 2 * LEASE_US / 1_000_000)
        assert clock.now() - began >= 2 * LEASE_US
        with pytest.raises(SessionOwned):
            await other.session(S, AGENT)
        _, until = store.owner(S)
        assert until - clock.now() >= LEASE_US - (RENEW_EVERY + 1) * INBOX_S * 1_000_000


async def test_a_renewal_that_fails_is_told_and_made_up_for(caplog: Any) -> None:
    """The store was busy for a while; the lease runs on all the same."""
    clock, store = FakeClock(), WaitingStore()
    async with opened(store, clock) as owner:
        session = await owner.session(S, AGENT)
        await session.run("Go.")
        store.failing = RENEW_EVERY + 1
        with caplog.at_level(logging.WARNING, "spine"):
            await passed(clock, 3 * RENEW_EVERY * INBOX_S)
        assert "leases were not renewed: locked" in caplog.text
        _, until = store.owner(S)
        assert until > clock.now()


async def test_a_store_that_waits_is_never_asked_on_the_loop() -> None:
    """Neither for inboxes nor for leases: every other session would wait with it."""
    clock, store = FakeClock(), WaitingStore()
    async with opened(store, clock) as owner, opened(store, clock) as other:
        session = await owner.session(S, AGENT)
        await session.run("Go.")
        message = owner.codec.to_json(user_message("From afar."))
        other.send(S, "input", {"message": message}, key="k")
        await passed(clock, 2 * RENEW_EVERY * INBOX_S)
        assert [m.text for m in session.history() if m.role == "user"] == ["Go.", "From afar."]
        assert set(store.threads) == {"renew", "waiting", "inbox"}
        assert threading.get_ident() not in set().union(*store.threads.values())


async def test_only_inboxes_that_hold_something_are_read(monkeypatch: Any) -> None:
    """One look tells for all sessions: a thousand open ones cost what one costs."""
    clock, store = FakeClock(), MemoryStore()
    read: list[str] = []
    async with opened(store, clock, *(say("x") for _ in range(30))) as owner, opened(store, clock) as other:
        for number in range(10):
            await (await owner.session(f"s{number}", AGENT)).run("Go.")
        inbox = store.inbox
        monkeypatch.setattr(store, "inbox", lambda session: read.append(session) or inbox(session))
        await passed(clock, 10 * INBOX_S)
        assert read == []
        message = owner.codec.to_json(user_message("From afar."))
        other.send("s3", "input", {"message": message}, key="k")
        await passed(clock, 3 * INBOX_S)
        assert set(read) == {"s3"}


async def test_a_session_that_fails_to_take_its_inbox_keeps_nobody_else_from_theirs(monkeypatch: Any) -> None:
    """What goes wrong in one stays there."""
    taken: list[str] = []

    class Session:
        def __init__(self, name: str) -> None:
            self.name, self.log = name, self
            self.is_closed = False

        async def take_inbox(self) -> None:
            taken.append(self.name)
            if self.name == "a":
                raise StoreBusy("locked")

    class Store:
        waits = False

        def waiting(self) -> list[str]:
            return ["a", "gone", "b"]

    sessions: Any = {name: Session(name) for name in "ab"}
    await keeping._look(Store(), sessions)  # type: ignore[arg-type]
    assert taken == ["a", "b"]
