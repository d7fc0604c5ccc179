"""Output items in the making: which item and which run of text an event speaks of, and what was handed out of it.

The same text comes up to five times: in deltas, done events, parts, items and the last response. What has been handed
out stays; whatever comes later only adds what is missing at its end. What real servers do: ids that change from event
to event (GitHub Copilot), deltas without output_index, parts counted from 1 (Bedrock), deltas of items that were never
added. So output_index tells the item, if its type fits; else item_id does; else a new item begins.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from spine.llm.assemble import parse_arguments
from spine.llm.chunks import Chunk, RefusalDelta, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStarted
from spine.llm.errors import provider_error
from spine.wire import Draft, to_json

CALLS = frozenset(("function_call", "custom_tool_call"))


@attrs.frozen
class Kind:
    """A kind of text: the item that holds it, under which member and counted by what, and its chunk.

    `value` is the member of a done event or a part that has the whole text.
    """

    item: str
    member: str
    place: str | None
    value: str
    chunk: Callable[[int, str], Chunk]


KINDS: Mapping[str, Kind] = {
    "response.output_text": Kind("message", "content", "content_index", "text", TextDelta),
    "response.refusal": Kind("message", "content", "content_index", "refusal", RefusalDelta),
    "response.reasoning_text": Kind("reasoning", "content", "content_index", "text", ThinkingDelta),
    "response.reasoning_summary_text": Kind("reasoning", "summary", "summary_index", "text", ThinkingDelta),
    "response.function_call_arguments": Kind("function_call", "arguments", None, "arguments", ToolCallDelta),
    "response.custom_tool_call_input": Kind("custom_tool_call", "input", None, "input", ToolCallDelta),
}
"""Kinds of text by what their events are called, `.delta` and `.done` left off."""
PARTS: Mapping[str, Kind] = {
    "output_text": KINDS["response.output_text"],
    "refusal": KINDS["response.refusal"],
    "reasoning_text": KINDS["response.reasoning_text"],
    "summary_text": KINDS["response.reasoning_summary_text"],
}
"""The same by the type of a part."""


@attrs.define(eq=False)
class Item:
    """One output item. `whole` is its latest whole form, `is_told` says that it came as done or in the last response;
    `runs` are its texts by member, in order of appearance."""

    type: str
    id: str | None = None
    whole: dict[str, Any] = attrs.Factory(dict)
    runs: "dict[str, list[Run]]" = attrs.Factory(dict)
    is_told: bool = False
    is_started: bool = False
    is_ended: bool = False


@attrs.define(eq=False)
class Run:
    """Text under one index: all its `pieces`, which of a call are handed out when its name is known."""

    index: int
    kind: Kind
    item: Item
    pieces: list[str] = attrs.Factory(list)
    chars: int = 0
    is_annotated: bool = False


class Items:
    """All items of an answer, in order of appearance; hands out their text."""

    def __init__(self, draft: Draft) -> None:
        self.all: list[Item] = []
        self.has_calls = False
        self._draft = draft
        self._emit = draft.emit
        self._by_place: dict[int, Item] = {}
        self._by_id: dict[str, Item] = {}
        self._runs: dict[tuple[str, Any, Any], Run] = {}

    # ------------------------------------------------------------------------------------------------- finding

    @property
    def is_refusal(self) -> bool:
        """Whether the model refused and said nothing else."""
        said = {run.kind.chunk for item in self.all for run in item.runs.get("content", ()) if run.pieces}
        return RefusalDelta in said and TextDelta not in said

    def item(self, payload: Mapping[str, Any], type_: str, whole: dict[str, Any] | None = None) -> Item:
        """The item that an event speaks of; a new one when none fits. `whole` is the item itself, if it is there."""
        place = payload.get("output_index")
        id_ = text_of(payload.get("item_id")) if whole is None else text_of(whole.get("id"))
        at_place = self._by_place.get(place) if type(place) is int else None
        if place is None and id_ is None and self.all:
            at_place = self.all[-1]
        for known in (at_place, self._by_id.get(id_) if id_ else None):
            if known is not None and known.type == type_ and not (known.is_ended and _differ(known.id, id_)):
                return known
        return self._new(type_, place, id_)

    def added(self, payload: Mapping[str, Any], item: dict[str, Any]) -> Item:
        """The item that `output_item.added` brings: a new one, unless the event comes again."""
        place, id_ = payload.get("output_index"), text_of(item.get("id"))
        known = self._by_place.get(place) if type(place) is int else None
        is_again = known is not None and known.id == id_ and known.type == type_of(item)
        added = known if known is not None and is_again else self._new(type_of(item), place, id_)
        added.whole = added.whole if added.is_told else item
        return added

    def new(self, whole: Mapping[str, Any]) -> Item:
        """A new item that no event spoke of."""
        return self._new(type_of(whole), None, text_of(whole.get("id")))

    def _new(self, type_: str, place: Any, id_: str | None) -> Item:
        if len(self.all) >= self._draft.limits.blocks:
            raise provider_error("protocol_error", f"the answer has more than {self._draft.limits.blocks} items")
        if type_ in CALLS:
            self._draft.count_call()
            self.has_calls = True
        item = Item(type_, id_)
        self.all.append(item)
        if type(place) is int:
            self._by_place[place] = item
            self._runs = {key: run for key, run in self._runs.items() if key[1] != place}
        if id_:
            self._by_id[id_] = item
        return item

    def run(self, kind: Kind, payload: Mapping[str, Any]) -> Run:
        """The run of text that an event speaks of; it begins where there is none."""
        place = payload.get("output_index")
        nth = payload.get(kind.place) if kind.place is not None else None
        is_placed = type(place) is int and (nth is None or type(nth) is int)
        run = self._runs.get((kind.member, place, nth)) if is_placed else None
        if run is None or run.kind is not kind:
            item = self.item(payload, kind.item)
            run = _run_of(item, kind, nth, is_placed) or self.begin(item, kind)
            if is_placed:
                self._runs[kind.member, place, nth] = run
        return run

    def begin(self, item: Item, kind: Kind) -> Run:
        """A new run of `item`."""
        run = Run(self._draft.next_index(), kind, item)
        item.runs.setdefault(kind.member, []).append(run)
        return run

    # -------------------------------------------------------------------------------------------- handing out

    def text(self, kind: Kind, payload: Mapping[str, Any]) -> None:
        """A delta of text."""
        piece = payload.get("delta")
        if piece and type(piece) is str:
            run = self.run(kind, payload)
            run.pieces.append(piece)
            self._emit(kind.chunk(run.index, piece))

    def arguments(self, kind: Kind, payload: Mapping[str, Any]) -> None:
        """A delta of a call's arguments."""
        piece = payload.get("delta")
        if piece and type(piece) is str:
            self._more_arguments(self.run(kind, payload), piece)

    def _more_arguments(self, run: Run, piece: str) -> None:
        run.pieces.append(piece)
        run.chars += len(piece)
        self._draft.check_arguments(run.chars)
        if run.item.is_started:
            self._emit(ToolCallDelta(run.index, piece))

    def fill(self, run: Run, whole: str) -> None:
        """The text of a run as a whole: what of it was not handed out is. Text that differs is not said again."""
        said = "".join(run.pieces)
        if whole == said or not whole.startswith(said):
            return
        run.pieces = [whole]
        self._emit(run.kind.chunk(run.index, whole[len(said) :]))

    def fill_arguments(self, run: Run, whole: str) -> None:
        """The same for a call, which must not run with anything but what the provider meant in the end."""
        said = "".join(run.pieces)
        if whole.startswith(said):
            if whole != said:
                self._more_arguments(run, whole[len(said) :])
        elif whole and (parse_arguments(whole) is None or parse_arguments(whole) != parse_arguments(said)):
            raise provider_error("protocol_error", "the provider sent two versions of a call's arguments")

    def start(self, item: Item, *, at_last: bool = False) -> Run:
        """Hand a call out as soon as its name and id are known, `at_last` with what there is."""
        kind = KINDS["response.function_call_arguments" if item.type == "function_call" else _CUSTOM]
        runs = item.runs.get(kind.member)
        run = runs[0] if runs else self.begin(item, kind)
        name, call_id = text_of(item.whole.get("name")), text_of(item.whole.get("call_id"))
        if not item.is_started and (at_last or (name and call_id)):
            item.is_started = True
            self._emit(ToolCallStarted(run.index, name or "", call_id))
            for piece in run.pieces:
                self._emit(ToolCallDelta(run.index, piece))
        return run


_CUSTOM = "response.custom_tool_call_input"


def _run_of(item: Item, kind: Kind, nth: Any, is_placed: bool) -> Run | None:
    """The run of `item` that an event means which is not known by its place: a call has only one; without an
    output_index it is the nth, or the latest."""
    runs = [run for run in item.runs.get(kind.member, ()) if run.kind is kind]
    if kind.place is None:
        return runs[0] if runs else None
    if is_placed or not runs:
        return None
    return runs[-1] if type(nth) is not int else runs[nth] if 0 <= nth < len(runs) else None


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def text_of(value: Any) -> str | None:
    """`value` if it is text and not empty."""
    return value if value and type(value) is str else None


def type_of(item: Mapping[str, Any]) -> str:
    """The type of an item."""
    return text_of(item.get("type")) or "item"


def arguments_text(value: Any) -> str:
    """Arguments as text; some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value).decode()
