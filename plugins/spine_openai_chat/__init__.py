"""OpenAI Chat Completions, and the many servers that speak it, as the wire protocol `openai_chat`."""

from typing import Any

from spine.hooks import hookimpl
from spine_openai_chat.protocol import OpenAIChat


@hookimpl
def spine_register_protocols(registrar: Any) -> None:
    """Offer the protocol."""
    registrar.add(OpenAIChat())
