"""Cutting off the damaged end of a log (floor 13), where that is the whole damage.

The rule it guards: nothing that verifies is ever thrown away. A log is cut only when no event after the first bad one
follows its predecessor; damage in the middle is for a backup or an export to heal.
"""

import attrs

from spine.appending import claimed
from spine.codec import row_hash
from spine.errors import LogBroken, UsageError
from spine.proof.verify import verify
from spine.store import Owner
from spine.stored import StoredLog
from spine.values import SessionId

__all__ = ["Cut", "in_words", "repair_tail"]


@attrs.frozen(kw_only=True)
class Cut:
    """What a repair did."""

    seq: int
    """The last event that is left."""
    lost: tuple[str, ...] = ()
    """The events that were cut off, as `41 turn.completed`; none when the log only claimed to be longer than it is."""


def repair_tail(reader: StoredLog, *, owner: Owner, now: int) -> Cut | None:
    """Cut a stored session after its last proven event; None when there is nothing to repair.

    Raises `LogBroken` when a whole event follows the damage, or nothing is proven; `UsageError` when what is wrong is
    no damage: cutting would hide it. `SessionOwned`, `SessionShared` as the store does. Nothing was changed then.
    """
    found = verify(reader)
    if found.verdict != "broken":
        return None
    if found.broken_at is None:
        first = found.problems[0]
        raise UsageError(f"{reader.session} is not damaged: at seq {first.seq} {first.text}; cutting repairs nothing")
    proven, lost = found.broken_at - 1, _after(reader, found.broken_at)
    if not proven:
        raise LogBroken(f"{reader.session}: not one event is proven; import an export of it", seq=1)
    with claimed(reader.store, reader.session, owner, now) as claim:
        reader.store.cut(reader.session, claim.token, proven)
    return Cut(seq=proven, lost=lost)


def in_words(session: SessionId, done: Cut | None) -> str:
    """What a repair did, in a line."""
    if done is None:
        return f"{session}: nothing to repair"
    lost = f"cut off: {', '.join(done.lost)}" if done.lost else "its head was set back"
    return f"{session}: ends at seq {done.seq} now; {lost}"


def _after(reader: StoredLog, seq: int) -> tuple[str, ...]:
    """The events from `seq` on. Raises `LogBroken` when one of them is whole."""
    lost: list[str] = []
    before: tuple[int, bytes] | None = None
    try:
        for row in reader.rows(after=seq - 1):
            if before is not None and row.seq == before[0] + 1 and row_hash(before[1], row) == row.hash:
                text = f"{reader.session} is damaged at seq {seq}, and seq {row.seq} after it is whole"
                raise LogBroken(f"{text}: only a damaged end is cut", seq=seq, hint="spine import a backup")
            lost.append(f"{row.seq} {row.type}")
            before = (row.seq, row.hash)
    except LogBroken as error:
        if error.seq == seq and error.hint:
            raise
    return tuple(lost)
