"""Token counts as a provider reports them (side room `wire`): a table says where each stands."""

from collections.abc import Mapping
from typing import Any

from spine.llm.usage import Usage
from spine.values import freeze_object

__all__ = ["Places", "read_counts"]

MOST_TOKENS = 2**53
Places = tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
"""Field of `Usage`, and the paths where it may stand; the first that holds anything wins."""


def read_counts(raw: Mapping[str, Any], places: Places) -> Usage:
    """`raw` in neutral words. What is absent or null is None; what is no token count is None and sets `malformed`."""
    counts: dict[str, int | None] = {}
    malformed = False
    for field, paths in places:
        value = next((found for path in paths if (found := _at(raw, path)) is not None), None)
        counts[field] = count = _count(value)
        malformed = malformed or (value is not None and count is None)
    return Usage(**counts, malformed=malformed, raw=freeze_object(raw))


def _at(raw: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = raw
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if is_count else None
