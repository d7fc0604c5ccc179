"""Renders the keys of scenario files from their published schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from docs_source import table

from spine.testing.scenarios.file import scenario_schema


def scenario_regions() -> Iterator[tuple[str, str]]:
    """Each mapping of a scenario file under its path: `scenario`, `scenario model[]`, `scenario expect.turns[]`."""
    yield from _shapes(scenario_schema(), "scenario")


def _shapes(schema: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
    if "properties" in schema:
        yield name, _keys(schema)
        for key, inner in schema["properties"].items():
            yield from _shapes(inner, f"{name} {key}" if name == "scenario" else f"{name}.{key}")
    for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        tag = f" {inner['required'][0]}" if name.endswith(("inputs[]", "faults[]")) and inner.get("required") else ""
        if "properties" in inner or "items" in inner or isinstance(inner.get("additionalProperties"), dict):
            yield from _shapes(inner, name + tag)
    if isinstance(schema.get("items"), Mapping):
        yield from _shapes(schema["items"], f"{name}[]")
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _shapes(schema["additionalProperties"], f"{name}.NAME")


def _keys(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (f"`{key}`", _kind(inner), "yes" if key in required else "", inner.get("description", ""))
        for key, inner in schema["properties"].items()
    ]
    return table(("key", "value", "needed", "meaning"), rows)


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        words = schema["enum"]
        return (
            ", ".join(f"`{word}`" for word in words)
            if len(words) <= 12
            else _LISTS.get(words[0], "one of a fixed list")
        )
    if "const" in schema:
        return f"`{str(schema['const']).lower()}`"
    if "type" in schema:
        return _TYPES[schema["type"]](schema)
    kinds = [_kind(inner) for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]
    return " or ".join(dict.fromkeys(kinds)) or "any JSON"


_LISTS: Mapping[str, str] = {"session.created": "event type", "auth": "category of a failure"}
_TYPES: Mapping[str, Any] = {
    "string": lambda schema: "text",
    "integer": lambda schema: f"whole number from {schema.get('minimum', 0)}",
    "number": lambda schema: "number",
    "boolean": lambda schema: "true or false",
    "array": lambda schema: f"list of {_kind(schema['items'])}",
    "object": lambda schema: "mapping",
}
