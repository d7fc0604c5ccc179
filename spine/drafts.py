"""Values of frozen classes, made from parts at the least cost (floor 1): for whatever builds very many of them.

An attrs class sets each field of a frozen value through a call. Here a function is written out for each class that
fills a draft, which is an object of a subclass that still takes assignments, and then turns the draft into the value
by giving it its real class: a quarter of the cost. Nobody but that function ever sees the draft. Modules have such
functions made while they are imported, so each is written out when it is first called.

Rule: only for classes whose `__init__` does nothing but set its fields (`is_plain`); others are called as usual.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import FunctionType
from typing import Any, TypeVar

import attrs

__all__ = ["changer", "draft_of", "is_plain", "maker", "write_function"]

T = TypeVar("T")


def is_plain(kind: type) -> bool:
    """Whether setting the fields of an attrs class makes a whole value of it, once their converters were applied."""
    return (
        attrs.has(kind)
        and kind.__new__ is object.__new__
        and getattr(kind.__init__, "__module__", None) == kind.__module__
        and not {"__attrs_pre_init__", "__attrs_post_init__"} & set(dir(kind))
        and all(map(_is_plain_field, attrs.fields(kind)))
    )


def _is_plain_field(field: "attrs.Attribute[Any]") -> bool:
    needs_self = getattr(field.default, "takes_self", False) or isinstance(field.converter, attrs.Converter)
    return field.init and field.validator is None and not needs_self


def draft_of(kind: type) -> type:
    """The subclass of `kind` whose objects begin empty, take assignments and can become objects of `kind`."""
    open_again = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__, "__init__": object.__init__}
    return type(kind)(kind.__name__, (kind,), {"__slots__": (), **open_again})


@cache
def maker(kind: type[T], *given: str) -> Callable[..., T]:
    """A function of the fields `given`, else of all fields of `kind` in order, by position.

    Fields that are not given have their defaults, which must be no factories. It applies no converter.
    """
    return _written_when_called(lambda: _write_maker(kind, given))


def _write_maker(kind: Any, given: tuple[str, ...]) -> FunctionType:
    fields = attrs.fields(kind)
    names = given or tuple(field.name for field in fields)
    defaults = {f"_default_{field.name}": field.default for field in fields if field.name not in names}
    lines = [
        f"self.{field.name} = {field.name if field.name in names else f'_default_{field.name}'}" for field in fields
    ]
    return write_function(kind, ", ".join(names), (), lines, defaults)


@cache
def changer(kind: type[T], *changed: str) -> Callable[..., T]:
    """A function of a value and new values for the fields `changed`: the changed copy. It applies no converter."""
    return _written_when_called(lambda: _write_changer(kind, changed))


def _write_changer(kind: Any, changed: tuple[str, ...]) -> FunctionType:
    names = [field.name for field in attrs.fields(kind)]
    lines = [f"self.{name} = {name if name in changed else f'_old.{name}'}" for name in names]
    return write_function(kind, ", ".join(["_old", *changed]), (), lines, {})


def write_function(
    kind: type, parameters: str, before: Iterable[str], lines: Iterable[str], names: Mapping[str, Any]
) -> FunctionType:
    """The function that runs `before`, makes the draft `self`, runs `lines`, and returns the value."""
    body = [*before, "self = _draft()", *lines, "self.__class__ = _kind", "return self"]
    source = "\n    ".join([f"def make({parameters}):", *body])
    scope = {**names, "_draft": draft_of(kind), "_kind": kind}
    exec(compile(source, f"<made for {kind.__qualname__}>", "exec"), scope)
    made: FunctionType = scope["make"]
    return made


def _written_when_called(write: Callable[[], FunctionType]) -> FunctionType:
    """A function that is what `write` gives from its first call on: that puts its code in the place of this one's."""

    def become() -> FunctionType:
        written = write()
        made.__globals__.update(written.__globals__)
        made.__code__ = written.__code__
        return made

    made = FunctionType(_first_call.__code__, {"become": become})
    return made


def _first_call(*parts: Any, **named: Any) -> Any:
    return become()(*parts, **named)  # type: ignore[name-defined]  # noqa: F821  # a global of the function that has this code
