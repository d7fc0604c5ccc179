"""The decorators of our classes (floor 0): `attrs.frozen` and `attrs.define`, which write less while they are imported.

attrs writes and compiles each method anew for each class while its module is imported, and half of an import was
that. Comparing, hashing and showing are written once here and ask the class for its fields; to type checkers, and to
whoever uses such a class, nothing is different.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs

__all__ = ["define", "frozen"]

if TYPE_CHECKING:
    from attrs import define, frozen
else:

    def frozen(kind: type | None = None, **options: Any) -> Any:
        """As `attrs.frozen`. A class with methods or an equality of its own keeps them."""
        decorate = _decorator(attrs.frozen, options)
        return decorate if kind is None else decorate(kind)

    def define(kind: type | None = None, **options: Any) -> Any:
        """As `attrs.define`. A class with methods or an equality of its own keeps them."""
        decorate = _decorator(attrs.define, options)
        return decorate if kind is None else decorate(kind)


def _decorator(make: Callable[..., Any], options: dict[str, Any]) -> Callable[[type], Any]:
    def decorate(kind: type) -> Any:
        own = set(vars(kind))
        made = make(kind, **{"eq": False, "repr": False, **options})
        if "repr" not in options and "__repr__" not in own:
            made.__repr__ = _show
        if "eq" not in options and "__eq__" not in own:
            made.__compared__ = _parts_of(made)
            made.__eq__ = _equals
            made.__hash__ = _hash if make is attrs.frozen else None
        return made

    return decorate


def _parts_of(kind: Any) -> Callable[[Any], Any]:
    names = [field.name for field in attrs.fields(kind) if field.eq]
    return attrgetter(*names) if names else _nothing


def _nothing(value: Any) -> tuple[()]:
    return ()


def _equals(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    parts = self.__class__.__compared__
    return parts(self) == parts(other)


def _hash(self: Any) -> int:
    kind = self.__class__
    return hash((kind, kind.__compared__(self)))


def _show(self: Any) -> str:
    kind = self.__class__
    shown = (
        f"{field.name}={(repr if field.repr is True else field.repr)(getattr(self, field.name))}"
        for field in attrs.fields(kind)
        if field.repr
    )
    return f"{kind.__qualname__.rpartition('>.')[2]}({', '.join(shown)})"
