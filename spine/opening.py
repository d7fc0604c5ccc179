"""What is opened by name (floor 10): a store by its URL, an HTTP adapter."""

from spine import late
from spine.llm.protocols import Adapter, ProviderSettings, WireProtocol
from spine.scope import Registries
from spine.store import Store
from spine.stores import opening


def open_store(url: str, registries: Registries) -> Store:
    """The store of a URL: `memory:`, `sqlite:PATH[?durability=relaxed]`, or a scheme that a plugin offers."""
    offered = registries.stores.resolve(None).entries
    return opening.open_store(url, {scheme: entry.value for scheme, entry in offered.items()})


def http_adapter(protocol: WireProtocol, settings: ProviderSettings) -> Adapter:
    """The one adapter for all protocols over HTTP."""
    adapter: Adapter = late.load("spine.wire.adapter").HttpAdapter(protocol, settings)
    return adapter
