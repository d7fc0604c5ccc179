"""Token counts of Chat Completions: where vendors put them.

Source: the OpenAI reference of the usage object, and DeepSeek, Together, Moonshot, Groq, OpenRouter answers on record
(read 2026-11-30). `prompt_tokens` includes what came from the cache, `completion_tokens` includes reasoning.
"""

from spine.wire import Places

PLACES: Places = (
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
