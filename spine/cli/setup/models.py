"""`models` and `config` (floor 15): what is configured, and where each value comes from; no key is ever shown."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
import click

from spine.cli.options import options
from spine.cli.reading import load_plugins
from spine.cli.screen import columns, note, out, out_json
from spine.codec import Codec
from spine.config import Settings, find_key, load_settings
from spine.errors import KeyMissing, RouteUnknown
from spine.llm.catalogue import Catalogue, ModelEntry, Provider
from spine.stores.urls import without_secrets
from spine.tables import nearest

__all__ = ["COMMANDS"]

MILLION: Final = 1_000_000
_OF_ROUTE: Final = frozenset(("provider", "protocol", "model", "window", "max_output"))
"""Traits that are facts of the route itself."""
_APART: Final = frozenset(("traits", "prices", "source"))
"""What `_explain` shows in its own way."""


# ----------------------------------------------------------------------------------------------------------- models


@click.command()
@click.argument("name", required=False)
@options("json")
def models(name: str | None, as_json: bool) -> None:
    """List providers, models, keys and prices; or all that is known of a NAME: a provider, provider:name or alias."""
    settings = load_settings()
    catalogue = settings.extend(load_plugins(settings, Codec()).catalogue)
    if name is not None:
        _explain(settings, catalogue, settings.aliases.get(name, name), as_json)
    elif as_json:
        for provider, model, entry in _entries(catalogue):
            out_json(_fact(settings, provider, model, entry))
    else:
        _list(settings, catalogue)


def _list(settings: Settings, catalogue: Catalogue) -> None:
    rows = [
        (
            f"{provider.id}:{name or '…'}",
            provider.protocol,
            f"{entry.window:,}" if entry.window else "unknown",
            key_state(settings, provider),
            _prices(entry),
        )
        for provider, name, entry in _entries(catalogue)
    ]
    rows += [
        (f"{a} = {full}", f"alias, {settings.origins.get(f'aliases.{a}', '')}", "", "", "")
        for a, full in settings.aliases.items()
    ]
    out(columns(("name", "protocol", "context", "key", "$ per million in / cached / out"), rows))
    rest = "any provider:name works, unlisted ones with careful defaults and unknown price"
    note(f"(catalogue {catalogue.snapshot}; {rest})")


def _entries(catalogue: Catalogue) -> Iterator[tuple[Provider, str | None, ModelEntry]]:
    """Every listed model; a provider without one is a line of its own."""
    for provider in catalogue.providers.values():
        for name, entry in provider.models.items():
            yield provider, name, entry
        if not provider.models:
            yield provider, None, ModelEntry()


def _explain(settings: Settings, catalogue: Catalogue, name: str, as_json: bool) -> None:
    """One line for each fact of a provider, or of a model of it, listed or not."""
    id, _, model = name.partition(":")
    provider = catalogue.providers.get(id)
    if provider is None:
        raise RouteUnknown(f'unknown provider "{id}"{nearest(id, catalogue.providers)}', hint="spine models")
    entry = catalogue.model(id, model)
    traits = attrs.asdict(catalogue.traits(id, model), filter=lambda field, _: field.name not in _OF_ROUTE)
    fact = {**_fact(settings, provider, model or None, entry), "auth": provider.auth, "traits": traits}
    if as_json:
        out_json(fact)
        return
    rows = [(key, _known(value), provider.source) for key, value in fact.items() if key not in _APART and value]
    rows += [("prices", _prices(entry), entry.prices.id if entry.prices else "")] if model else []
    origins = {**dict.fromkeys(provider.traits, f"provider {id}"), **dict.fromkeys(entry.traits, f"model {model}")}
    rows += [(f"traits.{key}", _known(value), origins.get(key, "default")) for key, value in traits.items()]
    out(columns(("fact", "value", "from"), rows))


def _known(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return f"{value:,}" if type(value) is int else "unknown" if value is None else _shown(value)


def key_state(settings: Settings, provider: Provider) -> str:
    """`ANTHROPIC_API_KEY set`, `… missing`, or `none needed`; commands are not run for it."""
    if provider.auth == "none":
        return "none needed"
    ((kind, name),) = (settings.keys.get(provider.id) or {"env": provider.key_env or "unnamed"}).items()
    if kind == "command":
        return f"of a command ({name})"
    try:
        find_key(settings, provider)
    except KeyMissing:
        return f"{name} missing"
    return f"{name} set"


def _prices(entry: ModelEntry) -> str:
    prices = entry.prices
    if prices is None:
        return "unknown"
    cached = prices.input if prices.cache_read is None else prices.cache_read
    amounts = " / ".join(_amount(micros) for micros in (prices.input, cached, prices.output))
    return amounts if prices.currency == "USD" else f"{amounts} {prices.currency}"


def _amount(micros: int) -> str:
    whole, part = divmod(micros, MILLION)
    decimals = f"{part:06d}".rstrip("0")
    return f"{whole}.{decimals.ljust(2, '0')}"


def _fact(settings: Settings, provider: Provider, name: str | None, entry: ModelEntry) -> dict[str, Any]:
    return {
        "provider": provider.id,
        "model": name,
        "protocol": provider.protocol,
        "base_url": provider.base_url,
        "key": key_state(settings, provider),
        "window": entry.window,
        "max_output": entry.max_output,
        "prices": None if entry.prices is None else attrs.asdict(entry.prices),
        "source": provider.source,
    }


# ----------------------------------------------------------------------------------------------------------- config


@click.command()
@options("store", "model", "agent", "json")
def config(store: str | None, model: str | None, agent: str | None, as_json: bool) -> None:
    """Print each effective setting and where it comes from."""
    settings = load_settings(arguments={"store": store, "model": model, "agent": agent})
    values = list(_values(settings))
    if as_json:
        out_json({name: {"value": value, "origin": origin} for name, value, origin in values})
        return
    out(columns(("setting", "value", "from"), [(name, _shown(value), origin) for name, value, origin in values]))
    note(f"file: {settings.path}" if settings.path else "file: none (no spine.toml here or above)")
    for line in _cannot_work(settings):
        note(f"note: {line}")


def _cannot_work(settings: Settings) -> Iterator[str]:
    """Settings that are well-formed and of no use: names that nothing answers to."""
    plugins = load_plugins(settings, Codec())
    providers = settings.extend(plugins.catalogue).providers
    named = [("model", settings.model), *((f"aliases.{alias}", full) for alias, full in settings.aliases.items())]
    for field, name in named:
        full = settings.aliases.get(name, name) if name is not None else None
        if full is None or (full.partition(":")[0] in providers and ":" in full):
            continue
        origin, (id, colon, _) = settings.origins.get(field, field), full.partition(":")
        why = (
            f'no provider is called "{id}"{nearest(id, providers)}' if colon else "it is no provider:name and no alias"
        )
        yield f'{origin}: {field} "{full}" cannot be asked: {why}'
    protocols = plugins.registries.protocols.resolve(None).entries
    for provider in settings.providers:
        if provider.protocol not in protocols:
            near = nearest(provider.protocol, protocols)
            yield f'{provider.source}: no plugin offers the protocol "{provider.protocol}" of {provider.id}{near}'
    scheme = (settings.store or "").partition(":")[0]
    if scheme not in ("sqlite", "memory", *plugins.registries.stores.resolve(None).entries):
        shown = without_secrets(settings.store or "")
        yield f'{settings.origins.get("store")}: nothing here opens a store "{shown}"; try sqlite:PATH'


def _values(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    origins: Mapping[str, str] = settings.origins
    for name in ("store", "model", "agent", "strict"):
        value = getattr(settings, name)
        yield name, without_secrets(value) if name == "store" and value else value, origins.get(name, "default")
    allowed = settings.allow_plugins
    yield "plugins.allow", None if allowed is None else list(allowed), origins.get("allow_plugins", "default")
    yield "plugins.block", list(settings.block_plugins), origins.get("block_plugins", "default")
    for alias, full in settings.aliases.items():
        yield f"aliases.{alias}", full, origins.get(f"aliases.{alias}", "default")
    for provider in settings.providers:
        shown = f"{provider.protocol} {provider.base_url}, key: {key_state(settings, provider)}"
        yield f"providers.{provider.id}", shown, provider.source
    for name, entry in settings.models.items():
        yield f'models."{name}"', _model_text(entry), origins.get(f"models.{name}", "default")


def _model_text(entry: ModelEntry) -> str:
    parts = [
        f"window {entry.window:,}" if entry.window else "",
        f"output {entry.max_output:,}" if entry.max_output else "",
    ]
    parts.append(f"prices {entry.prices.id}" if entry.prices else "")
    parts += [f"{name} {value}" for name, value in entry.traits.items()]
    return ", ".join(part for part in parts if part)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return {None: "not set", True: "yes", False: "no"}.get(value, str(value)) if not isinstance(value, str) else value


COMMANDS: Final = {"models": models, "config": config}
