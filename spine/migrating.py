"""A session written anew in another store, every event in its current version (floor 9).

Nobody has to: old logs are read for ever through the upcasters. Where a store or a format is left behind, the copy is
proved: it is kept only when history, transcript, usage and status come out equal to those of the original.
"""

from collections.abc import Iterator
from typing import Any

from spine.appending import claimed, store_all
from spine.codec import row_hash
from spine.errors import LogBroken, SessionExists
from spine.frozen import frozen
from spine.projectors import SessionTranscript, SessionUsage
from spine.projectors.model_history import ModelHistory
from spine.projectors.projector import Projector
from spine.projectors.status import Status
from spine.recorded import is_erased
from spine.store import Append, Content, Owner, Row, Store, digests_in
from spine.stored import StoredLog
from spine.values import Digest, SessionId, decode, encode

__all__ = ["Migrated", "migrate"]

BATCH_ROWS = 500


@frozen(kw_only=True)
class Migrated:
    """A proved copy. With no event `upcast` every byte and hash is the original's, else the chain is a new one."""

    session: SessionId
    events: int
    upcast: int
    shared: int
    """Events that the copy shares with that of the session it was forked from."""
    old_head: tuple[int, bytes]
    new_head: tuple[int, bytes]


def migrate(source: StoredLog, target: Store, *, owner: Owner, now: int, base: SessionId | None = None) -> Migrated:
    """Write a stored session into `target` and prove the copy; `base` is whom it shares events with.

    Raises `SessionExists`, `EventUnknown` when a plugin is missing without which nothing can be proved, and
    `LogBroken` when something does not come out equal; the target then has nothing of it.
    """
    if target.head(source.session) is not None:
        raise SessionExists(f'session "{source.session}" is in {target.url} already', hint="migrate to a new store")
    copy = StoredLog(target, source.codec, source.session)
    shared = _shared(source, copy, base)
    with claimed(target, source.session, owner, now) as claim:
        try:
            upcast = _write(source, copy, claim.token, shared, base if shared else None)
            _prove(source, copy)
        except BaseException:
            if target.head(source.session) is not None:
                target.delete(source.session, claim.token)
            raise
    ends = {"old_head": source.head, "new_head": copy.head}
    return Migrated(session=source.session, events=copy.head[0], upcast=upcast, shared=shared, **ends)


def _shared(source: StoredLog, copy: StoredLog, base: SessionId | None) -> int:
    """How many events the copy can share with the copy of `base`; 0 for none."""
    if base is None or copy.store.head(base) is None:
        return 0
    forked = [row.seq for row in source.rows(types=("session.forked",))]
    return forked[-1] - 1 if forked else 0


def _write(source: StoredLog, copy: StoredLog, token: int, shared: int, base: SessionId | None) -> int:
    upcast, written = 0, set[Digest]()
    seq, prev = 0, source.genesis
    if base is not None:
        (row,) = copy.store.read(base, after=shared - 1, until=shared)
        seq, prev = shared, row.hash
    for page in _pages(source.rows(after=shared)):
        rows: list[Row] = []
        contents: dict[Digest, Content] = {}
        last = prev
        for old in page:
            row, more = _renewed(source, old, last)
            contents.update({content.digest: content for content in more})
            row = row._replace(hash=row_hash(last, row))
            upcast += row.version != old.version
            last = row.hash
            rows.append(row)
            wanted = [digest for digest in digests_in(row.data) if digest not in written]
            contents |= source.store.contents(wanted) if wanted else {}
            written.update(contents)
        batch = Append(source.session, token, seq, prev, tuple(rows), tuple(contents.values()), base=base)
        store_all(copy.store, (batch,))
        seq, prev, base = rows[-1].seq, last, None
    return upcast


def _pages(rows: Iterator[Row]) -> Iterator[list[Row]]:
    page: list[Row] = []
    for row in rows:
        page.append(row)
        if len(page) == BATCH_ROWS:
            yield page
            page = []
    if page:
        yield page


def _renewed(source: StoredLog, row: Row, prev: bytes) -> tuple[Row, tuple[Content, ...]]:
    """The event in its current version; as it stands when it is unknown, erased, or has fields that would be lost."""
    codec = source.codec
    if row.type == "session.forked" and codec.knows(row):  # it names the hash before it, which may be another now
        data = decode(row.data)
        return row if data["hash"] == prev.hex() else row._replace(data=encode({**data, "hash": prev.hex()})), ()
    kind = codec.event_type(row.type)
    if kind is None or row.version >= kind.version or is_erased(row.data) or codec.unknown_fields(row):
        return row, ()
    encoded = codec.encode_event(codec.decode_data(row, source.content))
    return row._replace(version=encoded.version, data=encoded.data), encoded.contents


def _prove(source: StoredLog, copy: StoredLog) -> None:
    projectors: tuple[Projector[Any], ...] = (ModelHistory(), Status(), SessionTranscript(), SessionUsage())
    both = (source.project_all(projectors), copy.project_all(projectors))
    for projector, old, new in zip(projectors, *both, strict=True):
        if old != new:
            text = f"{source.session}: {projector.name} does not come out equal in {copy.store.url}"
            raise LogBroken(f"{text}; the copy was taken away again", seq=0)
