"""What is wrong with a call's arguments, in sentences that a model can act on (floor 1).

Reads the error objects of the validator library by their fields, never by their texts; knows nothing else of it.
Values are shown as JSON and cut short; a sentence names at most three problems.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from spine.values import encode, freeze

__all__ = ["conversion_problem", "sentences"]

MAX_SENTENCES: Final = 3
MAX_VALUE_CHARS: Final = 60
MAX_NAMES: Final = 20
_TYPE_NAMES: Final[Mapping[type, str]] = MappingProxyType(
    {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}
)


_JSON_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
)
_QUOTED = re.compile("`([^`]*)`")


def sentences(parameters: Mapping[str, Any], errors: Sequence[Any]) -> str:
    """The first few errors as one line: `order_id: expected string, found integer 1017; missing "city"`."""
    shown = [_sentence(parameters, error) for error in errors[:MAX_SENTENCES]]
    unique = list(dict.fromkeys(shown))
    more = len(errors) - len(shown)
    return "; ".join([*unique, f"and {more} more"] if more else unique)


def conversion_problem(text: str) -> str:
    """A msgspec message in our form: "Expected `int`, got `str` - at `$.n`" is "n: expected integer, found string"."""
    problem, _, path = text.replace("got `", "found `").partition(" - at `$")
    problem = _QUOTED.sub(lambda match: _JSON_NAMES.get(match[1], match[1]), problem)
    return _at(path.strip("`.")[:200], problem[:1].lower() + problem[1:300])


def _sentence(parameters: Mapping[str, Any], error: Any) -> str:
    kind = error.kind
    if kind.name in ("anyOf", "oneOf") and any(kind.context):
        return _alternatives(parameters, error)
    return _at(path_text(error.instance_path), _problem(parameters, error))


def _problem(parameters: Mapping[str, Any], error: Any) -> str:
    say = _SENTENCES.get(error.kind.name)
    return say(parameters, error) if say else f"{shown(error.instance)} is not accepted"


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def path_text(path: Sequence[str | int]) -> str:
    """A place in the arguments as people write it: `tags[1].name`; the root is empty."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")[:200]


def shown(value: Any) -> str:
    """A value with its JSON type, cut short: `integer 1017`, `string "abc…`."""
    name = _TYPE_NAMES.get(type(value), "object" if isinstance(value, Mapping) else "array")
    if value is None:
        return name
    text = encode(_glimpse(value)).decode()
    return f"{name} {text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + '…'}"


def _glimpse(value: Any) -> Any:
    """A part of the value that is cheap to write and, where anything was left out, longer than what is shown."""
    if isinstance(value, str):
        return freeze(value[:MAX_VALUE_CHARS])
    if isinstance(value, Mapping):
        return {key[:MAX_VALUE_CHARS]: _glimpse(item) for key, item in islice(value.items(), MAX_VALUE_CHARS)}
    if isinstance(value, list | tuple):
        return [_glimpse(item) for item in value[:MAX_VALUE_CHARS]]
    return value


def _options(values: Sequence[Any]) -> str:
    texts = [encode(_glimpse(value)).decode()[:MAX_VALUE_CHARS] for value in values[:MAX_NAMES]]
    return ", ".join([*texts, "…"] if len(values) > MAX_NAMES else texts)


def _type(_: Mapping[str, Any], error: Any) -> str:
    return f"expected {' or '.join(error.kind.types)}, found {shown(error.instance)}"


def _required(_: Mapping[str, Any], error: Any) -> str:
    return f'missing "{error.kind.property[:MAX_VALUE_CHARS]}"'


def _unknown(parameters: Mapping[str, Any], error: Any) -> str:
    names = [f'"{name[:MAX_VALUE_CHARS]}"' for name in error.kind.unexpected[:3]]
    plural = "s" if len(error.kind.unexpected) > 1 else ""
    known = list(_schema_of(parameters, error.schema_path[:-1]).get("properties", {}))
    known_text = ", ".join(known[:MAX_NAMES]) or "none"
    return f"unknown {'key' if error.instance_path else 'argument'}{plural} {', '.join(names)}; known: {known_text}"


def _schema_of(parameters: Any, path: Sequence[str | int]) -> Mapping[str, Any]:
    """The schema at a path; the library gives the place of the definition, not of the reference to it."""
    for part in path:
        try:
            parameters = parameters[part]
        except (KeyError, IndexError, TypeError):
            return {}
    return parameters if isinstance(parameters, Mapping) else {}


def _bound(text: str) -> Callable[[Mapping[str, Any], Any], str]:
    return lambda _, error: f"expected {text.format(error.kind.limit)}, found {shown(error.instance)}"


_SENTENCES: Final[Mapping[str, Callable[[Mapping[str, Any], Any], str]]] = MappingProxyType(
    {
        "type": _type,
        "required": _required,
        "additionalProperties": _unknown,
        "enum": lambda _, e: f"expected one of {_options(e.kind.options)}, found {shown(e.instance)}",
        "const": lambda _, e: f"expected {_options([e.kind.expected_value])}, found {shown(e.instance)}",
        "minimum": _bound("at least {}"),
        "maximum": _bound("at most {}"),
        "exclusiveMinimum": _bound("more than {}"),
        "exclusiveMaximum": _bound("less than {}"),
        "multipleOf": lambda _, e: f"expected a multiple of {e.kind.multiple_of}, found {shown(e.instance)}",
        "minLength": _bound("at least {} characters"),
        "maxLength": _bound("at most {} characters"),
        "pattern": lambda _, e: f"expected text matching {e.kind.pattern[:100]}, found {shown(e.instance)}",
        "minItems": _bound("at least {} items"),
        "maxItems": _bound("at most {} items"),
        "uniqueItems": lambda _, e: "expected items that all differ",
        "minProperties": _bound("at least {} keys"),
        "maxProperties": _bound("at most {} keys"),
        "propertyNames": lambda p, e: f"unusable key, {_problem(p, e.kind.error)}",
        "oneOf": lambda _, e: f"{shown(e.instance)} fits more than one alternative; exactly one is wanted",
        "not": lambda _, e: f"{shown(e.instance)} is excluded",
    }
)


def _alternatives(parameters: Mapping[str, Any], error: Any) -> str:
    """No alternative fits: all of them when each wants another type, else the problem of the nearest."""
    branches = [branch for branch in error.kind.context if branch]
    types = [name for branch in branches if _is_other_type(branch, error) for name in branch[0].kind.types]
    path = path_text(error.instance_path)
    near = [branch for branch in branches if not _is_other_type(branch, error)]
    if not near:
        return _at(path, f"expected {' or '.join(dict.fromkeys(types))}, found {shown(error.instance)}")
    best = min(near, key=lambda branch: (_chooses(branch), len(branch)))
    return sentences(parameters, best)


def _is_other_type(branch: Sequence[Any], error: Any) -> bool:
    return bool(branch[0].kind.name == "type" and branch[0].instance_path == error.instance_path)


def _chooses(branch: Sequence[Any]) -> bool:
    """Whether a fixed value says that another alternative was meant."""
    return any(error.kind.name in ("const", "enum") for error in branch)
