"""The store in a schema of a PostgreSQL database, for sessions that several machines share.

The rule it guards: a batch is stored by one statement, whose first part is a conditional update of the session's head.
That changes one row exactly when token, seq and hash are those of the batch; every other part of the statement takes
its rows from it, so that nothing is stored otherwise. Whoever comes at the same moment waits for the row's lock and
then finds the new head.

All batches of a call go out in one pipeline, which the server runs as one transaction. A connection that breaks
before the answer leaves the outcome unknown: the same batches appended again tell, because the head is compared.

Three connections at most: one to write, one to read, one to listen. Nothing holds a transaction open between rows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from psycopg.rows import args_row

from spine.store import ERASED_TYPE, Append, Claim, Content, InboxEntry, Owner, Row, SessionInfo
from spine.stores import verdicts
from spine.values import Digest, SessionId
from spine_postgres import schema, upkeep
from spine_postgres.connections import Connection, Line, parse
from spine_postgres.listening import Listener

_MANY: Final = 500
"""Digests asked for by one statement."""


class PostgresStore:
    """Sessions in one schema of a database, shared with any number of processes on any machine.

    `?durability=relaxed` lets commits return before they are on the server's disk: a crash of the server may then take
    the last ones, never one from the middle. `?schema=NAME` keeps several stores in one database; `spine` by default.
    Statements wait up to `busy_timeout_s` seconds for others, then raise `StoreBusy`. Methods may be called from any
    thread, but not in a child that was forked from this process. Raises `ConfigInvalid`, `StoreUnavailable`,
    `StoreNewer`.
    """

    def __init__(self, url: str, *, busy_timeout_s: float = 5.0) -> None:
        address = parse(url)
        self.url = address.shown
        self.waits = True
        self._writer, self._reader = Line(address, busy_timeout_s), Line(address, busy_timeout_s)
        self._listener = Listener(address)
        self._channel = self._listener.channel
        self._reader.ask(lambda connection: None)  # a wrong address is told now

    # ------------------------------------------------------------------------------------------------- ownership

    def claim(self, session: SessionId, owner: Owner, *, now: int, lease_us: int, take_over: bool = False) -> Claim:
        """Make `owner` the one writer; raises `SessionOwned` while another lease runs, unless `take_over`."""

        def work(connection: Connection) -> Claim:
            with connection.transaction():
                connection.execute(schema.MAKE_SESSION, (session,))
                connection.execute(schema.LOCK_SESSION, (session,))
                holder = _holder(connection, session)
                if holder is not None and verdicts.is_held(holder, owner, now=now) and not take_over:
                    raise verdicts.owned(session, holder, owner, now=now, lease_us=lease_us)
                known = (owner.id, owner.host, owner.pid, owner.started, now + lease_us)
                connection.execute(schema.EXTEND, known)
                claimed = connection.execute(schema.CLAIM, (owner.id, session), binary=True).fetchone()
                connection.execute(schema.CLEAR_OWNERS, (now,))
            assert claimed is not None
            return Claim(*claimed)

        claim: Claim = self._writer.ask(work)
        return claim

    def owner(self, session: SessionId) -> tuple[Owner, int] | None:
        """Who holds the session, and until when; a lease that ran out is still shown."""
        holder: tuple[Owner, int] | None = self._reader.ask(partial(_holder, session=session))
        return holder

    def renew(self, owner: Owner, *, until: int) -> None:
        """Let all leases of `owner` end at `until`; nothing happens when it holds none."""
        self._writer.ask(lambda connection: connection.execute(schema.RENEW, (until, owner.id)))

    def release(self, session: SessionId, owner: Owner) -> None:
        """Give a session up; its token is refused from then on. One without events is forgotten."""

        def work(connection: Connection) -> None:
            with connection.transaction():
                if connection.execute(schema.RELEASE, (session, owner.id)).rowcount:
                    connection.execute(schema.FORGET, (session,))

        self._writer.ask(work)

    # ----------------------------------------------------------------------------------------------------- writing

    def append(self, batches: Sequence[Append]) -> list[Exception | None]:
        """Store each batch whole or not at all, all of them in one transaction; one verdict each, in order.

        Raises `AppendOutcomeUnknown` when the connection broke before the answer: append the same again.
        """
        for batch in batches:
            verdicts.check_batch(batch)
        found: list[Exception | None] = self._writer.ask(partial(self._append, batches), is_repeatable=False)
        if any(batch.erased or batch.erased_contents for batch in batches):
            self._purge()
        return found

    def put_inbox(self, session: SessionId, key: str, kind: str, data: bytes) -> bool:
        """Queue a request durably; False when the key was used before. Raises `SessionUnknown`.

        Raises `AppendOutcomeUnknown` when the connection broke before the answer; False to the same again then means
        that it had arrived.
        """
        verdicts.check_request(session, key, kind)
        given = {"session": session, "key": _bytes(key), "kind": kind, "data": data}

        def work(connection: Connection) -> tuple[bool, bool]:
            with connection.pipeline() as pipeline:
                cursor = connection.execute(schema.PUT_INBOX, given)
                pipeline.sync()
                connection.execute(schema.TELL, (self._channel, session))
            found = cursor.fetchone()
            assert found is not None
            return found[0], found[1]

        is_known, is_fresh = self._writer.ask(work, is_repeatable=False)
        if not is_known:
            raise verdicts.unknown(session, self.url)
        return bool(is_fresh)

    def _append(self, batches: Sequence[Append], connection: Connection) -> list[Exception | None]:
        # Everyone locks sessions in the same order, so that two who share some cannot wait for each other.
        order = sorted(range(len(batches)), key=lambda number: batches[number].session)
        answers = {}
        with connection.pipeline() as pipeline:
            for number in order:
                answers[number] = _send(connection, batches[number])
            pipeline.sync()  # ends the transaction
            for session in {batch.session for batch in batches if batch.rows}:
                # In a transaction of its own: a commit that tells others holds up all others that do.
                connection.execute(schema.TELL, (self._channel, session))
        return [
            None if answers[number].fetchone() else _refusal(connection, batch) for number, batch in enumerate(batches)
        ]

    # ----------------------------------------------------------------------------------------------------- reading

    def read(
        self, session: SessionId, *, after: int = 0, until: int | None = None, types: Sequence[str] = ()
    ) -> Iterator[Row]:
        """Rows with `after < seq <= until` as of this call, in order; none for an unknown session.

        Holds at most 512 rows or 1 MiB of payload and one row more in memory. Raises when called or while iterated.
        """
        lies = self._reader.ask(partial(upkeep.spans, session=session, after=after, until=until))
        return self._rows(lies, list(types))

    def _rows(self, lies: Sequence[upkeep.Span], types: list[str]) -> Iterator[Row]:
        statement = schema.page(bool(types))
        for no, after, last in lies:
            while after < last:
                given = {"no": no, "after": after, "last": last, "types": types}
                page = self._reader.ask(partial(_page, statement=statement, given=given))
                yield from page
                after = page[-1].seq if page else last

    def head(self, session: SessionId) -> tuple[int, bytes] | None:
        """Seq and hash of the last event; None when there is none."""
        found = self._one(schema.HEAD, session)
        return (found[0], found[1]) if found else None

    def contents(self, digests: Sequence[Digest]) -> dict[Digest, Content]:
        """Those of `digests` that are there."""
        found = {}
        for start in range(0, len(digests), _MANY):
            for digest, media_type, data in self._all(schema.CONTENTS, list(digests[start : start + _MANY])):
                found[digest] = Content(digest, _text(media_type), data)
        return found

    def inbox(self, session: SessionId) -> list[InboxEntry]:
        """Queued requests, oldest first."""
        return [InboxEntry(no, _text(key), kind, data) for no, key, kind, data in self._all(schema.INBOX, session)]

    def waiting(self) -> list[SessionId]:
        """Sessions whose inbox holds a request."""
        return [SessionId(id) for (id,) in self._all(schema.WAITING)]

    def sessions(self) -> list[SessionInfo]:
        """All sessions with at least one event, most recently changed last."""
        return [SessionInfo(*row) for row in self._all(schema.SESSIONS)]

    def watch(self, session: SessionId, wake: Callable[[], object]) -> Callable[[], None]:
        """Call `wake`, from a thread of the store, soon after the session changed; the returned function ends that."""
        return self._listener.watch(session, wake)

    def _one(self, statement: str, *given: Any) -> Any:
        return self._reader.ask(lambda connection: connection.execute(statement, given, binary=True).fetchone())

    def _all(self, statement: str, *given: Any) -> list[Any]:
        rows: list[Any] = self._reader.ask(
            lambda connection: connection.execute(statement, given, binary=True).fetchall()
        )
        return rows

    # ----------------------------------------------------------------------------------------------------- upkeep

    def detach(self, session: SessionId, token: int) -> int:
        """Copy the events that a fork shares, so that it needs no other session; how many."""
        return int(self._writer.ask(partial(upkeep.detach, session=session, token=token)))

    def cut(self, session: SessionId, token: int, seq: int) -> None:
        """Take away the events after `seq`."""
        self._writer.ask(partial(upkeep.cut, session=session, token=token, seq=seq))

    def delete(self, session: SessionId, token: int) -> None:
        """Forget a session and what only it refers to, then write the tables anew without it."""
        self._writer.ask(partial(upkeep.delete, session=session, token=token), is_repeatable=False)
        self._purge()

    def check(self, *, repair: bool = False) -> list[str]:
        """Which sessions and events do not fit each other; with `repair` indexes are written anew first."""
        if repair:
            self._writer.ask(upkeep.reindex)
        problems: list[str] = self._reader.ask(upkeep.problems)
        return problems

    def _purge(self) -> None:
        """Write the tables anew, so that no page keeps what was erased; the server's log and copies may."""
        self._writer.ask(lambda connection: connection.execute(upkeep.PURGE))

    # --------------------------------------------------------------------------------------------------- lifetime

    def close(self) -> None:
        """Let go of all connections; idempotent."""
        self._listener.close()
        self._writer.close()
        self._reader.close()


