"""OpenAI Responses, and the servers that speak it, as the wire protocol `openai_responses`."""

from typing import Any

from spine.hooks import hookimpl
from spine_openai_responses.protocol import OpenAIResponses


@hookimpl
def spine_register_protocols(registrar: Any) -> None:
    """Offer the protocol."""
    registrar.add(OpenAIResponses())
