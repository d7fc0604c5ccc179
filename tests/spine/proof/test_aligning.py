"""spine.proof.aligning: what belongs together is paired, in order, and each part once."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.proof import aligning
from spine.proof.aligning import aligned

WORDS = st.text("abc", max_size=7)


def pairs(left: str, right: str) -> list[str]:
    return [f"{one or '-'}{two or '-'}" for one, two in aligned(left, right, str)]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("", "", ""),
        ("abc", "abc", "aa bb cc"),
        ("abc", "axbc", "aa -x bb cc"),
        ("abc", "xabc", "-x aa bb cc"),
        ("abc", "abcx", "aa bb cc -x"),
        ("abc", "axc", "aa bx cc"),
        ("abc", "xyz", "ax by cz"),
        ("abxc", "ac", "aa b- x- cc"),
        ("aaa", "aa", "aa aa a-"),
        ("abcd", "xbd", "ax bb c- dd"),
    ],
)
def test_what_is_alike_is_paired_and_the_rest_by_its_place(left: str, right: str, expected: str) -> None:
    assert " ".join(pairs(left, right)) == expected


def is_subsequence(some: str, whole: str) -> bool:
    rest = iter(whole)
    return all(letter in rest for letter in some)


def longest(left: str, right: str) -> int:
    """The length of the longest common subsequence, found by trying all."""
    sizes = range(min(len(left), len(right)), -1, -1)
    return next(n for n in sizes for some in itertools.combinations(left, n) if is_subsequence("".join(some), right))


@given(WORDS, WORDS)
def test_nothing_is_lost_and_no_more_could_be_paired(left: str, right: str) -> None:
    found = list(aligned(left, right, str))
    assert "".join(one or "" for one, _ in found) == left
    assert "".join(two or "" for _, two in found) == right
    assert (None, None) not in found
    assert sum(one == two for one, two in found) >= longest(left, right)


@given(WORDS, WORDS)
def test_the_sides_may_change_places(left: str, right: str) -> None:
    assert sorted(pair[::-1] for pair in pairs(right, left)) == sorted(pairs(left, right))


def test_beyond_a_size_only_beginnings_and_ends_are_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies between goes by its place, so that a long session costs no square of its length."""
    monkeypatch.setattr(aligning, "_CELLS", 4)
    assert " ".join(pairs("a123z", "ax123z")) == "aa -x 11 22 33 zz"
    assert " ".join(pairs("a12zb", "a3412b")) == "aa 13 24 z1 -2 bb"
