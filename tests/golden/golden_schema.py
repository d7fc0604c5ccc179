"""What an event's data may be, as plain data: so that a change of it cannot pass unseen.

A change is *compatible* when every stored event reads as before and writes to the same bytes: a field that is new and
has a default, or a word more in a choice. Anything else wants a new version with an upcaster, and a new golden log.
"""

import types
import typing
from collections.abc import Mapping
from typing import Any

import attrs

from spine.events import CORE_EVENTS, EventType

Schema = dict[str, Any]


def schemas(kinds: tuple[EventType, ...] = CORE_EVENTS) -> Schema:
    """Of each event its version and fields, and of each class that stands in one its fields."""
    classes: dict[str, Any] = {}
    events = {kind.name: {"version": kind.version, "fields": fields_of(kind.data, classes)} for kind in kinds}
    return {"events": events, "classes": {name: classes[name] for name in sorted(classes)}}


def fields_of(kind: type, classes: dict[str, Any]) -> Schema:
    """The fields of a class that `attrs` made: type and default of each."""
    return {
        field.name: {
            "type": shape(field.type, classes),
            "default": None if field.default is attrs.NOTHING else default_of(field.default),
        }
        for field in attrs.fields(attrs.resolve_types(kind))
    }


def default_of(default: Any) -> str:
    return repr(default.factory() if isinstance(default, attrs.Factory) else default)  # type: ignore[arg-type]


def shape(kind: Any, classes: dict[str, Any]) -> Any:
    """A type in words that do not depend on where it is written down."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return {"one of": sorted(map(str, arguments))}
    if origin in (typing.Union, types.UnionType):
        return {"any of": sorted((shape(each, classes) for each in arguments), key=repr)}
    if origin is tuple:
        return {"list of": [shape(each, classes) for each in arguments if each is not Ellipsis]}
    if isinstance(kind, typing.NewType):
        return shape(kind.__supertype__, classes)
    if attrs.has(kind):
        if kind.__name__ not in classes:
            classes[kind.__name__] = {}
            classes[kind.__name__] = fields_of(kind, classes)
        return kind.__name__
    return getattr(kind, "__name__", str(kind))


def breaks(recorded: Schema, current: Schema) -> list[str]:
    """What of the current schema does not keep what was recorded; empty when every change is compatible."""
    found = []
    for name, was in recorded["events"].items():
        now = current["events"].get(name)
        if now is None:
            found.append(f"{name} is gone")
        elif now["version"] == was["version"]:
            found += [f"{name} {text}" for text in _breaks(was["fields"], now["fields"])]
    for name, fields in recorded["classes"].items():
        if name in current["classes"]:
            found += [f"{name} {text}" for text in _breaks(fields, current["classes"][name])]
    return found


def _breaks(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    found = [f"lost the field {field}" for field in was if field not in now]
    found += [f"wants the new field {field}" for field in now if field not in was and now[field]["default"] is None]
    for field in was.keys() & now.keys():
        if was[field]["default"] != now[field]["default"]:
            found.append(f"has another default for {field}")
        if not _admits(was[field]["type"], now[field]["type"]):
            found.append(f"has another type for {field}")
    return sorted(found)


def _admits(was: Any, now: Any) -> bool:
    """Whether all that the old type held is held by the new one."""
    if was == now:
        return True
    if isinstance(was, dict) and isinstance(now, dict) and was.keys() == now.keys():
        (key,) = was
        if key == "list of":
            return len(was[key]) == len(now[key]) and all(map(_admits, was[key], now[key]))
        return all(any(_admits(old, new) for new in now[key]) for old in was[key])
    return isinstance(now, dict) and "any of" in now and was in now["any of"]
