"""The envelope of an event (floor 4): a fact's number, time, place and hashes, and what kinds of facts there are.

The facts themselves stand in `spine.events`, which gives these names, too.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Protocol

import attrs

from spine.frozen import frozen
from spine.store import ERASED_TYPE, Content
from spine.values import DIGEST_FORMAT, Digest, JsonObject, SessionId, StepId, TurnId, encode

__all__ = [
    "Envelope",
    "EventType",
    "RecordedEvent",
    "UnknownEvent",
    "Upcaster",
    "data_hash",
    "erased_data",
    "is_erased",
]


class Envelope(Protocol):
    """What core projections need besides an event's data; a stored row has it as well as a `RecordedEvent`."""

    @property
    def seq(self) -> int:
        """The event's number."""

    @property
    def at(self) -> int:
        """Microseconds since 1970 UTC."""

    @property
    def place(self) -> str | None:
        """The turn or step it happened in."""


@frozen(kw_only=True)
class RecordedEvent:
    """A fact with its place in the log; `(seq, hash)` is its identity.

    `at` counts microseconds since 1970 UTC and is information, never order. `place` is the turn or step it happened
    in. `hash` is SHA-256 over `prev_hash`, the header (all but data and hashes) and SHA-256 of the data's bytes.
    """

    session: SessionId
    seq: int
    type: str
    version: int
    at: int
    place: str | None
    origin: str | None
    """None for the core, else `plugin@version`."""
    required: bool
    data: Any
    prev_hash: bytes
    hash: bytes

    @property
    def turn(self) -> TurnId | None:
        """The turn it belongs to, if any."""
        return None if self.place is None else TurnId(self.place.partition("s")[0])

    @property
    def step(self) -> StepId | None:
        """The step it belongs to, if any."""
        return StepId(self.place) if self.place is not None and "s" in self.place else None


Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns the data of one version into that of the next; pure and total."""


@frozen(kw_only=True)
class EventType:
    """A kind of event: its stable name, current version and class.

    `upcasters[v]` turns data of version v into version v+1. A `required` type makes a session read-only where the
    type is not known. `name` of a plugin's event is `<plugin>.<name>`.
    """

    name: str
    data: type
    version: int = 1
    upcasters: Mapping[int, Upcaster] = attrs.field(factory=dict)
    required: bool = False


@frozen
class UnknownEvent:
    """Data of an event whose type or version this installation does not know."""

    data: JsonObject
    is_erased: bool = False
    """Its type is known here, but what an erasure left does not fit it."""


# ------------------------------------------------------------------------------------------------- erased data

ERASED_KEY: Final = "$erased"
ERASED_TEXT: Final = "[erased]"
_ERASED: Final = f'{{"{ERASED_KEY}":"{DIGEST_FORMAT}'.encode()
_DIGITS: Final = 64


def is_erased(data: bytes) -> bool:
    """Whether an event's data was erased: what stands there begins with the digest of what stood there."""
    return data.startswith(_ERASED)


def data_hash(data: bytes) -> bytes:
    """SHA-256 of an event's data, as the event's hash covers it; of erased data, what it was before."""
    if data.startswith(_ERASED):
        try:
            return bytes.fromhex(data[len(_ERASED) : len(_ERASED) + _DIGITS].decode())
        except ValueError:
            pass
    return sha256(data).digest()


def erased_data(data: bytes, left: Mapping[str, Any]) -> bytes:
    """What takes the place of `data`: its digest, and the fields that are `left` of it."""
    return encode({ERASED_KEY: DIGEST_FORMAT + data_hash(data).hex(), **left})


def erased_content(digest: Digest) -> Content:
    """What takes the place of the content with this digest."""
    return Content(digest, ERASED_TYPE, ERASED_TEXT.encode())
