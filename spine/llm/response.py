"""How an answer ends: exactly one `ModelResponse`, last (floor 3)."""

from typing import Literal

import attrs

from spine.llm.usage import Usage
from spine.messages import Message
from spine.values import EMPTY_OBJECT, JsonObject, freeze_object

__all__ = ["STOP_REASONS", "ModelResponse", "StopReason"]

StopReason = Literal[
    "end_turn",
    "tool_use",
    "max_tokens",
    "stop_sequence",
    "refusal",
    "content_filter",
    "context_window",
    "pause",
    "unknown",
]
"""Why an answer ended, in neutral words; the provider's own word stands beside it."""
STOP_REASONS: tuple[StopReason, ...] = (
    "end_turn",
    "tool_use",
    "max_tokens",
    "stop_sequence",
    "refusal",
    "content_filter",
    "context_window",
    "pause",
    "unknown",
)
"""Every `StopReason`."""


@attrs.frozen(kw_only=True)
class ModelResponse:
    """The whole answer. `raw_stop_reason` is the provider's own word, None when it gave none."""

    message: Message
    stop_reason: StopReason
    raw_stop_reason: str | None = None
    usage: Usage = Usage()
    model: str | None = None
    response_id: str | None = None
    metadata: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    """Latency, request id, what was degraded on the way."""
