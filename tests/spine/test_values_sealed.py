"""A frozen object stays as it is, whichever of a dict's doors is tried."""

import copy
import pickle

import pytest

from spine.values import EMPTY_OBJECT, JsonObject, encode, freeze_object


@pytest.mark.parametrize("value", [EMPTY_OBJECT, freeze_object({"a": 1})])
def test_calling_init_again_changes_nothing(value: JsonObject) -> None:
    """Neither an empty object nor a filled one can be filled once more."""
    before = encode(value)
    with pytest.raises(TypeError, match="read-only"):
        value.__init__({"b": 2})  # type: ignore[misc]
    with pytest.raises(TypeError, match="read-only"):
        value.__init__()  # type: ignore[misc]
    assert encode(value) == before


def test_an_object_is_made_and_copied_as_before() -> None:
    """It is a dict of its own class, equal to a plain one, and survives copying and pickling."""
    made = JsonObject({"a": 1})
    assert type(made) is JsonObject
    assert made == {"a": 1}
    assert JsonObject() == {}
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), made.evolve(a=1)):
        assert type(again) is JsonObject
        assert again == made
