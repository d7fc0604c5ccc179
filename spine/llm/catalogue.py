"""Providers and models as data (floor 3).

What is not listed works too: with careful traits, an unknown window and an unknown price. Nothing is guessed from a
URL or a model's name.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

import attrs

from spine.llm.usage import Cost, Usage

__all__ = ["CATALOGUE", "Catalogue", "ModelEntry", "Prices", "Provider", "Traits", "price"]


@attrs.frozen(kw_only=True)
class Traits:
    """What encoders and decoders must know of their target. Defaults are the careful ones."""

    provider: str = ""
    protocol: str = ""
    model: str = ""
    stream: bool = True
    """Whether to ask for a stream; a plain JSON answer decodes all the same."""
    stream_usage: bool = True
    """Ask for usage in the stream (`stream_options`)."""
    developer_role: bool = False
    """The system prompt goes out with the role `developer` instead of `system`."""
    max_tokens_field: str = "max_tokens"
    reasoning_field: str | None = None
    """Under which key the target takes its own reasoning text back; None: not at all."""
    tools: bool = True
    vision: bool = True
    audio: bool = True
    documents: bool = True
    tool_images: bool = False
    """Whether a tool's result may hold images (Responses: and files); elsewhere a note stands for them."""
    strict_schemas: bool = False
    structured_output: bool = True
    cache_marks: bool = True
    """Messages: whether to mark where the target may cut what it keeps in its cache."""
    thinking_budgets: bool = True
    """Messages: whether an effort is told as a budget of tokens; else the model adapts its thinking to the effort."""
    thinking: tuple[str, ...] | None = attrs.field(default=None, converter=attrs.converters.optional(tuple))
    """Efforts the model knows; None: unknown, sent as they are."""
    call_id_pattern: str = r"[A-Za-z0-9_-]{1,64}"
    tool_name_pattern: str = r"[A-Za-z0-9_-]{1,64}"
    terminal: Literal["finish", "done"] = "finish"
    """Chat: whether `[DONE]` alone may end an answer."""
    window: int | None = None
    """Context window in tokens; None when unknown."""
    max_output: int | None = None


@attrs.frozen(kw_only=True)
class Prices:
    """Money per million tokens, in millionths of a unit of `currency`; `id` names the list they come from."""

    id: str
    currency: str = "USD"
    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None


def price(usage: Usage, prices: Prices | None) -> Cost | None:
    """What `usage` costs, in whole millionths rounded half to even; None when a price or a token count is unknown."""
    if prices is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    read_price = prices.input if prices.cache_read is None else prices.cache_read
    write_price = prices.input if prices.cache_write is None else prices.cache_write
    millionths = (
        (usage.input_tokens - cached - written) * prices.input
        + cached * read_price
        + written * write_price
        + usage.output_tokens * prices.output
    )
    return Cost(micros=round(Fraction(millionths, 1_000_000)), currency=prices.currency, prices=prices.id)


@attrs.frozen(kw_only=True)
class ModelEntry:
    """One model of one provider; `traits` override the provider's."""

    window: int | None = None
    max_output: int | None = None
    prices: Prices | None = None
    traits: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Provider:
    """A server: its protocol, address, and how it wants to be asked. `key_env` names the variable with the key."""

    id: str
    protocol: str
    base_url: str | None = None
    auth: str = "bearer"
    key_env: str | None = None
    traits: Mapping[str, Any] = attrs.field(factory=dict)
    models: Mapping[str, ModelEntry] = attrs.field(factory=dict)
    allow_http: bool = False
    """Whether plain http to another machine is allowed; loopback always is."""
    source: str = "catalogue"
    """Where the entry comes from: the catalogue, a plugin, or a file and line."""


@attrs.frozen(kw_only=True)
class Catalogue:
    """All known providers; `snapshot` names the state of the data."""

    snapshot: str
    providers: Mapping[str, Provider]

    def with_providers(self, *entries: Provider) -> "Catalogue":
        """This catalogue with entries added or replaced."""
        return attrs.evolve(self, providers={**self.providers, **{entry.id: entry for entry in entries}})

    def model(self, provider: str, name: str) -> ModelEntry:
        """The entry of a model; an empty one when it is not listed."""
        entry = self.providers.get(provider)
        return (entry.models.get(name) if entry else None) or ModelEntry()

    def traits(self, provider: str, name: str) -> Traits:
        """Traits of a model: defaults, then its provider's, then its own."""
        entry = self.providers.get(provider)
        model = self.model(provider, name)
        merged = {**(entry.traits if entry else {}), **model.traits}
        merged.setdefault("window", model.window)
        merged.setdefault("max_output", model.max_output)
        return Traits(provider=provider, protocol=entry.protocol if entry else "", model=name, **merged)