def _send(connection: Connection, batch: Append) -> Any:
    """Send off the one statement that stores a batch; its cursor has a row exactly when it did."""
    rows = batch.rows
    if batch.base is not None:
        named = {"session": batch.session, "token": batch.token, "base": batch.base}
        connection.execute(schema.LINK, {**named, "seq": batch.seq, "hash": batch.prev_hash})
    # The genesis hash is the caller's business: a session without events takes any.
    before = batch.prev_hash if batch.seq else b""
    given: dict[str, Any] = {
        "session": batch.session,
        "token": batch.token,
        "seq": batch.seq,
        "hash": before,
        "last": rows[-1].seq if rows else batch.seq,
        "last_hash": rows[-1].hash if rows else before,
        "created": rows[0].at if rows else None,
        "updated": rows[-1].at if rows else None,
        "consumed": list(batch.consumed),
        "erased_type": ERASED_TYPE,
    }
    given |= _columns(_ROW_COLUMNS, rows)
    given |= _columns(_CONTENT_COLUMNS, map(_content_row, batch.contents))
    given |= _columns(_ERASED_COLUMNS, [(each.seq, each.hash, each.data) for each in batch.erased])
    given |= _columns(_MARKER_COLUMNS, map(_content_row, batch.erased_contents))
    held = tuple(field for field in schema.PARTS if getattr(batch, field))
    return connection.execute(schema.append(held), given)


