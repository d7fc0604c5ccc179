"""Registered secrets kept out of what a session uses and records (floor 3).

A secret is replaced before a value is used, so that what stands in the log is what went on: in inputs, prompt sections,
answers, results and failures. Tools get secrets from their context; a model never needs one. Whoever registers none
pays nothing for it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final

import attrs

from spine.llm.chunks import (
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
from spine.llm.errors import Failure, ProviderError
from spine.llm.protocols import Adapter
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.llm.usage import Usage
from spine.masking import forms_of, masked, masked_end, masked_json, open_end
from spine.messages import DocumentBlock, Message, ProviderState
from spine.tools import ToolOutcome
from spine.values import Json, JsonObject, Secret, freeze_object

__all__ = ["MaskedAdapter", "Secrecy"]

_TEXT: Final[Mapping[type, str]] = {
    TextDelta: "text",
    ThinkingDelta: "text",
    RefusalDelta: "text",
    ToolCallDelta: "arguments",
}
"""The field of a chunk that holds a piece of text."""
_OF_BLOCKS: Final = frozenset(("text", "arguments_text", "url", "transcript", "vendor_id"))
_JSON_OF_BLOCKS: Final = frozenset(("value", "arguments", "data"))
_OF_EVENTS: Final = frozenset(("by", "cause", "reason"))


class Secrecy:
    """Masks the secrets of one runtime in every kind of value that a session handles."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._secrets = tuple(secrets)
        self.forms = forms_of(self._secrets)
        """Every form in which one is looked for, the longest first."""

    @property
    def is_on(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self.forms)

    def register(self, secret: Secret | None) -> Secret | None:
        """Look for this one, too; gives it back."""
        if secret is not None and secret not in self._secrets:
            self._secrets += (secret,)
            self.forms = forms_of(self._secrets)
        return secret

    def text(self, text: str) -> str:
        """A text without secrets."""
        return masked(text, self._secrets) if self.forms else text

    def json(self, value: Json) -> Json:
        """A JSON value without secrets."""
        return masked_json(value, self._secrets) if self.forms else value

    def metadata(self, value: Mapping[str, Any]) -> JsonObject:
        """An object without secrets, frozen."""
        return freeze_object(self._any(value))

    def _any(self, value: Any) -> Any:
        return self.json(value)

    def hooked(self, value: Any) -> Any:
        """What a hook made of a call: its arguments, or why it may not run as it is, without secrets."""
        arguments, reason = getattr(value, "arguments", None), getattr(value, "reason", None)
        if isinstance(arguments, Mapping):
            return attrs.evolve(value, arguments=self._any(arguments))
        return attrs.evolve(value, reason=self.text(reason)) if isinstance(reason, str) else value

    def change(self, change: Any) -> Any:
        """A change of a hook's without secrets."""
        return attrs.evolve(change, old=self.hooked(change.old), new=self.hooked(change.new))

    def event(self, event: Any) -> Any:
        """What a person asked for or decided, without secrets."""
        changes: dict[str, Any] = {}
        for field in attrs.fields(type(event)):
            value = getattr(event, field.name)
            if type(value) is Message:
                changes[field.name] = self.message(value)
            elif field.name in _OF_EVENTS and isinstance(value, str):
                changes[field.name] = self.text(value)
        return attrs.evolve(event, **changes) if changes else event

    def message(self, message: Message) -> Message:
        """A message without secrets; the same object when it held none."""
        content, metadata = self.content(message.content), self._any(message.metadata)
        origin = message.origin and attrs.evolve(
            message.origin, model=self.name(message.origin.model), response_id=self.name(message.origin.response_id)
        )
        changed = attrs.evolve(message, content=content, metadata=metadata, origin=origin)
        return message if changed == message else changed

    def name(self, text: str | None) -> str | None:
        """A name or an id, if there is one, without secrets."""
        return text and self.text(text)

    def state(self, state: ProviderState | None) -> ProviderState | None:
        """A provider's own state without secrets, which it does not hold unless it is told them."""
        return state and attrs.evolve(state, data=self.json(state.data))

    def usage(self, usage: Usage) -> Usage:
        """Counts as reported, without secrets in what stood beside them."""
        return attrs.evolve(usage, raw=self._any(usage.raw))

    def response(self, response: ModelResponse) -> ModelResponse:
        """An answer without secrets, whatever it names itself and its end."""
        return attrs.evolve(
            response,
            message=self.message(response.message),
            raw_stop_reason=self.name(response.raw_stop_reason),
            usage=self.usage(response.usage),
            model=self.name(response.model),
            response_id=self.name(response.response_id),
            metadata=self._any(response.metadata),
        )

    def content(self, content: tuple[Any, ...]) -> tuple[Any, ...]:
        """Blocks without secrets. Binary data are left alone: a block's `data` is looked at where it is JSON."""
        return tuple(self._block(block) for block in content)

    def _block(self, block: Any) -> Any:
        changes: dict[str, Any] = {}
        for field in attrs.fields(type(block)):
            value = getattr(block, field.name)
            if field.name == "content":
                changes[field.name] = self.content(value)
            elif field.name == "provider_state":
                changes[field.name] = self.state(value)
            elif isinstance(value, str) and (field.name in _OF_BLOCKS or _is_title(block, field.name)):
                changes[field.name] = self.text(value)
            elif field.name in _JSON_OF_BLOCKS and not isinstance(value, str):
                changes[field.name] = self.json(value)
        changed = attrs.evolve(block, **changes)
        return block if changed == block else changed

    def outcome(self, outcome: ToolOutcome) -> ToolOutcome:
        """A call's outcome without secrets."""
        if not self.forms:
            return outcome
        error = outcome.error and attrs.evolve(outcome.error, message=self.text(outcome.error.message))
        return attrs.evolve(outcome, content=self.content(outcome.content), error=error)

    def failure(self, failure: Failure) -> Failure:
        """A failure without secrets, nor the beginning of one where its texts were cut."""
        details: Any = self.json(failure.details)
        texts = {name: getattr(failure, name) for name in ("message", "code", "request_id", "raw")}
        told: dict[str, Any] = {name: text and masked_end(self.text(text), self.forms) for name, text in texts.items()}
        return attrs.evolve(failure, details=details, **told)


