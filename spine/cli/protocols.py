"""A wire protocol by its name (floor 15), for commands that read and write bodies without sending them."""

from difflib import get_close_matches

from spine.errors import RouteUnknown
from spine.llm.protocols import WireProtocol
from spine.plugins import Plugins

__all__ = ["wire_protocol"]


def wire_protocol(plugins: Plugins, name: str) -> WireProtocol:
    """The protocol of that name. Raises `RouteUnknown` naming those there are."""
    entries = plugins.registries.protocols.resolve(None).entries
    if name not in entries:
        near = get_close_matches(name, entries, 1)
        nearest = f'; nearest is "{near[0]}"' if near else ""
        there = ", ".join(sorted(entries)) or "none"
        raise RouteUnknown(f'no plugin offers the protocol "{name}"; there are: {there}{nearest}', hint="spine plugins")
    found: WireProtocol = entries[name].value
    return found