_ROW_COLUMNS: Final = ("seqs", "types", "versions", "ats", "places", "origins", "required", "datas", "hashes")
_CONTENT_COLUMNS: Final = ("digests", "media_types", "bodies")
_ERASED_COLUMNS: Final = ("erased_seqs", "erased_hashes", "erased_datas")
_MARKER_COLUMNS: Final = ("marked", "marks", "markers")


def _columns(names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Rows as one list for each column; none for no rows."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=False))


def _content_row(content: Content) -> tuple[Digest, bytes, bytes]:
    return content.digest, _bytes(content.media_type), content.data


def _refusal(connection: Connection, batch: Append) -> Exception | None:
    found = connection.execute(schema.STATE, (batch.session,), binary=True).fetchone()
    seq, hash, token = found or (0, b"", None)
    return verdicts.refusal(batch, seq=seq, hash=hash, token=token)


def _holder(connection: Connection, session: SessionId) -> tuple[Owner, int] | None:
    found = connection.execute(schema.HOLDER, (session,)).fetchone()
    return (Owner(*found[:4]), found[4]) if found else None


def _page(connection: Connection, *, statement: str, given: dict[str, Any]) -> list[Row]:
    with connection.cursor(binary=True, row_factory=args_row(Row)) as cursor:
        return cursor.execute(statement, given).fetchall()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")
