"""One answer in the making (side room `wire`): chunks handed out, folded and counted; what every decoder needs.

A protocol's decoder decides what a wire event means; the draft keeps the promises that are the same for all of them:
the message is the fold of the chunks handed out, indexes grow, sizes are bounded, model and id are the first named.
"""

from collections.abc import Mapping
from typing import Any

from spine.llm.assemble import Assembler
from spine.llm.catalogue import Traits
from spine.llm.chunks import Chunk, ResponseStarted, UsageReported
from spine.llm.errors import ProviderError, provider_error
from spine.llm.response import ModelResponse, StopReason
from spine.llm.usage import Usage
from spine.messages import Origin, ProviderState
from spine.values import EMPTY_OBJECT
from spine.wire.limits import WireLimits

__all__ = ["Draft", "not_ours", "out_of_place", "settled", "truncated"]

_NORMAL = frozenset(("end_turn", "tool_use", "stop_sequence", "pause", "unknown"))


class Draft:
    """What has come of one answer so far. `out` takes the chunks; its owner puts a fresh list there for each piece."""

    def __init__(self, protocol: str, traits: Traits, limits: WireLimits) -> None:
        self.out: list[Chunk] = []
        self.usage: Usage | None = None
        self.has_begun = False
        self.is_named = False
        self.limits = limits
        self._protocol = protocol
        self._traits = traits
        self._message = Assembler()
        self._add = self._message.add
        self._last_index = -1
        self._calls = 0

    def emit(self, chunk: Chunk) -> None:
        """Hand a chunk out."""
        self.out.append(chunk)
        self._add(chunk)

    def name(self, model: str | None, response_id: str | None) -> None:
        """Model and response id: the first of each that is not empty counts."""
        message = self._message
        started = ResponseStarted(message.model or model, message.response_id or response_id)
        if not self.has_begun or (started.model, started.response_id) != (message.model, message.response_id):
            self.has_begun = True
            self.emit(started)
        self.is_named = bool(started.model and started.response_id)

    @property
    def response_id(self) -> str | None:
        """The id of the answer, None as long as none was named."""
        return self._message.response_id

    def next_index(self) -> int:
        """The key of a new block. Raises `protocol_error` when there are too many."""
        self._last_index += 1
        if self._last_index >= self.limits.blocks:
            raise provider_error("protocol_error", f"the answer has more than {self.limits.blocks} blocks")
        return self._last_index

    def count_call(self) -> None:
        """A call begins. Raises `protocol_error` when there are too many."""
        self._calls += 1
        if self._calls > self.limits.calls:
            raise provider_error("protocol_error", f"the answer has more than {self.limits.calls} calls")

    def check_arguments(self, chars: int) -> None:
        """Raises `protocol_error` when the arguments of a call, now `chars` long, are too long."""
        if chars > self.limits.arguments_chars:
            raise provider_error(
                "protocol_error", f"the arguments of a call are longer than {self.limits.arguments_chars} characters"
            )

    def report(self, usage: Usage) -> None:
        """The usage as far as it is known; the same again is not handed out again."""
        if usage != self.usage:
            self.usage = usage
            self.emit(UsageReported(usage))

    def state(self, data: Any) -> ProviderState:
        """Opaque `data` of the model that answers."""
        traits = self._traits
        return ProviderState(protocol=self._protocol, provider=traits.provider, model=traits.model, data=data)

    def response(
        self, stop_reason: StopReason, raw_stop_reason: str | None, metadata: Mapping[str, Any] = EMPTY_OBJECT
    ) -> ModelResponse:
        """The finished answer."""
        traits, message = self._traits, self._message
        origin = Origin(
            protocol=self._protocol,
            route=f"{traits.provider}:{traits.model}",
            model=message.model,
            response_id=message.response_id,
        )
        return ModelResponse(
            message=message.message(origin),
            stop_reason=stop_reason,
            raw_stop_reason=raw_stop_reason,
            usage=self.usage or Usage(),
            model=message.model,
            response_id=message.response_id,
            metadata=metadata,
        )


def settled(reason: StopReason, *, has_calls: bool) -> StopReason:
    """Calls decide: with calls, any normal ending is `tool_use`; without one, `tool_use` says nothing."""
    if has_calls:
        return "tool_use" if reason in _NORMAL else reason
    return "unknown" if reason == "tool_use" else reason


def out_of_place(event: str, where: str) -> ProviderError:
    """The error of a wire event that has no place in a state; `where` is the state in words."""
    return provider_error("protocol_error", f"the provider sent {event} {where}")


def truncated(where: str) -> ProviderError:
    """What an answer is that stops in a state before its end; `where` is the state in words."""
    return provider_error("stream_truncated", f"the answer stopped {where}, without its end")


def not_ours(what: str) -> ProviderError:
    """The error of an answer that is not of the protocol at all."""
    return provider_error("protocol_error", f"the provider answered with {what}")
