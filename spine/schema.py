"""The JSON Schema of a tool's arguments: checked once, compiled once, answered in sentences (floor 3).

The only place that loads the validator library. A tool may use this subset of draft 2020-12; anything outside it is
refused when the tool is registered, because no two providers would read it alike:

- `type` (one or several), `enum`, `const`, `anyOf`, `oneOf`, `allOf`, `not`
- objects: `properties`, `required`, `additionalProperties`, `patternProperties`, `propertyNames`, `minProperties`,
  `maxProperties`
- arrays: `items`, `prefixItems`, `minItems`, `maxItems`, `uniqueItems`
- strings: `minLength`, `maxLength`, `pattern` (without look-around, so that matching takes linear time); `format`,
  `contentEncoding`, `contentMediaType` tell the model something and are not enforced
- numbers: `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`
- `$ref` to `#/$defs/<name>` of the same schema, with `$defs` at the root only; nothing is ever fetched
- notes: `title`, `description`, `default`, `examples`, `deprecated`, `readOnly`, `writeOnly`, `$comment`, `$schema`,
  `discriminator`, and names that begin with `x-`

The root describes an object. `{}` stands for a tool that takes any object.
"""

import difflib
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from spine.errors import ToolSchemaInvalid
from spine.frozen import frozen
from spine.late import load
from spine.problems import sentences
from spine.values import JsonObject, decode, encode

__all__ = ["Validator", "check_schema", "compile_schema"]

MAX_SCHEMA_BYTES: Final = 256 * 1024
MANY_BYTES: Final = 32 * 1024
"""Arguments larger than this are told their first problem only: finding all of them takes time in proportion."""
_REFERENCE: Final = re.compile(r"#/\$defs/[A-Za-z0-9._-]+")
JSON_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


# ------------------------------------------------------------------------------------------------- the subset


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, tuple | list) else (value,)
    return bool(names) and all(name in JSON_TYPES for name in names) and len(set(names)) == len(names)


def _is_texts(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(item, str) for item in value) and _differ(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_options(value: Any) -> bool:
    return isinstance(value, tuple | list) and bool(value)


def _differ(values: Sequence[Any]) -> bool:
    return len(set(map(encode, values))) == len(values)


def _is_anything(value: Any) -> bool:
    return True


def _is_step(value: Any) -> bool:
    return _is_number(value) and value > 0


Check = tuple[Callable[[Any], bool], str]

PLAIN: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "type": (_is_type, f"one or several of {', '.join(JSON_TYPES)}"),
        "enum": (_is_options, "a list with at least one value"),
        "const": (_is_anything, ""),
        "required": (_is_texts, "a list of names that differ"),
        "pattern": (_is_text, "a text"),
        "uniqueItems": (_is_flag, "true or false"),
        "multipleOf": (_is_step, "a number over 0"),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (_is_number, "a number")),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), (_is_count, "a whole number from 0")),
        **dict.fromkeys(("minProperties", "maxProperties"), (_is_count, "a whole number from 0")),
        **dict.fromkeys(("format", "contentEncoding", "contentMediaType"), (_is_text, "a text")),
        **dict.fromkeys(("title", "description", "$comment", "$schema"), (_is_text, "a text")),
        **dict.fromkeys(("deprecated", "readOnly", "writeOnly"), (_is_flag, "true or false")),
        **dict.fromkeys(("default", "examples", "discriminator"), (_is_anything, "")),
    }
)
"""Keywords without schemas in them: what their value must be, and how to say it."""
ONE_SCHEMA: Final = frozenset(("items", "additionalProperties", "propertyNames", "not"))
SCHEMA_LIST: Final = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
SCHEMA_MAP: Final = frozenset(("properties", "patternProperties", "$defs"))
KEYWORDS: Final = tuple(sorted({*PLAIN, *ONE_SCHEMA, *SCHEMA_LIST, *SCHEMA_MAP, "$ref"}))


def check_schema(parameters: JsonObject, *, tool: str) -> None:
    """Check that a tool's parameters stay within the subset and compile.

    Raises `ToolSchemaInvalid` naming the tool, the path and what would be accepted there.
    """
    where = f'tool "{tool}"'
    size = len(encode(parameters))
    if size > MAX_SCHEMA_BYTES:
        raise ToolSchemaInvalid(f"{where}: its schema has {size:,} bytes; at most {MAX_SCHEMA_BYTES:,} are accepted")
    if parameters and parameters.get("type") != "object":
        found = encode(parameters.get("type")).decode()
        raise ToolSchemaInvalid(f'{where}: its schema has type {found} at the root; a model sends "object"')
    for path, problem in _problems(parameters, "parameters", parameters):
        raise ToolSchemaInvalid(f"{where}: {path}: {problem}")
    if not _has_pattern(parameters):
        return  # nothing else in the subset can fail to compile, and compiling loads the library
    try:
        compile_schema(parameters)
    except ValueError as exc:
        raise ToolSchemaInvalid(f"{where}: its schema does not compile: {str(exc).splitlines()[0][:300]}") from exc


