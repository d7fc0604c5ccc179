"""The store in one SQLite file: the default (side room, floors 0-1).

The rule it guards: a batch is stored by one transaction whose first statement is a conditional update of the
session's head. It changes one row exactly when token, seq and hash are those of the batch, and nothing else of the
batch is written otherwise. So no lock of ours is ever trusted, only SQLite's.

Layout (`sqlite_file.SCHEMA`), where a step of five events should cost little more than its bytes:
- `events` are clustered by session and seq, so that appends fill pages from left to right.
- What repeats is kept once: type, version, origin and requiredness as a small number (`kinds`), the time as its
  distance from the session's first event, the usual places `t1s2` as a number. The previous hash is the row before.
- Bytes are bytes: payloads come back exactly as they were given.

Reading never holds a transaction open between rows: events do not change once committed, so a range is read in pages
up to the head at the time of the call. A slow reader keeps neither the writer nor the write-ahead log waiting.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, Literal

from spine.errors import LogBroken, StoreBusy, StoreUnavailable
from spine.store import Append, Claim, Content, InboxEntry, Owner, Row, SessionInfo, Snapshot
from spine.stores import sqlite_upkeep as upkeep
from spine.stores import verdicts
from spine.stores.sqlite_file import Transaction, connect, connect_unchanging, translate
from spine.stores.sqlite_forms import as_bytes, in_order, pack_place, unpack_place
from spine.stores.sqlite_upkeep import SEQ_BITS as _SEQ_BITS
from spine.stores.sqlite_upkeep import Span
from spine.stores.sqlite_upkeep import base_key as _base
from spine.values import Digest, SessionId

Durability = Literal["full", "relaxed"]
Kind = tuple[str, int, str | None, bool]
"""Type, version, origin, required."""

_TEXT_OR_NONE: Final = frozenset((str, type(None)))
_PAGE_ROWS: Final = 512
_PAGE_BYTES: Final = 1024 * 1024
_MANY: Final = 500
"""Digests asked for by one statement."""

_IF_HEAD = " WHERE no = ? AND token = ? AND seq = ? AND hash = ?"
_ADVANCE = "UPDATE sessions SET seq = ?, hash = ?, updated = ?, created = ?" + _IF_HEAD
_KEEP = "UPDATE sessions SET seq = seq" + _IF_HEAD
_ADD_EVENT = "INSERT INTO events(key, at, kind, place, data, hash) VALUES (?, ?, ?, ?, ?, ?)"
_PAGE = "SELECT key, at, kind, place, data, hash FROM events WHERE key > ? AND key <= ?{types} ORDER BY key LIMIT "
_NEW_TOKEN = "1 + coalesce((SELECT until FROM owners WHERE id = ''), 0)"
_CLAIM = (
    f"INSERT INTO sessions(id, seq, hash, token, owner) VALUES (?, 0, x'', {_NEW_TOKEN}, ?) "
    "ON CONFLICT(id) DO UPDATE SET token = token + 1, owner = excluded.owner"
)
_REMEMBER_TOKEN = (
    "INSERT INTO owners SELECT '', '', 0, 0, token FROM sessions WHERE id = ? AND seq = 0 "
    "ON CONFLICT(id) DO UPDATE SET until = max(until, excluded.until)"
)
"""Before such a session is forgotten, so that nobody gets a token that was used up."""
_FORGET = "DELETE FROM sessions WHERE id = ? AND seq = 0"
_HOLDER = (
    "SELECT o.id, o.host, o.pid, o.started, o.until FROM sessions s JOIN owners o ON o.id = s.owner WHERE s.id = ?"
)


class SqliteStore:
    """Sessions in the file `path`, shared with any number of other processes on this machine.

    `durability` "full" syncs every commit to the disk, "relaxed" only at checkpoints: then a loss of power may take
    the last commits, never one from the middle. Statements wait up to `busy_timeout_s` seconds for other writers,
    then raise `StoreBusy`. Methods may be called from any thread, but not in a child that was forked from this
    process. Raises as `sqlite_file.connect` does. With `is_unchanging` nothing but reading works: for a file in a
    folder that cannot be written to.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: Durability = "full",
        busy_timeout_s: float = 5.0,
        *,
        is_unchanging: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        self.url = f"sqlite:{self.path}" + ("" if durability == "full" else f"?durability={durability}")
        self.waits = durability == "full"
        self._busy_timeout_s = busy_timeout_s
        if is_unchanging:
            self._writer = self._reader = connect_unchanging(self.path)
        else:
            self._writer, self._reader = connect(self.path, durability=durability, busy_timeout_s=busy_timeout_s)
        self._writing = Transaction(self._writer, self._enter_writing, self._leave_writing)
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._process = os.getpid()
        self._closed = False
        # What the writer and the reader remember of committed rows; each is guarded by its connection's lock.
        self._known: dict[SessionId, tuple[int, int]] = {}
        self._kind_ids: dict[Kind, int] = {}
        self._kinds: dict[int, Kind] = {}

    # ------------------------------------------------------------------------------------------------- ownership

    def claim(self, session: SessionId, owner: Owner, *, now: int, lease_us: int, take_over: bool = False) -> Claim:
        """Make `owner` the one writer; raises `SessionOwned` while another lease runs, unless `take_over`."""
        with self._writing as connection:
            holder = _holder(connection, session)
            if holder is not None and verdicts.is_held(holder, owner, now=now) and not take_over:
                raise verdicts.owned(session, holder, owner, now=now, lease_us=lease_us)
            connection.execute(_CLAIM, (session, owner.id))
            _extend(connection, owner, now=now, until=now + lease_us)
            row = connection.execute("SELECT token, seq, hash FROM sessions WHERE id = ?", (session,)).fetchone()
            return Claim(*row)

    def owner(self, session: SessionId) -> tuple[Owner, int] | None:
        """Who holds the session, and until when; a lease that ran out is still shown."""
        with self._reading() as connection:
            return _holder(connection, session)

    def renew(self, owner: Owner, *, until: int) -> None:
        """Let all leases of `owner` end at `until`; nothing happens when it holds none."""
        with self._writing as connection:
            connection.execute("UPDATE owners SET until = ? WHERE id = ?", (until, owner.id))

    def release(self, session: SessionId, owner: Owner) -> None:
        """Give a session up; its token is refused from then on. One without events is forgotten."""
        with self._writing as connection:
            released = connection.execute(
                "UPDATE sessions SET owner = NULL, token = token + 1 WHERE id = ? AND owner = ?",
                (session, owner.id),
            )
            if released.rowcount:
                connection.execute(_REMEMBER_TOKEN, (session,))
                connection.execute(_FORGET, (session,))
            self._known.pop(session, None)

    # ----------------------------------------------------------------------------------------------------- writing

    def append(self, batches: Sequence[Append]) -> list[Exception | None]:
        """Store each batch whole or not at all, all of them in one transaction; one verdict each, in order."""
        for batch in batches:
            verdicts.check_batch(batch)
        with self._writing as connection:
            stored = [self._append(connection, batch) for batch in batches]
        if any(batch.erased or batch.erased_contents for batch in batches):
            self._purge()
        return stored

    def put_inbox(self, session: SessionId, key: str, kind: str, data: bytes) -> bool:
        """Queue a request durably; False when the key was used before. Raises `SessionUnknown`."""
        verdicts.check_request(session, key, kind)
        with self._writing as connection:
            found = connection.execute(
                "SELECT no, requests + 1 FROM sessions WHERE id = ? AND seq > 0", (session,)
            ).fetchone()
            if found is None:
                raise verdicts.unknown(session, self.url)
            no, number = found
            used = connection.execute(
                "INSERT INTO inbox_keys(session, key) VALUES (?, ?) ON CONFLICT DO NOTHING", (no, key)
            )
            if used.rowcount == 0:
                return False
            connection.execute("UPDATE sessions SET requests = ? WHERE no = ?", (number, no))
            connection.execute("INSERT INTO inbox VALUES (?, ?, ?, ?, ?)", (no, number, key, kind, data))
            return True

    def _append(self, connection: sqlite3.Connection, batch: Append) -> Exception | None:
        if batch.base is not None and not upkeep.link(connection, batch):
            return self._refusal(connection, batch)
        seq, rows = batch.seq, batch.rows
        found = self._locate(connection, batch)
        if found is None:
            return self._refusal(connection, batch)
        no, created = found
        if seq + len(rows) >> _SEQ_BITS:
            return StoreUnavailable(f"session {batch.session} is full: a store holds {1 << _SEQ_BITS} events of each")
        # The genesis hash is the caller's business: a session without events takes any.
        expected = (no, batch.token, seq, batch.prev_hash if seq else b"")
        execute = self._writing.execute
        if not rows:
            advance = execute(_KEEP, expected)
        else:
            last = rows[-1]
            advance = execute(_ADVANCE, (last.seq, last.hash, last.at, created, *expected))
        if advance.rowcount != 1:
            return self._refusal(connection, batch)
        base, kinds, learn = _base(no), self._kind_ids, self._learn_kind
        for seq, type_, version, at, place, origin, required, data, hash in rows:
            kind = (type_, version, origin, required)
            execute(
                _ADD_EVENT, (base | seq, at - created, kinds.get(kind) or learn(kind), pack_place(place), data, hash)
            )
        _add_beside(connection, batch, no)
        return None

    def _locate(self, connection: sqlite3.Connection, batch: Append) -> tuple[int, int] | None:
        """The session's number and the time that its events count from; None when nobody ever claimed it."""
        # Should a session be deleted and its number given to another, then its writer's hash is not that one's head.
        # A first batch, also that of a fork, has no hash to tell: it asks for the number.
        known = self._known.get(batch.session) if batch.seq and batch.base is None else None
        if known is not None:
            return known
        found = connection.execute("SELECT no, created FROM sessions WHERE id = ?", (batch.session,)).fetchone()
        if found is None:
            return None
        no, created = found
        if created is None:  # no event yet: this batch sets the time, unless it is refused
            return no, batch.rows[0].at if batch.rows else 0
        self._known[batch.session] = (no, created)
        return no, created

    def _refusal(self, connection: sqlite3.Connection, batch: Append) -> Exception | None:
        self._known.pop(batch.session, None)
        found = connection.execute("SELECT seq, hash, token FROM sessions WHERE id = ?", (batch.session,)).fetchone()
        seq, hash, token = found or (0, b"", None)
        return verdicts.refusal(batch, seq=seq, hash=hash, token=token)

    def _learn_kind(self, kind: Kind) -> int:
        # The transaction holds the write lock, so that nobody adds the same kind between these two statements.
        connection = self._writer
        found = connection.execute(
            "SELECT id FROM kinds WHERE type = ? AND version = ? AND origin IS ? AND required = ?", kind
        ).fetchone()
        if found is None:
            found = (
                connection.execute(
                    "INSERT INTO kinds(type, version, origin, required) VALUES (?, ?, ?, ?)", kind
                ).lastrowid,
            )
        self._kind_ids[kind] = found[0]
        return int(found[0])

    # ----------------------------------------------------------------------------------------------------- reading

    def read(
        self, session: SessionId, *, after: int = 0, until: int | None = None, types: Sequence[str] = ()
    ) -> Iterator[Row]:
        """Rows with `after < seq <= until` as of this call, in order; none for an unknown session.

        Holds at most 512 rows or 1 MiB of payload and one row more in memory. Raises when called or while iterated.
        """
        with self._reading() as connection:
            found = connection.execute(
                "SELECT no, seq, created, (SELECT 1 FROM events WHERE key = (no - 1) << 24) "
                "FROM sessions WHERE id = ? AND seq > 0",
                (session,),
            ).fetchone()
        if found is None:
            return iter(())
        no, last, created, is_fork = found
        last = last if until is None else min(until, last)
        lies = [Span(no, created, max(0, after), last)]
        if is_fork:
            with self._reading() as connection:
                lies = upkeep.spans(connection, *lies[0])
        return chain.from_iterable(self._pages(lies, tuple(types)))

    def head(self, session: SessionId) -> tuple[int, bytes] | None:
        """Seq and hash of the last event; None when there is none."""
        with self._reading() as connection:
            found = connection.execute("SELECT seq, hash FROM sessions WHERE id = ? AND seq > 0", (session,)).fetchone()
            return (found[0], as_bytes(found[1])) if found else None

    def contents(self, digests: Sequence[Digest]) -> dict[Digest, Content]:
        """Those of `digests` that are there."""
        found: dict[Digest, Content] = {}
        for start in range(0, len(digests), _MANY):
            some = tuple(digests[start : start + _MANY])
            with self._reading() as connection:
                rows = connection.execute(
                    f"SELECT digest, media_type, data FROM contents WHERE digest IN ({_marks(some)})", some
                )
                found.update((id, Content(id, media_type, as_bytes(data))) for id, media_type, data in rows)
        return found

    def inbox(self, session: SessionId) -> list[InboxEntry]:
        """Queued requests, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT no, key, kind, data FROM inbox WHERE session = (SELECT no FROM sessions WHERE id = ?) "
                "ORDER BY no",
                (session,),
            )
            return [InboxEntry(*row) for row in rows]

    def waiting(self) -> list[SessionId]:
        """Sessions whose inbox holds a request."""
        with self._reading() as connection:
            found = connection.execute("SELECT id FROM sessions WHERE no IN (SELECT session FROM inbox) ORDER BY no")
            return [id for (id,) in found]

    def watch(self, session: SessionId, wake: Callable[[], object]) -> None:
        """Nobody is told: a file has no way to; followers look by themselves."""

    def sessions(self) -> list[SessionInfo]:
        """All sessions with at least one event, most recently changed last."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT s.id, s.seq, s.hash, s.created, s.updated, b.id FROM sessions s "
                "LEFT JOIN events e ON e.key = (s.no - 1) << 24 LEFT JOIN sessions b ON b.no = e.place "
                "WHERE s.seq > 0 ORDER BY s.updated, s.no"
            )
            return [SessionInfo(id, seq, as_bytes(hash), *rest) for id, seq, hash, *rest in rows]

    def _pages(self, lies: Sequence[Span], types: tuple[str, ...]) -> Iterator[Sequence[Row]]:
        for no, created, after, last in lies:
            while after < last:
                page, after = self._page(no, created, after, last, types)
                yield page

    def _page(self, no: int, created: int, after: int, last: int, types: tuple[str, ...]) -> tuple[Sequence[Row], int]:
        """Some next rows, and the seq up to which they are complete."""
        base = _base(no)
        only = f" AND kind IN (SELECT id FROM kinds WHERE type IN ({_marks(types)}))" if types else ""
        rows: list[Row] = []
        size, kinds, add, new = 0, self._kinds, rows.append, tuple.__new__
        packed = where = None  # the place of the row before: most rows share it
        with self._reading() as connection:
            cursor = connection.execute(_PAGE.format(types=only) + str(_PAGE_ROWS), (base | after, base | last, *types))
            try:
                for key, at, kind, place, data, hash in cursor:
                    type_, version, origin, required = kinds.get(kind) or self._load_kind(connection, kind)
                    if type(data) is not bytes or type(hash) is not bytes:
                        data, hash = as_bytes(data), as_bytes(hash)
                    if place != packed:
                        packed, where = place, unpack_place(place)
                    add(new(Row, (key - base, type_, version, at + created, where, origin, required, data, hash)))
                    size += len(data)
                    if size >= _PAGE_BYTES:
                        cursor.close()
                        return in_order(rows, after)
            except (TypeError, KeyError) as exc:  # an edit by hand: what comes before it is still good
                cursor.close()
                if rows:
                    return in_order(rows, after)
                raise LogBroken(f"its row in {self.url} is no event", seq=key - base) from exc
        return in_order(rows, after) if len(rows) == _PAGE_ROWS else (rows, last)

    def _load_kind(self, connection: sqlite3.Connection, wanted: int) -> Kind:
        for id, type_, version, origin, required in connection.execute(
            "SELECT id, type, version, origin, required FROM kinds"
        ):
            if type(type_) is str and type(version) is int and type(origin) in _TEXT_OR_NONE:
                self._kinds[id] = (type_, version, origin, bool(required))
        return self._kinds[wanted]

    # ----------------------------------------------------------------------------------------------------- upkeep

    def detach(self, session: SessionId, token: int) -> int:
        """Copy the events that a fork shares, so that it needs no other session; how many."""
        with self._writing as connection:
            self._known.pop(session, None)
            return upkeep.detach(connection, session, token)

    def cut(self, session: SessionId, token: int, seq: int) -> None:
        """Take away the events after `seq`."""
        with self._writing as connection:
            upkeep.cut(connection, session, token, seq)

    def delete(self, session: SessionId, token: int) -> None:
        """Forget a session and what only it refers to, then write the file anew without it."""
        with self._writing as connection:
            self._known.pop(session, None)
            upkeep.delete(connection, session, token)
        self._purge()

    def snapshot(self, session: SessionId) -> Snapshot | None:
        """What was kept of the session's folded state."""
        with self._reading() as connection:
            return upkeep.snapshot(connection, session)

    def keep_snapshot(self, session: SessionId, token: int, snapshot: Snapshot) -> None:
        """Keep a folded state in the place of the one before."""
        with self._writing as connection:
            upkeep.keep_snapshot(connection, session, token, snapshot)

    def check(self, *, repair: bool = False) -> list[str]:
        """What is wrong with the file's pages and indexes; with `repair` both are written anew first."""
        if repair:
            with self._writing as connection:
                connection.execute("REINDEX")
            self._purge()
        with self._reading() as connection:
            return upkeep.problems(connection)

    def _purge(self) -> None:
        self._enter(self._write_lock)
        try:
            upkeep.purge(self._writer, self.url)
        finally:
            self._write_lock.release()

    # --------------------------------------------------------------------------------------------------- lifetime

    def close(self) -> None:
        """Let go of the file; the last process to do so folds the write-ahead log into it. Idempotent."""
        with self._write_lock, self._read_lock:
            if not self._closed and self._process == os.getpid():
                self._reader.close()
                self._writer.close()
            self._closed = True

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._enter(self._read_lock)
        try:
            yield self._reader
        except sqlite3.Error as exc:
            self._raise_translated(exc)
            raise
        finally:
            self._read_lock.release()

    def _enter_writing(self) -> None:
        self._enter(self._write_lock)

    def _leave_writing(self, exc: BaseException | None) -> None:
        if exc is not None:
            self._kind_ids.clear()
            self._known.clear()
        self._write_lock.release()
        if exc is not None:
            self._raise_translated(exc)

    def _enter(self, lock: threading.Lock) -> None:
        if not lock.acquire(timeout=self._busy_timeout_s):
            raise StoreBusy(f"{self.url} was in use by another thread for longer than {self._busy_timeout_s:g} s")
        if self._closed or self._process != os.getpid():
            lock.release()
            reason = "is closed" if self._closed else "was opened before this process was forked"
            raise StoreUnavailable(f"{self.url} {reason}; open it again")

    def _raise_translated(self, exc: BaseException) -> None:
        error = translate(exc, self.url) if isinstance(exc, sqlite3.Error) else None
        if error is not None:
            raise error from exc


