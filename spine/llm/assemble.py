"""The fold from chunks to a message (floor 3): the one way an assistant message comes to be."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import attrs

from spine.drafts import maker
from spine.errors import ValueRefused
from spine.llm import chunks as c
from spine.llm.usage import Usage
from spine.messages import ContentBlock, Message, Origin, RefusalBlock, TextBlock, ThinkingBlock, ToolCallBlock
from spine.values import EMPTY_OBJECT, CallId, JsonObject, clean_text, freeze_object, load

__all__ = ["Assembler", "assemble", "parse_arguments"]


class _Open:
    """A block under construction; pieces are joined once, at the end."""

    __slots__ = ("call", "end", "kind", "pieces", "whole")

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.call: c.ToolCallStarted | None = None
        self.whole: ContentBlock | None = None
        self.end: c.BlockEnded | None = None


class Assembler:
    """Adds chunks one by one; `message` may be asked for at any moment (a partial answer) and again later.

    Call ids are minted as `<step>c1`, `<step>c2`, … in order of appearance; with no step they are `c1`, `c2`, ….
    """

    def __init__(self, step: str = "") -> None:
        self.step = step
        self.usage: Usage | None = None
        self.model: str | None = None
        self.response_id: str | None = None
        self._blocks: dict[int, _Open] = {}

    def add(self, chunk: c.Chunk) -> None:
        """Fold one chunk in."""
        kind = type(chunk)
        made = _MAKES.get(kind)
        if made is None:
            self._add_rare(chunk)
            return
        block = self._blocks.get(chunk.index)  # type: ignore[union-attr]
        if block is None:
            block = self._blocks[chunk.index] = _Open(made)  # type: ignore[union-attr]
        if kind in _TEXT_KINDS:
            block.pieces.append(chunk.text)  # type: ignore[union-attr]
        elif kind is c.ToolCallDelta:
            block.pieces.append(chunk.arguments)  # type: ignore[union-attr]
        elif kind is c.ToolCallStarted:
            block.call = chunk  # type: ignore[assignment]
        else:
            block.whole = chunk.block  # type: ignore[union-attr]

    def _add_rare(self, chunk: c.Chunk) -> None:
        match chunk:
            case c.BlockEnded():
                if chunk.index in self._blocks:
                    self._blocks[chunk.index].end = chunk
            case c.UsageReported():
                self.usage = chunk.usage
            case c.ResponseStarted():
                self.model = self.model or chunk.model
                self.response_id = self.response_id or chunk.response_id

    @property
    def is_visible(self) -> bool:
        """Whether anything arrived that a watcher may have shown to a person."""
        return bool(self._blocks)

    def has_unended_call(self) -> bool:
        """Whether a call has begun."""
        return any(block.call is not None for block in self._blocks.values())

    def message(self, origin: Origin | None = None) -> Message:
        """The message so far: blocks in order of appearance; empty text, thinking and refusals are left out."""
        content: list[ContentBlock] = []
        calls = 0
        for block in self._blocks.values():
            if block.kind is c.ToolCallStarted:
                calls += 1
                content.append(_build_call(block, CallId(f"{self.step}c{calls}")))
            elif (built := _build(block)) is not None:
                content.append(built)
        return _make_message("assistant", tuple(content), None, origin, EMPTY_OBJECT)


_TEXT_KINDS = frozenset((c.TextDelta, c.ThinkingDelta, c.RefusalDelta))
_MAKES = {kind: kind for kind in (*_TEXT_KINDS, c.ToolCallStarted, c.BlockAdded)} | {c.ToolCallDelta: c.ToolCallStarted}
"""Chunks that belong to a block, and by which one it is known."""


def _build_call(block: _Open, id: CallId) -> ToolCallBlock:
    text, call = clean_text("".join(block.pieces)), block.call
    arguments = parse_arguments(text)
    state = block.end.provider_state if block.end else None
    name, vendor_id = (clean_text(call.name), call.vendor_id) if call else ("", None)
    return _make_call(id, name, arguments, None if arguments is not None else text, vendor_id, state)


def _build(block: _Open) -> ContentBlock | None:
    state = block.end.provider_state if block.end else None
    if block.kind is c.BlockAdded:
        whole = block.whole
        return whole if state is None or whole is None else attrs.evolve(whole, provider_state=state)
    text = clean_text("".join(block.pieces))
    return _BLOCKS[block.kind](text, state) if text or state is not None else None


_make_message: Callable[..., Message] = maker(Message)
_make_call: Callable[..., ToolCallBlock] = maker(ToolCallBlock)
_BLOCKS: Mapping[type, Callable[..., ContentBlock]] = {
    c.TextDelta: maker(TextBlock),
    c.ThinkingDelta: lambda text, state: ThinkingBlock(text=text, provider_state=state),
    c.RefusalDelta: maker(RefusalBlock),
}


def parse_arguments(text: str) -> JsonObject | None:
    """The arguments of a call: nothing or blanks mean `{}`, anything but a JSON object means None."""
    if not text or text == "{}" or text.isspace():
        return EMPTY_OBJECT
    return _parse_short(text) if len(text) <= 2048 else _parse(text)


def _parse(text: str) -> JsonObject | None:
    try:
        value = load(text)
        return freeze_object(value) if isinstance(value, dict) else None
    except ValueRefused:
        return None


# A decoder folds its chunks and the loop folds them again: the second time is a look-up.
_parse_short = lru_cache(maxsize=512)(_parse)


def assemble(chunks: Iterable[c.Chunk], step: str = "", origin: Origin | None = None) -> Message:
    """The message that `chunks` make."""
    assembler = Assembler(step)
    for chunk in chunks:
        assembler.add(chunk)
    return assembler.message(origin)
