"""Tables of what a file may hold (floor 14): read with places and nearest keys, and published as JSON Schema.

One table serves both, so that what an editor accepts is what the reader accepts. A kind reads a node into a value and
raises `ScenarioInvalid` with its place; its `schema` says the same to other programs.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Protocol

import attrs

from spine.errors import ScenarioInvalid, UsageError
from spine.testing.scenarios.yaml_tree import Node, Source
from spine.values import encode, freeze

__all__ = [
    "Anything",
    "ByType",
    "Choice",
    "Field",
    "Flag",
    "Kind",
    "ListOf",
    "MapOf",
    "Number",
    "OneOrMore",
    "Shape",
    "Tagged",
    "Text",
    "Whole",
]

Schema = dict[str, Any]
_MANY: Final = 20
"""More words than these are not listed when the nearest one is named."""
Make = Callable[[Mapping[str, Any], Node], Any]
"""What a shape's values become: the values that were given, in the order of the file, and where they stand."""


class Kind(Protocol):
    """What one value may be."""

    def read(self, node: Node, source: Source) -> Any:
        """The value of a node. Raises `ScenarioInvalid`."""

    def schema(self) -> Schema:
        """The same as JSON Schema."""


def _wrong(node: Node, source: Source, wanted: str) -> ScenarioInvalid:
    return source.error(node, f"expected {wanted}, found {_shown(node)}")


def _shown(node: Node) -> str:
    match node.value:
        case None:
            return "nothing"
        case bool():
            return "true" if node.value else "false"
        case str():
            return f'text "{node.value if len(node.value) <= 40 else node.value[:39] + "…"}"'
        case dict():
            return "a mapping"
        case tuple():
            return "a list"
        case _:
            return f"the number {encode(node.value).decode()}"


# -------------------------------------------------------------------------------------------------------- scalars


@attrs.frozen
class Text:
    """Text; `check` raises `UsageError` for what it must not be."""

    check: Callable[[str], Any] | None = None

    def read(self, node: Node, source: Source) -> str:
        """The text."""
        if not isinstance(node.value, str):
            raise _wrong(node, source, "text" if node.value in (None, True, False) else "text (quote it)")
        if self.check is not None:
            try:
                self.check(node.value)
            except UsageError as exc:
                raise source.error(node, exc.message) from exc
        return node.value

    def schema(self) -> Schema:
        """Text."""
        return {"type": "string"}


@attrs.frozen
class Whole:
    """A whole number from `minimum` on."""

    minimum: int = 0

    def read(self, node: Node, source: Source) -> int:
        """The number."""
        if type(node.value) is not int or node.value < self.minimum:
            raise _wrong(node, source, f"a whole number from {self.minimum} on")
        return node.value

    def schema(self) -> Schema:
        """A whole number."""
        return {"type": "integer", "minimum": self.minimum}


@attrs.frozen
class Number:
    """A number that is not negative; nor 0, when it is `positive`."""

    positive: bool = False

    def read(self, node: Node, source: Source) -> float:
        """The number."""
        if type(node.value) not in (int, float) or node.value < 0 or (self.positive and node.value == 0):
            raise _wrong(node, source, "a number over 0" if self.positive else "a number from 0 on")
        return float(node.value)

    def schema(self) -> Schema:
        """A number."""
        return {"type": "number", "exclusiveMinimum" if self.positive else "minimum": 0}


@attrs.frozen
class Flag:
    """True or false; with `only` just that one."""

    only: bool | None = None

    def read(self, node: Node, source: Source) -> bool:
        """The flag."""
        if not isinstance(node.value, bool) or self.only not in (None, node.value):
            raise _wrong(node, source, "true or false" if self.only is None else str(self.only).lower())
        return node.value

    def schema(self) -> Schema:
        """True or false."""
        return {"type": "boolean"} if self.only is None else {"const": self.only}


