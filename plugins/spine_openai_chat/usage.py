"""Token counts of Chat Completions: where vendors put them.

Source: the OpenAI reference of the usage object, and DeepSeek, Together, Moonshot, Groq, OpenRouter answers on record
(read 2026-11-30). `prompt_tokens` includes what came from the cache, `completion_tokens` includes reasoning.
"""

from collections.abc import Mapping
from typing import Any

from spine.llm.usage import Usage
from spine.wire import freeze_object

MOST_TOKENS = 2**53
_PLACES: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("input_tokens", (("prompt_tokens",),)),
    (
        "cache_read_tokens",
        (("prompt_tokens_details", "cached_tokens"), ("prompt_cache_hit_tokens",), ("cached_tokens",)),
    ),
    ("cache_write_tokens", (("prompt_tokens_details", "cache_write_tokens"), ("cache_creation_input_tokens",))),
    ("output_tokens", (("completion_tokens",),)),
    ("reasoning_tokens", (("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",))),
    ("total_tokens", (("total_tokens",),)),
)
"""Field, and the paths where it may stand, the first that holds anything wins."""


def read_usage(raw: Mapping[str, Any]) -> Usage:
    """`raw` in neutral words. What is absent or null is None; what is no token count is None and sets `malformed`."""
    counts: dict[str, int | None] = {}
    malformed = False
    for field, paths in _PLACES:
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
