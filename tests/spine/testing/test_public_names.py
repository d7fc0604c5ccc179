"""What `spine.testing` offers is what it says it offers."""

import ast
from pathlib import Path

import pytest

import spine.testing
from spine.late import LATE


def test_the_public_list_is_sorted_and_every_name_is_there() -> None:
    names = spine.testing.__all__
    assert names == sorted(names)
    assert all(getattr(spine.testing, name) is not None for name in names)
    assert set(names) <= set(dir(spine.testing))


def test_type_checkers_see_the_same_names() -> None:
    """The imports for type checkers name each thing once, from the home where it is found at run time."""
    tree = ast.parse(Path(spine.testing.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(seen) == spine.testing.__all__
    assert seen == spine.testing._HOMES


def test_an_unknown_name_is_told_what_there_is() -> None:
    with pytest.raises(AttributeError, match='has no name "sing"; it has AdapterContract'):
        _ = spine.testing.sing  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name, owner in LATE.items() if owner.startswith("spine.testing")])
def test_what_is_loaded_late_is_loaded_by_its_owner(name: str) -> None:
    owner = Path(spine.testing.__file__).parents[2].joinpath(*LATE[name].split(".")).with_suffix(".py")
    assert f'("{name}")' in owner.read_text("utf-8")
