"""The one writer of a session: numbers at append, durable at commit, closed when a commit failed."""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from spine.clock import SystemClock
from spine.codec import Codec, genesis, row_hash
from spine.commits import Writer
from spine.errors import ConcurrencyConflict, LogBroken, SessionUnknown, StoreUnavailable, ValueTooLarge
from spine.events import InputAccepted, SessionRenamed
from spine.log import LogReader, SessionLog, Synchronised
from spine.messages import Message, TextBlock
from spine.requests import content_of
from spine.store import Owner
from spine.stores.memory import MemoryStore
from spine.values import SessionId, digest

pytestmark = pytest.mark.anyio
S = SessionId("s")


class Failing(MemoryStore):
    """A memory store that waits like a disk, and fails when told to."""

    def __init__(self, *, waits: bool = False) -> None:
        super().__init__()
        self.waits = waits
        self.error: Exception | None = None

    def append(self, batches: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().append(batches)


def log_on(store: MemoryStore, owner: str = "o", **options: Any) -> SessionLog:
    claim = store.claim(S, Owner(id=owner, host="h", pid=1, started=0), now=2**50, lease_us=1, take_over=True)
    return SessionLog(Writer(store), Codec(), S, claim, SystemClock(), **options)


def renamed(*titles: str) -> list[SessionRenamed]:
    return [SessionRenamed(title=title) for title in titles]


@pytest.mark.parametrize("waits", [False, True], ids=["memory", "disk"])
async def test_append_numbers_at_once_and_commit_makes_durable(waits: bool) -> None:
    """Readers see nothing before the commit returns, and all of the batch after it."""
    store = Failing(waits=waits)
    log = log_on(store)
    reader = LogReader(store, Codec(), S)
    assert log.append(*renamed("a", "b")) == 2
    assert (log.seq, log.head, log.has_pending) == (2, (0, genesis(S)), True)
    with pytest.raises(SessionUnknown):
        next(iter(reader.read()))
    await log.commit()
    assert (log.head[0], log.has_pending, log.commits) == (2, False, 1)
    assert [event.data.title for event in reader.read()] == ["a", "b"]
    await log.commit()
    assert log.commits == 1, "nothing pending is no transaction"


async def test_the_chain_is_whole_across_batches() -> None:
    """Each row's hash continues the one before it, from the session's own genesis."""
    store = Failing()
    log = log_on(store)
    for title in "abc":
        log.append(*renamed(title), place="t1")
        await log.commit()
    previous = genesis(S)
    for row in store.read(S):
        assert row.hash == row_hash(previous, row)
        previous = row.hash
    assert log.head == (3, previous)


async def test_an_append_that_is_refused_changes_nothing() -> None:
    """One event too large refuses the whole batch, and the log goes on."""
    log = log_on(Failing())
    large = InputAccepted(message=Message(role="user", content=tuple(TextBlock(text="x" * 1000) for _ in range(1100))))
    with pytest.raises(ValueTooLarge):
        log.append(*renamed("a"), large)
    assert (log.seq, log.has_pending, list(log.status.waiting)) == (0, False, [])
    assert log.append(*renamed("a")) == 1


async def test_observers_see_each_event_at_its_append_in_order() -> None:
    """Inside the process, before anything is durable; until they are taken off."""
    log = log_on(Failing())
    seen: list[tuple[int, str]] = []
    stop = log.observe(lambda event: seen.append((event.seq, event.data.title)))
    log.append(*renamed("a", "b"))
    stop()
    stop()
    log.append(*renamed("c"))
    assert seen == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("error", [StoreUnavailable("full"), ZeroDivisionError("a bug")], ids=["typed", "bug"])
async def test_a_failed_commit_closes_the_log_with_its_reason(error: Exception) -> None:
    """Memory may be ahead of the store: nothing more is taken until it is opened again."""
    store = Failing()
    log = log_on(store)
    log.append(*renamed("a"))
    await log.commit()
    log.append(*renamed("b"))
    store.error = error
    with pytest.raises(type(error)):
        await log.commit()
    assert log.is_closed
    for act in (lambda: log.append(*renamed("c")), log.check_open):
        with pytest.raises(type(error)):
            act()
    with pytest.raises(type(error)):
        await log.commit()
    store.error = None
    again = log_on(store)
    again.load()
    assert (again.head[0], again.status.title) == (1, "a")


async def test_a_log_whose_lease_was_taken_is_refused_by_the_store() -> None:
    """Another owner's claim fences the old one off; nothing of it is written."""
    store = Failing()
    first = log_on(store, "first")
    first.append(*renamed("a"))
    await first.commit()
    second = log_on(store, "second")
    second.load()
    first.append(*renamed("mine"))
    with pytest.raises(ConcurrencyConflict) as conflict:
        await first.commit()
    assert conflict.value.actual_seq == 1
    second.append(*renamed("b"))
    await second.commit()
    assert [row.data for row in store.read(S)] == [b'{"title":"a"}', b'{"title":"b"}']


async def test_content_is_added_once_and_found_again() -> None:
    """Small text stands inline, the rest beside; the same digest gives the same seq, also after a restart."""
    store = Failing()
    log = log_on(store)
    small, large = content_of("small", "text/plain"), content_of(b"\xff" * 100_000, "image/png")
    first, second = log.put(small), log.put(large)
    assert (log.put(small), log.put(large)) == (first, second) == (1, 2)
    await log.commit()
    assert log.content(large.digest) == large.data
    assert log.content(small.digest) == b"small"
    with pytest.raises(LogBroken, match="is missing"):
        log.content(digest(b"nowhere"))
    again = log_on(store, "again")
    again.load()
    assert again.put(small) == first
    assert [event.data.text for event in again.read()] == ["small", None]


async def test_reading_by_types_and_ranges() -> None:
    """`after < seq <= until`; the chain's previous hash stands only in whole readings."""
    log = log_on(Failing())
    log.append(*renamed("a", "b"))
    log.put(content_of("x", "text/plain"))
    log.append(*renamed("c"))
    await log.commit()
    assert [event.seq for event in log.read(after=1, until=3)] == [2, 3]
    assert [event.seq for event in log.read(types=("session.renamed",))] == [1, 2, 4]
    events = list(log.read(after=1))
    assert events[0].prev_hash == next(iter(log.read())).hash


@pytest.mark.parametrize("fails", [False, True], ids=["closed", "a commit failed"])
async def test_follow_gives_a_mark_and_then_what_comes(fails: bool) -> None:
    """A follower that waits is woken by the commit; one on a log that closes meanwhile gets its reason."""
    store = Failing()
    log = log_on(store)
    log.append(*renamed("a"))
    await log.commit()
    seen: list[Any] = []

    async def watch() -> None:
        async for item in log.follow():
            seen.append(item.seq if isinstance(item, Synchronised) else item.data.title)

    async def follow() -> None:
        with pytest.raises(StoreUnavailable):
            await watch()

    with anyio.fail_after(2):
        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            while len(seen) < 2:
                await checkpoint()
            log.append(*renamed("b"))
            await log.commit()
            while len(seen) < 3:
                await checkpoint()
            if fails:
                store.error = StoreUnavailable("full")
                log.append(*renamed("c"))
                with pytest.raises(StoreUnavailable):
                    await log.commit()
            else:
                log.close(StoreUnavailable("gone"))
    assert seen == ["a", 1, "b"]


async def test_two_commits_at_once_are_one_after_the_other() -> None:
    """A commit that finds one under way waits for it and takes what came meanwhile."""
    log = log_on(Failing(waits=True))
    log.append(*renamed("a"))
    async with anyio.create_task_group() as group:
        group.start_soon(log.commit)
        await checkpoint()
        log.append(*renamed("b"))
        group.start_soon(log.commit)
    assert [event.data.title for event in log.read()] == ["a", "b"]


async def test_a_row_that_does_not_fit_its_place_is_broken_at_its_seq() -> None:
    """Folding a log whose facts contradict each other says where."""
    store = Failing()
    log = log_on(store)
    log.append(*renamed("a"))
    await log.commit()
    claim = store.claim(S, Owner(id="x", host="h", pid=1, started=0), now=2**51, lease_us=1, take_over=True)
    from spine.store import Append, Row

    row = Row(2, "turn.completed", 1, 1, "t1", None, True, b"{}", b"")
    row = row._replace(hash=row_hash(claim.hash, row))
    assert store.append([Append(S, claim.token, 1, claim.hash, (row,))]) == [None]
    with pytest.raises(LogBroken, match="seq 2"):
        log_on(store, "y").load()


async def test_what_comes_before_an_event_that_cannot_be_read_is_given_first() -> None:
    """However many are read at once; asked again, it is told again."""

    class Damaged(Failing):
        def read(self, *arguments: Any, **named: Any) -> Any:
            return (row._replace(data=b"{") if row.seq == 3 else row for row in super().read(*arguments, **named))

    log = log_on(store := Damaged())
    log.append(*renamed("a", "b", "c", "d"))
    await log.commit()
    follower = LogReader(store, Codec(), S).follow()
    assert [(await anext(follower)).seq for _ in range(2)] == [1, 2]
    for _ in range(2):
        with pytest.raises(LogBroken):
            await anext(follower)


async def test_a_follower_that_ends_is_watched_for_no_longer() -> None:
    """Whatever ended it: the store tells nobody who is gone."""
    watched: list[Any] = []

    class Telling(Failing):
        def watch(self, session: SessionId, wake: Any) -> Any:
            watched.append(wake)
            return lambda: watched.remove(wake)

    log = log_on(store := Telling(waits=True))
    log.append(*renamed("a"))
    await log.commit()
    follower = LogReader(store, Codec(), S).follow(after=1)
    assert isinstance(await anext(follower), Synchronised)
    async with anyio.create_task_group() as group:
        group.start_soon(anext, follower)
        with anyio.fail_after(5):
            while not watched:
                await checkpoint()
        group.cancel_scope.cancel()
    assert watched == []
