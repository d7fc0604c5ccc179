"""What a store answers when it refuses: one rule and one wording for every store (side room, floors 0-1).

Kept apart from the stores so that a person reads the same sentence whichever of them was asked.
"""

from spine.errors import ConcurrencyConflict, SessionOwned, SessionUnknown, UsageError
from spine.store import Append, Owner
from spine.values import SessionId

MICROSECONDS = 1_000_000


def check_batch(batch: Append) -> None:
    """Raise `UsageError` unless the rows follow `batch.seq` without gap; an empty batch is fine."""
    seq = batch.seq
    for row in batch.rows:
        seq += 1
        if row.seq != seq:
            raise UsageError(
                f"append to session {batch.session}: found a row with seq {row.seq} where {seq} must stand; "
                "rows follow the batch's seq without gap"
            )


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
