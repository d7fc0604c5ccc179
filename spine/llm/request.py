"""What is asked of a model, in neutral words (floor 3)."""

from collections.abc import Sequence
from typing import Any, Literal

import attrs

from spine.errors import RouteUnknown
from spine.messages import Message, SystemBlock
from spine.tools import ServerTool, ToolDefinition
from spine.values import EMPTY_OBJECT, JsonObject, StepId, as_tuple, freeze_object

__all__ = ["ModelRequest", "ResponseFormat", "Route", "Thinking", "ToolChoice"]

Thinking = Literal["off", "minimal", "low", "medium", "high"] | int
"""How much reasoning: off, an effort, or a budget in tokens. None (where allowed) leaves it to the provider."""


@attrs.frozen(order=True)
class Route:
    """A provider's id and a model's name, written `provider:model` and split at the first colon."""

    provider: str
    model: str

    @classmethod
    def parse(cls, text: str) -> "Route":
        """Read `provider:model`. Raises `RouteUnknown` when either half is missing."""
        provider, colon, model = text.partition(":")
        if not (provider and colon and model):
            raise RouteUnknown(f'model "{text}" is not of the form provider:name', hint="spine models")
        return cls(provider, model)

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


@attrs.frozen(kw_only=True)
class ToolChoice:
    """Whether the model may, must or must not call tools; `name` only with `mode` tool."""

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    name: str | None = None


@attrs.frozen(kw_only=True)
class ResponseFormat:
    """The JSON Schema that the final text must follow."""

    name: str
    schema: JsonObject = attrs.field(converter=freeze_object)
    strict: bool = True


def _immutable(messages: Sequence[Message]) -> Sequence[Message]:
    return tuple(messages) if isinstance(messages, list) else messages


@attrs.frozen(kw_only=True)
class ModelRequest:
    """One request of one step. None in a parameter leaves it to the provider.

    `messages` holds no system message and may be any immutable sequence; `provider_options` is keyed by namespace.
    """

    route: Route
    step: StepId
    system: tuple[SystemBlock, ...] = attrs.field(default=(), converter=as_tuple)
    messages: Sequence[Message] = attrs.field(default=(), converter=_immutable)
    tools: tuple[ToolDefinition | ServerTool, ...] = attrs.field(default=(), converter=as_tuple)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] = attrs.field(default=(), converter=as_tuple)
    seed: int | None = None
    thinking: Thinking | None = None
    response_format: ResponseFormat | None = None
    provider_options: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    metadata: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)

    def evolve(self, **changes: Any) -> "ModelRequest":
        """This request with some fields replaced."""
        return attrs.evolve(self, **changes)
