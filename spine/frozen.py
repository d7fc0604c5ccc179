"""The decorators of our classes (floor 0): `attrs.frozen` and `attrs.define`, which do less while they are imported.

attrs writes and compiles the methods of each class while its module is imported, and a third of an import was that,
most of it for classes that a process never makes a value of. Here a class gets its slots at once, and what attrs makes
of it (`__init__`, fields and the rest) when something of that is first asked for. Comparing, hashing and showing are
written once for all classes and ask the class for its fields.

To type checkers, and to whoever uses such a class, nothing is different, but that attrs complains of a class that it
cannot make only when the class is first used. What this file does not know how to put off is made at once.
"""

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic

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


_FIELD: Final = type(attrs.field())
"""What `attrs.field(…)` leaves in the body of a class."""
_PUT_OFF: Final = (
    "__attrs_attrs__",
    "__attrs_props__",
    "__compared__",
    "__getstate__",
    "__init__",
    "__match_args__",
    "__setstate__",
)
"""What a class has of attrs, and `__compared__`: a function of a value that gives what makes it equal to others."""


def _decorator(make: Callable[..., Any], options: dict[str, Any]) -> Callable[[type], Any]:
    def decorate(kind: type) -> Any:
        own = set(vars(kind))
        finish = _slotted if _can_wait(kind, make, options) else _finished
        made = finish(kind, make, {"eq": False, "repr": False, **options})
        if "repr" not in options and "__repr__" not in own:
            made.__repr__ = _show
        if "eq" not in options and "__eq__" not in own:
            made.__eq__ = _equals
            made.__hash__ = _hash if make is attrs.frozen else None
        return made

    return decorate


def _finished(kind: type, make: Callable[..., Any], options: dict[str, Any]) -> Any:
    made = make(kind, **options)
    made.__compared__ = _parts_of(made)
    return made


# ------------------------------------------------------------------------------------------------------- putting off


def _can_wait(kind: type, make: Callable[..., Any], options: dict[str, Any]) -> bool:
    """Whether a class is as most are: fields and methods, on nothing but `object`."""
    body = vars(kind)
    is_known = options.keys() <= {"kw_only", "eq", "weakref_slot"} and kind.__bases__ in ((object,), (Generic,))
    checks_assignments = make is attrs.define and any(type(value) is _FIELD for value in body.values())
    return (
        is_known
        and not checks_assignments
        and body.keys().isdisjoint(_PUT_OFF)
        and not any(map(_knows_its_class, body.values()))
    )


def _knows_its_class(value: Any) -> bool:
    """Whether a part of a class's body would have to be changed for the class that is made of it."""
    function = getattr(value, "__func__", getattr(value, "fget", value))
    code = getattr(function, "__code__", None)
    return isinstance(value, cached_property) or "__class__" in getattr(code, "co_freevars", ())


def _slotted(kind: type, make: Callable[..., Any], options: dict[str, Any]) -> Any:
    """The class with its slots, and with an `_Unwritten` for each thing that attrs will make when one is asked for."""

    def write() -> None:
        for name, value in vars(_finished(kind, make, options)).items():
            if isinstance(vars(made).get(name), _Unwritten | None):
                setattr(made, name, value)

    unwritten = {name: _Unwritten(name, write) for name in _PUT_OFF}
    annotations = getattr(kind, "__annotations__", {})
    fields = [name for name, kept in annotations.items() if not _is_class_variable(kept)]
    body = {name: value for name, value in vars(kind).items() if name not in {*fields, "__dict__", "__weakref__"}}
    if make is attrs.frozen:
        body |= {"__setattr__": _refuse, "__delattr__": _refuse}
    references = ("__weakref__",) if options.get("weakref_slot", True) else ()
    slots = {"__slots__": (*fields, *references), "__qualname__": kind.__qualname__}
    made = type(kind.__name__, kind.__bases__, {**body, **unwritten, **slots})
    return made


class _Unwritten:
    """Has the class written when it is looked up, which replaces it, and gives what was written under its name."""

    __slots__ = ("_name", "_write")

    def __init__(self, name: str, write: Callable[[], None]) -> None:
        self._name = name
        self._write = write

    def __get__(self, value: Any, kind: type) -> Any:
        self._write()
        return getattr(kind if value is None else value, self._name)


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return "ClassVar" in annotation
    return getattr(annotation, "__origin__", annotation) is ClassVar


# ------------------------------------------------------------------------------------------- written once for all


def _refuse(self: Any, *_: Any) -> None:
    raise attrs.exceptions.FrozenInstanceError


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
