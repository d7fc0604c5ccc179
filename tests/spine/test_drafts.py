"""Values made by way of drafts are the values that their classes would have made."""

import attrs
import pytest

from spine.drafts import changer, maker
from spine.frozen import frozen
from spine.messages import Message, TextBlock


@frozen(kw_only=True)
class Awkward:
    """Fields named like what the making itself needs."""

    kind: int = 1
    new: int = 2
    draft: int = 3
    self_: int = 4


def test_a_made_value_is_the_value_whatever_its_fields_are_called() -> None:
    made = maker(Awkward)(5, 6, 7, 8)
    assert (type(made), made) == (Awkward, Awkward(kind=5, new=6, draft=7, self_=8))


def test_a_changed_copy_is_what_evolve_gives() -> None:
    old = Message(role="tool", kind="x", metadata={"a": 1})
    content = (TextBlock(text="12 °C"),)
    new = changer(Message, "content")(old, content)
    assert (type(new), new) == (Message, attrs.evolve(old, content=content))
    assert old.content == ()
    assert changer(Awkward, "draft", "kind")(Awkward(), 8, 9) == Awkward(draft=8, kind=9)


def test_a_changed_copy_is_frozen() -> None:
    new = changer(Awkward, "new")(Awkward(), 8)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        new.new = 9  # type: ignore[misc]


def test_a_function_is_written_when_it_is_first_called() -> None:
    """It stays the same function, so that who holds it since then has the quick one, too."""

    @frozen
    class Late:
        a: int
        b: int = 2

    for make, arguments in ((maker(Late), (1, 2)), (changer(Late, "b"), (Late(1, 1), 2))):
        before = make.__code__
        assert make(*arguments) == make(*arguments) == Late(1)
        assert make.__code__ is not before
        assert make.__code__.co_varnames[0] == ("a" if make is maker(Late) else "_old")


def test_parts_can_be_named_also_at_the_first_call() -> None:
    @frozen
    class Late:
        a: int
        b: int

    assert [maker(Late)(1, b=2) for _ in range(2)] == [Late(1, 2)] * 2


def test_a_wrong_number_of_parts_is_refused_also_at_the_first_call() -> None:
    @frozen
    class Late:
        a: int

    for _ in range(2):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
            maker(Late)()
