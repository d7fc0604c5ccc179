"""What is opened by name (floor 10): a store by its URL, an HTTP adapter, and who owns a session."""

import os
import socket

from spine import late
from spine.llm.protocols import Adapter, ProviderSettings, WireProtocol
from spine.scope import Registries
from spine.store import Owner, Store
from spine.stores import opening


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
    offered = registries.stores.resolve(None).entries
    return opening.open_store(url, {scheme: entry.value for scheme, entry in offered.items()})


def http_adapter(protocol: WireProtocol, settings: ProviderSettings) -> Adapter:
    """The one adapter for all protocols over HTTP."""
    adapter: Adapter = late.load("spine.wire.adapter").HttpAdapter(protocol, settings)
    return adapter