def _chat(
    id: str, base_url: str, key_env: str | None, *, models: Mapping[str, ModelEntry] | None = None, **traits: Any
) -> Provider:
    return Provider(
        id=id,
        protocol="openai_chat",
        base_url=base_url,
        key_env=key_env,
        auth="bearer" if key_env else "none",
        traits=traits,
        models=models or {},
    )


SNAPSHOT = "2026-11-28"
"""The state of the data below, which also names its prices."""


def _gpt(
    input: int, cache_read: int, output: int, *, window: int, max_output: int, thinking: tuple[str, ...]
) -> ModelEntry:
    """Prices per million tokens, in millionths of a dollar; `thinking` lists the model's efforts."""
    prices = Prices(id=SNAPSHOT, input=input, cache_read=cache_read, output=output)
    return ModelEntry(window=window, max_output=max_output, prices=prices, traits={"thinking": thinking})


_GPT_5: Mapping[str, Any] = {
    "window": 400_000,
    "max_output": 128_000,
    "thinking": ("minimal", "low", "medium", "high"),
}
_GPT_41: Mapping[str, Any] = {"window": 1_047_576, "max_output": 32_768, "thinking": ()}
_GPT_4O: Mapping[str, Any] = {"window": 128_000, "max_output": 16_384, "thinking": ()}
_OPENAI_MODELS = {
    "gpt-4.1": _gpt(2_000_000, 500_000, 8_000_000, **_GPT_41),
    "gpt-4.1-mini": _gpt(400_000, 100_000, 1_600_000, **_GPT_41),
    "gpt-4.1-nano": _gpt(100_000, 25_000, 400_000, **_GPT_41),
    "gpt-4o": _gpt(2_500_000, 1_250_000, 10_000_000, **_GPT_4O),
    "gpt-4o-mini": _gpt(150_000, 75_000, 600_000, **_GPT_4O),
    "gpt-5": _gpt(1_250_000, 125_000, 10_000_000, **_GPT_5),
    "gpt-5-mini": _gpt(250_000, 25_000, 2_000_000, **_GPT_5),
    "gpt-5-nano": _gpt(50_000, 5_000, 400_000, **_GPT_5),
}
_OPENAI = Provider(
    id="openai",
    protocol="openai_responses",
    base_url="https://api.openai.com/v1",
    key_env="OPENAI_API_KEY",
    traits={"audio": False, "strict_schemas": True, "tool_images": True},
    models=_OPENAI_MODELS,
)


def _claude(input: int, cache_read: int, cache_write: int, output: int) -> ModelEntry:
    """A model of 2025: prices per million tokens, in millionths of a dollar; writes to the cache are for 5 minutes."""
    prices = Prices(id=SNAPSHOT, input=input, cache_read=cache_read, cache_write=cache_write, output=output)
    return ModelEntry(window=200_000, max_output=64_000, prices=prices)


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
        "claude-haiku-4-5": _claude(1_000_000, 100_000, 1_250_000, 5_000_000),
        "claude-opus-4-5": _claude(5_000_000, 500_000, 6_250_000, 25_000_000),
        "claude-sonnet-4-5": _claude(3_000_000, 300_000, 3_750_000, 15_000_000),
    },
)

CATALOGUE = Catalogue(
    snapshot=SNAPSHOT,
    providers={
        entry.id: entry
        for entry in (
            _ANTHROPIC,
            _OPENAI,
            _chat(
                "openai_chat",
                "https://api.openai.com/v1",
                "OPENAI_API_KEY",
                models=_OPENAI_MODELS,
                developer_role=True,
                max_tokens_field="max_completion_tokens",
                strict_schemas=True,
            ),
            _chat("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", vision=False),
            _chat("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
            _chat("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", stream_usage=False),
            _chat("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
            _chat("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
            _chat("ollama", "http://127.0.0.1:11434/v1", None, terminal="done"),
            _chat("llamacpp", "http://127.0.0.1:8080/v1", None),
            _chat("vllm", "http://127.0.0.1:8000/v1", None),
            _chat("lmstudio", "http://127.0.0.1:1234/v1", None),
        )
    },
)
"""What is known without any configuration."""
