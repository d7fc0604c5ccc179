"""What a store answers when it refuses: one rule and one wording for every store (side room, floors 0-1).

Kept apart from the stores so that a person reads the same sentence whichever of them was asked.
"""

import functools
from collections.abc import Sequence
from typing import Final

from spine.errors import ConcurrencyConflict, LogBroken, SessionOwned, SessionShared, SessionUnknown, UsageError
from spine.store import Append, Owner
from spine.values import SessionId

MICROSECONDS = 1_000_000


def check_batch(batch: Append) -> None:
    """Raise `UsageError` unless the rows follow `batch.seq` without gap, and every store could hold the batch.

    An empty batch is fine, but for a fork.
    """
    seq = batch.seq
    if batch.base is not None and not (seq and batch.rows):
        raise UsageError(f"append to session {batch.session}: a fork begins after an event, with one of its own")
    known: str | None = None
    for found, type, version, at, place, origin, _, _, hash in batch.rows:
        seq += 1
        if found != seq:
            raise UsageError(
                f"append to session {batch.session}: found a row with seq {found} where {seq} must stand; "
                "rows follow the batch's seq without gap"
            )
        if place is not known:  # the rows of a batch mostly have the same
            known = place if _is_name(place) else None
        if not (_is_kind(type, version, origin) and place is known and _EARLIEST <= at < _TIMES and len(hash) < 256):
            raise UsageError(f"append to session {batch.session}: the header of seq {seq} is none: {_HEADER}")
    for content in (*batch.contents, *batch.erased_contents) if batch.contents or batch.erased_contents else ():
        if not _is_name(content.digest) or not _is_text(content.media_type):
            raise UsageError(f"append to session {batch.session}: a content's digest and media type are text")


def check_request(session: SessionId, key: str, kind: str) -> None:
    """Raise `UsageError` unless every store could hold a request with this key and kind."""
    if not _is_text(key) or not _is_name(kind):
        raise UsageError(f"request to session {session}: key and kind are text without lone surrogates")


_VERSIONS: Final = 1 << 31
_TIMES: Final = 1 << 62
_EARLIEST: Final = -_TIMES
_HEADER: Final = (
    "type, place and origin are text without NUL and lone surrogates, version has 31 bits, at 62, hash 255 bytes"
)


@functools.lru_cache(maxsize=1024)
def _is_kind(type: str, version: int, origin: str | None) -> bool:
    return _is_name(type) and _is_name(origin) and -_VERSIONS <= version < _VERSIONS


@functools.lru_cache(maxsize=1024)
def _is_name(text: str | None) -> bool:
    return text is None or ("\0" not in text and _is_text(text))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refusal(batch: Append, *, seq: int, hash: bytes, token: int | None) -> ConcurrencyConflict | None:
    """The answer to a batch that did not fit a session with this head and claim; None when it is there already."""
    if batch.base is not None and not seq and token == batch.token:
        return no_base(batch)
    return None if is_repeated(batch, seq=seq, hash=hash) else conflict(batch, seq=seq, hash=hash, token=token)


def conflict(batch: Append, *, seq: int, hash: bytes, token: int | None) -> ConcurrencyConflict:
    """The refusal of `batch` by a session whose head is (`seq`, `hash`); `token` None means nobody ever claimed it."""
    wanted = f"append to session {batch.session} after seq {batch.seq}"
    if token is None:
        found = "the session was never claimed; claim it first"
    elif token != batch.token:
        found = f"another writer claimed it since (token {batch.token}, now {token}), the log stands at seq {seq}"
    elif seq != batch.seq:
        found = f"the log stands at seq {seq}"
    else:
        found = f"the event there has hash {hash.hex()[:12]}, the batch builds on {batch.prev_hash.hex()[:12]}"
    return ConcurrencyConflict(f"{wanted}: {found}; nothing was written", actual_seq=seq, actual_hash=hash)


def no_base(batch: Append) -> ConcurrencyConflict:
    """The refusal of a fork whose base has no such event."""
    found = f"session {batch.base} has no event {batch.seq} with hash {batch.prev_hash.hex()[:12]}"
    wanted = f"fork session {batch.base} at seq {batch.seq} as {batch.session}"
    return ConcurrencyConflict(f"{wanted}: {found}; nothing was written", actual_seq=0)


def check_token(session: SessionId, token: int, *, seq: int, hash: bytes, actual: int | None) -> None:
    """Raise `ConcurrencyConflict` unless `token` is the one that the session was claimed with last."""
    if token != actual:
        found = "it was never claimed" if actual is None else f"another writer claimed it (token {token}, now {actual})"
        raise ConcurrencyConflict(f"session {session}: {found}; nothing was done", actual_seq=seq, actual_hash=hash)


def shared(session: SessionId, forks: Sequence[SessionId], *, what: str) -> SessionShared:
    """The refusal to take events away that forks need."""
    some = ", ".join(forks[:5]) + (f" and {len(forks) - 5} more" if len(forks) > 5 else "")
    text = f"{what} of session {session} cannot be taken away: forks of it share them ({some}); nothing was done"
    return SessionShared(text, forks=tuple(forks), hint=f"spine delete {session} --detach")


def not_own(session: SessionId, seq: int, base: SessionId) -> SessionShared:
    """The refusal to cut a fork inside of what it shares."""
    text = f"session {session} cannot be cut at seq {seq}: it shares the events around it with {base}"
    return SessionShared(f"{text}; nothing was done")


def no_event(session: SessionId, seq: int) -> LogBroken:
    """The refusal to cut a log after an event that is not there."""
    return LogBroken(f"session {session} cannot be cut after seq {seq}: there is no such event", seq=seq)


def is_repeated(batch: Append, *, seq: int, hash: bytes) -> bool:
    """Whether the head (`seq`, `hash`) is the batch's own last row, so that its answer was lost and not the batch."""
    return bool(batch.rows) and batch.rows[-1].seq == seq and batch.rows[-1].hash == hash


def is_held(holder: tuple[Owner, int] | None, claimant: Owner, *, now: int) -> bool:
    """Whether a lease of someone else than `claimant` still runs at `now`; it ends with the microsecond it names."""
    return holder is not None and holder[0].id != claimant.id and holder[1] > now


def owned(session: SessionId, holder: tuple[Owner, int], claimant: Owner, *, now: int, lease_us: int) -> SessionOwned:
    """The refusal of a claim; the age is that of the holder's last sign of life."""
    owner, until = holder
    age_s = max(0, now - (until - lease_us)) // MICROSECONDS
    where = f"pid {owner.pid}" if owner.host == claimant.host else f"pid {owner.pid} on {owner.host}"
    return SessionOwned(
        f"session {session} is owned by another process ({where}, {age_s} s ago)",
        hint=f"spine log {session} --follow, or wait for its lease",
    )


def unknown(session: SessionId, url: str) -> SessionUnknown:
    """The refusal of a request to a session without any event."""
    return SessionUnknown(f'no session "{session}" in {url}', hint="spine sessions")
