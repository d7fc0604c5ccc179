"""What goes back to the model that it came from, and to no other (side room `wire`)."""

from collections.abc import Mapping
from typing import Any

from spine.messages import Origin, ProviderState

__all__ = ["is_by", "own_state"]


def is_by(origin: Origin | None, protocol: str, route: str) -> bool:
    """Whether a message was made by the model of `route`, over this protocol."""
    return origin is not None and (origin.protocol, origin.route) == (protocol, route)


def own_state(state: ProviderState | None, protocol: str, route: str) -> Mapping[str, Any] | None:
    """The members of opaque state that the model of `route` gave over this protocol; None for any other's."""
    if state is None or (state.protocol, f"{state.provider}:{state.model}") != (protocol, route):
        return None
    return state.data if isinstance(state.data, Mapping) else None
