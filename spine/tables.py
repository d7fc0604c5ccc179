"""How the tables of a configuration file are read (floor 1): small readers that know where they are, and say so.

A reader takes a place and a value, and returns the checked value or raises `ConfigInvalid` with file and line.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, NoReturn

from spine.errors import ConfigInvalid
from spine.frozen import frozen

__all__ = ["KeyPath", "Place", "Reader", "fields", "flag", "matching", "named", "names", "nearest", "text", "where"]

KeyPath = tuple[str, ...]
"""A key with the tables it stands in."""


def where(name: str, lines: Mapping[KeyPath, int], path: KeyPath) -> str:
    """`spine.toml:5`: where a key stands, or else the innermost table around it that has a line."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return f"{name}:{lines[path[:end]]}"
    return name


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean "model"?`, or nothing when no known name is like it."""
    found = get_close_matches(name, tuple(known), 1)
    return f'; did you mean "{found[0]}"?' if found else ""


@frozen
class Place:
    """Where a value stands: the file's name, the lines of its keys, and the value's path."""

    name: str
    lines: Mapping[KeyPath, int]
    path: KeyPath = ()

    def inner(self, key: str) -> "Place":
        """The place of a key in this table."""
        return Place(self.name, self.lines, (*self.path, key))

    @property
    def key(self) -> str:
        """The path as one writes it."""
        return ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in self.path)

    def refuse(self, text: str, *, hint: str | None = None) -> NoReturn:
        """Raise `ConfigInvalid` with file and line."""
        raise ConfigInvalid(f"{where(self.name, self.lines, self.path)}: {text}", hint=hint)


Reader = Callable[[Place, Any], Any]


def fields(shape: Mapping[str, Reader]) -> Reader:
    """A table whose keys are those of `shape`."""

    def read(place: Place, value: Any) -> dict[str, Any]:
        for key in _table(place, value):
            if key not in shape:
                allowed = ", ".join(shape)
                place.inner(key).refuse(f'unknown key "{key}"; allowed here: {allowed}{nearest(key, shape)}')
        return {key: shape[key](place.inner(key), item) for key, item in value.items()}

    return read


def named(reader: Reader) -> Reader:
    """A table whose keys are names."""
    return lambda place, value: {key: reader(place.inner(key), item) for key, item in _table(place, value).items()}


def _table(place: Place, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        place.refuse(f"{place.key} is a table, found {kind_of(value)}")
    return value


def kind_of(value: Any) -> str:
    """What a value is, in words."""
    kinds = {str: "text", bool: "a boolean", int: "a number", Decimal: "a number", list: "a list"}
    return kinds.get(type(value), "a table" if isinstance(value, Mapping) else "a date")


def text(place: Place, value: Any) -> str:
    """A text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        place.refuse(f"{place.key} is a text that is not blank, found {kind_of(value)}")
    return value


def matching(pattern: str, form: str) -> Reader:
    """A text of a form, which messages name."""

    def read(place: Place, value: Any) -> str:
        found = text(place, value)
        if not re.fullmatch(pattern, found):
            place.refuse(f'{place.key} is "{found}"; it must be of the form {form}')
        return found

    return read


def flag(place: Place, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        place.refuse(f"{place.key} is true or false, found {kind_of(value)}")
    return value


def names(place: Place, value: Any) -> tuple[str, ...]:
    """A list of names."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        place.refuse(f"{place.key} is a list of names, found {kind_of(value)}")
    return tuple(value)
