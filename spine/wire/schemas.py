"""JSON Schemas as providers want them (side room `wire`)."""

from collections.abc import Mapping
from typing import Any

__all__ = ["closed_schema", "object_schema", "strict_problem"]


def object_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """`schema` with `type` and `properties`: validators of providers demand both, even of a tool without parameters."""
    if schema.get("type") and isinstance(schema.get("properties"), Mapping):
        return schema
    properties = schema.get("properties")
    return {**schema, "type": schema.get("type") or "object", "properties": {} if properties is None else properties}


def strict_problem(schema: Any, path: str = "$") -> str | None:
    """Why `schema` is outside the strict subset, in words; None when it is inside.

    Each object must say `additionalProperties: false` and require all of its properties ("Structured model outputs",
    OpenAI, read 2026-11-30).
    """
    if isinstance(schema, tuple | list):
        return next((found for i, item in enumerate(schema) if (found := strict_problem(item, f"{path}[{i}]"))), None)
    if not isinstance(schema, Mapping):
        return None
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        if schema.get("additionalProperties") is not False:
            return f"{path} allows additional properties"
        optional = sorted(set(properties) - set(schema.get("required") or ()))
        if optional:
            return f"{path} does not require {', '.join(optional)}"
    return next(
        (found for key, value in schema.items() if (found := strict_problem(value, f"{path}.{key}"))),
        None,
    )


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
