"""Functions that read plain JSON into values of attrs classes (floor 1): written out for each class, once.

They take what our own decoder gives (dicts, lists and tuples, text, numbers, booleans, None), check every type, and
raise `TypeError` or `KeyError` for what does not fit. Keys that a class does not know are passed over. Each function
takes the value and its type, as the hooks of cattrs do; `hook_of` gives the function for a type that stands inside.
"""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin

import attrs

from spine.drafts import write_function
from spine.values import EMPTY_OBJECT, Json, JsonObject, as_tuple, freeze, freeze_object, freeze_optional_object, sealed

__all__ = [
    "PRIMITIVES",
    "Reader",
    "array_of",
    "array_reader",
    "exact",
    "is_optional",
    "is_variadic_tuple",
    "object_reader",
    "optional_reader",
    "read_json",
    "read_json_object",
    "tuple_reader",
]

Reader = Callable[[Any, Any], Any]
HookOf = Callable[[Any], Reader]

PRIMITIVES: tuple[type, ...] = (str, int, float, bool)
_ATOMS = frozenset((str, int, float, bool, NoneType))
_IDEMPOTENT: tuple[Any, ...] = (freeze, freeze_object, freeze_optional_object, as_tuple)
"""Converters that change nothing of what a reader returns."""


# --------------------------------------------------------------------------------------------------- single types


def exact(kind: type) -> Reader:
    """A reader of a primitive: a stored number where text belongs is damage, not a value."""
    allowed = (float, int) if kind is float else (kind,)

    def read(value: Any, _: Any) -> Any:
        if type(value) in allowed:
            return value
        raise _misfit(value, kind.__name__)

    return read


def _misfit(value: Any, wanted: str, field: str = "") -> TypeError:
    found = repr(value) if type(value) in _ATOMS and wanted.startswith("one of") else type(value).__name__
    return TypeError(f"{field}{': ' if field else ''}expected {wanted}, found {found}")


def read_json_object(value: Any, _: Any = None) -> JsonObject:
    """`freeze_object` for what a decoder gave: its text has no surrogates, its numbers are finite."""
    if type(value) is not dict:
        return freeze_object(value)
    for item in value.values():
        if type(item) not in _ATOMS:
            return sealed({k: v if type(v) in _ATOMS else _frozen(v) for k, v in value.items()})
    return sealed(value) if value else EMPTY_OBJECT


def read_json(value: Any, _: Any = None) -> Any:
    """`freeze` for what a decoder gave."""
    return value if type(value) in _ATOMS else _frozen(value)


