"""What a SQLite store does seldom: fork, copy, cut, delete, overwrite, check (side room, floors 0-1).

How a fork shares events: before its own first event, under the key of seq 0, lies a row that is no event. Its `at` is
the number of events that come from elsewhere, its `place` the number of the session that holds the last of them. Every
function runs inside a transaction of its caller's.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from spine.errors import StoreBusy
from spine.store import ERASED_TYPE, Append, Content, Overwrite, Snapshot, digests_in
from spine.stores import verdicts
from spine.values import Digest, SessionId

SEQ_BITS: Final = 24
SEQ_MASK: Final = (1 << SEQ_BITS) - 1
SHARING_FORMAT: Final = 2
"""Files of format 1 hold whole logs and nothing that was erased; the first fork or erasure makes them format 2."""

_POINTER = "SELECT place, at FROM events WHERE key = ? AND typeof(place) = 'integer' AND typeof(at) = 'integer'"
_FORKS = (
    "SELECT s.id FROM sessions s JOIN events e ON e.key = (s.no - 1) << 24 WHERE e.place = ? AND e.at > ? ORDER BY s.no"
)
_COPY = (
    "INSERT INTO events(key, at, kind, place, data, hash) "
    "SELECT key - ? + ?, at + ?, kind, place, data, hash FROM events WHERE key > ? AND key <= ?"
)
_ADD_CONTENT = (
    "INSERT INTO contents(digest, media_type, data) VALUES (?, ?, ?) ON CONFLICT(digest) DO UPDATE "
    f"SET media_type = excluded.media_type, data = excluded.data WHERE media_type = '{ERASED_TYPE}'"
)
_HAS_SNAPSHOTS = "SELECT 1 FROM sqlite_master WHERE name = 'snapshots'"
_LOST_HEAD = (
    "SELECT s.id, s.seq FROM sessions s LEFT JOIN events e ON e.key = ((s.no - 1) << 24 | s.seq) "
    "WHERE s.seq > 0 AND (e.key IS NULL OR e.hash <> s.hash)"
)


class Span(NamedTuple):
    """Events `after < seq <= last` of a log, all of which lie in the session number `no`."""

    no: int
    created: int
    after: int
    last: int


def base_key(no: int) -> int:
    """The key before a session's first event. Small numbers are short in the file, so the first session has 0."""
    return (no - 1) << SEQ_BITS


def spans(connection: sqlite3.Connection, no: int, created: int, after: int, last: int) -> list[Span]:
    """Where the events of a log lie, in order; a log that shares nothing is one span.

    Where a damaged pointer leads nowhere or in a circle, the events before it are missing.
    """
    found: list[Span] = []
    seen: set[int] = set()
    while after < last and no not in seen:
        seen.add(no)
        pointer = connection.execute(_POINTER, (base_key(no),)).fetchone()
        holder, shared = pointer or (0, 0)
        if last > shared:
            found.insert(0, Span(no, created, max(after, shared), last))
        last, no = min(last, shared), holder
        if pointer is not None:
            named = connection.execute("SELECT created FROM sessions WHERE no = ?", (holder,)).fetchone()
            if named is None:
                break
            created = named[0]
    return found


def link(connection: sqlite3.Connection, batch: Append) -> bool:
    """Let an empty session begin with the events that a fork's first batch builds on; False when they are not there."""
    base = connection.execute("SELECT no, created FROM sessions WHERE id = ?", (batch.base,)).fetchone()
    own = "SELECT no FROM sessions WHERE id = ? AND token = ? AND seq = 0"
    child = connection.execute(own, (batch.session, batch.token)).fetchone()
    if base is None or child is None:
        return False
    no, created = base
    lies = spans(connection, no, created, batch.seq - 1, batch.seq)
    found = "SELECT 1 FROM events WHERE key = ? AND hash = ?"
    if not lies or not connection.execute(found, (base_key(lies[0].no) | batch.seq, batch.prev_hash)).fetchone():
        return False
    pointer = (base_key(child[0]), batch.seq, lies[0].no, batch.prev_hash)
    connection.execute("INSERT INTO events(key, at, kind, place, data, hash) VALUES (?, ?, 0, ?, x'', ?)", pointer)
    head = (batch.seq, batch.prev_hash, batch.rows[0].at, *child)
    connection.execute("UPDATE sessions SET seq = ?, hash = ?, created = ? WHERE no = ?", head)
    use_format(connection, SHARING_FORMAT)
    return True


