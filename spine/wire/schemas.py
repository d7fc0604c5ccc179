"""JSON Schemas as providers want them (side room `wire`)."""

from collections.abc import Iterator, Mapping
from typing import Any

from spine.llm.catalogue import Traits
from spine.llm.request import ResponseFormat
from spine.wire.names import wire_name

__all__ = ["closed_schema", "named_format", "object_schema", "strict_problem"]


def object_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """`schema` with `type` and `properties`: validators of providers demand both, even of a tool without parameters."""
    if schema.get("type") and isinstance(schema.get("properties"), Mapping):
        return schema
    properties = schema.get("properties")
    return {**schema, "type": schema.get("type") or "object", "properties": {} if properties is None else properties}


def strict_problem(schema: Any, path: str = "$") -> str | None:
    """Why `schema` is outside the strict subset, in words; None when it is inside.

    Each object must say `additionalProperties: false` and require all of its properties; few keywords are permitted
    ("Structured model outputs", OpenAI, read 2026-11-30).
    """
    if not isinstance(schema, Mapping):
        return None
    properties = schema.get("properties")
    if isinstance(properties, Mapping) or schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            return f"{path} allows additional properties"
        optional = sorted(set(properties or ()) - set(schema.get("required") or ()))
        if optional:
            return f"{path} does not require {', '.join(optional)}"
    refused = sorted(schema.keys() - _STRICT)
    if refused:
        return f"{path} uses {', '.join(refused)}"
    inner = (pair for key, value in schema.items() for pair in _inner_schemas(key, value, f"{path}.{key}"))
    return next((found for item, where in inner if (found := strict_problem(item, where))), None)


def _inner_schemas(key: str, value: Any, path: str) -> Iterator[tuple[Any, str]]:
    if key in _NAMED_SCHEMAS and isinstance(value, Mapping):
        yield from ((item, f"{path}.{name}") for name, item in value.items())
    elif key in _SCHEMAS and isinstance(value, tuple | list):
        yield from ((item, f"{path}[{place}]") for place, item in enumerate(value))
    elif key in _SCHEMAS:
        yield value, path


def named_format(wanted: ResponseFormat, traits: Traits, losses: dict[str, None]) -> dict[str, Any]:
    """`name`, `schema` and `strict` of a response format, as OpenAI's protocols want them.

    A strict schema has rules of its own where the target enforces them; one that breaks them goes out unstrict.
    """
    problem = strict_problem(wanted.schema) if wanted.strict and traits.strict_schemas else None
    if problem is not None:
        losses[f'response format "{wanted.name}" was sent without strict: {problem}'] = None
    name = wire_name(wanted.name, r"[A-Za-z0-9_-]{1,64}")
    return {"name": name, "schema": wanted.schema, "strict": wanted.strict and problem is None}


def closed_schema(schema: Any) -> Any:
    """`schema` whose objects take no members but their `properties`, where it says nothing about others.

    What fits the closed schema fits the open one too.
    """
    if isinstance(schema, tuple | list):
        return [closed_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    closed = {key: _closed_member(key, value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), Mapping):
        closed.setdefault("additionalProperties", False)
    return closed


def _closed_member(key: str, value: Any) -> Any:
    if key in _NAMED_SCHEMAS and isinstance(value, Mapping):
        return {name: closed_schema(item) for name, item in value.items()}
    return closed_schema(value) if key in _SCHEMAS else value


_NAMED_SCHEMAS = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
_SCHEMAS = frozenset(("allOf", "anyOf", "contains", "else", "if", "items", "not", "oneOf", "prefixItems", "then"))
_STRICT = frozenset(
    (
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "definitions",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    )
)
