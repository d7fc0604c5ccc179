"""The decorators of our classes (floor 0): `attrs.frozen` and `attrs.define`, which do less while they are imported.

attrs writes and compiles the methods of each class while its module is imported, and a third of an import was that,
most of it for classes that a process never makes a value of. Here a class gets its slots at once, and what attrs makes
of it (`__init__`, fields and the rest) when something of that is first asked for. Comparing, hashing and showing are
written once for all classes and ask the class for its fields.

To type checkers, and to whoever uses such a class, nothing is different, but that attrs complains of a class that it
cannot make only when the class is first used. What this file does not know how to put off is made at once.
"""

from collections.abc import Callable
from functools import cached_property, partial
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic

import attrs

__all__ = ["define", "frozen"]

_FIELD: Final = type(attrs.field())
"""What `attrs.field(…)` leaves in the body of a class."""
_PUT_OFF: Final = (
    "__attrs_attrs__",
    "__attrs_props__",
    "__getstate__",
    "__init__",
    "__match_args__",
    "__setstate__",
    "_compared",
)
"""What a class has of attrs, and `_compared`: a function of a value that gives what makes it equal to others."""
_SEALED: Final = attrs.frozen(type("Sealed", (), {}))
"""Lends its refusals of assignments: attrs knows by them that a class is frozen when another one is made of it."""
_WRITING: Final = RLock()


def _decorate(make: Callable[..., Any], kind: Any = None, **options: Any) -> Any:
    """The class, or the decorator when there is none yet. A class with methods of its own keeps them."""
    if kind is None:
        return partial(_decorate, make, **options)
    body = vars(kind)
    fields = {name: value for name, value in body.items() if type(value) is _FIELD}
    if any(field.eq_key is not None or field.hash is not None for field in fields.values()):
        return make(kind, **options)
    finish = _slotted if _can_wait(kind, fields, make, options) else _finished
    made = finish(kind, make, {"eq": False, "repr": False, **options})
    if "repr" not in options and "__repr__" not in body:
        made.__repr__ = _Shared.__repr__
    if "eq" not in options and "__eq__" not in body:
        made.__eq__ = _Shared.__eq__
        if "__hash__" not in body:
            made.__hash__ = _Shared.__hash__ if make is attrs.frozen else None
    return made


if TYPE_CHECKING:
    from attrs import define, frozen
else:
    frozen = partial(_decorate, attrs.frozen)
    define = partial(_decorate, attrs.define)


def _finished(kind: type, make: Callable[..., Any], options: dict[str, Any]) -> Any:
    made = make(kind, **options)
    names = [field.name for field in attrs.fields(made) if field.eq]
    made._compared = attrgetter(*names) if names else _nothing
    return made


# ------------------------------------------------------------------------------------------------------- putting off


def _can_wait(kind: type, fields: dict[str, Any], make: Callable[..., Any], options: dict[str, Any]) -> bool:
    """Whether a class is as most are: annotated fields and methods, on nothing but `object`."""
    body = vars(kind)
    is_simple = type(kind) is type and kind.__bases__ in ((object,), (Generic,))
    checks_assignments = make is attrs.define and fields
    return (
        is_simple
        and options.keys() <= {"kw_only", "eq", "weakref_slot"}
        and not checks_assignments
        and fields.keys() <= getattr(kind, "__annotations__", {}).keys()
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

    def written() -> Any:
        with _WRITING:  # two threads may ask for the first value at once
            if isinstance(vars(made)["__init__"], _Unwritten):
                for name, value in vars(_finished(kind, make, options)).items():
                    if isinstance(vars(made).get(name), _Unwritten | None):
                        setattr(made, name, value)
        return made

    annotations = getattr(kind, "__annotations__", {})
    fields = [name for name, kept in annotations.items() if not _is_class_variable(kept)]
    body = {name: value for name, value in vars(kind).items() if name not in {*fields, "__dict__", "__weakref__"}}
    if make is attrs.frozen:
        body |= {name: vars(_SEALED)[name] for name in ("__setattr__", "__delattr__")}
    references = ("__weakref__",) if options.get("weakref_slot", True) else ()
    body |= {"__slots__": (*fields, *references), "__qualname__": kind.__qualname__}
    made = type(kind.__name__, kind.__bases__, body | {name: _Unwritten(name, written) for name in _PUT_OFF})
    return made


class _Unwritten:
    """Has the class written when it is looked up, which replaces it, and gives what was written under its name."""

    __slots__ = ("_name", "_written")

    def __init__(self, name: str, written: Callable[[], Any]) -> None:
        self._name = name
        self._written = written

    def __get__(self, value: Any, kind: type) -> Any:
        found = vars(self._written())[self._name]  # a class below may have another of that name
        return found.__get__(value, kind) if hasattr(found, "__get__") else found


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.strip("'\"").startswith(
            ("ClassVar", "typing.ClassVar", "t.ClassVar", "typing_extensions.ClassVar")
        )
    return getattr(annotation, "__origin__", annotation) is ClassVar


# ------------------------------------------------------------------------------------------- written once for all


class _Shared:
    """The methods that each class is given; help shows them under their names."""

    def __eq__(self, other: Any) -> Any:
        kind: Any = self.__class__
        if other.__class__ is not kind:
            return NotImplemented
        return kind._compared(self) == kind._compared(other)

    def __hash__(self) -> int:
        kind: Any = self.__class__
        return hash((kind, kind._compared(self)))

    @recursive_repr("...")
    def __repr__(self) -> str:
        kind: Any = self.__class__
        shown = (
            f"{field.name}={(repr if field.repr is True else field.repr)(getattr(self, field.name))}"
            for field in attrs.fields(kind)
            if field.repr
        )
        return f"{kind.__qualname__.rpartition('>.')[2]}({', '.join(shown)})"


def _nothing(value: Any) -> tuple[()]:
    return ()
