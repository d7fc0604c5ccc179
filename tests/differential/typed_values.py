"""Holds a JSON value against a `TypedDict` of an official SDK: what a type checker would say of it, at run time.

Stricter than the SDKs themselves: a key that the type does not have is refused, lists are read to their end, and no
value is converted.
"""

import collections.abc
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, Union

import typing_extensions

Problem = tuple[int, str]
"""How deep a misfit lies and what it is; of a union's misfits the deepest tells most."""
_WRAPPERS = frozenset(
    getattr(module, name)
    for module in (typing, typing_extensions)
    for name in ("Required", "NotRequired", "Annotated", "ReadOnly")
    if hasattr(module, name)
)
_UNIONS = frozenset((Union, types.UnionType))
_LISTS = frozenset((list, collections.abc.Iterable, collections.abc.Sequence))
_MAPPINGS = frozenset((dict, collections.abc.Mapping))


def misfit(value: Any, kind: Any) -> str | None:
    """Where and why `value` is none of `kind`, in a line; None when it is one."""
    found = _misfit(value, kind, "$", 0)
    return None if found is None else found[1]


def _misfit(value: Any, kind: Any, path: str, depth: int) -> Problem | None:
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in _WRAPPERS:
        return _misfit(value, arguments[0], path, depth)
    if typing_extensions.is_typeddict(kind):
        return _object(value, kind, path, depth)
    check = _CHECKS.get(origin)
    if check is not None:
        return check(value, arguments, path, depth)
    is_one = _is_one(value, kind)
    return None if is_one else (depth, f"{path}: {value!r:.60} is no {getattr(kind, '__name__', kind)}")


def _is_one(value: Any, kind: Any) -> bool:
    if kind in (Any, object):
        return True
    if kind in (None, type(None)):
        return value is None
    if kind is float:
        return type(value) in (int, float)
    return isinstance(kind, type) and type(value) is kind


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing_extensions.get_type_hints(kind, include_extras=True)


def _object(value: Any, kind: Any, path: str, depth: int) -> Problem | None:
    if not isinstance(value, dict):
        return depth, f"{path}: {value!r:.60} is no {kind.__name__}"
    hints = _hints(kind)
    for key in kind.__required_keys__ - value.keys():
        return depth, f"{path}: {kind.__name__} wants {key}, found {', '.join(value)}"
    # The member that names the kind first: a misfit behind it lies deeper than one of the kind itself.
    for key in sorted(value, key=lambda key: key not in ("type", "role")):
        if key not in hints:
            return depth + 1, f"{path}: {kind.__name__} has no {key}"
        found = _misfit(value[key], hints[key], f"{path}.{key}", depth + (key not in ("type", "role")))
        if found is not None:
            return found
    return None


def _union(value: Any, kinds: tuple[Any, ...], path: str, depth: int) -> Problem | None:
    problems: list[Problem] = []
    for kind in kinds:
        found = _misfit(value, kind, path, depth)
        if found is None:
            return None
        problems.append(found)
    return max(problems, key=lambda problem: problem[0])


def _literal(value: Any, values: tuple[Any, ...], path: str, depth: int) -> Problem | None:
    if any(type(value) is type(each) and value == each for each in values):
        return None
    return depth, f"{path}: {value!r:.60} is none of {', '.join(map(repr, values))}"


def _list(value: Any, kinds: tuple[Any, ...], path: str, depth: int) -> Problem | None:
    if not isinstance(value, list):
        return depth, f"{path}: {value!r:.60} is no list"
    for place, item in enumerate(value):
        found = _misfit(item, kinds[0], f"{path}[{place}]", depth + 1)
        if found is not None:
            return found
    return None


def _mapping(value: Any, kinds: tuple[Any, ...], path: str, depth: int) -> Problem | None:
    if not isinstance(value, dict):
        return depth, f"{path}: {value!r:.60} is no object"
    for key, item in value.items():
        found = _misfit(item, kinds[1], f"{path}.{key}", depth + 1)
        if found is not None:
            return found
    return None


_CHECKS: dict[Any, Callable[[Any, tuple[Any, ...], str, int], Problem | None]] = {
    Literal: _literal,
    **dict.fromkeys(_UNIONS, _union),
    **dict.fromkeys(_LISTS, _list),
    **dict.fromkeys(_MAPPINGS, _mapping),
}
