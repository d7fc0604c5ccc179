"""The providers and models that are known without any configuration, as data (floor 3).

Rule: a vendor is a row. Nothing else in the code asks who a server is; what a row says, `spine.toml` can say too.
Sources: prices are held by a test against the public list `genai-prices` 0.2.3. Base URLs and traits are what is
commonly known of each endpoint, and `spine.toml` corrects what a vendor has changed. A model whose price depends on the
hour or on the length of the prompt is left out: an unknown price is better than a wrong one.
"""

from collections.abc import Mapping
from typing import Any

from spine.llm.catalogue import Catalogue, ModelEntry, Prices, Provider

__all__ = ["CATALOGUE", "SNAPSHOT"]

SNAPSHOT = "2026-11-28"
"""The state of the data below, which also names its prices."""


def _model(
    input: int,
    cache_read: int | None,
    output: int,
    *,
    window: int,
    max_output: int | None = None,
    cache_write: int | None = None,
    **traits: Any,
) -> ModelEntry:
    """Prices per million tokens, in millionths of a dollar; writes to a cache are for 5 minutes."""
    prices = Prices(id=SNAPSHOT, input=input, cache_read=cache_read, cache_write=cache_write, output=output)
    return ModelEntry(window=window, max_output=max_output, prices=prices, traits=traits)


def _chat(
    id: str,
    base_url: str | None,
    key_env: str | None,
    *,
    auth: str | None = None,
    models: Mapping[str, ModelEntry] | None = None,
    **traits: Any,
) -> Provider:
    """A server that speaks Chat Completions. Few take sound and files as OpenAI does: their rows say so."""
    return Provider(
        id=id,
        protocol="openai_chat",
        base_url=base_url,
        key_env=key_env,
        auth=auth or ("bearer" if key_env else "none"),
        traits={"audio": False, "documents": False, **traits},
        models=models or {},
    )


# ------------------------------------------------------------------------------------------------- OpenAI and Azure

_GPT_5: Mapping[str, Any] = {
    "window": 400_000,
    "max_output": 128_000,
    "thinking": ("minimal", "low", "medium", "high"),
    "sampling": False,
}
_GPT_51: Mapping[str, Any] = {**_GPT_5, "thinking": ("off", "low", "medium", "high"), "sampling": True}
_GPT_41: Mapping[str, Any] = {"window": 1_047_576, "max_output": 32_768, "thinking": ()}
_GPT_4O: Mapping[str, Any] = {"window": 128_000, "max_output": 16_384, "thinking": ()}
_OPENAI_MODELS = {
    "gpt-4.1": _model(2_000_000, 500_000, 8_000_000, **_GPT_41),
    "gpt-4.1-mini": _model(400_000, 100_000, 1_600_000, **_GPT_41),
    "gpt-4.1-nano": _model(100_000, 25_000, 400_000, **_GPT_41),
    "gpt-4o": _model(2_500_000, 1_250_000, 10_000_000, **_GPT_4O),
    "gpt-4o-mini": _model(150_000, 75_000, 600_000, **_GPT_4O),
    "gpt-5": _model(1_250_000, 125_000, 10_000_000, **_GPT_5),
    "gpt-5-mini": _model(250_000, 25_000, 2_000_000, **_GPT_5),
    "gpt-5-nano": _model(50_000, 5_000, 400_000, **_GPT_5),
    "gpt-5.1": _model(1_250_000, 125_000, 10_000_000, **_GPT_51),
    "gpt-5.2": _model(1_750_000, 175_000, 14_000_000, **_GPT_51),
}
_OPENAI_CHAT: Mapping[str, Any] = {
    "developer_role": True,
    "max_tokens_field": "max_completion_tokens",
    "strict_schemas": True,
    "documents": True,
}
_RESPONSES: Mapping[str, Any] = {"audio": False, "strict_schemas": True, "tool_images": True}
_OPENAI = Provider(
    id="openai",
    protocol="openai_responses",
    base_url="https://api.openai.com/v1",
    key_env="OPENAI_API_KEY",
    traits=_RESPONSES,
    models=_OPENAI_MODELS,
)
# Azure's models are called as their owner deployed them, and its address names the owner's resource:
# base_url = "https://RESOURCE.openai.azure.com/openai/v1" in spine.toml.
_AZURE = Provider(
    id="azure",
    protocol="openai_responses",
    auth="header api-key",
    key_env="AZURE_OPENAI_API_KEY",
    traits=_RESPONSES,
)

# -------------------------------------------------------------------------------------------------------- Anthropic

