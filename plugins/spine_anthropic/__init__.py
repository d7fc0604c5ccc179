"""Anthropic Messages, and the servers that speak it, as the wire protocol `anthropic_messages`."""

from typing import Any

from spine.hooks import hookimpl
from spine_anthropic.protocol import AnthropicMessages


@hookimpl
def spine_register_protocols(registrar: Any) -> None:
    """Offer the protocol."""
    registrar.add(AnthropicMessages())
