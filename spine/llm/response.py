"""How an answer ends: exactly one `ModelResponse`, last (floor 3)."""

from typing import Literal, get_args

import attrs

from spine.frozen import frozen
from spine.llm.usage import Usage, check_usage
from spine.messages import Message
from spine.values import EMPTY_OBJECT, JsonObject, as_optional_text, freeze_object

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
STOP_REASONS: tuple[StopReason, ...] = get_args(StopReason)
"""Every `StopReason`."""


@frozen(kw_only=True)
class ModelResponse:
    """The whole answer. `raw_stop_reason` is the provider's own word, None when it gave none.

    Raises `TypeError` for a field of the wrong kind: what an adapter gives goes into the log.
    """

    message: Message = attrs.field(validator=attrs.validators.instance_of(Message))
    stop_reason: StopReason = attrs.field()
    raw_stop_reason: str | None = attrs.field(default=None, converter=as_optional_text)
    usage: Usage = attrs.field(default=Usage(), validator=check_usage)
    model: str | None = attrs.field(default=None, converter=as_optional_text)
    response_id: str | None = attrs.field(default=None, converter=as_optional_text)
    metadata: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    """Latency, request id, what was degraded on the way."""

    @stop_reason.validator
    def _check_stop_reason(self, field: object, value: object) -> None:
        if value not in STOP_REASONS:
            raise TypeError(f"stop reason {value!r:.80} is none of {', '.join(STOP_REASONS)}")
