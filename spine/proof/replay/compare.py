"""Where a replayed log leaves the recorded one (floor 13): the first event, the JSON path, both values.

Within one format equality is that of bytes and hashes. An event of an older format is brought up to date first, and
then only what it says is compared.
"""

from typing import Any, Final

import attrs

from spine.codec import Codec
from spine.events import RecordedEvent
from spine.values import Json, decode, encode

__all__ = ["Difference", "Mark", "compare", "first_difference"]

_HEADER: Final = ("type", "version", "place", "origin", "required")


@attrs.frozen(kw_only=True)
class Difference:
    """The first event that is not the recorded one. `recorded` or `now` is None when only the other one is there."""

    seq: int
    recorded: RecordedEvent | None
    now: RecordedEvent | None
    path: str = ""
    """JSON path in the event's data, or the header's field; empty when the events are of different types."""
    character: int | None = None
    """For texts: where they begin to differ, from 0."""
    old: Json = None
    new: Json = None
    is_stuck: bool = False
    """Nothing happened any more, though nothing waits for anybody outside."""


@attrs.frozen
class Mark:
    """A place where two JSON values differ; a value that is not there is None."""

    path: str
    old: Json
    new: Json

    @property
    def character(self) -> int | None:
        """Where two texts begin to differ."""
        if not isinstance(self.old, str) or not isinstance(self.new, str):
            return None
        pairs = zip(self.old, self.new, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.old), len(self.new)))


def compare(codec: Codec, recorded: RecordedEvent, now: RecordedEvent) -> Difference | None:
    """The difference between the recorded event and the one that takes its place; None when there is none."""
    if recorded.hash == now.hash:
        return None
    found: dict[str, Any] = {"seq": now.seq, "recorded": recorded, "now": now}
    if recorded.type != now.type:
        return Difference(**found)
    old, new = data_json(codec, recorded), data_json(codec, now)
    look = _content_difference if recorded.type == "content.added" else first_difference
    mark = look(_without_what_follows(old), _without_what_follows(new)) or first_difference(old, new)
    if mark is not None:
        return Difference(**found, path=mark.path, character=mark.character, old=mark.old, new=mark.new)
    for name in _HEADER:
        if name != "version" and getattr(recorded, name) != getattr(now, name):
            return Difference(**found, path=name, old=getattr(recorded, name), new=getattr(now, name))
    return None  # the same said in another format, or after an event of which that is true


_FOLLOWS = frozenset(("digest", "size", "estimate"))
"""Fields that follow from others: where they alone differ, they are the difference."""


def _without_what_follows(data: Any) -> Any:
    return {name: value for name, value in data.items() if name not in _FOLLOWS}


def data_json(codec: Codec, event: RecordedEvent) -> Any:
    """What an event says, as JSON in today's form."""
    return decode(encode(codec.to_json(event.data)))


def _content_difference(old: Any, new: Any) -> Mark | None:
    """Contents differ in what they say; their digests and sizes follow from that."""
    texts = old.get("text"), new.get("text")
    if texts[0] == texts[1] or None in texts or old["media_type"] != new["media_type"]:
        return first_difference(old, new)
    if old["media_type"].endswith("json"):
        return first_difference(decode(texts[0].encode()), decode(texts[1].encode()), "$.text")
    return Mark("$.text", *texts)


def first_difference(old: Any, new: Any, path: str = "$") -> Mark | None:
    """The first place where two JSON values differ, fields in alphabetical order."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            if name not in old or name not in new:
                return Mark(f"{path}.{name}", old.get(name), new.get(name))
            mark = first_difference(old[name], new[name], f"{path}.{name}")
            if mark is not None:
                return mark
        return None
    if isinstance(old, list) and isinstance(new, list):
        for number, (left, right) in enumerate(zip(old, new, strict=False)):
            mark = first_difference(left, right, f"{path}[{number}]")
            if mark is not None:
                return mark
        if len(old) == len(new):
            return None
        number = min(len(old), len(new))
        return Mark(f"{path}[{number}]", *(each[number] if number < len(each) else None for each in (old, new)))
    # JSON tells true from 1, and 1.0 from 1; Python does not.
    return None if type(old) is type(new) and old == new else Mark(path, old, new)