def _problems(schema: Any, path: str, root: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every place where `schema` leaves the subset, as (path, problem)."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        yield path, f"a schema is an object, true or false; found {type(schema).__name__}"
        return
    for key, value in schema.items():
        here = f"{path}.{key}"
        if key in PLAIN:
            fits, wanted = PLAIN[key]
            if not fits(value):
                yield here, f"expected {wanted}, found {encode(value).decode()[:60]}"
        elif key == "$ref":
            yield from _reference(value, here, root)
        elif key == "$defs" and schema is not root:
            yield here, "definitions stand at the root of the schema only"
        else:
            yield from _nested(key, value, here, root)


def _has_pattern(parameters: JsonObject) -> bool:
    text = encode(parameters)
    return b'"pattern":' in text or b'"patternProperties":' in text


def _nested(key: str, value: Any, path: str, root: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if key in ONE_SCHEMA:
        yield from _problems(value, path, root)
    elif key in SCHEMA_LIST:
        if not _is_options(value):
            yield path, "expected a list with at least one schema"
            return
        for i, item in enumerate(value):
            yield from _problems(item, f"{path}[{i}]", root)
    elif key in SCHEMA_MAP:
        if not isinstance(value, Mapping):
            yield path, "expected an object of schemas by name"
            return
        for name, item in value.items():
            yield from _problems(item, f"{path}.{name}", root)
    elif not key.startswith("x-"):
        near = difflib.get_close_matches(key, KEYWORDS, n=1)
        yield (
            path,
            f'unknown keyword "{key}"'
            + (f'; nearest is "{near[0]}"' if near else "; spine.schema lists the accepted ones"),
        )


def _reference(value: Any, path: str, root: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    known = root.get("$defs", {})
    known = known if isinstance(known, Mapping) else {}
    if not isinstance(value, str) or not _REFERENCE.fullmatch(value):
        yield path, f"{encode(value).decode()[:60]} is not of the form #/$defs/<name>; nothing else is followed"
    elif value.rpartition("/")[2] not in known:
        yield path, f'"{value}" is not defined; defined are: {", ".join(known) or "none"}'


# --------------------------------------------------------------------------------------------------- validation


@frozen(eq=False)
class Validator:
    """A compiled schema. Called with frozen arguments it returns None, or what is wrong in one sentence.

    A small valid call costs well under 2 µs; the sentence names at most three problems and shows values cut short.
    """

    parameters: JsonObject
    _is_valid: Callable[[Any], bool]
    _iter_errors: Callable[[Any], Iterator[Any]]
    _validate: Callable[[Any], None]

    def __call__(self, arguments: JsonObject) -> str | None:
        if self._is_valid(arguments):
            return None
        if len(encode(arguments)) <= MANY_BYTES:
            return sentences(self.parameters, list(self._iter_errors(arguments)))
        try:
            self._validate(arguments)
        except ValueError as exc:  # the library's ValidationError, which is one
            return sentences(self.parameters, [exc])
        return None


def compile_schema(parameters: JsonObject) -> Validator:
    """The validator of a schema; the same schema, compared by its canonical bytes, is compiled once.

    Raises `ValueError` for what does not compile. Asking again with the same object costs 0.1 µs.
    """
    recent = _recent.get(id(parameters))
    if recent is not None and recent.parameters is parameters:
        return recent
    validator = attrs.evolve(_compiled(encode(parameters)), parameters=parameters)
    if len(_recent) >= 1024:
        _recent.clear()
    _recent[id(parameters)] = validator
    return validator


_recent: dict[int, Validator] = {}
"""A cache in front of the other, by identity; each entry keeps its key alive, so no id is used again."""


@functools.lru_cache(maxsize=1024)
def _compiled(text: bytes) -> Validator:
    library = load("jsonschema_rs")
    schema = decode(text)
    # A "$schema" of somebody's own must not make the library look for it.
    schema.pop("$schema", None)
    compiled = library.Draft202012Validator(schema, pattern_options=library.RegexOptions())
    return Validator(JsonObject(schema), compiled.is_valid, compiled.iter_errors, compiled.validate)
