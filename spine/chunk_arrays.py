"""Chunks as short JSON arrays, and back (floor 5): the form in which an answer's pieces lie in the log.

`["text", 0, "Hel", "lo"]` is two text deltas of block 0. Values inside chunks go through the codec's converter.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from spine.llm import chunks as c
from spine.llm.usage import Usage
from spine.messages import ContentBlock, ProviderState

__all__ = ["read_chunks", "write_chunks"]


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
_DELTA_KINDS: Mapping[str, type] = {tag: kind for kind, tag in _DELTA_TAGS.items()}


def write_chunks(converter: Converter, chunks: Sequence[c.Chunk]) -> list[list[Any]]:
    """One array for each chunk, but neighbouring deltas of one block share one."""
    written: list[list[Any]] = []
    last: tuple[str, int] | None = None
    for chunk in chunks:
        tag = _DELTA_TAGS.get(type(chunk))
        if tag is None:
            written.append(_write_chunk(converter, chunk))
            last = None
            continue
        piece = chunk.arguments if tag == "args" else chunk.text  # type: ignore[union-attr]
        if last == (tag, chunk.index):  # type: ignore[union-attr]
            written[-1].append(piece)
        else:
            last = (tag, chunk.index)  # type: ignore[union-attr]
            written.append([*last, piece])
    return written


def _write_chunk(converter: Converter, chunk: c.Chunk) -> list[Any]:
    match chunk:
        case c.ResponseStarted(model, response_id):
            return ["start", model, response_id]
        case c.ToolCallStarted(index, name, vendor_id):
            return ["call", index, name] if vendor_id is None else ["call", index, name, vendor_id]
        case c.BlockAdded(index, block):
            return ["block", index, converter.unstructure(block, ContentBlock)]
        case c.BlockEnded(index, state):
            return ["end", index] if state is None else ["end", index, converter.unstructure(state)]
        case c.UsageReported(usage):
            return ["usage", *converter.unstructure(usage)]
        case c.ProviderEvent(kind, data):
            return ["event", kind, data]
        case _:
            raise TypeError(f"{type(chunk).__name__} is no chunk")


def read_chunks(converter: Converter, arrays: Sequence[list[Any]]) -> tuple[c.Chunk, ...]:
    """The chunks that `write_chunks` wrote; raises `TypeError` for an array that is none of its."""
    chunks: list[c.Chunk] = []
    for array in arrays:
        delta = _DELTA_KINDS.get(array[0])
        if delta is None:
            chunks.append(_read_chunk(converter, array))
        else:
            index = array[1]
            chunks.extend([delta(index, piece) for piece in array[2:]])
    return tuple(chunks)


def _read_chunk(converter: Converter, array: list[Any]) -> c.Chunk:
    match array:
        case ["usage", *usage]:
            return c.UsageReported(converter.structure(usage, Usage))
        case ["call", index, name, *vendor_id]:
            return c.ToolCallStarted(index, name, *vendor_id)
        case ["start", model, response_id]:
            return c.ResponseStarted(model, response_id)
        case ["end", index, *state]:
            return c.BlockEnded(index, converter.structure(state[0], ProviderState) if state else None)
        case ["block", index, block]:
            return c.BlockAdded(index, converter.structure(block, ContentBlock))
        case ["event", kind, data]:
            return c.ProviderEvent(kind, data)
        case _:
            raise TypeError(f"unknown chunk {array[0]!r}")
