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
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from spine.llm.errors import Failure, ProviderError
from spine.llm.protocols import Adapter
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.masking import forms_of, masked, masked_json
from spine.messages import Message
from spine.tools import ToolOutcome
from spine.values import Json, Secret

__all__ = ["MaskedAdapter", "Secrecy"]

_TEXT: Final[Mapping[type, str]] = {
    TextDelta: "text",
    ThinkingDelta: "text",
    RefusalDelta: "text",
    ToolCallDelta: "arguments",
}
"""The field of a chunk that holds a piece of text."""
_OF_BLOCKS: Final = ("text", "arguments_text", "url", "transcript")
_JSON_OF_BLOCKS: Final = ("value", "arguments", "data")


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

    def message(self, message: Message) -> Message:
        """A message without secrets; the same object when it held none."""
        content = self.content(message.content)
        return message if content == message.content else attrs.evolve(message, content=content)

    def content(self, content: tuple[Any, ...]) -> tuple[Any, ...]:
        """Blocks without secrets. Binary data are left alone: a block's `data` is looked at where it is JSON."""
        return tuple(self._block(block) for block in content)

    def _block(self, block: Any) -> Any:
        changes: dict[str, Any] = {}
        for field in attrs.fields(type(block)):
            value = getattr(block, field.name)
            if field.name == "content":
                changes[field.name] = self.content(value)
            elif field.name in _OF_BLOCKS and isinstance(value, str):
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
        """A failure without secrets."""
        details: Any = self.json(failure.details)
        raw = failure.raw and self.text(failure.raw)
        return attrs.evolve(failure, message=self.text(failure.message), raw=raw, details=details)


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
            except ProviderError as error:
                for chunk in held.rest():
                    yield chunk
                raise ProviderError(self._secrecy.failure(error.failure)) from error.__cause__


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
            yield attrs.evolve(item, message=self._secrecy.message(item.message))
            return
        if kind is BlockEnded:
            yield from self.rest(item.index)
        yield _WHOLE.get(kind, _as_it_is)(item, self._secrecy)

    def _text(self, kind: type, index: int, piece: str) -> Iterator[Any]:
        for key in [key for key in self._ends if key != (kind, index) and key[0] is not ToolCallDelta]:
            yield self._take(key)
        text = self._secrecy.text(self._ends.pop((kind, index), "") + piece)
        kept = _open_end(text, self._secrecy.forms)
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


def _open_end(text: str, forms: Iterable[str]) -> int:
    """How many characters at the end of `text` are the beginning of one of `forms`."""
    return max((_overlap(text, form) for form in forms), default=0)


def _overlap(text: str, form: str) -> int:
    for size in range(min(len(text), len(form) - 1), 0, -1):
        if text.endswith(form[:size]):
            return size
    return 0


def _as_it_is(item: Any, secrecy: Secrecy) -> Any:
    return item


_WHOLE: Final[Mapping[type, Callable[[Any, Secrecy], Any]]] = {
    BlockAdded: lambda item, secrecy: attrs.evolve(item, block=secrecy.content((item.block,))[0]),
    ProviderEvent: lambda item, secrecy: attrs.evolve(item, data=secrecy.json(item.data)),
}
"""Chunks that arrive whole, and what is done with them."""
