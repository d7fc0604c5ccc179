"""Token counts of the Messages API, whose start and end report together.

Source: Anthropic's pages on streaming and prompt caching (read 2026-11-30). The counts of `message_delta` are
cumulative and win over those of `message_start`, field by field; nulls say nothing. `input_tokens` on the wire leaves
out what was read from the cache and written to it: ours is the sum.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from spine.llm.usage import Usage
from spine.wire import Places, read_counts

_PLACES: Places = (
    ("input_tokens", (("input_tokens",),)),
    ("cache_read_tokens", (("cache_read_input_tokens",),)),
    ("cache_write_tokens", (("cache_creation_input_tokens",),)),
    ("output_tokens", (("output_tokens",),)),
    ("reasoning_tokens", (("output_tokens_details", "thinking_tokens"),)),
)


def merged(before: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier report with a later one over it."""
    return {**before, **{key: value for key, value in report.items() if value is not None}}


def read_usage(raw: Mapping[str, Any]) -> Usage:
    """`raw` in neutral words."""
    usage = read_counts(raw, _PLACES)
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    if not cached or usage.input_tokens is None:
        return usage
    return attrs.evolve(usage, input_tokens=usage.input_tokens + cached)