def use_format(connection: sqlite3.Connection, wanted: int) -> None:
    """Mark the file as one that older versions would misread."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < wanted:
        connection.execute(f"PRAGMA user_version = {wanted}")


def checked(connection: sqlite3.Connection, session: SessionId, token: int) -> tuple[int, int, int]:
    """Number, last seq and base time of a session. Raises `ConcurrencyConflict` unless `token` is its token."""
    found = connection.execute(
        "SELECT no, seq, hash, token, coalesce(created, 0) FROM sessions WHERE id = ?", (session,)
    ).fetchone()
    no, seq, hash, actual, created = found or (0, 0, b"", None, 0)
    verdicts.check_token(session, token, seq=seq, hash=hash, actual=actual)
    return no, seq, created


def detach(connection: sqlite3.Connection, session: SessionId, token: int) -> int:
    """Copy what a fork shares; how many events."""
    no, seq, created = checked(connection, session, token)
    shared = [span for span in spans(connection, no, created, 0, seq) if span.no != no]
    for span in shared:
        old = base_key(span.no)
        moved = (old, base_key(no), span.created - created, old | span.after, old | span.last)
        connection.execute(_COPY, moved)
    connection.execute("DELETE FROM events WHERE key = ?", (base_key(no),))
    return shared[-1].last if shared else 0


def cut(connection: sqlite3.Connection, session: SessionId, token: int, seq: int) -> None:
    """Take the events after `seq` away and make it the head."""
    no, last, created = checked(connection, session, token)
    pointer = connection.execute(_POINTER, (base_key(no),)).fetchone()
    if pointer is not None and seq <= pointer[1]:
        holder = connection.execute("SELECT id FROM sessions WHERE no = ?", pointer[:1]).fetchone()
        raise verdicts.not_own(session, seq, SessionId(holder[0]))
    found = connection.execute("SELECT hash, at FROM events WHERE key = ?", (base_key(no) | seq,)).fetchone()
    if found is None or not 0 < seq <= last:
        raise verdicts.no_event(session, seq)
    _check_unshared(connection, session, no, seq, what="events")
    _forget_snapshots(connection, no)
    connection.execute("DELETE FROM events WHERE key > ? AND key <= ?", (base_key(no) | seq, base_key(no) | SEQ_MASK))
    head = (seq, found[0], created + found[1], no)
    connection.execute("UPDATE sessions SET seq = ?, hash = ?, updated = ? WHERE no = ?", head)


def delete(connection: sqlite3.Connection, session: SessionId, token: int) -> None:
    """Forget a session, and the contents that only it referred to."""
    no, *_ = checked(connection, session, token)
    _check_unshared(connection, session, no, 0, what="the events")
    _forget_snapshots(connection, no)
    span = (base_key(no), base_key(no) | SEQ_MASK)
    gone = set(_referred_to(connection, "key >= ? AND key <= ?", span))
    if gone:
        gone.difference_update(_referred_to(connection, "key < ? OR key > ?", span))
    connection.execute("DELETE FROM events WHERE key >= ? AND key <= ?", span)
    connection.executemany("DELETE FROM contents WHERE digest = ?", [(digest,) for digest in gone])
    connection.execute("DELETE FROM inbox WHERE session = ?", (no,))
    connection.execute("DELETE FROM inbox_keys WHERE session = ?", (no,))
    connection.execute(
        "INSERT INTO owners VALUES ('', '', 0, 0, ?) ON CONFLICT(id) DO UPDATE SET until = max(until, excluded.until)",
        (token,),
    )
    connection.execute("DELETE FROM sessions WHERE no = ?", (no,))


def _check_unshared(connection: sqlite3.Connection, session: SessionId, no: int, seq: int, *, what: str) -> None:
    forks = [SessionId(id) for (id,) in connection.execute(_FORKS, (no, seq))]
    if forks:
        raise verdicts.shared(session, forks, what=what)


def _referred_to(connection: sqlite3.Connection, where: str, span: tuple[int, int]) -> Iterator[Digest]:
    for (data,) in connection.execute(f"SELECT data FROM events WHERE {where}", span):
        yield from digests_in(data)


def add_contents(connection: sqlite3.Connection, contents: Sequence[Content]) -> None:
    """Keep contents that are not there, or of which an erasure left the digest alone."""
    connection.executemany(_ADD_CONTENT, [(each.digest, each.media_type, each.data) for each in contents])


def overwrite(connection: sqlite3.Connection, erased: Sequence[Overwrite], contents: Sequence[Content]) -> None:
    """Put other bytes in the place of erased ones, wherever they lie."""
    use_format(connection, SHARING_FORMAT)
    _forget_snapshots(connection)
    for each in erased:  # walks the whole table: no index is worth its room for what happens this seldom
        row = (each.data, SEQ_MASK, each.seq, each.hash)
        connection.execute("UPDATE events SET data = ? WHERE key & ? = ? AND hash = ?", row)
    for content in contents:
        kept = (content.data, content.media_type, content.digest)
        connection.execute("UPDATE contents SET data = ?, media_type = ? WHERE digest = ?", kept)


def snapshot(connection: sqlite3.Connection, session: SessionId) -> Snapshot | None:
    """What was kept of the session's folded state."""
    if not connection.execute(_HAS_SNAPSHOTS).fetchone():
        return None
    found = connection.execute(
        "SELECT k.seq, k.hash, k.data FROM snapshots k JOIN sessions s ON s.no = k.session WHERE s.id = ?", (session,)
    ).fetchone()
    return Snapshot(*found) if found else None


