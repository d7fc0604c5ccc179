"""A session's log as a store holds it (floor 7): read, never written, by nobody who waits.

The light half of reading: no event loop, no rebuilding of requests. `spine.log.LogReader` adds those.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, overload

from spine.codec import Codec, genesis, row_hash
from spine.errors import LogBroken, SessionUnknown, ValueRefused
from spine.events import RecordedEvent
from spine.projectors.projector import Projector, ViewingProjector, fold_all
from spine.recorded import is_erased
from spine.store import ERASED_TYPE, Row, Store
from spine.values import Digest, SessionId, decode, digest

__all__ = ["StoredLog"]

S = TypeVar("S")
V = TypeVar("V")

_WHOLE_ANSWERS = frozenset(("message.committed", "message.interrupted"))
"""Events that hold everything the chunks before them brought."""


class StoredLog:
    """Reads a session without owning it."""

    def __init__(self, store: Store, codec: Codec, session: SessionId) -> None:
        self.store = store
        self.codec = codec
        self.session = session
        self._genesis: bytes | None = None

    @property
    def genesis(self) -> bytes:
        """What the first event's hash builds on: made of the session's id, or of that in which a fork's chain began."""
        if self._genesis is None:
            own = genesis(self.session)
            with suppress(LogBroken):  # then no chain holds, whatever it begins with
                first = next(iter(self.store.read(self.session, until=1)), None)
                if first is None:
                    return own
                self._genesis = own if row_hash(own, first) == first.hash else self._genesis_of_fork()
            self._genesis = self._genesis or own
        return self._genesis

    def _genesis_of_fork(self) -> bytes | None:
        for row in self.store.read(self.session, types=("session.forked",)):
            with suppress(ValueRefused, KeyError, AttributeError):
                return genesis(decode(row.data)["parent"])
        return None

    @property
    def head(self) -> tuple[int, bytes]:
        """Seq and hash of the last committed event; (0, genesis) for an empty log."""
        return self.store.head(self.session) or (0, self.genesis)

    def rows(self, after: int = 0, until: int | None = None, types: Sequence[str] = ()) -> Iterator[Row]:
        """Committed rows as stored. Raises `SessionUnknown` when there is no such session."""
        if self.store.head(self.session) is None:
            raise SessionUnknown(f'no session "{self.session}" in {self.store.url}', hint="spine sessions")
        return self.store.read(self.session, after=after, until=until, types=types)

    def read(self, after: int = 0, until: int | None = None, types: Sequence[str] = ()) -> Iterator[RecordedEvent]:
        """Committed events with `after < seq <= until` in order; with `types` only those, and no `prev_hash`."""
        prev_hash = b""
        if not types:
            prev_hash = self._hash_of(after)
        for row in self.rows(after, until, types):
            yield self.codec.decode_row(self.session, row, prev_hash, self.content)
            prev_hash = b"" if types else row.hash

    def select(
        self, types: Collection[str], until: int | None = None, *, replaced_chunks: bool = True
    ) -> Iterator[RecordedEvent]:
        """Events of `types` in order, and those not known here, at which a fold may have to stop; no other is decoded.

        Without `replaced_chunks`, pieces of an answer are left out where the whole of it follows.
        """
        knows, decode_row, prev_hash = self.codec.knows, self.codec.decode_row, self.genesis
        session, content = self.session, self.content
        held: list[tuple[Row, bytes]] = []
        for row in self.rows(until=until):
            kind = row.type
            if kind in types or not knows(row):
                if kind == "model.chunks" and not replaced_chunks:
                    held.append((row, prev_hash))
                else:
                    if held:
                        if kind not in _WHOLE_ANSWERS:
                            yield from self._decoded(held)
                        held.clear()
                    yield decode_row(session, row, prev_hash, content)
            prev_hash = row.hash
        yield from self._decoded(held)

    def _decoded(self, held: list[tuple[Row, bytes]]) -> Iterator[RecordedEvent]:
        for row, prev_hash in held:
            yield self.codec.decode_row(self.session, row, prev_hash, self.content)

    @overload
    def project(self, projector: ViewingProjector[S, V], until: int | None = None) -> V: ...
    @overload
    def project(self, projector: Projector[S], until: int | None = None) -> S: ...
    def project(self, projector: Projector[Any], until: int | None = None) -> Any:
        """What a projector makes of the committed events, up to seq `until` when given; errors as `fold`.

        Only what it reads is decoded.
        """
        return self.project_all((projector,), until)[0]

    def project_all(self, projectors: Sequence[Projector[Any]], until: int | None = None) -> list[Any]:
        """`project` for several projectors in one reading."""
        types = frozenset().union(*(projector.types for projector in projectors))
        reads_pieces = any(
            "model.chunks" in projector.types and not getattr(projector, "skips_replaced_chunks", False)
            for projector in projectors
        )
        return fold_all(projectors, self.select(types, until, replaced_chunks=reads_pieces))

    def _hash_of(self, seq: int) -> bytes:
        if seq == 0:
            return self.genesis
        return next((row.hash for row in self.store.read(self.session, after=seq - 1, until=seq)), b"")

    def content(self, wanted: Digest) -> bytes:
        """Content of this session, inline or beside the log; `[erased]` when it was erased.

        Raises `LogBroken` when it is missing or damaged.
        """
        found = self.store.contents([wanted]).get(wanted)
        data, gone = (found.data, found.media_type == ERASED_TYPE) if found is not None else self._inline(wanted)
        if digest(data) != wanted and not gone:
            raise LogBroken(f"content {wanted} of {self.session} does not match its digest", seq=0)
        return data

    def _inline(self, wanted: Digest) -> tuple[bytes, bool]:
        found: tuple[bytes, bool] | None = None
        for row in self.store.read(self.session, types=("content.added",)):
            data = decode(row.data)
            if data["digest"] == wanted and data.get("text") is not None:
                found = data["text"].encode(), is_erased(row.data)
                if not found[1]:  # else it may have been added again
                    break
        if found is not None:
            return found
        raise LogBroken(f"content {wanted} of {self.session} is missing", seq=0)
