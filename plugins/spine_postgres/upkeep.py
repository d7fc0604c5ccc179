"""Forks and what shortens or removes logs, for a store in PostgreSQL.

A fork's row names who holds the last event that it shares, and how many it shares. Its events lie in that session's
rows, and those that this one shares in turn lie further up: `spans` says where. Whoever takes events away locks the
row of their session first, and so does whoever makes a fork of it (`schema.LINK`).
"""

from typing import Any, Final, NamedTuple

from spine.store import digests_in
from spine.stores import verdicts
from spine.values import Digest, SessionId
from spine_postgres import schema
from spine_postgres.connections import Connection

PURGE: Final = "VACUUM (FULL) events, contents"

_LOCKED: Final = "SELECT no, seq, hash, token, base, shared FROM sessions WHERE id = %s FOR UPDATE"
_COPY: Final = """
INSERT INTO events SELECT %s, seq, type, version, at, place, origin, required, data, hash FROM events
WHERE session = %s AND seq > %s AND seq <= %s"""
_CUT: Final = """
UPDATE sessions SET seq = e.seq, hash = e.hash, updated = e.at FROM events e
WHERE no = %s AND e.session = no AND e.seq = %s"""
_FORKS: Final = "SELECT id FROM sessions WHERE base = %s AND shared > %s ORDER BY no"
_UNREFERRED: Final = """
DELETE FROM contents WHERE digest = ANY(%s) AND NOT EXISTS (
    SELECT FROM events WHERE position(convert_to('"' || digest || '"', 'UTF8') IN data) > 0)"""
_PROBLEMS: Final = """
SELECT s.id || ': its last event is not the one at seq ' || s.seq FROM sessions s
WHERE s.seq > 0 AND NOT EXISTS (SELECT FROM events e WHERE e.session = s.no AND e.seq = s.seq AND e.hash = s.hash)
UNION ALL
SELECT s.id || ': ' || count(e.seq) || ' events lie where ' || s.seq - s.shared || ' belong' FROM sessions s
LEFT JOIN events e ON e.session = s.no GROUP BY s.no
HAVING count(e.seq) <> s.seq - s.shared OR min(e.seq) <> s.shared + 1 OR max(e.seq) <> s.seq
UNION ALL
SELECT s.id || ': what it shares is gone' FROM sessions s WHERE s.base IS NOT NULL AND NOT EXISTS (
    SELECT FROM sessions b JOIN events e ON e.session = b.no WHERE b.no = s.base AND e.seq = s.shared)
UNION ALL
SELECT 'events of a session that is gone' WHERE EXISTS (
    SELECT FROM events e WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.no = e.session))"""


class Span(NamedTuple):
    """Rows `after < seq <= last` of the session with this number."""

    no: int
    after: int
    last: int


def spans(connection: Connection, *, session: SessionId, after: int, until: int | None) -> list[Span]:
    """Where the events of a session lie, in order; nowhere for an unknown one."""
    found = connection.execute(schema.LOCATE, (session,)).fetchone()
    if found is None:
        return []
    no, last, base, shared = found
    return _lies(connection, no, base, shared, max(0, after), last if until is None else min(until, last))


def _lies(connection: Connection, no: int, base: int | None, shared: int, after: int, last: int) -> list[Span]:
    found = []
    while base is not None and after < shared:
        found.append(Span(no, shared, last))
        no, last = base, min(last, shared)
        base, shared = _fetch(connection, "SELECT base, shared FROM sessions WHERE no = %s", no)
    found.append(Span(no, after, last))
    return found[::-1]


def _fetch(connection: Connection, statement: str, *given: Any) -> Any:
    found = connection.execute(statement, given).fetchone()
    assert found is not None, "a fork's base is never deleted before it"
    return found


def _locked(connection: Connection, session: SessionId, token: int) -> Any:
    """The session's row, locked until the transaction ends. Raises `ConcurrencyConflict` for another token."""
    found = connection.execute(_LOCKED, (session,), binary=True).fetchone()
    no, seq, hash, actual, base, shared = found or (0, 0, b"", None, None, 0)
    verdicts.check_token(session, token, seq=seq, hash=hash, actual=actual)
    return no, seq, base, shared


def _check_unshared(connection: Connection, session: SessionId, no: int, seq: int, *, what: str) -> None:
    forks = [SessionId(id) for (id,) in connection.execute(_FORKS, (no, seq))]
    if forks:
        raise verdicts.shared(session, forks, what=what)


def detach(connection: Connection, *, session: SessionId, token: int) -> int:
    """Copy the events that a fork shares; how many."""
    with connection.transaction():
        no, _, base, shared = _locked(connection, session, token)
        if base is None:
            return 0
        for span in _lies(connection, no, base, shared, 0, shared):
            connection.execute(_COPY, (no, *span))
        connection.execute("UPDATE sessions SET base = NULL, shared = 0 WHERE no = %s", (no,))
        return int(shared)


def cut(connection: Connection, *, session: SessionId, token: int, seq: int) -> None:
    """Take away the events after `seq`."""
    with connection.transaction():
        no, last, base, shared = _locked(connection, session, token)
        if base is not None and seq <= shared:
            (name,) = _fetch(connection, "SELECT id FROM sessions WHERE no = %s", base)
            raise verdicts.not_own(session, seq, name)
        if not 0 < seq <= last:
            raise verdicts.no_event(session, seq)
        _check_unshared(connection, session, no, seq, what="events")
        connection.execute("DELETE FROM events WHERE session = %s AND seq > %s", (no, seq))
        connection.execute(_CUT, (no, seq))


def delete(connection: Connection, *, session: SessionId, token: int) -> None:
    """Forget a session, its inbox, and the contents that no event refers to any more."""
    with connection.transaction():
        no, *_ = _locked(connection, session, token)
        _check_unshared(connection, session, no, 0, what="the events")
        # Whoever adds a content that is there already counts on it: none is added meanwhile.
        connection.execute("LOCK TABLE contents IN SHARE ROW EXCLUSIVE MODE")
        named = _named(connection, no)
        for statement in (
            "DELETE FROM events WHERE session = %s",
            "DELETE FROM inbox WHERE session = %s",
            "DELETE FROM inbox_keys WHERE session = %s",
            "DELETE FROM sessions WHERE no = %s",
        ):
            connection.execute(statement, (no,))
        connection.execute(_UNREFERRED, (list(named),))


def _named(connection: Connection, no: int) -> set[Digest]:
    """The contents that a session's own events may refer to."""
    with connection.cursor(binary=True) as cursor:
        rows = cursor.stream("SELECT data FROM events WHERE session = %s", (no,))
        return {digest for (data,) in rows for digest in digests_in(data)}


def reindex(connection: Connection) -> None:
    """Write all indexes anew."""
    for (table,) in connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    ).fetchall():
        connection.execute(f'REINDEX TABLE "{table}"')


def problems(connection: Connection) -> list[str]:
    """Which sessions and events do not fit each other, in words."""
    return [problem for (problem,) in connection.execute(_PROBLEMS)]
