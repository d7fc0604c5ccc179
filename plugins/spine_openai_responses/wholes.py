"""Whole items: what they add to the text that was handed out, and the blocks and opaque state they end with.

Built-in tools' items and whatever fits no block become `extension` blocks with all their members. Opaque state: the id
and phase of a message, the id of a call and where it came from, the id and encrypted content of a reasoning item. A
reasoning item is one block for each part of its summary, or else of its content; the first one carries the encrypted
content.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from spine.llm.chunks import BlockAdded, BlockEnded
from spine.messages import ContentBlock, ExtensionBlock, ThinkingBlock
from spine.wire import Draft
from spine_openai_responses.items import CALLS, PARTS, Item, Items, Kind, Run, arguments_text, text_of, type_of

ANNOTATIONS = "annotations"
CALL_STATE = ("id", "namespace", "caller")
MESSAGE_STATE = ("id", "phase")
PLACE = "content"
"""The member of a reasoning block's state that is true for content and missing for a summary."""


class Wholes:
    """Takes whole items, in done events, in the last response, or in a body that is one."""

    def __init__(self, draft: Draft, items: Items) -> None:
        self._draft = draft
        self._items = items

    def take(self, item: Item, whole: dict[str, Any]) -> None:
        """`item` is `whole`: its text is completed, and it ends unless it has."""
        item.whole = whole
        item.id = text_of(whole.get("id")) or item.id
        item.is_told = True
        self._complete(item)

    def take_last(self, output: list[Any]) -> None:
        """The items of the last response, which may name, order and leave out as they like."""
        wholes = [whole for whole in output if type(whole) is dict]
        by_name: dict[tuple[str, str | None], Item] = {
            (item.type, item.id): item for item in self._items.all if item.id
        }
        found = [by_name.pop((type_of(whole), text_of(whole.get("id"))), None) for whole in wholes]
        left = [item for item in self._items.all if all(item is not known for known in found)]
        for whole, known in zip(wholes, found, strict=True):
            self.take(known or _pick(left, type_of(whole)) or self._items.new(whole), whole)
        for item in left:
            self._complete(item)

    def part(self, run: Run, part: Mapping[str, Any]) -> None:
        """A whole part of a message or of reasoning."""
        text = part.get(run.kind.value)
        if type(text) is str:
            self._items.fill(run, text)
        notes = part.get(ANNOTATIONS)
        if notes and type(notes) is list and not run.is_annotated:
            run.is_annotated = True
            self._add(ExtensionBlock(kind=ANNOTATIONS, data=notes))

    def _complete(self, item: Item) -> None:
        if item.type in CALLS:
            self._complete_call(item)
            return
        if item.type in _ENDINGS:
            for run, part in self._parts(item):
                self.part(run, part)
        if not item.is_ended:
            item.is_ended = True
            _ENDINGS.get(item.type, Wholes._end_other)(self, item)

    def _parts(self, item: Item) -> Iterator[tuple[Run, dict[str, Any]]]:
        """The parts that hold text, each with its run: the nth of a kind is its nth run, wherever counting began."""
        member = _member(item)
        runs = item.runs.get(member, ())
        left = {kind: iter([run for run in runs if run.kind is kind]) for kind in PARTS.values()}
        for kind, part in _text_parts(item.whole.get(member)):
            run = next(left[kind], None)
            if run is not None:
                yield run, part
            elif part.get(kind.value):
                yield self._items.begin(item, kind), part

    # ---------------------------------------------------------------------------------------------- endings

    def _complete_call(self, item: Item) -> None:
        run = self._items.start(item, at_last=True)
        self._items.fill_arguments(run, arguments_text(item.whole.get(run.kind.member)))
        if not item.is_ended:
            item.is_ended = True
            state = _members(item.whole, CALL_STATE)
            if item.type != "function_call":
                state["type"] = item.type
            self._end(run, state)

    def _end_message(self, item: Item) -> None:
        state = _members(item.whole, MESSAGE_STATE)
        for run in item.runs.get("content", ()):
            self._end(run, state)
        for part in _list(item.whole.get("content")):
            kind = (text_of(part.get("type")) or "part") if type(part) is dict else None
            if kind is not None and kind not in PARTS:
                self._add(ExtensionBlock(kind=kind, data=part))

    def _end_reasoning(self, item: Item) -> None:
        """Without text there is a block all the same, if the model wants something back."""
        encrypted = text_of(item.whole.get("encrypted_content")) if item.is_told else None
        state: dict[str, Any] = {"id": text_of(item.whole.get("id"))}
        first = {**state, "encrypted_content": encrypted} if encrypted else state
        runs = [run for member in ("summary", "content") for run in item.runs.get(member, ()) if run.pieces]
        for nth, run in enumerate(runs):
            place = {PLACE: True} if run.kind.member == "content" else {}
            self._end(run, {**(state if nth else first), **place})
        if encrypted and not runs:
            self._add(ThinkingBlock(redacted=True, provider_state=self._draft.state(first)))

    def _end_other(self, item: Item) -> None:
        self._add(ExtensionBlock(kind=item.type, data=item.whole))

    def _end(self, run: Run, state: dict[str, Any]) -> None:
        if state:
            self._draft.emit(BlockEnded(run.index, self._draft.state(state)))

    def _add(self, block: ContentBlock) -> None:
        self._draft.emit(BlockAdded(self._draft.next_index(), block))


_ENDINGS: Mapping[str, Callable[[Wholes, Item], None]] = {
    "message": Wholes._end_message,
    "reasoning": Wholes._end_reasoning,
}
"""How items end that are text; the others are carried whole."""


def _member(item: Item) -> str:
    """Where an item's text stands: reasoning's in its summary or, without one, in its content."""
    if item.type == "reasoning":
        has_summary = any(part.get("text") for _, part in _text_parts(item.whole.get("summary")))
        if item.runs.get("summary") or (has_summary and not item.runs.get("content")):
            return "summary"
    return "content"


def _text_parts(parts: Any) -> Iterator[tuple[Kind, dict[str, Any]]]:
    for part in _list(parts):
        kind = PARTS.get(text_of(part.get("type")) or "") if type(part) is dict else None
        if kind is not None:
            yield kind, part


def _pick(left: list[Item], type_: str) -> Item | None:
    """The first of `left` of a type, taken out of it."""
    for nth, item in enumerate(left):
        if item.type == type_:
            return left.pop(nth)
    return None


def _members(whole: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: whole[name] for name in names if whole.get(name) is not None}


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else []
