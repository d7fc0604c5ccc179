"""From `provider:model` to what answers it (floor 9): explicit, decided before anything is recorded.

An adapter registered under the provider's id in the scope wins; else the catalogue's entry names a protocol, and the
`WireProtocol` registered for it is put behind the one HTTP adapter. Nothing is guessed from a URL or a model's name.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import attrs

from spine.errors import PluginFailed, RouteUnknown, SpineError
from spine.frozen import frozen
from spine.llm.catalogue import Catalogue, Prices, Provider, Traits
from spine.llm.protocols import Adapter, AdapterFactory, ProviderSettings, WireProtocol
from spine.llm.request import ModelRequest, Route
from spine.messages import Origin
from spine.requests import Selection
from spine.scope import Contribution, Registries, Scope
from spine.secrecy import MaskedAdapter, Secrecy
from spine.values import Digest, Secret, digest, encode, freeze_object

KeyFinder = Callable[[Provider], Secret | None]
"""The key of a provider, None when it needs none. Raises `KeyMissing`."""
HttpFactory = Callable[[WireProtocol, ProviderSettings], Adapter]


@frozen
class Target:
    """What a route resolved to."""

    adapter: Adapter
    traits: Traits
    selection: Selection
    prices: Prices | None
    origin: Origin
    """Of an answer in which the provider says no more."""

    def losses(self, request: ModelRequest) -> tuple[str, ...] | None:
        """What the target could not be told of a request that passed `check`; None when its adapter cannot tell."""
        listed = getattr(self.adapter, "losses", None)  # looked up, so that an adapter may wrap one that lists them
        return None if listed is None else listed(request)


MAX_KNOWN = 1024
"""Targets kept; routes that a program makes up must not fill its memory."""


class Routes:
    """Resolves routes and keeps one adapter per provider entry, made on first use and closed once."""

    def __init__(
        self,
        registries: Registries,
        catalogue: Callable[[], Catalogue],
        find_key: KeyFinder,
        http: HttpFactory,
        everything: Adapter | None = None,
        *,
        clients: Mapping[str, Any] | None = None,
        captures: bool = False,
        secrecy: Secrecy | None = None,
    ) -> None:
        """`everything` answers every route (a scripted model); `clients` are HTTP clients by provider id.

        With `captures` adapters are asked to hand on what goes over the wire. `secrecy` masks what they answer.
        """
        self._registries = registries
        self._catalogue = catalogue
        self._find_key = find_key
        self._http = http
        self._everything = everything
        self._clients = clients or {}
        self._captures = captures
        self.secrecy = secrecy or Secrecy()
        self._adapters: dict[tuple[str, int], Adapter] = {}
        self._known: tuple[Catalogue | None, dict[tuple[int, Route, str], Target]] = (None, {})
        """Targets by the id of their adapter, route and protocol; the same until the catalogue is another one."""
        self._masked: dict[int, MaskedAdapter] = {}
        """By the id of the adapter, which it holds."""
        self._made: list[Adapter] = [] if everything is None else [everything]

    @property
    def catalogue(self) -> Catalogue:
        """All known providers, those of plugins and configuration included."""
        return self._catalogue()

    def resolve(self, route: Route, scope: Scope | None) -> Target:
        """The target of a route. Raises `RouteUnknown` or `KeyMissing`; makes no connection."""
        if self._everything is not None:
            return self.target(self._everything, route, _protocol_of(self._everything))
        entry = self.catalogue.providers.get(route.provider)
        registered = self._registries.adapters.resolve(scope).entries.get(route.provider)
        if registered is not None:
            factory: AdapterFactory = registered.value
            protocol = entry.protocol if entry else route.provider
            settings = self._settings(route, entry, protocol)
            adapter = self._made_once(route.provider, factory, lambda: _made_by(registered.owner, factory, settings))
        elif entry is not None:
            protocol = entry.protocol
            wire = self._registries.protocols.resolve(scope).entries.get(protocol)
            if wire is None:
                raise RouteUnknown(
                    f'provider "{route.provider}" speaks {protocol}, which no plugin offers', hint="spine plugins list"
                )
            adapter = self._made_once(
                route.provider, wire.value, lambda: self._http(wire.value, self._settings(route, entry, protocol))
            )
        else:
            raise RouteUnknown(self._unknown(route), hint="spine models")
        return self.target(adapter, route, protocol)

    def target(self, adapter: Adapter, route: Route, protocol: str) -> Target:
        """The target of a route that `adapter` answers in this protocol, with what the catalogue says of it.

        All sessions are given the same one.
        """
        if self.secrecy.is_on:
            adapter = self._masked.setdefault(id(adapter), MaskedAdapter(adapter, self.secrecy))
        catalogue, key = self.catalogue, (id(adapter), route, protocol)
        if self._known[0] is not catalogue or len(self._known[1]) > MAX_KNOWN:
            self._known = (catalogue, {})
        found = self._known[1].get(key)
        if found is None:
            found = self._known[1][key] = _target_of(catalogue, adapter, route, protocol)
        return found

    def source(self, route: Route, protocol: str, scope: Scope) -> Contribution[Any] | None:
        """Who offers what answers a route: an adapter or its protocol; None for an adapter given to the runtime."""
        if self._everything is not None:
            return None
        registered = self._registries.adapters.resolve(scope).entries.get(route.provider)
        return registered or self._registries.protocols.resolve(scope).entries.get(protocol)

    def _made_once(self, provider: str, source: object, make: Callable[[], Adapter]) -> Adapter:
        key = (provider, id(source))
        if key not in self._adapters:
            self._adapters[key] = make()
            self._made.append(self._adapters[key])
        return self._adapters[key]

    def _settings(self, route: Route, entry: Provider | None, protocol: str) -> ProviderSettings:
        return ProviderSettings(
            provider=route.provider,
            protocol=protocol,
            base_url=entry.base_url if entry else None,
            secret=self.secrecy.register(self._find_key(entry)) if entry else None,
            auth=entry.auth if entry else "none",
            options=freeze_object(self._options(entry)),
            traits=lambda model: self.catalogue.traits(route.provider, model),
            client=self._clients.get(route.provider),
        )

    def _options(self, entry: Provider | None) -> Mapping[str, bool]:
        wanted = {"allow_http": entry is not None and entry.allow_http, "capture": self._captures}
        return {name: True for name, is_wanted in wanted.items() if is_wanted}

    def _unknown(self, route: Route) -> str:
        nearest = get_close_matches(route.provider, self.catalogue.providers, 1)
        near = f'; nearest is "{nearest[0]}"' if nearest else ""
        return f'unknown provider "{route.provider}" in model "{route}"{near}'

    async def aclose(self) -> None:
        """Close every adapter once, last made first; an adapter's failure does not keep the others open."""
        errors: list[Exception] = []
        while self._made:
            try:
                await self._made.pop().aclose()
            except Exception as error:
                errors.append(error)
        self._adapters.clear()
        self._known = (None, {})
        if errors:
            raise ExceptionGroup("closing adapters failed", errors)


