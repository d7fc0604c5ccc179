"""Which parts of two sessions belong together (floor 13): what is alike, in order; what is left between, by its place.

One more step in the middle is one difference then, and not one for each step that follows.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, TypeVar

__all__ = ["aligned"]

T = TypeVar("T")
_CELLS: Final = 1_000_000
"""Up to this many pairs are looked at, after equal beginnings and ends; beyond, what is left pairs by its place."""


def aligned(left: Sequence[T], right: Sequence[T], key: Callable[[T], str]) -> Iterator[tuple[T | None, T | None]]:
    """Pairs in order, each part once; None where a part has no counterpart. Alike are parts with equal keys.

    The longest common subsequence is paired; which of several of one length does not depend on the side.
    """
    a, b = 0, 0
    for i, j in (*_common([*map(key, left)], [*map(key, right)]), (len(left), len(right))):
        yield from zip_longest(left[a:i], right[b:j])
        if i < len(left):
            yield left[i], right[j]
        a, b = i + 1, j + 1


def _common(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """The longest common subsequence, as pairs of places."""
    shortest = min(len(left), len(right))
    start = next((i for i in range(shortest) if left[i] != right[i]), shortest)
    end = 0
    if (len(left) - start) * (len(right) - start) > _CELLS:  # otherwise what comes first is paired first
        rest = range(1, shortest - start + 1)
        end = next((i - 1 for i in rest if left[-i] != right[-i]), shortest - start)
    a, b = left[start : len(left) - end], right[start : len(right) - end]
    middle = [(start + i, start + j) for i, j in (_subsequence(a, b) if len(a) * len(b) <= _CELLS else ())]
    tail = [(len(left) - i, len(right) - i) for i in range(end, 0, -1)]
    return [*((i, i) for i in range(start)), *middle, *tail]


def _subsequence(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    lengths = [[0] * (len(right) + 1)]  # of what the parts from here on have in common, the last row first
    for one in reversed(left):
        below, row = lengths[-1], [0] * (len(right) + 1)
        for j in range(len(right) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if one == right[j] else max(below[j], row[j + 1])
        lengths.append(row)
    lengths.reverse()
    found, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif (lengths[i + 1][j], right[j]) > (lengths[i][j + 1], left[i]):  # of equals the one by its key, so that
            i += 1  # the sides may change places
        else:
            j += 1
    return found