def _is_title(block: Any, field: str) -> bool:
    """Names of tools are left alone: they must be found again."""
    return field == "name" and type(block) is DocumentBlock


class MaskedAdapter:
    """An adapter whose answers hold no secret, wherever a secret is cut into pieces."""

    def __init__(self, adapter: Adapter, secrecy: Secrecy) -> None:
        self._adapter = adapter
        self._secrecy = secrecy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | ModelResponse, None]:
        """As the adapter's own; a piece that may be the beginning of a secret waits for the next one."""
        held = _Held(self._secrecy)
        items: AsyncIterator[Any] = self._adapter.stream(request)
        async with aclosing(items) as stream:  # type: ignore[type-var]
            try:
                async for item in stream:
                    for chunk in held.pass_on(item):
                        yield chunk
                return
            except ProviderError as error:
                for chunk in held.rest():
                    yield chunk
                failure, cause = self._secrecy.failure(error.failure), error.__cause__
        raise ProviderError(failure) from cause  # with no context: that would be the error as it was


class _Held:
    """The ends of an answer's texts that may be the beginning of a secret, by kind and index."""

    def __init__(self, secrecy: Secrecy) -> None:
        self._secrecy = secrecy
        self._ends: dict[tuple[type, int], str] = {}

    def pass_on(self, item: Any) -> Iterator[Any]:
        """What may be shown now that `item` has come."""
        kind = type(item)
        name = _TEXT.get(kind)
        if name is not None:
            yield from self._text(kind, item.index, getattr(item, name))
            return
        if kind is ModelResponse:
            yield from self.rest()
            yield self._secrecy.response(item)
            return
        if kind is BlockEnded:
            yield from self.rest(item.index)
        yield _WHOLE.get(kind, _as_it_is)(item, self._secrecy)

    def _text(self, kind: type, index: int, piece: str) -> Iterator[Any]:
        for key in [key for key in self._ends if key != (kind, index) and key[0] is not ToolCallDelta]:
            yield self._take(key)
        text = self._secrecy.text(self._ends.pop((kind, index), "") + piece)
        kept = open_end(text, self._secrecy.forms)
        if kept:
            self._ends[kind, index] = text[-kept:]
        if len(text) > kept or not piece:
            yield kind(index, text[: len(text) - kept])

    def rest(self, index: int | None = None) -> Iterator[Any]:
        """What was held back, of block `index` or of all: nothing follows that could make a secret of it."""
        for key in [key for key in self._ends if index in (None, key[1])]:
            yield self._take(key)

    def _take(self, key: tuple[type, int]) -> Any:
        kind, index = key
        return kind(index, self._ends.pop(key))


def _as_it_is(item: Any, secrecy: Secrecy) -> Any:
    return item


_WHOLE: Final[Mapping[type, Callable[[Any, Secrecy], Any]]] = {
    BlockAdded: lambda item, secrecy: attrs.evolve(item, block=secrecy.content((item.block,))[0]),
    BlockEnded: lambda item, secrecy: attrs.evolve(item, provider_state=secrecy.state(item.provider_state)),
    ResponseStarted: lambda item, secrecy: attrs.evolve(
        item, model=secrecy.name(item.model), response_id=secrecy.name(item.response_id)
    ),
    ToolCallStarted: lambda item, secrecy: attrs.evolve(item, vendor_id=secrecy.name(item.vendor_id)),
    UsageReported: lambda item, secrecy: attrs.evolve(item, usage=secrecy.usage(item.usage)),
    ProviderEvent: lambda item, secrecy: attrs.evolve(item, data=secrecy.json(item.data)),
}
"""Chunks that arrive whole, and what is done with them."""