_CLAUDE_4: Mapping[str, Any] = {"window": 200_000, "max_output": 64_000}
# Since Opus 4.7 a model adapts its thinking to an effort, and takes no temperature. Neither Opus 5.5 nor Sonnet 5.5 can
# be made to call a tool; Opus always thinks, Sonnet at least between calls (pages on what is new, 2026-11-30).
_CLAUDE_5: Mapping[str, Any] = {
    "window": 1_000_000,
    "max_output": 128_000,
    "thinking_budgets": False,
    "sampling": False,
}
_CLAUDE_55: Mapping[str, Any] = {**_CLAUDE_5, "forced_calls": False}
_ANTHROPIC = Provider(
    id="anthropic",
    protocol="anthropic_messages",
    base_url="https://api.anthropic.com/v1",
    auth="header x-api-key",
    key_env="ANTHROPIC_API_KEY",
    traits={
        "audio": False,
        "call_id_pattern": r"[A-Za-z0-9_-]{1,256}",
        "tool_name_pattern": r"[A-Za-z0-9_-]{1,128}",
    },
    models={
        "claude-haiku-4-5": _model(1_000_000, 100_000, 5_000_000, cache_write=1_250_000, **_CLAUDE_4),
        "claude-opus-4-5": _model(5_000_000, 500_000, 25_000_000, cache_write=6_250_000, **_CLAUDE_4),
        "claude-opus-4-8": _model(5_000_000, 500_000, 25_000_000, cache_write=6_250_000, **_CLAUDE_5),
        "claude-opus-5-5": _model(
            *(4_000_000, 200_000, 20_000_000),
            cache_write=5_000_000,
            thinking=("minimal", "low", "medium", "high"),
            **_CLAUDE_55,
        ),
        "claude-sonnet-4-5": _model(3_000_000, 300_000, 15_000_000, cache_write=3_750_000, **_CLAUDE_4),
        "claude-sonnet-5-5": _model(
            *(2_000_000, 100_000, 10_000_000),
            cache_write=2_500_000,
            thinking_off="between_tools",
            **_CLAUDE_55,
        ),
    },
)

# ------------------------------------------------------------------------------- others that speak Chat Completions

_HOSTED = (
    _chat(
        "azure_chat",
        None,
        "AZURE_OPENAI_API_KEY",
        auth="header api-key",
        **{**_OPENAI_CHAT, "documents": False},
    ),
    _chat(
        "cerebras",
        "https://api.cerebras.ai/v1",
        "CEREBRAS_API_KEY",
        models={"gpt-oss-120b": _model(350_000, None, 750_000, window=131_072, thinking=("low", "medium", "high"))},
        max_tokens_field="max_completion_tokens",
        vision=False,
    ),
    # Thinking goes back to the model that thought: between the calls of a turn the API refuses an answer without it.
    _chat(
        "deepseek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        reasoning_field="reasoning_content",
        vision=False,
        structured_output=False,
    ),
    _chat("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    _chat(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        models={
            "gemini-2.5-flash": _model(300_000, 30_000, 2_500_000, window=1_048_576, max_output=65_536),
            "gemini-2.5-flash-lite": _model(100_000, 10_000, 400_000, window=1_000_000, max_output=65_536),
            "gemini-3.5-flash": _model(1_500_000, 150_000, 9_000_000, window=1_000_000),
        },
        audio=True,
    ),
    _chat(
        "groq",
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        models={
            "openai/gpt-oss-120b": _model(
                150_000, 75_000, 600_000, window=131_072, vision=False, thinking=("low", "medium", "high")
            ),
            "openai/gpt-oss-20b": _model(
                75_000, 37_500, 300_000, window=131_072, vision=False, thinking=("low", "medium", "high")
            ),
            "qwen/qwen3-32b": _model(290_000, None, 590_000, window=131_072, vision=False),
        },
        max_tokens_field="max_completion_tokens",
    ),
    # It refuses call ids of any other form than its own, and reports usage without being asked.
    _chat(
        "mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        models={
            "mistral-large-2512": _model(500_000, 50_000, 1_500_000, window=262_144),
            "mistral-medium-3-5": _model(1_500_000, 150_000, 7_500_000, window=262_144),
            "mistral-small-2603": _model(150_000, 15_000, 600_000, window=262_144),
        },
        call_id_pattern=r"[A-Za-z0-9]{9}",
        stream_usage=False,
    ),
    _chat(
        "moonshot",
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        models={
            "kimi-k2.6": _model(950_000, 160_000, 4_000_000, window=262_144),
            "kimi-k2.7-code": _model(950_000, 190_000, 4_000_000, window=262_144),
        },
        reasoning_field="reasoning_content",
        structured_output=False,
    ),
    _chat("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", reasoning_field="reasoning", audio=True),
    _chat(
        "perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY", tools=False, stream_usage=False, thinking=()
    ),
    _chat("qwen", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    _chat("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    _chat(
        "xai",
        "https://api.x.ai/v1",
        "XAI_API_KEY",
        models={
            "grok-4-1-fast-non-reasoning": _model(200_000, 50_000, 500_000, window=2_000_000, thinking=()),
            "grok-4-1-fast-reasoning": _model(200_000, 50_000, 500_000, window=2_000_000),
            "grok-code-fast-1": _model(200_000, 20_000, 1_500_000, window=256_000, vision=False),
        },
    ),
    _chat(
        "zai",
        "https://api.z.ai/api/paas/v4",
        "ZAI_API_KEY",
        reasoning_field="reasoning_content",
        structured_output=False,
    ),
)
_LOCAL = (
    _chat("llamacpp", "http://127.0.0.1:8080/v1", None, private_urls=True),
    _chat("lmstudio", "http://127.0.0.1:1234/v1", None, private_urls=True),
    _chat("ollama", "http://127.0.0.1:11434/v1", None, terminal="done", private_urls=True),
    _chat("vllm", "http://127.0.0.1:8000/v1", None, private_urls=True),
)

CATALOGUE = Catalogue(
    snapshot=SNAPSHOT,
    providers={
        entry.id: entry
        for entry in (
            _ANTHROPIC,
            _OPENAI,
            _chat("openai_chat", "https://api.openai.com/v1", "OPENAI_API_KEY", models=_OPENAI_MODELS, **_OPENAI_CHAT),
            _AZURE,
            *_HOSTED,
            *_LOCAL,
        )
    },
)
"""What is known without any configuration."""
