"""JSON Schemas as providers want them (side room `wire`)."""

from collections.abc import Mapping
from typing import Any

__all__ = ["object_schema", "strict_problem"]


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
