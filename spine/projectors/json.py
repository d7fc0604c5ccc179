"""The JSON form of a transcript (floor 6): everything in it, nothing cut, for programs.

Times are UTC in ISO 8601. Opaque state of providers is left out: it says nothing to anybody but its model.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from spine.chunk_arrays import CHUNK_TAGS
from spine.codec import BLOCK_TAGS, CHANGE_TAGS
from spine.events import RecordedEvent
from spine.projectors.entries import Call, InputEntry, StepEntry, Told, TurnEntry
from spine.projectors.phrases import clock

_TAGS: Mapping[type, str] = {
    **{kind: tag for tag, kind in BLOCK_TAGS.items()},
    **{kind: tag for tag, kind in CHANGE_TAGS.items()},
    **CHUNK_TAGS,
}
_OPAQUE = frozenset(("provider_state",))


def to_json(transcript: Told) -> dict[str, Any]:
    """The transcript as plain dicts, lists, texts and numbers. Fields equal to their default are left out."""
    return {
        "session": transcript.session,
        "title": transcript.title,
        "routes": list(transcript.routes),
        "entries": [_ENTRIES[type(entry)](entry) for entry in transcript.entries],
    }


def plain(value: Any, *, left_out: Collection[str] = _OPAQUE) -> Any:
    """Any of our values as plain JSON with all fields named, but for those in `left_out` and those equal to a default.

    What is one of several kinds (blocks of content, changes, chunks) carries its `type`.
    """
    kind = type(value)
    if attrs.has(kind):
        tag = {"type": _TAGS[kind]} if kind in _TAGS else {}
        fields = [(field, getattr(value, field.name)) for field in attrs.fields(kind) if field.name not in left_out]
        return tag | {field.name: plain(item, left_out=left_out) for field, item in fields if item != field.default}
    if isinstance(value, Mapping):
        return {key: plain(item, left_out=left_out) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item, left_out=left_out) for item in value]
    return value


def utc(at: int) -> str:
    """`2026-11-30T14:02:11.009000Z` of microseconds since 1970."""
    text = clock(at)
    return text if text.endswith("µs") else f"{text.replace(' ', 'T')}{at % 1000:03}Z"


def _fact(event: RecordedEvent) -> dict[str, Any]:
    return {"type": event.type, "seq": event.seq, "at": utc(event.at), "data": plain(event.data)}


def _input(entry: InputEntry) -> dict[str, Any]:
    return _fact(entry.event) | {"type": "input", "place": entry.place}


def _step(entry: StepEntry) -> dict[str, Any]:
    return {
        "type": "step",
        "step": entry.step,
        "seq": entry.seq,
        "at": utc(entry.at),
        "route": entry.route,
        "attempts": entry.attempts,
        "is_open": entry.is_open,
        "parts": [_PARTS.get(type(part), plain)(part) for part in entry.parts],
    }


def _call(call: Call) -> dict[str, Any]:
    completed, revised = call.completed, call.revised
    return {
        **plain(call.block),
        "type": "call",
        "status": None if completed is None else completed.status,
        "content": [] if call.result is None else plain(call.result.content),
        "revised_by": [] if revised is None else [patch.plugin for patch in revised.patches],
        "facts": [_fact(fact) for fact in call.facts],
    }


def _turn(entry: TurnEntry) -> dict[str, Any]:
    return _fact(entry.event) | {"turn": entry.event.turn, "figures": plain(entry.figures)}


_PARTS: Mapping[type, Callable[[Any], Any]] = {Call: _call, RecordedEvent: _fact}
_ENTRIES: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    InputEntry: _input,
    StepEntry: _step,
    TurnEntry: _turn,
    RecordedEvent: _fact,
}