def keep_snapshot(connection: sqlite3.Connection, session: SessionId, token: int, kept: Snapshot) -> None:
    """Keep a folded state; the table is made for the first one, and older versions never look at it."""
    no, *_ = checked(connection, session, token)
    if not connection.execute(_HAS_SNAPSHOTS).fetchone():
        connection.execute("CREATE TABLE snapshots (session INTEGER PRIMARY KEY, seq, hash, data)")
    connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (no, kept.seq, kept.hash, kept.data))


def _forget_snapshots(connection: sqlite3.Connection, no: int | None = None) -> None:
    """Of one session, or of all: what was erased may stand in any of them."""
    if connection.execute(_HAS_SNAPSHOTS).fetchone():
        connection.execute("DELETE FROM snapshots WHERE session = ? OR ? IS NULL", (no, no))


def purge(connection: sqlite3.Connection, url: str) -> None:
    """Leave no older bytes behind: pages are written anew, and the write-ahead log is emptied into the file.

    Raises `StoreBusy` when others keep it from being done; what was taken away before is gone from every log.
    """
    try:
        connection.execute("VACUUM")
        (is_busy, *_), reason = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone(), "others read it"
    except sqlite3.Error as exc:
        is_busy, reason = 1, str(exc)
    if is_busy:
        raise StoreBusy(
            f"it is done, but {url} could not be written anew ({reason}): older bytes may still lie in the file",
            hint="spine check --repair, once nothing else uses the store",
        )


def problems(connection: sqlite3.Connection) -> list[str]:
    """What SQLite's own check finds, and sessions whose last event is not the one that the list names."""
    found: list[Any] = [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    found += [f"session {id}: its last event is not seq {seq}" for id, seq in connection.execute(_LOST_HEAD)]
    return [str(text) for text in found]
