"""What can be known of providers and models (floor 3); the data itself stands in `spine.llm.providers`.

What is not listed works too: with careful traits, an unknown window and an unknown price. Nothing is guessed from a
URL or a model's name.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import attrs

from spine.frozen import frozen
from spine.llm.usage import Cost, Usage

__all__ = ["Catalogue", "ModelEntry", "Prices", "Provider", "Traits", "price"]


def _as_optional_tuple(values: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


@frozen(kw_only=True)
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
    forced_calls: bool = True
    """Whether it can be told to call a tool, any or one by name."""
    vision: bool = True
    audio: bool = True
    documents: bool = True
    tool_images: bool = False
    """Whether a tool's result may hold images (Responses: and files); elsewhere a note stands for them."""
    private_urls: bool = False
    """Whether it may be given attachments at private addresses: for servers on this machine or network."""
    strict_schemas: bool = False
    structured_output: bool = True
    sampling: bool = True
    """Whether it takes `temperature` and `top_p`; else they are left out, as a loss."""
    cache_marks: bool = True
    """Messages: whether to mark where the target may cut what it keeps in its cache."""
    thinking_budgets: bool = True
    """Messages: whether an effort is told as a budget of tokens; else the model adapts its thinking to the effort."""
    thinking_off: Literal["disabled", "between_tools"] = "disabled"
    """Messages: which kind of thinking is least, sent for `off`."""
    thinking: tuple[str, ...] | None = attrs.field(default=None, converter=_as_optional_tuple)
    """Efforts the model knows; None: unknown, sent as they are."""
    call_id_pattern: str = r"[A-Za-z0-9_-]{1,64}"
    tool_name_pattern: str = r"[A-Za-z0-9_-]{1,64}"
    terminal: Literal["finish", "done"] = "finish"
    """Chat: whether `[DONE]` alone may end an answer."""
    window: int | None = None
    """Context window in tokens; None when unknown."""
    max_output: int | None = None


@frozen(kw_only=True)
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
    micros, rest = divmod(millionths, 1_000_000)
    is_more = rest > 500_000 or (rest == 500_000 and micros % 2 == 1)
    return Cost(micros=micros + is_more, currency=prices.currency, prices=prices.id)


@frozen(kw_only=True)
class ModelEntry:
    """One model of one provider; `traits` override the provider's."""

    window: int | None = None
    max_output: int | None = None
    prices: Prices | None = None
    traits: Mapping[str, Any] = attrs.field(factory=dict)


@frozen(kw_only=True)
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


@frozen(kw_only=True)
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
