"""What has been encoded already (side room `wire`): wire bytes are kept as long as the message they stand for.

A step of a long session then costs a look-up per message. The memory changes no result, only its price.
"""

import weakref
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Generic, Protocol, TypeVar

from spine.frozen import define
from spine.llm.catalogue import Traits
from spine.messages import Message

__all__ = ["MessageMemory", "TargetMemory", "Written"]

MOST_TARGETS = 64


class Written(Protocol):
    """A message as it goes on the wire; `wire_ids` are the ids of its calls."""

    wire_ids: frozenset[str]


W = TypeVar("W", bound=Written)
T = TypeVar("T")


@define
class _Entry(Generic[W]):
    """`apart` is the same message without vendor ids, made when they repeat in a request."""

    message: "weakref.ref[Message]"
    written: W
    apart: W | None = None


class MessageMemory(Generic[W]):
    """Messages in their wire form for one target; `write(message, use_vendor_ids)` makes it."""

    def __init__(self, write: Callable[[Message, bool], W]) -> None:
        self._write = write
        self._entries: dict[int, _Entry[W]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def prepare(self, messages: Sequence[Message]) -> None:
        """Write what is new at the end of `messages`: what cannot be written is refused before anything is asked.

        Only what follows the last message that is known is looked at: those before it were written in their time.
        """
        for message in reversed(tuple(takewhile(self._is_new, reversed(messages)))):
            self._keep(message)

    def _is_new(self, message: Message) -> bool:
        entry = self._entries.get(id(message))
        return entry is None or entry.message() is not message

    def written(self, message: Message, seen: set[str]) -> W:
        """The wire form of `message`; its call ids are added to `seen`, the ids of the request so far.

        Vendors' ids that repeat from answer to answer (some count from 0) are replaced by ours.
        """
        entry = self._entries.get(id(message))
        if entry is None or entry.message() is not message:
            entry = self._keep(message)
        written = entry.written
        if written.wire_ids:
            if not seen.isdisjoint(written.wire_ids):
                if entry.apart is None:
                    entry.apart = self._write(message, False)
                written = entry.apart
            seen.update(written.wire_ids)
        return written

    def _keep(self, message: Message) -> _Entry[W]:
        key = id(message)
        reference = weakref.ref(message, lambda _: self._forget(key))
        entry = self._entries[key] = _Entry(reference, self._write(message, True))
        return entry

    def _forget(self, key: int) -> None:
        self._entries.pop(key, None)


class TargetMemory(Generic[T]):
    """A value for each route and its traits; with the 65th all are forgotten."""

    def __init__(self, make: Callable[[str, Traits], T]) -> None:
        self._make = make
        self._values: dict[tuple[str, Traits], T] = {}

    def of(self, route: str, traits: Traits) -> T:
        """The value of a route."""
        key = (route, traits)
        value = self._values.get(key)
        if value is None:
            if len(self._values) >= MOST_TARGETS:
                self._values.clear()
            value = self._values[key] = self._make(route, traits)
        return value
