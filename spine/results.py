"""What a handler returned, as content that a model can be shown and an event can hold (floor 3).

`content_of` accepts text, content blocks, and everything that is JSON: attrs classes, dataclasses, enums, dates and
the like. It refuses the rest by type, never by crashing: generators, cycles, NaN, objects without a JSON form.

`fit` holds the rule for what is too large: text and JSON together may have `max_bytes`. Blocks are kept in order while
they fit; the first that does not is cut at a character and marked; text and JSON after it are left out; and all of it
goes, whole, into one artifact that the last block refers to. Images, sound and documents are never cut.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args

import attrs
import msgspec

from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    ProviderState,
    ResultContent,
    TextBlock,
)
from spine.store import INLINE_CONTENT_BYTES, MAX_CONTENT_BYTES, MAX_EVENT_BYTES, Content
from spine.tools import ToolError, ToolOutcome, ToolStatus
from spine.values import MAX_DEPTH, Json, JsonObject, clean_text, digest, encode
from spine.wording import WORDING_VERSION, say

__all__ = ["Fitted", "ResultUnusable", "checked_outcome", "content_of", "fit"]

MAX_NODES: Final = 250_000
"""Converting more would hold up the event loop for about a second; a tool with more to say returns text."""
MAX_BITS: Final = 14_000
"""Just under the 4,300 digits that are read back from JSON."""
MAX_BLOCKS: Final = 256
MAX_USAGE_BYTES: Final = 16 * 1024
SMALL_BYTES: Final = 8 * 1024
"""Up to here text and JSON fit anywhere, so nothing else is measured."""
MAX_INLINE_BYTES: Final = MAX_EVENT_BYTES // 2
"""What may stand in one event besides the texts that lie beside the log; half, for the envelope and other fields."""


class ResultUnusable(Exception):
    """A returned value that cannot be shown; the message completes "its result cannot be shown: …"."""


# ------------------------------------------------------------------------------------------- value to content


def content_of(value: Any) -> tuple[ResultContent, ...]:
    """The blocks for a returned value; None and empty text give none.

    Text becomes a text block, a block or a sequence with blocks stays (texts between them become blocks), anything
    else becomes one JSON block. Raises `ResultUnusable`; whatever a foreign object's own methods raise passes through.
    """
    kind = type(value)
    if kind is str:
        return (TextBlock(text=clean_text(value)),) if value else ()
    if value is None:
        return ()
    if kind in _BLOCKS:
        return (_checked(value),)
    if kind in (tuple, list) and any(type(item) in _BLOCKS for item in value):
        return _block_sequence(value)
    if isinstance(value, str):
        return content_of(str.__str__(value))
    if isinstance(value, bytes | bytearray | memoryview):
        raise ResultUnusable(f"{kind.__name__} is neither text nor JSON; return text, or an image or document block")
    return (JsonBlock(value=_Walk().json(value, 0)),)


def _block_sequence(values: Iterable[Any]) -> tuple[ResultContent, ...]:
    blocks: list[ResultContent] = []
    for item in values:
        if type(item) is str:
            blocks.append(TextBlock(text=clean_text(item)))
        elif type(item) in _BLOCKS:
            blocks.append(_checked(item))
        else:
            raise ResultUnusable(f"a sequence with content blocks also has {_name(item)}; only text may stand there")
    if len(blocks) > MAX_BLOCKS:
        raise ResultUnusable(f"{len(blocks):,} content blocks are more than {MAX_BLOCKS}")
    return tuple(blocks)


_ATOMS: Final = (str, bytes, bytearray, memoryview)
"""Sequences that stand for one value."""


class _Walk:
    """One value's way to frozen JSON, with a bound on what it may unfold to: small objects can share huge ones."""

    def __init__(self) -> None:
        self._nodes = 0
        self._chars = 0

    def json(self, value: Any, depth: int) -> Json:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise ResultUnusable(f"it has more than {MAX_NODES:,} values")
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is int:
            return _whole(value)
        if value is None or kind is bool:
            return value  # type: ignore[no-any-return]
        if kind is float:
            return _finite(value)
        if depth >= MAX_DEPTH:
            raise ResultUnusable(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself")
        return self._composed(value, depth)

    def _text(self, text: str) -> str:
        self._chars += len(text)
        if self._chars > MAX_CONTENT_BYTES:
            raise ResultUnusable(f"it has more than {MAX_CONTENT_BYTES:,} characters")
        return clean_text(text)

    def _composed(self, value: Any, depth: int) -> Json:
        kind = type(value)
        if kind is dict:
            return self._object(value, depth)
        if kind is list or kind is tuple:
            return self._array(value, depth)
        fields = _fields(kind)  # type: ignore[arg-type]  # a class is hashable
        if fields is not None:
            return JsonObject({name: self.json(getattr(value, attribute), depth + 1) for name, attribute in fields})
        if isinstance(value, Mapping):
            return self._object(value, depth)
        if isinstance(value, AbstractSet):
            # A set has no order of its own; the same result must be the same bytes.
            return tuple(sorted(self._array(value, depth), key=encode))
        if isinstance(value, Sequence) and not isinstance(value, _ATOMS):
            return self._array(value, depth)
        return self._leaf(value)

    def _array(self, values: Iterable[Any], depth: int) -> tuple[Json, ...]:
        return tuple([self.json(item, depth + 1) for item in values])

    def _object(self, value: Mapping[Any, Any], depth: int) -> JsonObject:
        items: dict[str, Json] = {}
        for key, item in value.items():
            name = self._key(key)
            if name in items:
                raise ResultUnusable(f'two of its keys are written "{name[:80]}"')
            items[name] = self.json(item, depth + 1)
        return JsonObject(items)

    def _key(self, key: Any) -> str:
        if type(key) is str:
            return self._text(key)
        plain = self._leaf(key)
        if plain is None or isinstance(plain, bool | tuple | dict):
            raise ResultUnusable(f"{_name(key)} is no key of a JSON object")
        return str(plain)

    def _leaf(self, value: Any) -> Json:
        """Enums, dates, uuids, decimals, bytes and subclasses of plain values."""
        try:
            plain = msgspec.to_builtins(value)
        except TypeError:
            plain = _plain_subclass(value)
        if isinstance(plain, str):
            return self._text(plain)
        if isinstance(plain, float):
            return _finite(plain)
        if isinstance(plain, int):
            return _whole(plain)
        if plain is None:
            return plain
        raise ResultUnusable(f"{_name(value)} is no JSON value")


def _plain_subclass(value: Any) -> Any:
    for base in (str, int, float):
        if isinstance(value, base):
            return base.__str__(value) if base is str else base.__add__(value, 0)  # type: ignore[operator]
    raise _refusal(value)


def _refusal(value: Any) -> ResultUnusable:
    close = getattr(type(value), "close", None)
    if close is not None and hasattr(type(value), "send"):
        close(value)  # a generator or a coroutine that nobody will run must not warn about it later
        return ResultUnusable(f"{_name(value)} is no result; collect or await it, and return what it gives")
    return ResultUnusable(f"{_name(value)} is no JSON value")


@functools.lru_cache(maxsize=512)
def _fields(kind: type) -> tuple[tuple[str, str], ...] | None:
    """(name in JSON, attribute) of an attrs class, dataclass or msgspec struct; None for anything else."""
    if attrs.has(kind):
        return tuple((field.name, field.name) for field in attrs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return tuple((field.name, field.name) for field in dataclasses.fields(kind))
    if issubclass(kind, msgspec.Struct):
        return tuple(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    return None


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ResultUnusable(f"{number} is no JSON number")
    return float(number)


def _whole(number: int) -> int:
    if number.bit_length() > MAX_BITS:
        raise ResultUnusable(f"a whole number of {number.bit_length():,} bits is longer than {MAX_BITS:,}")
    return number


def _name(value: Any) -> str:
    return f"a value of type {type(value).__name__[:80]}"


# ---------------------------------------------------------------------------------------- blocks and outcomes

_MEDIA = (("media_type",), ("data", "url", "artifact"))
_BLOCKS: Final[Mapping[type, tuple[tuple[str, ...], tuple[str, ...]]]] = MappingProxyType(
    {
        TextBlock: (("text",), ()),
        JsonBlock: ((), ()),
        ImageBlock: (_MEDIA[0], (*_MEDIA[1], "detail")),
        AudioBlock: (_MEDIA[0], (*_MEDIA[1], "transcript")),
        DocumentBlock: (_MEDIA[0], (*_MEDIA[1], "name")),
        ArtifactRefBlock: (("digest", "media_type"), ()),
        ExtensionBlock: (("kind",), ()),
    }
)
"""Blocks a result may hold, with the fields that must be text and those that may be."""


def _checked(block: Any) -> ResultContent:
    """The block with clean text; attrs does not check types, so a handler may have put anything into it."""
    needed, optional = _BLOCKS[type(block)]
    changes = {}
    for name in (*needed, *optional):
        value = getattr(block, name)
        if value is None and name in optional:
            continue
        if not isinstance(value, str):
            raise ResultUnusable(f"{type(block).__name__}.{name} is {_name(value)}, not text")
        if len(value) > MAX_CONTENT_BYTES:
            raise ResultUnusable(f"{type(block).__name__}.{name} has more than {MAX_CONTENT_BYTES:,} characters")
        if type(value) is not str or clean_text(value) != value:
            changes[name] = clean_text(str.__str__(value))
    if type(block) is ArtifactRefBlock and type(block.size) is not int:
        raise ResultUnusable(f"ArtifactRefBlock.size is {_name(block.size)}, not a number of bytes")
    if block.provider_state is not None and type(block.provider_state) is not ProviderState:
        raise ResultUnusable(f"{type(block).__name__}.provider_state is {_name(block.provider_state)}")
    checked: ResultContent = attrs.evolve(block, **changes) if changes else block
    return checked


def checked_outcome(outcome: ToolOutcome) -> ToolOutcome:
    """An outcome that a handler or a plugin made itself, checked field by field. Raises `ResultUnusable`.

    One with an error and no content shows the error's message.
    """
    if outcome.status not in get_args(ToolStatus):
        raise ResultUnusable(f"its outcome has status {str(outcome.status)[:80]!r}")
    error = outcome.error
    if error is not None and not _is_error(error):
        raise ResultUnusable("its outcome's error is no ToolError of texts")
    if not isinstance(outcome.content, tuple | list):
        raise ResultUnusable(f"its outcome's content is {_name(outcome.content)}, not a tuple of blocks")
    if len(encode(outcome.usage)) > MAX_USAGE_BYTES:
        raise ResultUnusable(f"its outcome's usage has more than {MAX_USAGE_BYTES:,} bytes")
    content = _block_sequence(outcome.content)
    if not content and error is not None:
        content = (TextBlock(text=say("failed", message=error.message[:2000])),)
    return outcome.evolve(content=content, truncated=bool(outcome.truncated))


def _is_error(error: Any) -> bool:
    if type(error) is not ToolError:
        return False
    return all(isinstance(value, str) for value in (error.kind, error.message, error.type or ""))


# ------------------------------------------------------------------------------------------------- size limits


class Fitted(NamedTuple):
    """Content within its limit; `overflow` holds the whole of it when it had to be cut."""

    content: tuple[ResultContent, ...]
    overflow: Content | None = None


def fit(content: tuple[ResultContent, ...], max_bytes: int, *, wording: int = WORDING_VERSION) -> Fitted:
    """`content` within `max_bytes` of text and JSON, by the rule at the head of this file.

    Raises `ResultUnusable` when blocks that are never cut do not fit into one event.
    """
    if len(content) == 1 and type(content[0]) is TextBlock and len(content[0].text) * 4 <= max_bytes:
        return Fitted(content)
    written = [_written(block) for block in content]
    total = sum(len(data) for data in written if data is not None)
    if total <= min(max_bytes, SMALL_BYTES) and None not in written:
        return Fitted(content)
    fitted = Fitted(tuple(map(_beside, content, written)))
    if total > max_bytes:
        fitted = _cut(content, written, total, max_bytes, wording)
    inline = sum(_inline_bytes(block) for block in fitted.content)
    if inline > MAX_INLINE_BYTES:
        raise ResultUnusable(f"its blocks have {inline:,} bytes; one event has room for {MAX_INLINE_BYTES:,}")
    return fitted


_WRITERS: Final[Mapping[type, Callable[[Any], bytes]]] = MappingProxyType(
    {
        TextBlock: lambda block: block.text.encode(),
        JsonBlock: lambda block: encode(block.value),
        ExtensionBlock: lambda block: encode({"kind": block.kind, "data": block.data}),
    }
)
"""Blocks that count towards the limit, as UTF-8; the others are never cut."""


def _written(block: ResultContent) -> bytes | None:
    write = _WRITERS.get(type(block))
    return None if write is None else write(block)


def _beside(block: ResultContent, written: bytes | None) -> ResultContent:
    """Large JSON is shown as its text: an event holds JSON inline, and lays only text beside the log."""
    if type(block) is JsonBlock and written is not None and len(written) > INLINE_CONTENT_BYTES:
        return TextBlock(text=written.decode())
    return block


def _cut(
    content: tuple[ResultContent, ...], written: list[bytes | None], total: int, max_bytes: int, wording: int
) -> Fitted:
    overflow = _overflow(content, written)
    kept: list[ResultContent] = []
    room, is_cut = max_bytes, False
    for block, data in zip(content, written, strict=True):
        if data is None:
            kept.append(block)
        elif not is_cut and len(data) <= room:
            kept.append(_beside(block, data))
            room -= len(data)
        elif not is_cut:
            is_cut = True
            text = _head(data, room)
            marker = _marker(max_bytes - room + len(text.encode()), total, len(overflow.data), wording)
            kept.append(TextBlock(text=text + marker))
    reference = ArtifactRefBlock(digest=overflow.digest, media_type=overflow.media_type, size=len(overflow.data))
    return Fitted((*kept, reference), overflow)


def _overflow(content: tuple[ResultContent, ...], written: list[bytes | None]) -> Content:
    parts = [data for data in written if data is not None]
    is_json = len(parts) == 1 and any(type(block) is JsonBlock for block in content)
    data = b"\n".join(parts)
    if len(data) > MAX_CONTENT_BYTES:
        data, is_json = _head(data, MAX_CONTENT_BYTES).encode(), False
    return Content(digest(data), "application/json" if is_json else "text/plain", data)


def _marker(shown: int, total: int, kept: int, wording: int) -> str:
    name = "truncated" if kept >= total else "truncated_store"
    return say(name, version=wording, shown=f"{shown:,}", total=f"{total:,}", kept=f"{kept:,}")


def _head(data: bytes, size: int) -> str:
    # What is cut was valid, so the only thing "ignore" can drop is a character cut in two.
    return data[:size].decode("utf-8", "ignore")


def _inline_bytes(block: ResultContent) -> int:
    values = (getattr(block, field.name) for field in attrs.fields(type(block)) if field.name != "provider_state")
    state = block.provider_state
    parts = chain(values, () if state is None else (state.data,))
    return sum(_weight(part) for part in parts)


def _weight(value: Any) -> int:
    if isinstance(value, str) and len(value) > INLINE_CONTENT_BYTES // 4 and len(value.encode()) > INLINE_CONTENT_BYTES:
        return 0
    return len(encode(value))
