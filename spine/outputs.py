"""Typed answers (floor 5): the schema a model is told, and the value its final text parses to."""

from collections.abc import Sequence
from typing import Any

import msgspec

from spine.errors import ToolSchemaInvalid, ValueRefused
from spine.values import JsonObject, freeze, load

__all__ = ["output_schema", "parse_asked", "parse_output"]


def output_schema(kind: Any) -> dict[str, Any]:
    """`name` and JSON `schema` of a type (attrs, dataclass, TypedDict, msgspec, builtins).

    Raises `ToolSchemaInvalid` for a type that no schema describes.
    """
    name = getattr(kind, "__name__", "output")
    try:
        schema = msgspec.json.schema(kind)
    except (TypeError, RuntimeError) as exc:
        raise ToolSchemaInvalid(f"output type {name} cannot be described as JSON Schema: {exc}") from exc
    definitions = schema.get("$defs", {})
    target = definitions.get(name)
    if schema.get("$ref") == f"#/$defs/{name}" and target is not None:
        rest = {key: value for key, value in definitions.items() if key != name}
        schema = {**target, **({"$defs": rest} if rest else {})}
    if schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    return {"name": name, "schema": schema}


def parse_output(kind: Any, text: str) -> Any:
    """The value of type `kind` that `text` holds as JSON. Raises `ValueRefused` saying where it does not fit."""
    try:
        return msgspec.convert(load(_unfenced(text)), kind)
    except msgspec.ValidationError as exc:
        raise ValueRefused(str(exc)) from exc


def parse_asked(kinds: Sequence[Any], asked: JsonObject, text: str) -> tuple[Any, str | None]:
    """The value of the first type whose schema was asked for, or why `text` holds none; (None, None) without a type."""
    kind = next((kind for kind in kinds if kind is not None and freeze(output_schema(kind)) == asked), None)
    if kind is None:
        return None, None
    try:
        return parse_output(kind, text), None
    except ValueRefused as error:
        return None, f"the answer is no {asked['name']}: {error.message}"


def _unfenced(text: str) -> str:
    """The text inside a Markdown code fence, which models like to put around JSON."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        return stripped[3:-3].removeprefix("json")
    return stripped
