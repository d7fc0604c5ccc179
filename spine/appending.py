"""Events that no running session appends (floor 8): the batch of a fork, or of an erasure.

A running session has its `SessionLog`; this is for work on a log at rest, with the store alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from spine.codec import Codec, chain_hash
from spine.commits import append_settled
from spine.owning import claim
from spine.store import Append, Claim, Content, Owner, Row, Store
from spine.values import SessionId

__all__ = ["LEASE_US", "batch_of", "claimed", "store_all"]

LEASE_US = 60_000_000
Fact = tuple[Any, str | None]
"""An event's data, and the turn or step that it belongs to."""


def batch_of(
    codec: Codec, session: SessionId, token: int, head: tuple[int, bytes], facts: Sequence[Fact], at: int, **beside: Any
) -> Append:
    """The batch that adds `facts` after `head`, at the time `at`; `beside` are further fields of `Append`."""
    seq, hash = head
    rows: list[Row] = []
    contents: list[Content] = []
    for data, place in facts:
        kind, version, required, origin, encoded, more = codec.encode_event(data)
        seq += 1
        header = (seq, kind, version, at, place, origin, required)
        hash = chain_hash(hash, header, sha256(encoded).digest())
        rows.append(Row(*header, encoded, hash))
        contents.extend(more)
    return Append(session, token, *head, tuple(rows), tuple(contents), **beside)


@contextmanager
def claimed(store: Store, session: SessionId, owner: Owner, now: int) -> Iterator[Claim]:
    """Own a session for a moment. Raises `SessionOwned` while a living process does."""
    held = claim(store, session, owner, now=now, lease_us=LEASE_US)
    try:
        yield held
    finally:
        store.release(session, owner)


def store_all(store: Store, batches: Sequence[Append]) -> None:
    """Append in one transaction; raises the first refusal. An answer that was lost is asked for again."""
    for verdict in append_settled(store, batches):
        if verdict is not None:
            raise verdict
