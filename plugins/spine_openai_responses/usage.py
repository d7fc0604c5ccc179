"""Token counts of Responses: where they stand.

Source: the OpenAI reference of the response object, read 2026-11-30. `input_tokens` includes what came from the cache,
`output_tokens` includes reasoning.
"""

from spine.wire import Places

PLACES: Places = (
    ("input_tokens", (("input_tokens",),)),
    ("cache_read_tokens", (("input_tokens_details", "cached_tokens"),)),
    ("cache_write_tokens", (("input_tokens_details", "cache_write_tokens"),)),
    ("output_tokens", (("output_tokens",),)),
    ("reasoning_tokens", (("output_tokens_details", "reasoning_tokens"),)),
    ("total_tokens", (("total_tokens",),)),
)
