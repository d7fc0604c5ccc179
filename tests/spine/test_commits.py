"""One thread writes: batches join, nobody is left waiting, nothing under way is given up."""

import asyncio
import functools
import operator
import threading
import time
from typing import Any

import anyio
import pytest

from spine import commits
from spine.commits import Writer
from spine.errors import AppendOutcomeUnknown, StoreBusy, StoreUnavailable
from spine.store import Append
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
