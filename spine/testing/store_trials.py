"""Writers, batches and a random history to try a store with (floor 14); `store_contract` is made of them."""

import hashlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from spine.errors import ConcurrencyConflict
from spine.store import Append, Content, InboxEntry, Owner, Row, Store
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


@contextmanager
def raises(kind: type[BaseException]) -> Iterator[list[BaseException]]:
    """Demand that the block raises `kind`; the list that it yields holds the exception afterwards."""
    caught: list[BaseException] = []
    try:
        yield caught
    except kind as exc:
        caught.append(exc)
    else:
        raise AssertionError(f"{kind.__name__} was expected, nothing was raised")


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


@attrs.define(slots=True)
class _Session:
    """What a store must hold of one session, as plain lists."""

    log: Writer
    rows: list[Row] = attrs.field(factory=list)
    last: Append | None = None
    waiting: list[InboxEntry] = attrs.field(factory=list)
    used: set[str] = attrs.field(factory=set)


class RandomHistory:
    """Random operations on `store`, each answer compared with plain lists; the same seed gives the same history."""

    def __init__(self, store: Store, rng: random.Random, reopen: Callable[[Store], Store | None]) -> None:
        self._store = store
        self._rng = rng
        self._reopen = reopen
        self._sessions = [_Session(writer(store, SessionId(f"r{number}"))) for number in range(4)]
        self._operations: tuple[Callable[[_Session], None], ...] = (
            self._append,
            self._append,
            self._append_stale,
            self._repeat,
            self._append_together,
            self._read,
            self._put,
            self._consume,
            self._claim,
        )

    def run(self, steps: int) -> Store:
        """Do that many operations and compare everything at the end; return the store as last reopened."""
        for step in range(steps):
            self._rng.choice(self._operations)(self._rng.choice(self._sessions))
            if step % 60 == 59:
                self._reopen_store()
        for session in self._sessions:
            assert list(self._store.read(session.log.session)) == session.rows
        return self._store

    def _payloads(self) -> list[bytes]:
        return [self._rng.randbytes(self._rng.choice((0, 1, 40, 300, 5_000))) for _ in range(self._rng.randint(1, 6))]

    def _batch(self, session: _Session) -> Append:
        log, rng = session.log, self._rng
        kind = {
            "type": f"type.{rng.randint(0, 4)}",
            "version": rng.randint(1, 2),
            "origin": rng.choice((None, "a@1", "b@1")),
            "required": rng.random() < 0.5,
            "place": rng.choice((None, "t1", "t1s2", "t300s9000")),
        }
        return log.batch(rows=chain(log.seq, log.hash, self._payloads(), **kind))

    def _stored(self, session: _Session, batch: Append) -> None:
        session.rows += batch.rows
        session.last = batch
        session.log.follow(batch)

    def _append(self, session: _Session) -> None:
        batch = self._batch(session)
        assert self._store.append([batch]) == [None]
        self._stored(session, batch)

    def _append_stale(self, session: _Session) -> None:
        batch = self._batch(session)
        wrong: list[Append] = [attrs.evolve(batch, token=batch.token + self._rng.choice((-1, 1)))]
        if session.rows:
            wrong.append(attrs.evolve(batch, prev_hash=GENESIS))
            wrong.append(attrs.evolve(batch, seq=0, prev_hash=GENESIS, rows=chain(0, GENESIS, self._payloads())))
        head = (batch.seq, batch.prev_hash if batch.seq else b"")
        refused(self._store.append([self._rng.choice(wrong)])[0], seq=head[0], hash=head[1])

    def _repeat(self, session: _Session) -> None:
        if session.last is not None:
            assert self._store.append([session.last]) == [None]

    def _append_together(self, _: _Session) -> None:
        batches = [self._batch(session) for session in self._sessions]
        bad = self._rng.randrange(len(batches))
        batches[bad] = attrs.evolve(batches[bad], token=-1)
        verdicts = self._store.append(batches)
        assert [verdict is not None for verdict in verdicts] == [number == bad for number in range(len(batches))]
        for number, session in enumerate(self._sessions):
            if number != bad:
                self._stored(session, batches[number])

    def _read(self, session: _Session) -> None:
        after, until = sorted(self._rng.choices(range(len(session.rows) + 3), k=2))
        types = tuple(f"type.{number}" for number in range(5) if self._rng.random() < 0.5)
        expected = [row for row in session.rows[after:until] if not types or row.type in types]
        assert list(self._store.read(session.log.session, after=after, until=until, types=types)) == expected
        head = (session.rows[-1].seq, session.rows[-1].hash) if session.rows else None
        assert self._store.head(session.log.session) == head

    def _put(self, session: _Session) -> None:
        if not session.rows:
            return
        key = f"k{self._rng.randint(0, 30)}"
        fresh = key not in session.used
        assert self._store.put_inbox(session.log.session, key, "input", key.encode()) is fresh
        session.used.add(key)
        found = self._store.inbox(session.log.session)
        assert found[: len(session.waiting)] == session.waiting
        assert [entry.key for entry in found[len(session.waiting) :]] == [key] * fresh
        session.waiting = found

    def _consume(self, session: _Session) -> None:
        taken = [entry for entry in session.waiting if self._rng.random() < 0.5]
        batch = attrs.evolve(self._batch(session), consumed=tuple(entry.number for entry in taken))
        assert self._store.append([batch]) == [None]
        self._stored(session, batch)
        session.waiting = [entry for entry in session.waiting if entry not in taken]
        assert self._store.inbox(session.log.session) == session.waiting

    def _claim(self, session: _Session) -> None:
        claim = self._store.claim(session.log.session, ALICE, now=START, lease_us=LEASE)
        assert claim.token > session.log.token
        assert (claim.seq, claim.hash) == (session.log.seq, session.log.hash if session.rows else b"")
        session.log.token = claim.token

    def _reopen_store(self) -> None:
        again = self._reopen(self._store)
        if again is not None:
            self._store = again
            for session in self._sessions:
                session.log.store = again
