"""Chunks as short JSON arrays, and back (floor 5): the form in which an answer's pieces lie in the log.

`["text", 0, "Hel", "lo"]` is two text deltas of block 0. Values inside chunks go through the codec's converter.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Protocol

from spine.drafts import maker
from spine.llm import chunks as c
from spine.llm.usage import Usage
from spine.messages import ContentBlock, ProviderState

__all__ = ["CHUNK_TAGS", "read_chunks", "write_chunks"]


class Converter(Protocol):
    """What is needed of the codec's converter."""

    def structure(self, data: Any, kind: Any, /) -> Any:
        """A value from its JSON form."""

    def unstructure(self, value: Any, kind: Any = None, /) -> Any:
        """A value's JSON form."""


_DELTA_TAGS: Mapping[type, str] = {
    c.TextDelta: "text",
    c.ThinkingDelta: "think",
    c.RefusalDelta: "refuse",
    c.ToolCallDelta: "args",
}
CHUNK_TAGS: Mapping[type, str] = {
    **_DELTA_TAGS,
    c.ResponseStarted: "start",
    c.ToolCallStarted: "call",
    c.BlockAdded: "block",
    c.BlockEnded: "end",
    c.UsageReported: "usage",
    c.ProviderEvent: "event",
}
"""What a chunk's array begins with."""
_PIECES = {kind: attrgetter("index", "arguments" if tag == "args" else "text") for kind, tag in _DELTA_TAGS.items()}


def write_chunks(converter: Converter, chunks: Sequence[c.Chunk]) -> list[list[Any]]:
    """One array for each chunk, but neighbouring deltas of one block share one."""
    written: list[list[Any]] = []
    last_kind, last_index = None, -1
    for chunk in chunks:
        kind = type(chunk)
        piece_of = _PIECES.get(kind)
        if piece_of is None:
            written.append(_write_chunk(converter, kind, chunk))
        else:
            index, piece = piece_of(chunk)
            if kind is last_kind and index == last_index:
                written[-1].append(piece)
            else:
                written.append([_DELTA_TAGS[kind], index, piece])
            last_index = index
        last_kind = kind
    return written


def _write_chunk(converter: Converter, kind: type, chunk: Any) -> list[Any]:
    write = _WRITERS.get(kind)
    if write is None:
        raise TypeError(f"{kind.__name__} is no chunk")
    return write(converter, chunk)


_WRITERS: Mapping[type, Callable[[Converter, Any], list[Any]]] = {
    c.ResponseStarted: lambda _, chunk: ["start", chunk.model, chunk.response_id],
    c.ToolCallStarted: lambda _, chunk: (
        ["call", chunk.index, chunk.name]
        if chunk.vendor_id is None
        else ["call", chunk.index, chunk.name, chunk.vendor_id]
    ),
    c.BlockAdded: lambda converter, chunk: ["block", chunk.index, converter.unstructure(chunk.block, ContentBlock)],
    c.BlockEnded: lambda converter, chunk: (
        ["end", chunk.index]
        if chunk.provider_state is None
        else ["end", chunk.index, converter.unstructure(chunk.provider_state)]
    ),
    c.UsageReported: lambda converter, chunk: ["usage", *converter.unstructure(chunk.usage)],
    c.ProviderEvent: lambda _, chunk: ["event", chunk.kind, chunk.data],
}


def read_chunks(converter: Converter, arrays: Sequence[list[Any]]) -> tuple[c.Chunk, ...]:
    """The chunks that `write_chunks` wrote; raises `TypeError` for an array that is none of its."""
    chunks: list[c.Chunk] = []
    deltas = _delta_makers()
    for tag, *parts in arrays:
        make = deltas.get(tag)
        if make is None:
            chunks.append(_read_chunk(converter, tag, parts))
        else:
            index, *pieces = parts
            chunks.extend([make(index, piece) for piece in pieces])
    return tuple(chunks)


@cache
def _delta_makers() -> Mapping[str, Callable[[int, str], c.Chunk]]:
    return {tag: maker(kind) for kind, tag in _DELTA_TAGS.items()}


def _read_chunk(converter: Converter, tag: str, parts: list[Any]) -> c.Chunk:
    read = _READERS.get(tag)
    if read is None:
        raise TypeError(f"unknown chunk {tag!r}")
    return read(converter, *parts)


def _read_usage(converter: Converter, *usage: Any) -> c.Chunk:
    return c.UsageReported(converter.structure(usage, Usage))


def _read_end(converter: Converter, index: int, state: Any = None) -> c.Chunk:
    return c.BlockEnded(index, None if state is None else converter.structure(state, ProviderState))


def _read_block(converter: Converter, index: int, block: Any) -> c.Chunk:
    return c.BlockAdded(index, converter.structure(block, ContentBlock))


def _read_start(_: Converter, model: str | None, response_id: str | None) -> c.Chunk:
    return c.ResponseStarted(model, response_id)


def _read_call(_: Converter, index: int, name: str, vendor_id: str | None = None) -> c.Chunk:
    return c.ToolCallStarted(index, name, vendor_id)


def _read_event(_: Converter, kind: str, data: Any) -> c.Chunk:
    return c.ProviderEvent(kind, data)


_READERS: Mapping[str, Callable[..., c.Chunk]] = {
    "start": _read_start,
    "call": _read_call,
    "block": _read_block,
    "end": _read_end,
    "usage": _read_usage,
    "event": _read_event,
}
"""By the first item of an array: what makes a chunk of the rest."""
