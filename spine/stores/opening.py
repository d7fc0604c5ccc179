"""A store by its URL (side room, floors 0-1): ours are imported when they are asked for."""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from spine import late
from spine.errors import ConfigInvalid
from spine.store import Store
from spine.stores.urls import without_secrets

__all__ = ["open_store", "open_store_to_look"]

_DURABILITIES: Final[Mapping[str, str]] = {"durability=full": "full", "durability=relaxed": "relaxed"}
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
        return _sqlite(url, *rest.partition("?"))
    forms = ", ".join(("memory:", "sqlite:PATH", *(f"{other}:…" for other in offered)))
    raise ConfigInvalid(f'store "{without_secrets(url)}" is of no form that is known here: {forms}')


def open_store_to_look(url: str) -> Store:
    """As `open_store`, of our own stores; one that lies where nothing can be written is opened all the same."""
    scheme, _, rest = url.partition(":")
    path = rest.partition("?")[0]
    if scheme == "sqlite" and os.path.isfile(path) and not os.access(os.path.dirname(path) or ".", os.W_OK):
        store: Store = late.load("spine.stores.sqlite").SqliteStore(path, is_unchanging=True)
        return store
    return open_store(url)


def _sqlite(url: str, path: str, mark: str, query: str) -> Store:
    if not path:
        raise ConfigInvalid(f'store "{url}" names no file; it is of the form sqlite:PATH', hint="--store spine.db")
    if mark and query not in _DURABILITIES:
        raise ConfigInvalid(
            f'store "{url}": there is no option "{query}"; after the ? may stand {" or ".join(_DURABILITIES)}',
            hint=f"--store sqlite:{path}",
        )
    store: Store = late.load("spine.stores.sqlite").SqliteStore(path, durability=_DURABILITIES.get(query, "full"))
    return store
