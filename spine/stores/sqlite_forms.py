"""How values lie in a SQLite store, and what is made of those that damage changed (side room, floors 0-1)."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from spine.errors import LogBroken
from spine.store import Row

_STEP_BITS: Final = 13
_STEP_MASK: Final = (1 << _STEP_BITS) - 1
_USUAL_PLACE = re.compile(r"t([1-9][0-9]{0,8})(?:s([1-9][0-9]{0,3}))?", re.ASCII)


@lru_cache(maxsize=1024)
def pack_place(place: str | None) -> int | str | None:
    """`t2s5` as 2 << 13 | 5, anything else as it is."""
    found = _USUAL_PLACE.fullmatch(place) if place else None
    if found is None:
        return place
    turn, step = int(found[1]), int(found[2] or 0)
    return turn << _STEP_BITS | step if step <= _STEP_MASK else place


@lru_cache(maxsize=1024)
def unpack_place(stored: int | str | None) -> str | None:
    """The place that `pack_place` was given."""
    if not isinstance(stored, int):
        return stored
    turn, step = stored >> _STEP_BITS, stored & _STEP_MASK
    return f"t{turn}s{step}" if step else f"t{turn}"


def as_bytes(stored: object) -> bytes:
    """Bytes as they are; an edit by hand may have left text or a number, whose bytes then fail their hash."""
    return stored if type(stored) is bytes else str(stored).encode()


def in_order(rows: Sequence[Row], after: int) -> tuple[Sequence[Row], int]:
    """The rows as far as their numbers grow, and the last number; a damaged tree may lead back, again and again.

    Raises `LogBroken` when already the first does not come after `after`.
    """
    if rows[-1].seq < after + len(rows):
        before = (after, *(row.seq for row in rows))
        good = next(place for place, row in enumerate(rows) if row.seq <= before[place])
        if not good:
            raise LogBroken("the rows in its file do not stand in their order", seq=after + 1)
        rows = rows[:good]
    return rows, rows[-1].seq
