"""What is opened by name (floor 10): a store by its URL, an HTTP adapter, and who owns a session."""

import os
import socket

from spine import late
from spine.errors import ConfigInvalid
from spine.llm.protocols import Adapter, ProviderSettings, WireProtocol
from spine.scope import Registries
from spine.store import Owner, Store


def this_process(now: int, number: int) -> Owner:
    """This process as an owner; `number` tells several runtimes in it apart."""
    return Owner(id=f"{os.getpid()}-{now}-{number:x}", host=socket.gethostname(), pid=os.getpid(), started=now)


def is_dead(owner: Owner) -> bool:
    """Whether an owner is known to be gone: a process of this host that does not exist any more."""
    if owner.host != socket.gethostname() or owner.pid == os.getpid():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def open_store(url: str, registries: Registries) -> Store:
    """The store of a URL: `memory:`, `sqlite:PATH[?durability=relaxed]`, or a scheme that a plugin offers."""
    scheme, colon, rest = url.partition(":")
    if not colon:
        raise ConfigInvalid(f'store "{url}" is not of the form memory: or sqlite:PATH')
    offered = registries.stores.resolve(None).entries.get(scheme)
    if offered is not None:
        store: Store = offered.value(url)
        return store
    if scheme == "memory":
        memory: Store = late.load("spine.stores.memory").MemoryStore()
        return memory
    if scheme == "sqlite":
        path, _, query = rest.partition("?")
        sqlite: Store = late.load("spine.stores.sqlite").SqliteStore(
            path, durability="relaxed" if "relaxed" in query else "full"
        )
        return sqlite
    raise ConfigInvalid(f'store "{url}" is not of the form memory: or sqlite:PATH')


def http_adapter(protocol: WireProtocol, settings: ProviderSettings) -> Adapter:
    """The one adapter for all protocols over HTTP."""
    adapter: Adapter = late.load("spine.wire.adapter").HttpAdapter(protocol, settings)
    return adapter
