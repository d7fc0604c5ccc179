"""The store that lives in this process: what tests and throw-away sessions use (side room, floors 0-1).

The smallest thing that keeps the contract. Rows are kept in columns, of which none has anything for the garbage
collector to look at: many sessions at once would have it walk through all of them again and again. One lock guards
all, so that threads and several logs on one loop may share a store.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from struct import Struct

import attrs

from spine.store import ERASED_TYPE, Append, Claim, Content, InboxEntry, Overwrite, Owner, Row, SessionInfo, digests_in
from spine.stores import verdicts
from spine.values import Digest, SessionId

_Kind = tuple[str, int, str | None, bool]
"""Type, version, origin and required of an event: the same few for all."""
_HEAD = Struct("<qB")
"""What a row's bytes begin with: its time, and the length of its hash."""


@attrs.define(slots=True)
class _Session:
    """What is kept of one session; `token` 0 is never handed out."""

    rows: list[bytes] = attrs.field(factory=list)
    """Of each row time, length of the hash, hash and data in one."""
    kinds: list[_Kind] = attrs.field(factory=list)
    places: list[str | None] = attrs.field(factory=list)
    hash: bytes = b""
    """Of the last row."""
    token: int = 0
    owner: str | None = None
    keys: set[str] = attrs.field(factory=set)
    """Every inbox key ever used: consuming an entry does not free its key."""
    inbox: dict[int, InboxEntry] = attrs.field(factory=dict)
    base: SessionId | None = None
    """Who holds the last of the first `shared` rows; the lists of both have them."""
    shared: int = 0
    begins: int = 0
    """Where in the lists the first event of its own was, when it was forked."""

    @property
    def head(self) -> tuple[int, bytes]:
        return len(self.rows), self.hash

    def row(self, place: int) -> Row:
        """The row at `place` in the lists, as it was given."""
        (kind, version, origin, required), where = self.kinds[place], self.places[place]
        kept = self.rows[place]
        at, size = _HEAD.unpack_from(kept)
        data = _HEAD.size + size
        return Row(place + 1, kind, version, at, where, origin, required, kept[data:], kept[_HEAD.size : data])


