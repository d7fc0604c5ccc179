"""One thread writes: batches join, nobody is left waiting, nothing under way is given up."""

import asyncio
import functools
import operator
import threading
import time
from typing import Any

import anyio
import attrs
import pytest

from spine import commits
from spine.commits import Writer
from spine.errors import AppendOutcomeUnknown, ConcurrencyConflict, StoreBusy, StoreUnavailable
from spine.store import Append
from spine.stores.memory import MemoryStore
from spine.testing.stores.trials import ALICE, GENESIS, LEASE, START, chain
from spine.values import SessionId

pytestmark = pytest.mark.anyio


class SlowStore:
    """A store that records what was joined, and takes its time."""

    waits = True
    url = "slow:"

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.joined: list[list[str]] = []
        self.threads: set[str] = set()
        self.verdict: Exception | None = None
        self.error: Exception | None = None

    def append(self, batches: Any) -> list[Exception | None]:
        self.threads.add(threading.current_thread().name)
        time.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        self.joined.append([batch.session for batch in batches])
        return [self.verdict] * len(batches)


class ForgetfulStore:
    """A store whose answers are lost `lost` times, before or after it stored the batches; `then` comes after those."""

    waits = True
    url = "forgetful:"

    def __init__(self, arrives: bool, lost: int, then: Exception | None = None) -> None:
        self.inner = MemoryStore()
        self.inner.claim(SessionId("s"), ALICE, now=START, lease_us=LEASE)
        self.arrives, self.lost, self.then, self.tries = arrives, lost, then, 0

    def append(self, batches: Any) -> list[Exception | None]:
        self.tries += 1
        if not self.lost:
            if self.then is not None:
                raise self.then
            return self.inner.append(batches)
        self.lost -= 1
        if self.arrives:
            self.inner.append(batches)
        raise AppendOutcomeUnknown("the line is dead")


def made_batch(name: str) -> Append:
    """Two events for the session that a forgetful store has claimed."""
    return Append(SessionId(name), 1, 0, GENESIS, chain(0, GENESIS, [b"1", b"2"]))


def batch(name: str) -> Append:
    return Append(SessionId(name), 1, 0, b"", ())


async def test_batches_that_come_meanwhile_are_the_next_transaction() -> None:
    """The first is alone; all that queued up behind it are written together, by one thread."""
    store = SlowStore(0.03)
    writer = Writer(store)  # type: ignore[arg-type]
    with anyio.fail_after(2):
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(writer.write, batch(f"s{number}"))
                if number == 0:
                    await anyio.sleep(0.01)
    assert len(store.joined[0]) == 1
    assert sorted(functools.reduce(operator.iadd, store.joined, [])) == sorted(f"s{n}" for n in range(30))
    assert len(store.joined) <= 3
    assert len(store.threads) == 1
    assert threading.current_thread().name not in store.threads
    writer.close()


@pytest.mark.parametrize("raises", [False, True], ids=["a verdict", "raised"])
async def test_a_failure_reaches_everyone_who_joined(raises: bool) -> None:
    """A refused batch and a failed transaction raise in their own tasks, and the next ones are written."""
    store = SlowStore(0.02)
    writer = Writer(store)  # type: ignore[arg-type]
    error = StoreUnavailable("full")
    store.error, store.verdict = (error, None) if raises else (None, error)
    failed: list[str] = []

    async def write(name: str) -> None:
        try:
            await writer.write(batch(name))
        except StoreUnavailable:
            failed.append(name)

    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(write, name)
    assert sorted(failed) == ["a", "b", "c"]
    store.error = store.verdict = None
    assert await writer.write(batch("d")) is None


