"""What differs between two values, as facts and in words (floor 13): the one wording for requests, answers and results.

Everything in words stands in one line and holds no character that acts or hides.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from spine.llm.request import ModelRequest
from spine.messages import JsonBlock, SystemBlock, ToolResultBlock
from spine.projectors.json import plain
from spine.projectors.lines import result_lines
from spine.projectors.phrases import counted, excerpt, json_text, name_text
from spine.projectors.visible import one_line
from spine.values import Json, freeze

__all__ = [
    "PARAMETERS",
    "Difference",
    "json_phrase",
    "parameter_text",
    "request_differences",
    "result_phrase",
    "text_phrase",
]

PARAMETERS = tuple(
    field for field in attrs.fields(ModelRequest) if field.name not in ("route", "step", "system", "messages", "tools")
)
_FOCUS = 40
_RESULT = 60
_PATHS = 3
_ESTIMATED = ("token_count",)


@attrs.frozen(kw_only=True)
class Difference:
    """One thing that differs: both sides whole in `left` and `right`, None for what is not there, and the words."""

    what: str
    text: str
    left: Json = None
    right: Json = None
    place: str = ""
    """The turn, step or call, `t1s2/t1s3` where it stands elsewhere on the right; empty for the session as a whole."""
    also: tuple[str, ...] = ()
    """Later places with just the same difference."""


def request_differences(old: ModelRequest, new: ModelRequest) -> Iterator[Difference]:
    """Route, parameters, sections and tools; messages are not compared, and neither are estimates."""
    if old.route != new.route:
        yield _values("route", str(old.route), str(new.route))
    for field in PARAMETERS:
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            text = f"{parameter_text(before)} → {parameter_text(after)}"
            yield Difference(what=field.name, text=text, left=plain(before), right=plain(after))
    yield from _named("section", {b.name: b for b in old.system}, {b.name: b for b in new.system})
    if [b.name for b in old.system if b in new.system] != [b.name for b in new.system if b in old.system]:
        yield Difference(what="sections", text="stand in another order")
    yield from _named("tool", {t.name: t for t in old.tools}, {t.name: t for t in new.tools})


def parameter_text(value: Any) -> str:
    """A parameter's value in one line; `unset` for None."""
    if value is None:
        return "unset"
    return json_text(freeze(attrs.asdict(value) if attrs.has(type(value)) else value))


def _values(what: str, old: str, new: str) -> Difference:
    return Difference(what=what, text=f"{one_line(old)} → {one_line(new)}", left=old, right=new)


def _named(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for name in dict.fromkeys([*old, *new]):
        left, right = old.get(name), new.get(name)
        what, sides = f"{kind} {name_text(name)}", {"left": _plain(left), "right": _plain(right)}
        if left is None or right is None:
            yield Difference(what=what, text="added" if left is None else "gone", **sides)
        elif sides["left"] != sides["right"]:
            yield Difference(what=what, text="; ".join(_part_phrases(left, right)), **sides)


def _plain(part: Any) -> Any:
    return None if part is None else plain(part, left_out=("provider_state", *_ESTIMATED))


def _part_phrases(old: Any, new: Any) -> Iterator[str]:
    if type(old) is not type(new):
        yield "another kind of tool"
        return
    for field in attrs.fields(type(new)):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after or field.name in _ESTIMATED:
            continue
        if field.name == "text" and isinstance(new, SystemBlock):
            yield text_phrase(before, after)
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            yield json_phrase(before, after, field.name)
        else:
            yield f"{field.name} {_side(before)} → {_side(after)}"


def _side(value: Any) -> str:
    return excerpt(value) if isinstance(value, str) else excerpt(json_text(value)) if value is not None else "unset"


# -------------------------------------------------------------------------------------------------------- in words


def result_phrase(result: ToolResultBlock, status: str) -> str:
    """The beginning of what a model sees of a result: JSON as it is, text as a JSON string."""
    match result.content:
        case (JsonBlock(value=value),) if status == "ok":
            return _cut(json_text(value), _RESULT)
    return excerpt("\n".join(line.text for line in result_lines(result, status)), _RESULT)


def text_phrase(old: str, new: str) -> str:
    """`1 line changed (30 → 14 days)`: how many lines, and the words in which the first of them differs."""
    rows = list(difflib.unified_diff(old.split("\n"), new.split("\n"), n=0, lineterm=""))[2:]
    gone, added = ([row[1:] for row in rows if row[0] == sign] for sign in "-+")
    many = max(len(gone), len(added))
    verb = "added" if not gone else "gone" if not added else "changed"
    focus = _focus(gone[0] if gone else "", added[0] if added else "")
    return f"{counted(many, 'line')} {verb} ({focus}{', …' if many > 1 else ''})"


def _focus(old: str, new: str) -> str:
    left, right = old.split(), new.split()
    start = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    tails = zip(left[start:][::-1], right[start:][::-1], strict=False)
    rest = min(len(left), len(right)) - start
    end = next((i for i, (a, b) in enumerate(tails) if a != b), rest)
    after = [left[len(left) - end]] if end else []
    return f"{_words(left[start : len(left) - end])} → {_words(right[start : len(right) - end] + after)}"


def _words(words: list[str]) -> str:
    return _cut(one_line(" ".join(words)), _FOCUS) or "nothing"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def json_phrase(old: Any, new: Any, path: str = "") -> str:
    """`amount_cents 1290 → 900`: the first paths that differ."""
    found = list(_leaves(old, new, path))
    more = f"; and {len(found) - _PATHS} more" if len(found) > _PATHS else ""
    return "; ".join(found[:_PATHS]) + more


_ABSENT = object()


def _leaves(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _leaves(old.get(key, _ABSENT), new.get(key, _ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(old, tuple | list) and isinstance(new, tuple | list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _leaves(left, right, f"{path}[{index}]")
    elif old != new or type(old) is not type(new):
        yield f"{one_line(path)} {_leaf(old)} → {_leaf(new)}".lstrip()


def _leaf(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    return _cut(json_text(value), _FOCUS)
