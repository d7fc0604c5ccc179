"""YAML as a tree of JSON values that know their place (floor 14); the only file that knows PyYAML.

YAML 1.2 cut to JSON types: no tags, no anchors, no second document, no key twice. Plain words are true, false, null and
JSON's numbers; everything else is text (`yes`, `12:30` and dates too). Values are built here from the parser's events,
so nothing in a file can name code.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from spine.errors import ScenarioInvalid, ValueRefused
from spine.late import load as load_late
from spine.values import load

__all__ = ["Node", "Source", "dump", "parse"]

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 50
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@attrs.frozen(eq=False)
class Node:
    """A value and where it begins, `line` and `column` from 1.

    `value` is None, a bool, a number, text, a tuple of nodes, or a dict from key to node in the order of the file;
    `keys` then holds the node of each key.
    """

    value: Any
    line: int
    column: int
    keys: Mapping[str, "Node"] = attrs.field(factory=dict)

    def plain(self) -> Any:
        """The value without places: dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, tuple) else self.value


@attrs.frozen
class Source:
    """Where a tree came from; `name` is what messages call it."""

    name: str

    def error(self, node: Node, text: str) -> ScenarioInvalid:
        """`refund.scenario.yaml:12:5: …`"""
        return ScenarioInvalid(f"{self.name}:{node.line}:{node.column}: {text}")


def parse(text: str | bytes, source: Source) -> Node:
    """The tree of a file's one document. Raises `ScenarioInvalid` with file, line and column."""
    yaml = load_late("yaml")
    size = len(text)
    if size > MAX_BYTES:
        raise ScenarioInvalid(f"{source.name}: {size:,} bytes are more than a scenario may have, {MAX_BYTES:,}")
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
        return _Builder(source, yaml.parse(decoded, Loader=yaml.BaseLoader)).document()
    except UnicodeDecodeError as exc:
        raise ScenarioInvalid(f"{source.name}: byte {exc.start} is no UTF-8") from exc
    except yaml.MarkedYAMLError as exc:
        raise source.error(_at(exc.problem_mark or exc.context_mark), _problem(exc)) from exc
    except yaml.YAMLError as exc:
        raise ScenarioInvalid(f"{source.name}: {' '.join(str(exc).split())}") from exc


def dump(value: Any) -> str:
    """Plain JSON as YAML that `parse` reads back as the same: keys in their order, long texts as blocks."""
    yaml = load_late("yaml")
    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda self, data: True})
    dumper.add_representer(str, _text)
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=112, default_flow_style=None)
    return text


def _text(dumper: Any, text: str) -> Any:
    """A text that reads as one: what would be a number or a word of JSON is quoted, lines are kept as lines."""
    style = "|" if "\n" in text else '"' if text in _WORDS or _NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _problem(error: Any) -> str:
    """`while parsing a block mapping: expected <block end>, but found '-'`"""
    text = ": ".join(part for part in (error.context, error.problem) if part) or "not readable as YAML"
    return f"{text}; quote a text that holds ?" if text.endswith("got '?'") else text


def _at(mark: Any, value: Any = None) -> Node:
    return Node(value, mark.line + 1, mark.column + 1) if mark is not None else Node(value, 1, 1)


class _Builder:
    """Folds the parser's events into nodes."""

    def __init__(self, source: Source, events: Iterator[Any]) -> None:
        self._source = source
        self._events = events
        self._depth = 0

    def document(self) -> Node:
        """The file's one document; an empty file is null."""
        next(self._events)  # the stream's start
        event = next(self._events)
        if _name(event) == "StreamEndEvent":
            return _at(event.start_mark)
        root = self._node(next(self._events))
        next(self._events)  # the document's end
        event = next(self._events)
        if _name(event) != "StreamEndEvent":
            raise self._source.error(_at(event.start_mark), "a second document begins; a file holds one")
        return root

    def _node(self, event: Any) -> Node:
        where = _at(event.start_mark)
        if _name(event) == "AliasEvent" or event.anchor is not None:
            raise self._source.error(where, "anchors and aliases are not read here; write the value out")
        if event.tag is not None:
            raise self._source.error(where, f"tags are not read here; found {event.tag}")
        if _name(event) == "ScalarEvent":
            return attrs.evolve(where, value=self._scalar(event, where))
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._source.error(where, f"nested deeper than {MAX_DEPTH} levels")
        node = self._mapping(where) if _name(event) == "MappingStartEvent" else self._sequence(where)
        self._depth -= 1
        return node

    def _scalar(self, event: Any, where: Node) -> Any:
        text = event.value
        if event.style is not None:  # quoted, or a block of text
            return text
        if text in _WORDS:
            return _WORDS[text]
        if not _NUMBER.fullmatch(text):
            return text
        try:
            return load(text)
        except ValueRefused as exc:
            raise self._source.error(where, exc.message) from exc

    def _sequence(self, where: Node) -> Node:
        items = []
        while _name(event := next(self._events)) != "SequenceEndEvent":
            items.append(self._node(event))
        return attrs.evolve(where, value=tuple(items))

    def _mapping(self, where: Node) -> Node:
        values: dict[str, Node] = {}
        keys: dict[str, Node] = {}
        while _name(event := next(self._events)) != "MappingEndEvent":
            if _name(event) != "ScalarEvent" or event.tag is not None or event.anchor is not None:
                raise self._source.error(_at(event.start_mark), "a key must be plain text")
            key = event.value
            if key in keys:
                first = keys[key].line
                raise self._source.error(_at(event.start_mark), f'key "{key}" stands twice; first in line {first}')
            keys[key] = _at(event.start_mark, key)
            values[key] = self._node(next(self._events))
        return attrs.evolve(where, value=values, keys=keys)


def _name(event: Any) -> str:
    return type(event).__name__
