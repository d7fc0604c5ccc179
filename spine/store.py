"""What a store of sessions must do: bytes and numbers, no events (floor 1).

Synchronous on purpose: one implementation serves asyncio, trio and plain scripts; the log decides on which thread it
runs. The public contract suite (`spine.testing.StoreContract`) holds every implementation to these sentences.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeGuard

from spine.frozen import frozen
from spine.values import Digest, SessionId

__all__ = [
    "Append",
    "Claim",
    "Content",
    "InboxEntry",
    "KeepsSnapshots",
    "Overwrite",
    "Owner",
    "Row",
    "SessionInfo",
    "Snapshot",
    "Store",
    "keeps_snapshots",
]

MAX_EVENT_BYTES = 1024 * 1024
MAX_CONTENT_BYTES = 64 * 1024 * 1024
INLINE_CONTENT_BYTES = 64 * 1024
"""Text longer than this lies beside the log, by digest."""
ERASED_TYPE = "application/vnd.spine.erased"
"""The media type of what is kept in the place of a content that was erased."""


class Row(NamedTuple):
    """One stored event. `at` counts microseconds since 1970 UTC; `place` is its turn or step, None outside turns."""

    seq: int
    type: str
    version: int
    at: int
    place: str | None
    origin: str | None
    """None for the core, else `plugin@version`."""
    required: bool
    data: bytes
    hash: bytes


@frozen
class Content:
    """Bytes beside the log, found by their digest."""

    digest: Digest
    media_type: str
    data: bytes


@frozen
class Overwrite:
    """Other bytes for the data of an event that is erased; its hash stays, and tells the event with its seq."""

    seq: int
    hash: bytes
    data: bytes


@frozen
class Append:
    """One batch for one session: stored whole or not at all.

    `seq` and `prev_hash` are the head that it builds on (0 and the genesis hash for the first); `consumed` are the
    numbers of the inbox entries that the batch takes out.
    """

    session: SessionId
    token: int
    seq: int
    prev_hash: bytes
    rows: tuple[Row, ...]
    contents: tuple[Content, ...] = ()
    """Those that are there already stay as they are, but for an `ERASED_TYPE`: its bytes come back."""
    consumed: tuple[int, ...] = ()
    base: SessionId | None = None
    """Of the first batch of a fork: the session whose events 1 to `seq` stand before it, shared and not copied."""
    erased: tuple[Overwrite, ...] = ()
    """Data that others take the place of, in every session that has or shares such an event."""
    erased_contents: tuple[Content, ...] = ()
    """Bytes that take the place of those kept under the same digest, if there are any."""


@frozen
class Owner:
    """A runtime process that may own sessions. `started` (microseconds since 1970 UTC) tells recycled pids apart."""

    id: str
    host: str
    pid: int
    started: int


@frozen
class Claim:
    """A claimed session: the fencing token to append with, and the head as stored."""

    token: int
    seq: int
    hash: bytes
    """Empty while the session has no event."""


@frozen
class InboxEntry:
    """A request from outside the owner: an input, a cancel, an approval's decision."""

    number: int
    key: str
    kind: str
    data: bytes


@frozen
class Snapshot:
    """A session's folded state as of an event, told by its seq and hash; only a cache."""

    seq: int
    hash: bytes
    data: bytes


@frozen
class SessionInfo:
    """A line of the list of sessions; `created` and `updated` in microseconds since 1970 UTC.

    A fork is `created` with the first event of its own.
    """

    id: SessionId
    seq: int
    hash: bytes
    created: int
    updated: int
    base: SessionId | None = None
    """The session that holds the last of the events that this one shares; None when all are its own."""