def _target_of(catalogue: Catalogue, adapter: Adapter, route: Route, protocol: str) -> Target:
    traits = attrs.evolve(catalogue.traits(route.provider, route.model), protocol=protocol)
    prices = catalogue.model(route.provider, route.model).prices
    settings = _settings_digest(traits)
    selection = Selection(route.provider, protocol, route.model, settings, prices.id if prices else None)
    return Target(adapter, traits, selection, prices, Origin(protocol=protocol, route=str(route)))


def _protocol_of(adapter: Adapter) -> str:
    """What an adapter that answers every route calls its protocol; an `HttpAdapter` holds the protocol itself."""
    protocol = getattr(adapter, "protocol", "scripted")
    return str(getattr(protocol, "name", protocol))


_FIRST_TRAITS = frozenset(
    (
        *("provider", "protocol", "model", "stream", "stream_usage", "developer_role", "max_tokens_field"),
        *("reasoning_field", "tools", "vision", "audio", "documents", "tool_images", "private_urls", "strict_schemas"),
        *("structured_output", "sampling", "cache_marks", "thinking_budgets", "thinking", "call_id_pattern"),
        *("tool_name_pattern", "terminal", "window", "max_output"),
    )
)
"""Traits that every digest of settings covers. Others count where they differ from their default: a new one, too, must
leave the digests of recorded requests as they are."""


def _settings_digest(traits: Traits) -> Digest:
    told = attrs.asdict(traits, filter=lambda field, value: field.name in _FIRST_TRAITS or value != field.default)
    return digest(encode(told))


def _made_by(owner: str, factory: AdapterFactory, settings: ProviderSettings) -> Adapter:
    try:
        return factory(settings)
    except SpineError:
        raise
    except Exception as exc:
        raise PluginFailed(
            f"plugin {owner} failed to make the adapter of {settings.provider}: {type(exc).__name__}: {exc}",
            plugin=owner,
            hook="spine_register_adapters",
        ) from exc
