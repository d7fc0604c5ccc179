"""Values of `frozen` behave as those of `attrs.frozen` do."""

import math
from typing import Any

import attrs
import pytest

from spine.frozen import define, frozen


def declared(decorator: Any) -> tuple[type, ...]:
    @decorator(kw_only=True)
    class Plain:
        a: int = 1
        b: str = attrs.field(default="x", repr=False)
        c: str = attrs.field(default="y", repr=len)
        d: list[int] = attrs.field(factory=list, eq=False)

    @decorator
    class Empty:
        pass

    @decorator
    class Single:
        a: Any = None

    @decorator
    class Own:
        a: int = 1

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    @decorator(eq=False)
    class ByIdentity:
        a: int = 1

    return Plain, Empty, Single, Own, ByIdentity


OURS, THEIRS = declared(frozen), declared(attrs.frozen)
PAIRS = [pytest.param(ours, theirs, id=ours.__name__) for ours, theirs in zip(OURS, THEIRS, strict=True)]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_values_are_shown_compared_and_kept_as_with_attrs(ours: type, theirs: type) -> None:
    assert repr(ours()) == repr(theirs())
    assert (ours() == ours()) is (theirs() == theirs())
    assert (ours() != ours()) is (theirs() != theirs())
    assert len({ours(), ours()}) == len({theirs(), theirs()})
    assert ours.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        ours().a = 2


def test_values_of_two_classes_are_never_equal() -> None:
    assert OURS[2](1) != THEIRS[2](1)
    assert OURS[1]() != OURS[2]()


def test_fields_decide_and_fields_left_out_do_not() -> None:
    plain = OURS[0]
    assert plain(a=2) != plain() != plain(b="z")
    assert plain(d=[1]) == plain(d=[2])
    assert hash(plain(d=[1])) == hash(plain(d=[2]))
    assert attrs.evolve(plain(), a=5) == plain(a=5)


def test_one_field_is_compared_as_a_tuple_is_or_not_at_all() -> None:
    """A value that holds the same object is equal to it; one that holds a list has no hash."""
    single = OURS[2]
    assert single([1]) == single([1])
    assert single(1) != single(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(single([1]))
    assert single(math.pi) == single(math.pi)


def test_what_can_be_changed_is_compared_by_its_fields_and_has_no_hash() -> None:
    """As with `attrs.define`; `eq=False` compares by identity."""

    @define
    class Counter:
        count: int = 0

    @define(eq=False)
    class Place:
        count: int = 0

    counter = Counter()
    counter.count = 2
    assert counter == Counter(2)
    assert repr(counter) == "Counter(count=2)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)
    assert Place() != Place()
