"""The pieces of an answer as they arrive (floor 3).

The message is the fold of its chunks (`spine.llm.assemble`), so a partial answer, a replay and a committed message
share one path. `index` is a growing key that says which block a piece belongs to; it is no position.
"""

from types import NoneType
from typing import Final, get_args

import attrs

from spine.frozen import frozen
from spine.llm.usage import Usage, check_usage
from spine.messages import ContentBlock, ProviderState
from spine.values import Json, as_optional_text, as_text, freeze

__all__ = [
    "WIRE",
    "BlockAdded",
    "BlockEnded",
    "Chunk",
    "ProviderEvent",
    "RefusalDelta",
    "ResponseStarted",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolCallStarted",
    "UsageReported",
]


@frozen
class ResponseStarted:
    """The provider began to answer; both fields None when it names neither."""

    model: str | None = attrs.field(default=None, converter=as_optional_text)
    response_id: str | None = attrs.field(default=None, converter=as_optional_text)


@frozen
class TextDelta:
    """A piece of visible text."""

    index: int
    text: str


@frozen
class ThinkingDelta:
    """A piece of visible reasoning."""

    index: int
    text: str


@frozen
class RefusalDelta:
    """A piece of a refusal."""

    index: int
    text: str


@frozen
class ToolCallStarted:
    """A call begins: its name is known and whole. `vendor_id` None when the provider gave none."""

    index: int
    name: str = attrs.field(converter=as_text)
    vendor_id: str | None = attrs.field(default=None, converter=as_optional_text)


@frozen
class ToolCallDelta:
    """A piece of the text of a call's arguments."""

    index: int
    arguments: str


@frozen
class BlockAdded:
    """A block that arrives whole: images, extensions, redacted thinking."""

    index: int
    block: ContentBlock = attrs.field(validator=attrs.validators.instance_of(get_args(ContentBlock)))


@frozen
class BlockEnded:
    """No more pieces for `index`; `provider_state` is what must go back with the block."""

    index: int
    provider_state: ProviderState | None = attrs.field(
        default=None, validator=attrs.validators.instance_of((ProviderState, NoneType))
    )


@frozen
class UsageReported:
    """Token counts; a later report replaces an earlier one."""

    usage: Usage = attrs.field(validator=check_usage)


WIRE: Final = "wire"
"""The kind of the `ProviderEvent` with which an adapter that captures hands on what went over the wire."""


@frozen
class ProviderEvent:
    """Something additive that no rule knows (debug). Only one of kind `WIRE` is recorded, beside the log."""

    kind: str
    data: Json = attrs.field(converter=freeze)


Chunk = (
    ResponseStarted
    | TextDelta
    | ThinkingDelta
    | RefusalDelta
    | ToolCallStarted
    | ToolCallDelta
    | BlockAdded
    | BlockEnded
    | UsageReported
    | ProviderEvent
)
"""A piece of an answer."""
