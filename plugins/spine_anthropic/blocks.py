"""One content block of an answer, from its start over its deltas to its end.

Text and thinking are handed out as they come, calls too; everything the provider ran itself (server tools and their
results, MCP, compaction, kinds of a later day) is collected and handed out whole, as an `extension` block with all of
its members. A signature and citations ride with their block as its opaque state. An initial `input` is a placeholder:
it counts only when no piece of JSON follows.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from spine.llm.assemble import parse_arguments
from spine.llm.chunks import BlockAdded, BlockEnded, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStarted
from spine.messages import ExtensionBlock, ThinkingBlock
from spine.wire import Draft, clean_text, not_ours, out_of_place, to_json

DIRECT = "direct"
"""The `caller` of a call that the model itself made, which goes without saying."""
INPUT = "partial_json"
"""The member of a delta that holds a piece of an input."""


@attrs.define
class OpenBlock:
    """The block under construction. `start` is its `content_block`, `place` the index the wire gives it."""

    place: Any
    index: int
    start: dict[str, Any]
    kind: str
    pieces: dict[str, list[str]] = attrs.Factory(dict)
    size: int = 0
    state: dict[str, Any] = attrs.Factory(dict)
    has_text: bool = False


Step = Callable[[Draft, OpenBlock], None]
Add = Callable[[Draft, OpenBlock, dict[str, Any]], None]


def open_block(draft: Draft, place: Any, start: Any) -> OpenBlock:
    """A block begins. Raises `protocol_error` for what is no block, and beyond the limits."""
    if type(start) is not dict or type(start.get("type")) is not str:
        raise not_ours("a content block without a type")
    block = OpenBlock(place, draft.next_index(), start, start["type"])
    begin = _BEGIN.get(block.kind)
    if begin is not None:
        begin(draft, block)
    return block


def add_delta(draft: Draft, block: OpenBlock, delta: Any) -> bool:
    """A piece of a block; False for a kind of delta that no rule knows. Raises `protocol_error` for one that belongs
    to another kind of block."""
    kind = delta.get("type") if type(delta) is dict else None
    if type(kind) is not str:
        raise not_ours("a delta without a type")
    add = _ADD.get((block.kind, kind))
    if add is not None:
        add(draft, block, delta)
        return True
    if block.kind not in _BEGIN:
        _add_to_extension(block, delta)
        return True
    if kind in _KNOWN_DELTAS:
        raise out_of_place(f"a {kind}", f"inside a {block.kind} block")
    return False


def end_block(draft: Draft, block: OpenBlock) -> None:
    """A block is over."""
    _END.get(block.kind, _end_extension)(draft, block)


# ---------------------------------------------------------------------------------------------- text and thinking


def _pieces_of(member: str, chunk: type[TextDelta] | type[ThinkingDelta]) -> Add:
    """What hands out the text that stands under `member`."""

    def add(draft: Draft, block: OpenBlock, delta: dict[str, Any]) -> None:
        text = delta.get(member)
        if text and type(text) is str:
            block.has_text = True
            draft.emit(chunk(block.index, text))

    return add


_text_piece = _pieces_of("text", TextDelta)
_thinking_piece = _pieces_of("thinking", ThinkingDelta)


def _begin_text(draft: Draft, block: OpenBlock) -> None:
    _text_piece(draft, block, block.start)
    citations = block.start.get("citations")
    if type(citations) is list and citations:
        block.state["citations"] = citations


def _add_citation(draft: Draft, block: OpenBlock, delta: dict[str, Any]) -> None:
    block.state.setdefault("citations", []).append(delta.get("citation"))


def _end_text(draft: Draft, block: OpenBlock) -> None:
    """An empty text block is none, whatever it cites."""
    if block.has_text:
        _end_with_state(draft, block)


def _begin_thinking(draft: Draft, block: OpenBlock) -> None:
    _thinking_piece(draft, block, block.start)
    _sign(draft, block, block.start)


def _sign(draft: Draft, block: OpenBlock, delta: dict[str, Any]) -> None:
    signature = delta.get("signature")
    if signature and type(signature) is str:
        block.state["signature"] = signature


def _end_thinking(draft: Draft, block: OpenBlock) -> None:
    """Thinking whose text is withheld still has a signature, which must go back in its place."""
    if block.state and not block.has_text:
        draft.emit(ThinkingDelta(block.index, ""))
    _end_with_state(draft, block)


def _end_redacted(draft: Draft, block: OpenBlock) -> None:
    state = draft.state({"data": block.start.get("data")})
    draft.emit(BlockAdded(block.index, ThinkingBlock(redacted=True, provider_state=state)))


def _end_with_state(draft: Draft, block: OpenBlock) -> None:
    if block.state:
        draft.emit(BlockEnded(block.index, draft.state(block.state)))


# ---------------------------------------------------------------------------------------------------------- calls


def _begin_call(draft: Draft, block: OpenBlock) -> None:
    start = block.start
    draft.count_call()
    name, vendor_id = start.get("name"), start.get("id")
    if type(name) is not str:
        raise not_ours("a call whose name is no text")
    draft.emit(ToolCallStarted(block.index, name, vendor_id if vendor_id and type(vendor_id) is str else None))
    caller = start.get("caller")
    if type(caller) is dict and caller.get("type") != DIRECT:
        block.state["caller"] = caller


def _call_piece(draft: Draft, block: OpenBlock, delta: dict[str, Any]) -> None:
    piece = delta.get(INPUT)
    if piece and type(piece) is str:
        block.size += len(piece)
        draft.check_arguments(block.size)
        draft.emit(ToolCallDelta(block.index, piece))


def _end_call(draft: Draft, block: OpenBlock) -> None:
    given = block.start.get("input")
    if not block.size and given:
        text = given if type(given) is str else to_json(given).decode()
        draft.check_arguments(len(text))
        draft.emit(ToolCallDelta(block.index, text))
    _end_with_state(draft, block)


# ----------------------------------------------------------------------------------------------------- extensions


def _add_to_extension(block: OpenBlock, delta: dict[str, Any]) -> None:
    """Members of a delta, joined to those of the block: text is appended, lists are extended, the rest replaces."""
    start = block.start
    for key, value in delta.items():
        if key == "type" or value is None:
            continue
        if type(value) is str:
            block.pieces.setdefault(key, []).append(value)
        elif type(value) is list and type(start.get(key)) is list:
            start[key].extend(value)
        else:
            start[key] = value


def _end_extension(draft: Draft, block: OpenBlock) -> None:
    start = block.start
    text = clean_text("".join(block.pieces.pop(INPUT, ())))
    if text:
        draft.check_arguments(len(text))
        parsed = parse_arguments(text)
        start["input"] = text if parsed is None else parsed  # what is no object stays text
    for key, pieces in block.pieces.items():
        before = start.get(key)
        start[key] = "".join((before, *pieces) if type(before) is str else pieces)
    draft.emit(BlockAdded(block.index, ExtensionBlock(kind=block.kind, data=start)))


_BEGIN: Mapping[str, Step] = {
    "text": _begin_text,
    "thinking": _begin_thinking,
    "redacted_thinking": lambda draft, block: None,
    "tool_use": _begin_call,
}
"""The kinds of block that have a neutral form; every other kind is an extension."""
_ADD: Mapping[tuple[str, Any], Add] = {
    ("text", "text_delta"): _text_piece,
    ("text", "citations_delta"): _add_citation,
    ("thinking", "thinking_delta"): _thinking_piece,
    ("thinking", "signature_delta"): _sign,
    ("tool_use", "input_json_delta"): _call_piece,
}
_KNOWN_DELTAS = frozenset(kind for _, kind in _ADD)
_END: Mapping[str, Step] = {
    "text": _end_text,
    "thinking": _end_thinking,
    "redacted_thinking": _end_redacted,
    "tool_use": _end_call,
}
