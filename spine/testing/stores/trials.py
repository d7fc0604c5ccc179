"""Writers, batches and a random history to try a store with (floor 14); `contract` is made of them."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from spine.errors import ConcurrencyConflict
from spine.store import Append, Content, Owner, Row, Store
from spine.values import Digest, SessionId

GENESIS: Final = hashlib.sha256(b"genesis").digest()
"""What the first batch builds on here; a store takes any."""
ALICE: Final = Owner("alice", "host-a", 4121, 1_000_000)
BOB: Final = Owner("bob", "host-a", 4122, 2_000_000)
START: Final = 1_790_000_000_000_000
"""The time of the tests, microseconds since 1970 UTC."""
LEASE: Final = 30_000_000
FIRST: Final = SessionId("first")
SECOND: Final = SessionId("second")


def chain(seq: int, prev_hash: bytes, payloads: Sequence[bytes], **fields: Any) -> tuple[Row, ...]:
    """Rows that follow (`seq`, `prev_hash`), each with a hash over the one before and its bytes."""
    rows = []
    for data in payloads:
        seq += 1
        prev_hash = hashlib.sha256(prev_hash + data).digest()
        given = {"type": "note", "version": 1, "at": START + seq, "place": None, "origin": None, "required": True}
        rows.append(Row(seq=seq, data=data, hash=prev_hash, **{**given, **fields}))
    return tuple(rows)


@attrs.define(slots=True)
class Writer:
    """A writer that knows its session's head, as a log does."""

    store: Store
    session: SessionId
    token: int
    seq: int = 0
    hash: bytes = GENESIS

    def batch(self, *payloads: bytes, rows: tuple[Row, ...] | None = None, **beside: Any) -> Append:
        """A batch that builds on the head; `beside` are its contents and consumed entries."""
        made = chain(self.seq, self.hash, payloads) if rows is None else rows
        return Append(self.session, self.token, self.seq, self.hash, made, **beside)

    def append(self, *payloads: bytes, rows: tuple[Row, ...] | None = None, **beside: Any) -> Append:
        """Store a batch, demand that it succeeds, and follow it."""
        batch = self.batch(*payloads, rows=rows, **beside)
        assert self.store.append([batch]) == [None]
        self.follow(batch)
        return batch

    def follow(self, batch: Append) -> None:
        """Take the last row of `batch` as the head."""
        if batch.rows:
            self.seq, self.hash = batch.rows[-1].seq, batch.rows[-1].hash


def writer(store: Store, session: SessionId = FIRST, owner: Owner = ALICE, **how: Any) -> Writer:
    """Claim `session` and stand at its head."""
    claim = store.claim(session, owner, **{"now": START, "lease_us": LEASE, **how})
    return Writer(store, session, claim.token, claim.seq, claim.hash or GENESIS)


def content_of(data: bytes, media_type: str = "text/plain") -> Content:
    """`data` as a content with its digest."""
    return Content(Digest(f"1:{hashlib.sha256(data).hexdigest()}"), media_type, data)


def refused(verdict: Exception | None, *, seq: int, hash: bytes) -> None:
    """Demand that `verdict` is a conflict that names this head."""
    assert isinstance(verdict, ConcurrencyConflict), verdict
    assert (verdict.actual_seq, verdict.actual_hash) == (seq, hash)


def wait_until_quiet(woken: threading.Event) -> None:
    """Wait until nobody has set `woken` for a while: what happened before was told."""
    woken.wait(1)
    woken.clear()
    while woken.wait(0.3):
        woken.clear()


def in_threads(works: Sequence[Callable[[], object]]) -> None:
    """Run all `works` at once and wait for them; the first exception of any is raised."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def race(store: Store, token: int, name: str, wins: list[bytes], *, goal: int) -> None:
    """Append at whatever the head is until `goal` appends were stored; `wins` gets their payloads."""
    for attempt in range(100 * goal):
        if len(wins) == goal:
            return
        seq, hash = store.head(FIRST) or (0, GENESIS)
        data = f"{name} {attempt}".encode()
        batch = Append(FIRST, token, seq, hash, chain(seq, hash, [data]))
        (verdict,) = store.append([batch])
        if verdict is None:
            wins.append(data)
        else:
            assert isinstance(verdict, ConcurrencyConflict), verdict
            assert verdict.actual_seq >= seq
    raise AssertionError(f"{name} won {len(wins)} of {goal} places in {100 * goal} attempts")