def _frozen(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return read_json_object(value)
    if kind is list or kind is tuple:
        return tuple([v if type(v) in _ATOMS else _frozen(v) for v in value])
    return freeze(value)


def is_optional(kind: Any) -> bool:
    """Whether a type is another one or None."""
    arguments = get_args(kind)
    return get_origin(kind) in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments and kind != Json


def optional_reader(kind: Any, hook_of: HookOf) -> Reader:
    """A reader of None or what else the type allows."""
    inner = _without_none(kind)
    read = hook_of(inner)
    return lambda value, _: None if value is None else read(value, inner)


def _without_none(kind: Any) -> Any:
    return next(argument for argument in get_args(kind) if argument is not NoneType)


def is_variadic_tuple(kind: Any) -> bool:
    """Whether a type is a tuple of any length."""
    return get_origin(kind) is tuple and get_args(kind)[1:] == (...,)


def tuple_reader(kind: Any, hook_of: HookOf) -> Reader:
    """A reader of a tuple of any length."""
    inner = _plain_type(get_args(kind)[0])
    return _tuple_of(inner) if inner in (str, int, bool) else array_of(hook_of(inner), inner)


def array_of(read: Reader, inner: Any, of_text: Callable[[str], Any] | None = None) -> Reader:
    """A reader of a tuple of what `read` makes of each item, or else `of_text` of those that are text."""

    def read_all(values: Any, _: Any) -> Any:
        if type(values) is not list and not isinstance(values, list | tuple):
            raise _misfit(values, "an array")
        if of_text is None:
            return tuple([read(value, inner) for value in values])
        return tuple([of_text(value) if type(value) is str else read(value, inner) for value in values])

    return read_all


def _tuple_of(primitive: type) -> Reader:
    only = {primitive}

    def read(values: Any, _: Any) -> Any:
        if not isinstance(values, list | tuple):
            raise _misfit(values, "an array")
        if values and set(map(type, values)) != only:
            raise _misfit(next(v for v in values if type(v) is not primitive), primitive.__name__)
        return tuple(values)

    return read


def _plain_type(kind: Any) -> Any:
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    return kind


# -------------------------------------------------------------------------------------------------------- classes


def object_reader(kind: type, hook_of: HookOf) -> Reader:
    """A reader of a class that is written as an object; a field that is left out has its default."""
    names: dict[str, Any] = {"misfit": _misfit}
    lines: list[str] = []
    for field in attrs.fields(attrs.resolve_types(kind)):
        key = repr(field.name)
        lines += _lines(field, f"{key} in data", f"data[{key}]", names, hook_of)
    before = ["if type(data) is not dict and not isinstance(data, dict):", "    raise misfit(data, 'an object')"]
    return write_function(kind, "data, _", before, lines, names)


def array_reader(kind: type, hook_of: HookOf) -> Reader:
    """A reader of a class that is written as an array of its fields: null, or an early end, means the default."""
    fields = attrs.fields(attrs.resolve_types(kind))
    required = sum(field.default is attrs.NOTHING for field in fields)
    wanted = f"an array of {required} to {len(fields)} items for {kind.__name__}"
    padding = [(None,) * (len(fields) - given) for given in range(len(fields) + 1)]
    names: dict[str, Any] = {"array_types": (list, tuple), "misfit": _misfit, "padding": padding}
    lines: list[str] = []
    for at, field in enumerate(fields):
        lines += _lines(field, f"item_{at} is not None", f"item_{at}", names, hook_of)
    before = [
        f"if not isinstance(items, array_types) or not {required} <= len(items) <= {len(fields)}:",
        f"    raise misfit(items, {wanted!r})",
        f"{', '.join(f'item_{at}' for at in range(len(fields)))}, = *items, *padding[len(items)]",
    ]
    return write_function(kind, "items, _", before, lines, names)


def _lines(field: "attrs.Attribute[Any]", present: str, item: str, names: dict[str, Any], hook_of: HookOf) -> list[str]:
    """The lines that read one field from `item`, which is there when `present` holds."""
    name = field.name
    check, expression = _reading(field.type, name, names, hook_of)
    if field.converter is not None and field.converter not in _IDEMPOTENT:
        names[f"convert_{name}"] = field.converter
        expression = f"convert_{name}({expression})"
    given = [f"value = {item}", *check, f"self.{name} = {expression}"]
    if field.default is attrs.NOTHING:
        return given
    absent = f"self.{name} = {_default(field, names)}"
    return [f"if {present}:", *(f"    {line}" for line in given), "else:", f"    {absent}"]


def _default(field: "attrs.Attribute[Any]", names: dict[str, Any]) -> str:
    """The expression of a field's default."""
    name = f"default_{field.name}"
    convert: Callable[[Any], Any] = field.converter or (lambda value: value)  # type: ignore[assignment]
    if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]
        factory: Callable[[], Any] = field.default.factory  # type: ignore[union-attr]
        names[name] = lambda: convert(factory())
        return f"{name}()"
    names[name] = convert(field.default)
    return name


def _reading(kind: Any, name: str, names: dict[str, Any], hook_of: HookOf) -> tuple[list[str], str]:
    """Lines that check `value`, and the expression that makes a field of it."""
    guard = "value is not None and " if is_optional(kind) else ""
    kind = _plain_type(_without_none(kind) if guard else kind)
    if kind in PRIMITIVES:
        wanted = kind.__name__
        found = f"type(value) is not {wanted}" + (" and type(value) is not int" if kind is float else "")
    elif get_origin(kind) is Literal:
        names[f"allowed_{name}"] = frozenset(get_args(kind))
        found, wanted = f"value not in allowed_{name}", f"one of {', '.join(map(repr, get_args(kind)))}"
    else:
        names[f"read_{name}"], names[f"type_{name}"] = hook_of(kind), kind
        read = f"read_{name}(value, type_{name})"
        return [], f"None if value is None else {read}" if guard else read
    return [f"if {guard}{found}:", f"    raise misfit(value, {wanted!r}, {name!r})"], "value"
