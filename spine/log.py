"""The session's log (floor 8): numbers events, hashes them, hands them to the projections, and makes them durable.

`append` is synchronous and decides order; `commit` returns when all that is pending is durable. Whoever is inside the
process (hooks, projections) sees events at `append`; everyone else (`read`, `follow`, other processes) sees what is
committed. There is one `SessionLog` per session in a process, and it is the session's one writer.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any

import anyio
from anyio.lowlevel import current_token

from spine.clock import Clock
from spine.codec import Codec, chain_hash, genesis
from spine.commits import Writer, call_soon, off_loop
from spine.cursors import Cursor
from spine.drafts import maker
from spine.errors import EventUnknown, LogBroken, ValueTooLarge
from spine.events import ContentAdded, Envelope, RecordedEvent, UnknownEvent
from spine.frozen import frozen
from spine.garbage import collector_paused
from spine.llm.request import ModelRequest
from spine.projectors.model_history import HISTORY_RULES, History, HistoryState
from spine.projectors.status import STATUS_RULES, SessionStatus
from spine.rebuild import Rebuilder
from spine.recorded import ERASED_TEXT
from spine.snapshots import EVERY, read_snapshot, write_snapshot
from spine.store import (
    INLINE_CONTENT_BYTES,
    MAX_CONTENT_BYTES,
    Append,
    Claim,
    Content,
    InboxEntry,
    Row,
    Snapshot,
    keeps_snapshots,
)
from spine.stored import StoredLog
from spine.values import Digest, SessionId

FOLLOW_POLL_S = 0.2
"""How often a follower looks where the store cannot tell."""
FOLLOW_CHECK_S = 5.0
"""How often it looks all the same where the store tells."""
LOAD_ROWS = 512
"""Rows that are folded at once."""
_logger = logging.getLogger("spine")


@frozen
class Synchronised:
    """`follow` has caught up: what comes next is live."""

    seq: int


# ------------------------------------------------------------------------------------------------------ reading


class LogReader(StoredLog):
    """Reads a session without owning it, rebuilds its requests, and follows it."""

    def request(self, seq: int) -> ModelRequest:
        """The request that `model.requested` at `seq` stands for, rebuilt from stored events alone."""
        rebuilder = Rebuilder(self.codec, self.content)
        for event in self.read(until=seq):
            rebuilt = rebuilder.add(event)
            if event.seq == seq and rebuilt is not None:
                return rebuilt.request
        raise LogBroken(f"event {seq} of {self.session} is no model.requested", seq=seq)

    def follow(self, after: int = 0) -> AsyncIterator[RecordedEvent | Synchronised]:
        """Events after `after`: the stored ones, a `Synchronised` marker, then each as it is committed; no gaps.

        The log itself is the buffer: a slow reader reads later, blocks nobody and holds a few events in memory.
        Stopping needs no closing.
        """
        return _Follower(self, after)

    async def changed(self, seq: int) -> None:
        """Wait until the committed head is beyond `seq`; the store tells of others' commits, or they are looked for."""
        loop = current_token()
        stop = self.store.watch(self.session, lambda: call_soon(loop, lambda: told.set()))
        try:
            while True:
                told = anyio.Event()  # before the look: what is told after it counts
                if (await off_loop(self.store, lambda: self.head))[0] > seq:
                    return
                with anyio.move_on_after(FOLLOW_POLL_S if stop is None else FOLLOW_CHECK_S):
                    await told.wait()
        finally:
            if stop is not None:
                stop()


class _Follower:
    def __init__(self, reader: LogReader, after: int) -> None:
        self._reader = reader
        self._cursor = Cursor(reader, after)
        self._is_live = False

    def __aiter__(self) -> "_Follower":
        return self

    async def __anext__(self) -> RecordedEvent | Synchronised:
        while True:
            event = await self._cursor.next()
            if event is not None:
                return event
            if not self._is_live:
                self._is_live = True
                return Synchronised(self._cursor.position)
            await self._reader.changed(self._cursor.position)


# ------------------------------------------------------------------------------------------------------ writing


