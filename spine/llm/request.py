"""What is asked of a model, in neutral words (floor 3)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from spine.errors import RouteUnknown
from spine.frozen import frozen
from spine.messages import Message, SystemBlock
from spine.tools import ServerTool, ToolDefinition
from spine.values import EMPTY_OBJECT, JsonObject, StepId, as_tuple, freeze_object

__all__ = ["ModelRequest", "ResponseFormat", "Route", "Thinking", "ToolChoice"]

Thinking = Literal["off", "minimal", "low", "medium", "high"] | int
"""How much reasoning: off, an effort, or a budget in tokens. None (where allowed) leaves it to the provider."""


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _is_number(value: Any, most: float) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= most


_EFFORTS: Final = ("off", "minimal", "low", "medium", "high")
_PARAMETERS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "max_output_tokens": (lambda value: _is_whole(value, 1), "a whole number over 0"),
    "temperature": (lambda value: _is_number(value, math.inf), "a number from 0"),
    "top_p": (lambda value: _is_number(value, 1), "a number from 0 to 1"),
    "thinking": (
        lambda value: value in _EFFORTS if isinstance(value, str) else _is_whole(value, 0),
        f"one of {', '.join(_EFFORTS)}, or a whole number of tokens",
    ),
}


def parameter_problem(name: str, value: Any) -> str | None:
    """Why a parameter cannot have this value, as `temperature is 'hot'; it must be …`; None when it can.

    None as a value is always fine, and so is what no provider agrees on: how hot is too hot is theirs to say.
    """
    if value is None or name not in _PARAMETERS or _PARAMETERS[name][0](value):
        return None
    return f"{name} is {value!r:.80}; it must be {_PARAMETERS[name][1]}, or None"


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


@frozen(kw_only=True)
class ToolChoice:
    """Whether the model may, must or must not call tools; `name` only with `mode` tool."""

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    name: str | None = None


@frozen(kw_only=True)
class ResponseFormat:
    """The JSON Schema that the final text must follow."""

    name: str
    schema: JsonObject = attrs.field(converter=freeze_object)
    strict: bool = True


def _immutable(messages: Sequence[Message]) -> Sequence[Message]:
    return tuple(messages) if isinstance(messages, list) else messages


@frozen(kw_only=True)
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