@attrs.frozen
class Choice:
    """One of some words."""

    words: tuple[str, ...]

    def read(self, node: Node, source: Source) -> str:
        """The word."""
        if not isinstance(node.value, str) or node.value not in self.words:
            near = get_close_matches(str(node.value), self.words, 1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            few = not near or len(self.words) <= _MANY
            wanted = f"one of {', '.join(self.words)}" if few else "a known word"
            raise source.error(node, f"expected {wanted}, found {_shown(node)}{hint}")
        return node.value

    def schema(self) -> Schema:
        """The words."""
        return {"enum": list(self.words)}


@attrs.frozen
class Anything:
    """Any JSON value, frozen."""

    def read(self, node: Node, source: Source) -> Any:
        """The value."""
        return freeze(node.plain())

    def schema(self) -> Schema:
        """Anything."""
        return {}


# --------------------------------------------------------------------------------------------------- collections


@attrs.frozen
class ListOf:
    """A list; comes as a tuple."""

    item: Kind
    at_least: int = 0

    def read(self, node: Node, source: Source) -> tuple[Any, ...]:
        """The items."""
        if not isinstance(node.value, tuple):
            raise _wrong(node, source, "a list")
        if len(node.value) < self.at_least:
            raise source.error(node, f"expected at least {self.at_least} in this list, found {len(node.value)}")
        return tuple(self.item.read(each, source) for each in node.value)

    def schema(self) -> Schema:
        """A list."""
        return {"type": "array", "items": self.item.schema(), **({"minItems": self.at_least} if self.at_least else {})}


@attrs.frozen
class OneOrMore:
    """One value, or a list of such; comes as a tuple."""

    item: Kind

    def read(self, node: Node, source: Source) -> tuple[Any, ...]:
        """The items."""
        nodes = node.value if isinstance(node.value, tuple) else (node,)
        return tuple(self.item.read(each, source) for each in nodes)

    def schema(self) -> Schema:
        """The one or the list."""
        return {"anyOf": [self.item.schema(), ListOf(self.item).schema()]}


@attrs.frozen
class MapOf:
    """A mapping with free keys; comes as a dict in the order of the file."""

    item: Kind
    check: Callable[[str], Any] | None = None
    """Raises `UsageError` for a key that must not be."""

    def read(self, node: Node, source: Source) -> dict[str, Any]:
        """The values by key."""
        if not isinstance(node.value, dict):
            raise _wrong(node, source, "a mapping")
        for key in node.value if self.check is not None else ():
            Text(self.check).read(node.keys[key], source)
        return {key: self.item.read(each, source) for key, each in node.value.items()}

    def schema(self) -> Schema:
        """A mapping."""
        return {"type": "object", "additionalProperties": self.item.schema()}


@attrs.frozen
class ByType:
    """One kind for text, another for a mapping, and so on: what stands there decides."""

    kinds: Mapping[type, Kind]

    def read(self, node: Node, source: Source) -> Any:
        """The value, as the kind for its type reads it."""
        kind = self.kinds.get(type(node.value))
        if kind is None:
            raise _wrong(node, source, " or ".join(_TYPE_WORDS[each] for each in self.kinds))
        return kind.read(node, source)

    def schema(self) -> Schema:
        """Any of the kinds."""
        return {"anyOf": [{"type": _JSON_TYPES[each], **kind.schema()} for each, kind in self.kinds.items()]}


_JSON_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    tuple: "array",
}
_TYPE_WORDS: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a mapping",
    tuple: "a list",
}


# -------------------------------------------------------------------------------------------------------- shapes


@attrs.frozen
class Field:
    """One key of a shape; `help` is a sentence for editors."""

    kind: Kind
    help: str
    required: bool = False


@attrs.frozen
class Shape:
    """A mapping with fixed keys; `make` turns what was given into a value.

    Of the keys in `one_of` exactly one must be there, when there are any; of those in `some_of` at least one.
    """

    fields: Mapping[str, Field]
    make: Make = lambda values, node: values
    one_of: tuple[str, ...] = ()
    some_of: tuple[str, ...] = ()

    def read(self, node: Node, source: Source) -> Any:
        """What `make` returns. Raises `ScenarioInvalid` for unknown, missing and clashing keys, or what it refuses."""
        if not isinstance(node.value, dict):
            raise _wrong(node, source, f"a mapping with the keys {', '.join(self.fields)}")
        for key in node.value:
            if key not in self.fields:
                raise source.error(node.keys[key], unknown_key(key, tuple(self.fields)))
        self._check_missing(node, source)
        values = {key: self.fields[key].kind.read(each, source) for key, each in node.value.items()}
        try:
            return self.make(values, node)
        except ScenarioInvalid:
            raise
        except UsageError as exc:
            raise source.error(node, exc.message) from exc

    def _check_missing(self, node: Node, source: Source) -> None:
        missing = [key for key, field in self.fields.items() if field.required and key not in node.value]
        if missing:
            raise source.error(node, f'missing key "{missing[0]}"; needed here: {", ".join(self._required)}')
        chosen = [key for key in self.one_of if key in node.value]
        if self.one_of and len(chosen) != 1:
            found = " and ".join(chosen) or "none"
            raise source.error(node, f"expected exactly one of {', '.join(self.one_of)}, found {found}")
        if self.some_of and not any(key in node.value for key in self.some_of):
            raise source.error(node, f"expected at least one of {', '.join(self.some_of)}, found none")

    @property
    def _required(self) -> list[str]:
        return [key for key, field in self.fields.items() if field.required]

    def schema(self) -> Schema:
        """An object with these keys and no others."""
        properties = {key: {"description": field.help, **field.kind.schema()} for key, field in self.fields.items()}
        schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
        if self._required:
            schema["required"] = self._required
        if self.one_of:
            schema["oneOf"] = [{"required": [key]} for key in self.one_of]
        if self.some_of:
            schema["anyOf"] = [{"required": [key]} for key in self.some_of]
        return schema


@attrs.frozen
class Tagged:
    """One of several shapes, told apart by a key that only it has: `user`, `steer`, …"""

    shapes: Mapping[str, Shape]

    def read(self, node: Node, source: Source) -> Any:
        """What the shape makes whose key is there."""
        if not isinstance(node.value, dict):
            raise _wrong(node, source, f"a mapping with one of the keys {', '.join(self.shapes)}")
        found = [key for key in self.shapes if key in node.value]
        if len(found) == 1:
            return self.shapes[found[0]].read(node, source)
        if not found and node.value:
            key = next(iter(node.value))
            raise source.error(node.keys[key], unknown_key(key, tuple(self.shapes)))
        raise source.error(
            node, f"expected exactly one of {', '.join(self.shapes)}, found {' and '.join(found) or 'none'}"
        )

    def schema(self) -> Schema:
        """Exactly one of the shapes."""
        return {"oneOf": [shape.schema() for shape in self.shapes.values()]}


def unknown_key(key: str, allowed: Sequence[str]) -> str:
    """`unknown key "calls"; allowed here: expect, say, call; did you mean "call"?`"""
    near = get_close_matches(key, allowed, 1)
    return f'unknown key "{key}"; allowed here: {", ".join(allowed)}' + (f'; did you mean "{near[0]}"?' if near else "")