class SessionLog(LogReader):
    """The one writer of a session; see the module's text."""

    def __init__(
        self,
        writer: Writer,
        codec: Codec,
        session: SessionId,
        claim: Claim,
        clock: Clock,
        *,
        on_pending: Callable[["SessionLog"], None] = lambda log: None,
    ) -> None:
        super().__init__(writer.store, codec, session)
        self._writer = writer
        self._clock = clock
        self._token = claim.token
        self._on_pending = on_pending
        self._seq = self._committed = claim.seq
        self._hash = self._committed_hash = claim.hash or genesis(session)
        self._rows: list[Row] = []
        self._contents: list[Content] = []
        self._consumed: list[int] = []
        self._flushing: anyio.Event | None = None
        self._changed: anyio.Event | None = None
        self._closed: Exception | None = None
        self._is_held = False
        self._kept = 0
        """The event that the state kept in the store stands for."""
        self.commits = 0
        """Transactions so far, for measurements."""
        self.history_state = HistoryState()
        self.status = SessionStatus()
        self.content_seqs: dict[Digest, int] = {}
        """Where each content was added."""
        self._observers: list[Callable[[RecordedEvent], None]] = []

    # -------------------------------------------------------------------------------------------- state

    @property
    def head(self) -> tuple[int, bytes]:
        """Seq and hash of the last committed event."""
        return self._committed, self._committed_hash

    @property
    def seq(self) -> int:
        """The last number given, durable or not."""
        return self._seq

    @property
    def history(self) -> History:
        """What a model would be shown now."""
        return self.history_state.view()

    @property
    def has_pending(self) -> bool:
        """Whether something is appended and not yet durable."""
        return bool(self._rows)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more events, because a commit failed or the session was given up."""
        return self._closed is not None

    def check_open(self) -> None:
        """Raise the error that closed the log, if one did."""
        if self._closed is not None:
            raise self._closed

    def observe(self, observer: Callable[[RecordedEvent], None]) -> Callable[[], None]:
        """Call `observer` with each event at its append, in order; the returned function ends that.

        What it raises goes to the logger "spine" and no further.
        """
        self._observers.append(observer)
        return lambda: self._observers.remove(observer) if observer in self._observers else None

    def load(self) -> None:
        """Fold the stored events.

        Raises `EventUnknown` at an event that is not known here and may not be skipped: one of the core's, or one that
        its plugin declared required; `LogBroken` where one is missing or does not fit.
        """
        with collector_paused():
            seq = self._restore()
            rows = self.rows(after=seq)
        while batch := tuple(islice(rows, LOAD_ROWS)):
            with collector_paused():  # not while the store is waited for
                seq = self._fold(batch, seq)
        if seq != self._seq:
            raise LogBroken(f"{self.session}: the log ends at seq {seq}, its head is seq {self._seq}", seq=seq + 1)

    def _fold(self, rows: Sequence[Row], seq: int) -> int:
        """Fold some rows after `seq`; the number of the last."""
        knows, decode_data, content = self.codec.knows, self.codec.decode_data, self.content
        for row in rows:
            kind, seq = row.type, seq + 1
            if row.seq != seq:
                raise LogBroken(f"{self.session}: seq {seq} is missing", seq=seq)
            is_known = knows(row)
            if is_known and kind in _UNREAD:
                continue
            data = None if is_known and kind in _READ_BY_NAME else decode_data(row, content)
            if type(data) is UnknownEvent:
                if (row.required and not data.is_erased) or row.origin is None:
                    raise EventUnknown(_unknown_text(self.session, row), seq=row.seq, hint=_unknown_hint(row))
                continue
            try:
                self._project(kind, row, data)
            except (KeyError, AssertionError, AttributeError) as exc:
                raise LogBroken(f"{self.session}: {kind} does not fit at seq {row.seq}", seq=row.seq) from exc
        return seq

    def _restore(self) -> int:
        """Take over a kept state, if there is one that fits; the seq up to which nothing need be folded."""
        store = self.store
        kept = store.snapshot(self.session) if self._seq >= EVERY and keeps_snapshots(store) else None
        if kept is not None and self._hash_of(kept.seq) == kept.hash:
            state = read_snapshot(self.codec, kept.data)
            if state is not None:
                self.history_state, self.status, self.content_seqs = state
                self._kept = kept.seq
        return self._kept

    def keep_snapshot(self) -> None:
        """Keep the folded state in the store, where that saves folding much again; between turns only."""
        store, is_due = self.store, self._committed - self._kept >= EVERY
        if not is_due or self._rows or self.status.turn is not None or not keeps_snapshots(store):
            return
        state = (self.history_state, self.status, self.content_seqs)
        required = {(row.type, row.version) for row in self.rows() if row.required and row.origin is not None}
        try:
            data = write_snapshot(self.codec, state, required)
            store.keep_snapshot(self.session, self._token, Snapshot(self._committed, self._committed_hash, data))
            self._kept = self._committed
        except Exception:  # it is only a cache, and closing a session must not fail for it
            _logger.exception("the state of session %s was not kept", self.session)

    def _project(self, kind: str, envelope: Envelope, data: Any) -> None:
        to_history, to_status = _RULES.get(kind, _NO_RULES)
        if to_history is not None:
            to_history(self.history_state, envelope, data)
        if to_status is not None:
            to_status(self.status, envelope, data)
        elif kind == "content.added" and data.text != ERASED_TEXT:  # one that was erased is added again
            self.content_seqs.setdefault(data.digest, envelope.seq)
        elif kind == "content.erased":
            gone = data.contents
            self.content_seqs = {each: seq for each, seq in self.content_seqs.items() if each not in gone}

    # -------------------------------------------------------------------------------------------- append

    def append(self, *events: Any, place: str | None = None, consumed: Sequence[int] = ()) -> int:
        """Number, hash and project `events`, and put them in the pending batch; returns the last number.

        `place` is the turn or step they belong to; `consumed` are inbox entries that the same transaction takes out.
        Raises before anything changed: `ValueTooLarge`, or why the log was closed. An event that cannot be projected
        raises too, and closes the log: nothing that was pending is made durable.
        """
        if self._closed is not None:
            raise self._closed
        encoded = list(map(self.codec.encode_event, events))
        now = self._clock.now()
        if not self._rows:
            self._on_pending(self)
        for event, (kind, version, required, origin, data, contents) in zip(events, encoded, strict=True):
            prev_hash = self._hash
            self._seq = seq = self._seq + 1
            header = (seq, kind, version, now, place, origin, required)
            self._hash = this_hash = chain_hash(prev_hash, header, sha256(data).digest())
            row = _make_row((*header, data, this_hash))
            self._rows.append(row)
            if contents:
                self._contents.extend(contents)
            try:
                self._project(kind, row, event)
            except Exception as exc:  # what memory holds now is no fold of any log
                self.close(exc)
                raise
            if self._observers:
                self._tell(self._recorded(row, prev_hash, event))
        if consumed:
            self._consumed.extend(consumed)
        return self._seq

    def _tell(self, event: RecordedEvent) -> None:
        for observer in tuple(self._observers):
            try:
                observer(event)
            except Exception:  # whoever looks on must not end what they look at
                _logger.exception("an observer of session %s failed at seq %d", self.session, event.seq)

    def _recorded(self, row: Row, prev_hash: bytes, data: Any) -> RecordedEvent:
        fields = row._asdict() | {"data": data}
        return RecordedEvent(session=self.session, prev_hash=prev_hash, **fields)

    def put(self, content: Content, place: str | None = None) -> int:
        """The seq of the `content.added` for this content; it is added when the session does not have it yet."""
        seq = self.content_seqs.get(content.digest)
        if seq is not None:
            return seq
        size = len(content.data)
        if size > MAX_CONTENT_BYTES:
            raise ValueTooLarge(f"content of {size:,} bytes is over the limit of {MAX_CONTENT_BYTES:,}")
        is_text = content.media_type.startswith("text/") or content.media_type.endswith("json")
        text = content.data.decode() if is_text and size <= INLINE_CONTENT_BYTES else None
        if text is None:
            self._contents.append(content)
        added = _make_added(digest=content.digest, media_type=content.media_type, size=size, text=text)
        return self.append(added, place=place)

    # -------------------------------------------------------------------------------------------- commit

    async def commit(self) -> None:
        """Return when everything appended so far is durable.

        Raises `StoreUnavailable`, `StoreBusy`, `ConcurrencyConflict` or `AppendOutcomeUnknown`; the log is then closed,
        because memory may be ahead of the store, and opening the session again reads the truth.
        """
        while self._flushing is not None:
            with anyio.CancelScope(shield=True):
                await self._flushing.wait()
        if self._closed is not None:
            raise self._closed
        if not self._rows:
            return
        batch = self._take()
        cancelled: BaseException | None = None
        try:
            if self.store.waits:
                self._flushing = anyio.Event()
                try:
                    cancelled = await self._writer.write(batch)
                finally:
                    self._flushing.set()
                    self._flushing = None
            else:
                self._writer.write_now(batch)
        except Exception as error:
            self.close(error)
            raise
        self._settle(batch.rows[-1])
        if cancelled is not None:
            raise cancelled

    def _take(self) -> Append:
        head = (self.session, self._token, self._committed, self._committed_hash)
        rows, self._rows = tuple(self._rows), []
        if not self._contents and not self._consumed:
            return _make_append(*head, rows, (), (), None, (), ())
        contents, self._contents = tuple(self._contents), []
        consumed, self._consumed = tuple(self._consumed), []
        return Append(*head, rows, contents, consumed)

    def _settle(self, last: Row) -> None:
        self._committed, self._committed_hash = last.seq, last.hash
        self.commits += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def close(self, error: Exception) -> None:
        """Refuse every further append with `error`; what is pending is never stored."""
        self._closed = error if self._is_held else self._closed or error
        self._is_held = False
        self._rows, self._contents, self._consumed = [], [], []
        if self._changed is not None:
            self._changed.set()

    @property
    def is_held(self) -> bool:
        """Whether it stands still until `reopen`."""
        return self._is_held

    async def hold(self, check: Callable[[], None], error: Exception) -> None:
        """Stand still: once all is durable and `check` does not raise, appends raise `error` and readers wait."""
        while self._rows or self._flushing is not None:
            await self.commit()
        self.check_open()
        check()
        self._closed, self._is_held = error, True

    async def reopen(self, claim: Claim) -> None:
        """Go on from what is stored now, owned by `claim`, after it was changed from outside. Raises as `load`."""
        stored = SessionLog(self._writer, self.codec, self.session, claim, self._clock)
        await off_loop(self.store, stored.load)
        self._token = claim.token
        self._seq, self._hash = self._committed, self._committed_hash = claim.seq, claim.hash
        self.history_state, self.status, self.content_seqs = stored.history_state, stored.status, stored.content_seqs
        self._kept = stored._kept
        self._closed, self._is_held = None, False
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def changed(self, seq: int) -> None:
        """Wait until the committed head is beyond `seq`."""
        while self._committed <= seq:
            if self._closed is not None and not self._is_held:
                raise self._closed
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()

    async def inbox(self) -> list[InboxEntry]:
        """Requests that other processes put there, also those that a batch that is still pending takes out."""
        return await off_loop(self.store, self.store.inbox, self.session)


_RULES = {kind: (HISTORY_RULES.get(kind), STATUS_RULES.get(kind)) for kind in {*HISTORY_RULES, *STATUS_RULES}}
_NO_RULES = (None, None)
_make_row: Callable[[tuple[Any, ...]], Row] = partial(tuple.__new__, Row)
"""`Row._make` without its checks."""
_make_added: Callable[..., ContentAdded] = maker(ContentAdded)
_make_append: Callable[..., Append] = maker(Append)
_UNREAD = frozenset(("model.chunks", "tool.progress", "hook.failed", "wire.captured"))
"""Known events that change neither history nor status."""
_READ_BY_NAME = frozenset(("model.requested",))
"""Events whose data changes neither; that they happened, and where, does."""


def _unknown_text(session: SessionId, row: Row) -> str:
    package = f" of plugin {row.origin}, not installed" if row.origin else " of a newer version"
    return (
        f"{session} opens read-only up to seq {row.seq - 1}: "
        f'seq {row.seq} has the required type "{row.type}"{package}; log, verify, export work'
    )


def _unknown_hint(row: Row) -> str:
    return f"pip install spine-{row.origin.partition('@')[0]}" if row.origin else "pip install -U agent-spine"
