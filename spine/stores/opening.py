"""A store by its URL (side room, floors 0-1): ours are imported when they are asked for."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from spine import late
from spine.errors import ConfigInvalid
from spine.store import Store

__all__ = ["open_store"]

_NONE: Final[Mapping[str, Callable[[str], Store]]] = MappingProxyType({})


def open_store(url: str, offered: Mapping[str, Callable[[str], Store]] = _NONE) -> Store:
    """The store of a URL: `memory:`, `sqlite:PATH[?durability=relaxed]`, or a scheme that is `offered` by a plugin."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme in offered:
        return offered[scheme](url)
    if colon and scheme == "memory":
        memory: Store = late.load("spine.stores.memory").MemoryStore()
        return memory
    if colon and scheme == "sqlite":
        path, _, query = rest.partition("?")
        durability = "relaxed" if "relaxed" in query else "full"
        sqlite: Store = late.load("spine.stores.sqlite").SqliteStore(path, durability=durability)
        return sqlite
    raise ConfigInvalid(f'store "{url}" is not of the form memory: or sqlite:PATH')