async def test_no_answer_in_time_is_an_unknown_outcome_and_what_was_not_tried_is_not_written(monkeypatch: Any) -> None:
    """Whoever waited behind the stuck batch is told, too, and its batch never reaches the store."""
    monkeypatch.setattr(commits, "COMMIT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(commits, "QUEUE_TIMEOUT_S", 0.1)
    store = SlowStore(0.3)
    writer = Writer(store)  # type: ignore[arg-type]
    unknown: list[str] = []

    async def write(name: str) -> None:
        try:
            await writer.write(batch(name))
        except (AppendOutcomeUnknown, StoreBusy):
            unknown.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(write, "stuck")
        await anyio.sleep(0.01)
        group.start_soon(write, "behind")
    assert sorted(unknown) == ["behind", "stuck"]
    store.delay_s = 0.0
    await anyio.sleep(0.35)
    assert store.joined == [["stuck"]]
    assert await writer.write(batch("later")) is None


@pytest.mark.parametrize("waits", [True, False], ids=["on the thread", "on the loop"])
@pytest.mark.parametrize("arrives", [True, False], ids=["stored", "not stored"])
async def test_an_answer_that_was_lost_is_settled_before_anything_follows(waits: bool, arrives: bool) -> None:
    """The same batch goes to the store again, which knows it by its hash: it is there once."""
    store = ForgetfulStore(arrives, lost=2)
    writer = Writer(store)  # type: ignore[arg-type]
    given = made_batch("s")
    if waits:
        assert await writer.write(given) is None
    else:
        writer.write_now(given)
    assert [row.seq for row in store.inner.read(SessionId("s"))] == [1, 2]
    assert store.lost == 0
    writer.close()


async def test_an_answer_that_stays_away_is_an_unknown_outcome(monkeypatch: Any) -> None:
    """When the store cannot be asked either, nobody claims to know."""
    monkeypatch.setattr(commits, "SETTLE_WAITS_S", (0.0, 0.0))
    store = ForgetfulStore(arrives=True, lost=1, then=StoreUnavailable("gone"))
    writer = Writer(store)  # type: ignore[arg-type]
    with pytest.raises(AppendOutcomeUnknown):
        await writer.write(made_batch("s"))
    assert store.tries == 3
    writer.close()


async def test_a_lost_answer_to_a_refused_batch_is_a_refusal() -> None:
    """What the head says counts, also when it says no."""
    store = ForgetfulStore(arrives=True, lost=1)
    writer = Writer(store)  # type: ignore[arg-type]
    with pytest.raises(ConcurrencyConflict):
        await writer.write(attrs.evolve(made_batch("s"), token=99))
    writer.close()


async def test_a_busy_event_loop_does_not_run_the_store_out_of_its_time(monkeypatch: Any) -> None:
    """The deadline is the store's, told by the worker thread: a loop that is held up turns no answer into a doubt."""
    monkeypatch.setattr(commits, "COMMIT_TIMEOUT_S", 0.1)
    writer = Writer(SlowStore(0.02))  # type: ignore[arg-type]

    async def hold_up() -> None:
        await anyio.sleep(0)
        time.sleep(0.3)

    async with anyio.create_task_group() as group:
        group.start_soon(hold_up)
        assert await writer.write(batch("held up")) is None


async def test_a_cancelled_scope_waits_for_the_answer() -> None:
    """A commit once begun is shielded until the store answers."""
    store = SlowStore(0.05)
    writer = Writer(store)  # type: ignore[arg-type]
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await writer.write(batch("a")) is None
    assert store.joined == [["a"]]


async def test_a_cancelled_task_waits_for_the_answer_and_returns_its_cancellation(anyio_backend_name: str) -> None:
    """asyncio's own `task.cancel()` knows no shield: it is handed back when the books are settled."""
    if anyio_backend_name != "asyncio":
        pytest.skip("task.cancel() belongs to asyncio")
    store = SlowStore(0.05)
    writer = Writer(store)  # type: ignore[arg-type]
    task = asyncio.ensure_future(writer.write(batch("a")))
    behind = asyncio.ensure_future(writer.write(batch("b")))
    await asyncio.sleep(0.01)
    task.cancel()
    assert isinstance(await task, asyncio.CancelledError)
    assert await behind is None
    assert store.joined == [["a"], ["b"]]


async def test_a_store_that_does_not_wait_is_written_on_this_thread() -> None:
    """A memory store needs no other thread."""
    store = SlowStore()
    writer = Writer(store)  # type: ignore[arg-type]
    writer.write_now(batch("a"))
    assert store.threads == {threading.current_thread().name}
    store.verdict = StoreUnavailable("full")
    with pytest.raises(StoreUnavailable):
        writer.write_now(batch("b"))