class Store(Protocol):
    """Where sessions are kept. Every method may raise `StoreUnavailable` or `StoreBusy`, and then did nothing."""

    url: str
    """As the user wrote it, without secrets."""
    waits: bool
    """Whether `append` waits for a disk or a network, so that it must not run on the event loop's thread."""

    def claim(self, session: SessionId, owner: Owner, *, now: int, lease_us: int, take_over: bool = False) -> Claim:
        """Make `owner` the session's one writer, with a new token; the session need not exist yet.

        Raises `SessionOwned` while another owner's lease runs, unless `take_over` says it is known to be dead.
        Claiming again as the same owner gives a new token; older ones are refused from then on.
        """

    def owner(self, session: SessionId) -> tuple[Owner, int] | None:
        """Who holds the session, and until when (microseconds since 1970 UTC); None when nobody does."""

    def renew(self, owner: Owner, *, until: int) -> None:
        """Extend all leases of `owner`."""

    def release(self, session: SessionId, owner: Owner) -> None:
        """Give a session up; nothing happens when `owner` does not hold it.

        Its token is refused from then on. A session without events is forgotten, the token used up all the same.
        """

    def append(self, batches: Sequence[Append]) -> list[Exception | None]:
        """Store batches of different sessions in one durable transaction; one verdict each, in order.

        None: stored. `ConcurrencyConflict`: token, seq or hash were not those of the head; nothing of it was stored.
        A batch whose last hash is already the head counts as stored. A failure of the whole transaction is raised.
        Raises `UsageError` for rows with a gap, and for headers and names that not every store could hold.
        A batch with a `base` is refused, too, unless its session is empty and the base has an event `seq` with
        `prev_hash`. Once a batch that erases is stored, the store keeps no older bytes of what it erased.
        """

    def read(
        self, session: SessionId, *, after: int = 0, until: int | None = None, types: Sequence[str] = ()
    ) -> Iterator[Row]:
        """Rows with `after < seq <= until` in order, only of `types` when given; reads in bounded memory."""

    def head(self, session: SessionId) -> tuple[int, bytes] | None:
        """Seq and hash of the last event; None when there is no such session."""

    def contents(self, digests: Sequence[Digest]) -> dict[Digest, Content]:
        """Those of `digests` that are there."""

    def put_inbox(self, session: SessionId, key: str, kind: str, data: bytes) -> bool:
        """Queue a request durably; False when the key was used before. Raises `SessionUnknown`, `UsageError`."""

    def inbox(self, session: SessionId) -> list[InboxEntry]:
        """Queued requests, oldest first."""

    def waiting(self) -> list[SessionId]:
        """Sessions whose inbox holds a request; cheap, because each owner asks several times a second."""

    def watch(self, session: SessionId, wake: Callable[[], object]) -> Callable[[], None] | None:
        """Call `wake` from any thread soon after the session changed, until the returned function is called.

        A hint: it may come late, twice, or without a change. None when the store cannot tell; whoever waits must look.
        """

    def sessions(self) -> list[SessionInfo]:
        """All sessions with at least one event, most recently changed last."""

    def detach(self, session: SessionId, token: int) -> int:
        """Copy the events that a fork shares, so that it needs no other session; how many, 0 when there are none.

        Like `cut` and `delete`, raises `ConcurrencyConflict` unless `token` is the session's.
        """

    def cut(self, session: SessionId, token: int, seq: int) -> None:
        """Take away the events after `seq`, which are damaged.

        Raises `SessionShared` when forks share some of them or they are shared, `LogBroken` when `seq` is not there.
        """

    def delete(self, session: SessionId, token: int) -> None:
        """Forget a session, its inbox, and the contents that no event refers to any more.

        Raises `SessionShared` when forks share its events: `detach` them first. No token of it is ever given again.
        """

    def check(self, *, repair: bool = False) -> list[str]:
        """What is wrong with the storage itself, in words; logs are not looked into.

        With `repair`, what can be made anew from what is there is made anew first.
        """

    def close(self) -> None:
        """Let go of files and connections; idempotent."""


class KeepsSnapshots(Protocol):
    """What a store may offer besides, so that long sessions open sooner; without it their logs are folded anew."""

    def snapshot(self, session: SessionId) -> Snapshot | None:
        """What was kept last, if anything; a store may forget it at any time."""

    def keep_snapshot(self, session: SessionId, token: int, snapshot: Snapshot) -> None:
        """Keep it in the place of the one before. Raises `ConcurrencyConflict` unless `token` is the session's.

        It is forgotten when the log is cut or the session deleted, and all are when anything is erased.
        """


def keeps_snapshots(store: object) -> TypeGuard[KeepsSnapshots]:
    """Whether a store offers them; looked up, so that it may wrap one that does."""
    return hasattr(store, "keep_snapshot")


_DIGEST = re.compile(rb'"(1:[0-9a-f]{64})"')


def digests_in(data: bytes) -> tuple[Digest, ...]:
    """The digests that an event's data may refer to contents by, each once, in order."""
    return tuple(dict.fromkeys(Digest(found.decode()) for found in _DIGEST.findall(data)))
