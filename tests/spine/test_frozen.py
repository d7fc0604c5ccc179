"""Values of `frozen` behave as those of `attrs.frozen` do."""

import copy
import inspect
import math
import pickle
import sys
import threading
import weakref
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

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


# ------------------------------------------------------------------------------------------------- what is put off


@frozen
class Point:
    """At the top of a module, where pickle finds it."""

    x: int
    y: int = 0
    name: str = attrs.field(default="", converter=str)
    origin: ClassVar[str] = "here"


def is_written(kind: type) -> bool:
    """Whether attrs has made the class's methods."""
    return inspect.isfunction(vars(kind)["__init__"])


LOOKS: dict[str, Any] = {
    "a value": lambda kind: kind(1),
    "its fields": attrs.fields,
    "whether it is one of attrs": attrs.has,
    "its signature": inspect.signature,
    "its pattern": lambda kind: kind.__match_args__,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_class_is_written_when_it_is_first_looked_at(look: Any) -> None:
    @frozen
    class Late:
        a: int

    assert not is_written(Late)
    assert look(Late)
    assert is_written(Late)
    assert Late(1) == Late(a=1)


def test_a_class_is_the_same_before_and_after_it_was_written() -> None:
    """Its name, its constants, its way of keeping fields; values have no room for anything else."""

    @frozen
    class Late:
        a: int = 1
        b: ClassVar[int] = 2

        @classmethod
        def made(cls) -> Any:
            return cls()

    assert (Late.__name__, Late.b, Late.__module__) == ("Late", 2, __name__)
    assert Late.__qualname__.endswith(".<locals>.Late")
    assert Late.__slots__ == ("a", "__weakref__")  # type: ignore[attr-defined]
    assert type(Late.made()) is Late
    assert weakref.ref(kept := Late())() is kept
    assert not hasattr(Late(), "__dict__")
    with pytest.raises(TypeError, match=r"Late.__init__\(\) got an unexpected keyword argument 'c'"):
        Late(c=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_values_can_be_copied_and_pickled(way: Any) -> None:
    point = Point(1, 2, "a")
    assert way(point) == point
    assert way(point) is not point


def test_a_value_can_be_unpickled_before_any_was_made() -> None:
    @frozen
    class Late:
        a: int

    empty = Late.__new__(Late)
    empty.__setstate__({"a": 3})  # type: ignore[attr-defined]
    assert empty == Late(3)


def test_a_mistake_of_a_field_is_told_when_the_class_is_first_used() -> None:
    @frozen
    class Wrong:
        a: int = 1
        b: int

    for _ in range(2):
        with pytest.raises(ValueError, match="No mandatory attributes allowed"):
            Wrong(1, 2)


def test_a_generic_class_can_be_given_its_types() -> None:
    kind = TypeVar("kind")

    @frozen
    class Box(Generic[kind]):
        content: kind

    assert not is_written(Box)
    assert Box[int](3) == Box(3)


def test_a_class_below_may_have_methods_of_the_same_name() -> None:
    """Its `__init__` finds the one above it, also where that is written by being asked for."""

    @frozen
    class Late:
        a: int

    class Below(Late):
        def __init__(self) -> None:
            super().__init__(5)

    assert Below().a == 5


@pytest.mark.parametrize("make", [attrs.frozen, attrs.define, frozen, define])
def test_a_class_of_attrs_below_one_that_waits_is_frozen_too(make: Any) -> None:
    @frozen
    class Late:
        a: int

    @make
    class Below(Late):
        b: int = 2

    assert (Below(1).a, Below(1).b) == (1, 2)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Below(1).a = 3  # type: ignore[misc]


def test_threads_may_ask_for_the_first_value_at_once() -> None:
    def ask(kind: Any, failed: list[BaseException]) -> None:
        together.wait()
        try:
            assert attrs.fields(kind).a.name == "a"
            assert hash(kind(1)) == hash(copy.copy(kind(1)))
        except BaseException as error:
            failed.append(error)

    together, failed = threading.Barrier(6), list[BaseException]()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):

            @frozen
            class Late:
                a: int

            threads = [threading.Thread(target=ask, args=(Late, failed)) for _ in range(together.parties)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failed


def test_a_value_that_holds_itself_can_be_shown() -> None:
    @define
    class Node:
        other: Any = None

    node = Node()
    node.other = node
    assert repr(node).endswith("Node(other=...)")


def test_a_hash_of_its_own_and_keys_of_fields_are_kept() -> None:
    @frozen
    class Counted:
        a: list[int]

        def __hash__(self) -> int:
            return 7

    @frozen
    class Folded:
        a: str = attrs.field(eq=str.lower)
        b: list[int] = attrs.field(factory=list, hash=False)

    assert hash(Counted([])) == 7
    assert Counted([]) == Counted([])
    assert Folded("A") == Folded("a")
    assert hash(Folded("A")) == hash(Folded("a"))


def test_what_cannot_be_put_off_is_made_at_once() -> None:
    """Bases, options, hooks on assignment and whatever knows its own class are left to attrs."""

    @frozen
    class Below(Point):
        z: int = 3

    @frozen(slots=False)
    class Open:
        a: int

    @define
    class Checked:
        a: int = attrs.field(converter=int)

    @frozen(eq=False)
    class Remembering:
        a: int

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    @frozen
    class Naming:
        a: int

        def me(self) -> Any:
            return __class__  # type: ignore[name-defined]

    class Kind(type):
        pass

    @frozen
    class OfAKind(metaclass=Kind):
        a: int

    @frozen
    class Unannotated:
        a = attrs.field()

    assert all(map(is_written, (Below, Open, Checked, Remembering, Naming, OfAKind, Unannotated)))
    assert Below(1).x == 1
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Below(1).z = 2  # type: ignore[misc]
    assert Open(1).__dict__ == {"a": 1}
    checked = Checked("1")
    checked.a = "2"
    assert checked.a == 2
    assert Remembering(2).twice == 4
    assert Naming(1).me() is Naming
    assert type(OfAKind) is Kind
    assert Unannotated(1).a == 1
