"""What is asked of a model and what it answers: the values of requests and answers, and the room of adapters (floor 3).

A name is imported from its home when it is first asked for. The function `assemble` stays in the module of its name.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spine.late import offered as _offered

if TYPE_CHECKING:
    from spine.llm.assemble import Assembler, parse_arguments
    from spine.llm.catalogue import Catalogue, ModelEntry, Prices, Provider, Traits, price
    from spine.llm.chunks import (
        WIRE,
        BlockAdded,
        BlockEnded,
        Chunk,
        ProviderEvent,
        RefusalDelta,
        ResponseStarted,
        TextDelta,
        ThinkingDelta,
        ToolCallDelta,
        ToolCallStarted,
        UsageReported,
    )
    from spine.llm.errors import (
        CATEGORIES,
        RETRYABLE,
        Category,
        Failure,
        ProviderError,
        lossy,
        provider_error,
        unsupported,
    )
    from spine.llm.protocols import Adapter, AdapterFactory, Body, Decoder, ListsLosses, ProviderSettings, WireProtocol
    from spine.llm.providers import CATALOGUE, SNAPSHOT
    from spine.llm.request import ModelRequest, ResponseFormat, Route, Thinking, ToolChoice
    from spine.llm.response import STOP_REASONS, ModelResponse, StopReason
    from spine.llm.retry import RetryPolicy, next_delay
    from spine.llm.usage import Cost, Usage, add_usage, total_usage

__all__ = [
    "CATALOGUE",
    "CATEGORIES",
    "RETRYABLE",
    "SNAPSHOT",
    "STOP_REASONS",
    "WIRE",
    "Adapter",
    "AdapterFactory",
    "Assembler",
    "BlockAdded",
    "BlockEnded",
    "Body",
    "Catalogue",
    "Category",
    "Chunk",
    "Cost",
    "Decoder",
    "Failure",
    "ListsLosses",
    "ModelEntry",
    "ModelRequest",
    "ModelResponse",
    "Prices",
    "Provider",
    "ProviderError",
    "ProviderEvent",
    "ProviderSettings",
    "RefusalDelta",
    "ResponseFormat",
    "ResponseStarted",
    "RetryPolicy",
    "Route",
    "StopReason",
    "TextDelta",
    "Thinking",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolCallStarted",
    "ToolChoice",
    "Traits",
    "Usage",
    "UsageReported",
    "WireProtocol",
    "add_usage",
    "lossy",
    "next_delay",
    "parse_arguments",
    "price",
    "provider_error",
    "total_usage",
    "unsupported",
]

_HOMES: Final[Mapping[str, str]] = {
    "CATALOGUE": "spine.llm.providers",
    "CATEGORIES": "spine.llm.errors",
    "RETRYABLE": "spine.llm.errors",
    "SNAPSHOT": "spine.llm.providers",
    "STOP_REASONS": "spine.llm.response",
    "WIRE": "spine.llm.chunks",
    "Adapter": "spine.llm.protocols",
    "AdapterFactory": "spine.llm.protocols",
    "Assembler": "spine.llm.assemble",
    "BlockAdded": "spine.llm.chunks",
    "BlockEnded": "spine.llm.chunks",
    "Body": "spine.llm.protocols",
    "Catalogue": "spine.llm.catalogue",
    "Category": "spine.llm.errors",
    "Chunk": "spine.llm.chunks",
    "Cost": "spine.llm.usage",
    "Decoder": "spine.llm.protocols",
    "Failure": "spine.llm.errors",
    "ListsLosses": "spine.llm.protocols",
    "ModelEntry": "spine.llm.catalogue",
    "ModelRequest": "spine.llm.request",
    "ModelResponse": "spine.llm.response",
    "Prices": "spine.llm.catalogue",
    "Provider": "spine.llm.catalogue",
    "ProviderError": "spine.llm.errors",
    "ProviderEvent": "spine.llm.chunks",
    "ProviderSettings": "spine.llm.protocols",
    "RefusalDelta": "spine.llm.chunks",
    "ResponseFormat": "spine.llm.request",
    "ResponseStarted": "spine.llm.chunks",
    "RetryPolicy": "spine.llm.retry",
    "Route": "spine.llm.request",
    "StopReason": "spine.llm.response",
    "TextDelta": "spine.llm.chunks",
    "Thinking": "spine.llm.request",
    "ThinkingDelta": "spine.llm.chunks",
    "ToolCallDelta": "spine.llm.chunks",
    "ToolCallStarted": "spine.llm.chunks",
    "ToolChoice": "spine.llm.request",
    "Traits": "spine.llm.catalogue",
    "Usage": "spine.llm.usage",
    "UsageReported": "spine.llm.chunks",
    "WireProtocol": "spine.llm.protocols",
    "add_usage": "spine.llm.usage",
    "lossy": "spine.llm.errors",
    "next_delay": "spine.llm.retry",
    "parse_arguments": "spine.llm.assemble",
    "price": "spine.llm.catalogue",
    "provider_error": "spine.llm.errors",
    "total_usage": "spine.llm.usage",
    "unsupported": "spine.llm.errors",
}


if not TYPE_CHECKING:  # a type checker should see the names above and no others
    __getattr__, __dir__ = _offered(globals(), _HOMES)
