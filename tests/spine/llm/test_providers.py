"""The catalogue: every vendor that is named is a row that works, and prices are those of a public list."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spine.config import Settings
from spine.llm.catalogue import ModelEntry, Provider
from spine.llm.protocols import ProviderSettings
from spine.llm.providers import CATALOGUE, SNAPSHOT
from spine.project_models import make_provider
from spine.values import Secret
from spine.wire import HttpAdapter, wire_name
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

PROTOCOLS: dict[str, Any] = {p.name: p for p in (AnthropicMessages(), OpenAIChat(), OpenAIResponses())}
KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
    "azure_chat": "AZURE_OPENAI_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "fireworks": "FIREWORKS_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "groq": "GROQ_API_KEY",
    "llamacpp": None,
    "lmstudio": None,
    "mistral": "MISTRAL_API_KEY",
    "moonshot": "MOONSHOT_API_KEY",
    "ollama": None,
    "openai": "OPENAI_API_KEY",
    "openai_chat": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "perplexity": "PERPLEXITY_API_KEY",
    "qwen": "DASHSCOPE_API_KEY",
    "together": "TOGETHER_API_KEY",
    "vllm": None,
    "xai": "XAI_API_KEY",
    "zai": "ZAI_API_KEY",
}
"""Every provider, and the variable with its key; None needs none."""
OWN_ADDRESS = frozenset(("azure", "azure_chat"))
"""Whose address names the customer's resource."""
PROVIDERS = [pytest.param(entry, id=entry.id) for entry in CATALOGUE.providers.values()]
PRICED = [
    pytest.param(provider.id, name, entry, id=f"{provider.id}:{name}")
    for provider in CATALOGUE.providers.values()
    for name, entry in provider.models.items()
]
LISTED_AS = {"xai": "x-ai", "gemini": "google", "moonshot": "moonshotai", "openai_chat": "openai"}
"""Names of providers in the public price list, where they differ."""


def test_the_catalogue_has_every_vendor_and_its_key() -> None:
    assert {id: entry.key_env for id, entry in CATALOGUE.providers.items()} == KEYS


@pytest.mark.parametrize("entry", PROVIDERS)
def test_a_row_makes_an_adapter(entry: Provider) -> None:
    """Address, kind of key and protocol are ones that the HTTP adapter takes."""
    assert (entry.base_url is None) == (entry.id in OWN_ADDRESS)
    HttpAdapter(
        PROTOCOLS[entry.protocol],
        ProviderSettings(
            provider=entry.id,
            protocol=entry.protocol,
            base_url=entry.base_url or "https://resource.openai.azure.com/openai/v1",
            auth=entry.auth,
            secret=Secret("key-of-nobody") if entry.key_env else None,
            traits=lambda model: CATALOGUE.traits(entry.id, model),
        ),
    )


@pytest.mark.parametrize("entry", PROVIDERS)
def test_a_row_says_nothing_that_the_configuration_could_not(entry: Provider) -> None:
    """Traits of the catalogue are fields of `Traits`, for providers and models, and ids find a form in its grammar."""
    for name in (*entry.models, "unlisted"):
        traits = CATALOGUE.traits(entry.id, name)
        assert (traits.provider, traits.protocol, traits.model) == (entry.id, entry.protocol, name)
        assert re.fullmatch(traits.call_id_pattern, wire_name("t12s34c5", traits.call_id_pattern))
        assert re.fullmatch(traits.tool_name_pattern, wire_name("shop.orders/find", traits.tool_name_pattern))


@pytest.mark.parametrize("entry", PROVIDERS)
def test_a_project_may_replace_a_field_of_a_row(entry: Provider) -> None:
    changed = make_provider(entry.id, {"base_url": "http://127.0.0.1:9/v1"}, "spine.toml:1")
    extended = Settings(providers=(changed,)).extend(CATALOGUE)
    assert extended.providers[entry.id].base_url == "http://127.0.0.1:9/v1"
    assert extended.providers[entry.id].traits == entry.traits


@pytest.mark.parametrize(("provider", "name", "entry"), PRICED)
def test_prices_are_those_of_the_public_list(provider: str, name: str, entry: ModelEntry) -> None:
    listed = pytest.importorskip("genai_prices.data", reason="genai-prices is not installed").providers
    types = pytest.importorskip("genai_prices.types")
    found = next(each for each in listed if each.id == LISTED_AS.get(provider, provider))
    model = next(each for each in found.models if each.id == name)
    prices = model.get_prices(datetime(2026, 11, 28, tzinfo=UTC))
    ours = entry.prices
    assert ours is not None
    assert ours.id == SNAPSHOT
    for value, theirs in (
        (ours.input, prices.input_mtok),
        (ours.output, prices.output_mtok),
        (ours.cache_read, prices.cache_read_mtok),
        (ours.cache_write, prices.cache_write_mtok),
    ):
        amount = theirs.base if isinstance(theirs, types.TieredPrices) else theirs
        assert value == (None if amount is None else int(Decimal(amount) * 1_000_000)), (name, theirs)


def test_the_page_of_providers_lists_the_catalogue() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "providers.md"
    rows = [line.strip("| \n").split(" | ") for line in page.read_text().splitlines() if line.startswith("| `")]
    assert rows == [
        [
            f"`{entry.id}`",
            f"`{entry.protocol}`",
            f"`{entry.base_url}`" if entry.base_url else "your own",
            f"`{entry.key_env}`" if entry.key_env else "none",
        ]
        for entry in CATALOGUE.providers.values()
    ]


def test_how_much_a_claude_may_say_is_known() -> None:
    """Messages demands a limit with every request; one that nobody knows is a small one."""
    assert all(entry.max_output for entry in CATALOGUE.providers["anthropic"].models.values())