def _holder(connection: sqlite3.Connection, session: SessionId) -> tuple[Owner, int] | None:
    found = connection.execute(_HOLDER, (session,)).fetchone()
    return (Owner(*found[:4]), found[4]) if found else None


def _extend(connection: sqlite3.Connection, owner: Owner, *, now: int, until: int) -> None:
    """Let the leases of `owner` run until then at least; a new owner makes room by clearing away dead ones."""
    known = connection.execute("UPDATE owners SET until = max(until, ?) WHERE id = ?", (until, owner.id))
    if known.rowcount == 0:
        connection.execute(
            "DELETE FROM owners WHERE id <> '' AND until <= ? "
            "AND id NOT IN (SELECT owner FROM sessions WHERE owner IS NOT NULL)",
            (now,),
        )
        row = (owner.id, owner.host, owner.pid, owner.started, until)
        connection.execute("INSERT INTO owners VALUES (?, ?, ?, ?, ?)", row)


def _add_beside(connection: sqlite3.Connection, batch: Append, no: int) -> None:
    if batch.erased or batch.erased_contents:
        upkeep.overwrite(connection, batch.erased, batch.erased_contents)
    if batch.contents:
        upkeep.add_contents(connection, batch.contents)
    if batch.consumed:
        connection.executemany(
            "DELETE FROM inbox WHERE session = ? AND no = ?", [(no, number) for number in batch.consumed]
        )


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