class MemoryStore:
    """Sessions in this process's memory: gone with it, untouched by `close`.

    Several runtimes may share one store, one after the other or at once, as they would share a file.
    """

    def __init__(self) -> None:
        self.url = "memory:"
        self.waits = False
        self._lock = threading.Lock()
        self._sessions: dict[SessionId, _Session] = {}
        self._owners: dict[str, tuple[Owner, int]] = {}
        self._contents: dict[Digest, Content] = {}
        self._kinds: dict[_Kind, _Kind] = {}
        self._entries = 0
        self._used_up = 0
        """The last token of a session that was forgotten: nobody gets one that was used up."""

    def claim(self, session: SessionId, owner: Owner, *, now: int, lease_us: int, take_over: bool = False) -> Claim:
        """Make `owner` the one writer; raises `SessionOwned` while another lease runs, unless `take_over`."""
        with self._lock:
            kept = self._sessions.get(session) or _Session(token=self._used_up)
            holder = self._holder(kept)
            if holder is not None and verdicts.is_held(holder, owner, now=now) and not take_over:
                raise verdicts.owned(session, holder, owner, now=now, lease_us=lease_us)
            self._sessions[session] = kept
            kept.token += 1
            kept.owner = owner.id
            _, until = self._owners.get(owner.id, (owner, 0))
            self._owners[owner.id] = (owner, max(until, now + lease_us))
            seq, hash = kept.head
            return Claim(kept.token, seq, hash)

    def owner(self, session: SessionId) -> tuple[Owner, int] | None:
        """Who holds the session, and until when; a lease that ran out is still shown."""
        with self._lock:
            kept = self._sessions.get(session)
            return self._holder(kept) if kept else None

    def renew(self, owner: Owner, *, until: int) -> None:
        """Let all leases of `owner` end at `until`; nothing happens when it holds none."""
        with self._lock:
            if owner.id in self._owners:
                self._owners[owner.id] = (owner, until)

    def release(self, session: SessionId, owner: Owner) -> None:
        """Give a session up; its token is refused from then on. One without events is forgotten."""
        with self._lock:
            kept = self._sessions.get(session)
            if kept and kept.owner == owner.id:
                kept.owner = None
                kept.token += 1
                if not kept.rows:
                    self._used_up = max(self._used_up, kept.token)
                    del self._sessions[session]

    def append(self, batches: Sequence[Append]) -> list[Exception | None]:
        """Store each batch whole or not at all; one verdict each, in order."""
        for batch in batches:
            verdicts.check_batch(batch)
        with self._lock:
            return list(map(self._append, batches))

    def read(
        self, session: SessionId, *, after: int = 0, until: int | None = None, types: Sequence[str] = ()
    ) -> Iterator[Row]:
        """Rows with `after < seq <= until` as of this call, in order; none for an unknown session."""
        with self._lock:
            kept = self._sessions.get(session)
            if kept is None:
                return iter(())
            kinds, last = kept.kinds, len(kept.rows) if until is None else min(until, len(kept.rows))
        wanted = frozenset(types)
        # Rows are only ever added behind `last`, so the lists may grow while they are read.
        places = range(max(0, after), last)
        return (kept.row(place) for place in places if not wanted or kinds[place][0] in wanted)

    def head(self, session: SessionId) -> tuple[int, bytes] | None:
        """Seq and hash of the last event; None when there is none."""
        with self._lock:
            kept = self._sessions.get(session)
            return kept.head if kept and kept.rows else None

    def contents(self, digests: Sequence[Digest]) -> dict[Digest, Content]:
        """Those of `digests` that are there."""
        with self._lock:
            return {digest: self._contents[digest] for digest in digests if digest in self._contents}

    def put_inbox(self, session: SessionId, key: str, kind: str, data: bytes) -> bool:
        """Queue a request; False when the key was used before. Raises `SessionUnknown`."""
        verdicts.check_request(session, key, kind)
        with self._lock:
            kept = self._sessions.get(session)
            if kept is None or not kept.rows:
                raise verdicts.unknown(session, self.url)
            if key in kept.keys:
                return False
            self._entries += 1
            kept.keys.add(key)
            kept.inbox[self._entries] = InboxEntry(self._entries, key, kind, data)
            return True

    def inbox(self, session: SessionId) -> list[InboxEntry]:
        """Queued requests, oldest first."""
        with self._lock:
            kept = self._sessions.get(session)
            return list(kept.inbox.values()) if kept else []

    def waiting(self) -> list[SessionId]:
        """Sessions whose inbox holds a request."""
        with self._lock:
            return [id for id, kept in self._sessions.items() if kept.inbox]

    def watch(self, session: SessionId, wake: Callable[[], object]) -> None:
        """Nobody is told: followers look by themselves."""

    def sessions(self) -> list[SessionInfo]:
        """All sessions with at least one event, most recently changed last."""
        with self._lock:
            found = [
                SessionInfo(id, *kept.head, kept.row(kept.begins).at, kept.row(len(kept.rows) - 1).at, kept.base)
                for id, kept in self._sessions.items()
                if kept.rows
            ]
        return sorted(found, key=lambda info: info.updated)

    def detach(self, session: SessionId, token: int) -> int:
        """Let a fork need no other session; its list has all rows already."""
        with self._lock:
            kept = self._checked(session, token)
            shared, kept.base, kept.shared = kept.shared, None, 0
            return shared

    def cut(self, session: SessionId, token: int, seq: int) -> None:
        """Take away the events after `seq`."""
        with self._lock:
            kept = self._checked(session, token)
            if kept.base is not None and seq <= kept.shared:
                raise verdicts.not_own(session, seq, kept.base)
            if not 0 < seq <= len(kept.rows):
                raise verdicts.no_event(session, seq)
            self._check_unshared(session, seq, what="events")
            kept.hash = kept.row(seq - 1).hash
            del kept.rows[seq:], kept.kinds[seq:], kept.places[seq:]

    def delete(self, session: SessionId, token: int) -> None:
        """Forget a session and what only it refers to."""
        with self._lock:
            kept = self._checked(session, token)
            self._check_unshared(session, 0, what="the events")
            self._used_up = max(self._used_up, kept.token)
            del self._sessions[session]
            gone = _referred_to(kept)
            for other in self._sessions.values() if gone else ():
                gone -= _referred_to(other)
            for digest in gone:
                self._contents.pop(digest, None)

    def check(self, *, repair: bool = False) -> list[str]:
        """Nothing can be wrong with it."""
        return []

    def _checked(self, session: SessionId, token: int) -> _Session:
        kept = self._sessions.get(session) or _Session()
        seq, hash = kept.head
        verdicts.check_token(session, token, seq=seq, hash=hash, actual=kept.token or None)
        return kept

    def _check_unshared(self, session: SessionId, seq: int, *, what: str) -> None:
        forks = [id for id, other in self._sessions.items() if other.base == session and other.shared > seq]
        if forks:
            raise verdicts.shared(session, forks, what=what)

    def close(self) -> None:
        """Do nothing: the sessions stay for whoever still holds the store."""

    def _holder(self, kept: _Session) -> tuple[Owner, int] | None:
        return self._owners.get(kept.owner) if kept.owner is not None else None

    def _append(self, batch: Append) -> Exception | None:
        kept = self._sessions.get(batch.session)
        if kept is None:
            return verdicts.refusal(batch, seq=0, hash=b"", token=None)
        seq, hash = kept.head
        if batch.base is not None and batch.token == kept.token and not seq:
            if not self._share(kept, batch.base, batch):
                return verdicts.refusal(batch, seq=seq, hash=hash, token=kept.token)
            seq, hash = kept.head
        # The genesis hash is the caller's business: a session without events takes any.
        if batch.token != kept.token or batch.seq != seq or (seq and batch.prev_hash != hash):
            return verdicts.refusal(batch, seq=seq, hash=hash, token=kept.token)
        add, add_kind, add_place = kept.rows.append, kept.kinds.append, kept.places.append
        known, pack = self._kinds, _HEAD.pack
        for _, type, version, at, place, origin, required, data, hash in batch.rows:
            kind = (type, version, origin, required)
            add(pack(at, len(hash)) + hash + data)
            add_kind(known.setdefault(kind, kind))
            add_place(place)
            kept.hash = hash
        for content in batch.contents:
            if self._contents.setdefault(content.digest, content).media_type == ERASED_TYPE:
                self._contents[content.digest] = content
        for number in batch.consumed:
            kept.inbox.pop(number, None)
        for overwrite in batch.erased:
            self._overwrite(overwrite)
        for content in batch.erased_contents:
            if content.digest in self._contents:
                self._contents[content.digest] = content
        return None

    def _share(self, kept: _Session, base: SessionId, batch: Append) -> bool:
        holder = self._sessions.get(base)
        if holder is None or len(holder.rows) < batch.seq or holder.row(batch.seq - 1).hash != batch.prev_hash:
            return False
        while holder.base is not None and batch.seq <= holder.shared:
            base, holder = holder.base, self._sessions[holder.base]
        seq = batch.seq
        kept.rows, kept.kinds, kept.places = holder.rows[:seq], holder.kinds[:seq], holder.places[:seq]
        kept.hash = batch.prev_hash
        kept.base, kept.shared, kept.begins = base, seq, seq
        return True

    def _overwrite(self, overwrite: Overwrite) -> None:
        place = overwrite.seq - 1
        for kept in self._sessions.values():
            if place < len(kept.rows) and kept.row(place).hash == overwrite.hash:
                header = kept.rows[place][: _HEAD.size + len(overwrite.hash)]
                kept.rows[place] = header + overwrite.data


def _referred_to(kept: _Session) -> set[Digest]:
    return {digest for place in range(len(kept.rows)) for digest in digests_in(kept.row(place).data)}
