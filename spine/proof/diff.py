"""Two sessions compared (floor 13): aligned by turn, step and call; what differs in what was asked, answered and done.

Turns with the same inputs belong together, steps that answered and called the same, and what is left by its place.

Ids that vendors made, times and durations never count, nor does the history in a request: where that differs, the
answer or the result that it comes from is the difference. A difference that lasts is told once, where it begins.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from spine.events import ApprovalDecided, TurnCompleted, TurnFailed
from spine.llm.usage import Cost
from spine.messages import JsonBlock, RefusalBlock, TextBlock, ThinkingBlock
from spine.projectors.entries import Call
from spine.projectors.json import plain
from spine.projectors.lines import content_lines
from spine.projectors.phrases import deeds, excerpt, json_text, kind_of, listed, money, name_text, tokens, with_reason
from spine.projectors.visible import one_line
from spine.proof.aligning import aligned
from spine.proof.course import Course, Step, Turn
from spine.proof.differences import PARAMETERS, Difference, json_phrase, request_differences, result_phrase, text_phrase
from spine.tools import ToolStatus
from spine.values import TurnId, turn_of

__all__ = ["Comparison", "compare", "diff_json", "diff_text"]

K = TypeVar("K")
V = TypeVar("V")


@attrs.frozen(kw_only=True)
class Comparison:
    """What differs between two sessions, in order of the log; `sums` are the figures of the whole that do."""

    left: str
    right: str
    differences: tuple[Difference, ...]
    sums: tuple[Difference, ...]
    both: str
    """The figures of the left one in words."""

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.differences and not self.sums


def compare(left: Course, right: Course) -> Comparison:
    """Compare two sessions."""
    return Comparison(
        left=left.session,
        right=right.session,
        differences=tuple(_told_once(_differences(left, right))),
        sums=tuple(_sums(left, right)),
        both=str(left.usage.total),
    )


_OF_REQUEST = frozenset(["route", "section", "sections", "tool", *(field.name for field in PARAMETERS)])
"""The first words of what lasts from one request to the next."""


def _told_once(differences: Iterable[Difference]) -> Iterable[Difference]:
    found: dict[Any, Difference] = {}
    for number, each in enumerate(differences):
        lasts = each.what.partition(" ")[0] in _OF_REQUEST
        key = (each.what, json_text(each.left), json_text(each.right)) if lasts else number
        first = found.setdefault(key, each)
        if first is not each:
            found[key] = attrs.evolve(first, also=(*first.also, each.place))
    return found.values()


def _differences(left: Course, right: Course) -> Iterator[Difference]:
    yield from _of_sessions(left, right)
    for one, two in aligned([*left.turns.items()], [*right.turns.items()], lambda item: _input_text(item[1])):
        if one is not None and two is not None:
            yield from _of_turns(left, right, one, two)
        elif (alone := one or two) is not None:
            yield _only(alone[0], left, right, is_left=two is None)


def _of_turns(left: Course, right: Course, one: tuple[TurnId, Turn], two: tuple[TurnId, Turn]) -> Iterator[Difference]:
    place = _place(one[0], two[0])
    yield from _at(place, _of_inputs(one[1], two[1]))
    for step, twin in aligned(_steps_of(left, one[0]), _steps_of(right, two[0]), _likeness):
        if step is not None and twin is not None:
            yield from _of_step(step, twin)
        elif (alone := step or twin) is not None:
            yield _only(alone.id, left, right, is_left=twin is None)
    yield from _at(place, _of_endings(one[1], two[1]))


def _pairs(left: Mapping[K, V], right: Mapping[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    for key in dict.fromkeys([*left, *right]):
        yield key, left.get(key), right.get(key)


def _place(left: str, right: str) -> str:
    """Where both are, or `t1s2/t1s3` where they stand apart."""
    return left if left == right else f"{left}/{right}"


def _steps_of(course: Course, turn: TurnId) -> list[Step]:
    return [step for id, step in course.steps.items() if turn_of(id) == turn]


def _likeness(step: Step) -> str:
    """Steps are alike that answered and called the same."""
    return json_text([step.answer is None, _answer(step), *map(_asked, step.calls.values())])


def _asked(call: Call) -> str:
    return f"{call.block.name} {json_text(_arguments(call))}"


def _only(place: str, left: Course, right: Course, *, is_left: bool) -> Difference:
    session = left.session if is_left else right.session
    return Difference(place=place, what="", text=f"only in {session}", left=is_left, right=not is_left)


def _at(place: str, differences: Iterator[Difference]) -> Iterator[Difference]:
    return (attrs.evolve(each, place=place) for each in differences)


def _of_sessions(left: Course, right: Course) -> Iterator[Difference]:
    if left.agent != right.agent:
        yield _sides("agent", left.agent, right.agent)
    for name, old, new in _pairs(left.versions, right.versions):
        if old != new:
            yield _sides(f"version of {name_text(name)}", old or "none", new or "none")


def _sides(what: str, old: str, new: str) -> Difference:
    return Difference(what=what, text=f"{one_line(old)} → {one_line(new)}", left=old, right=new)


# ------------------------------------------------------------------------------------------------------- of a turn


def _of_inputs(left: Turn, right: Turn) -> Iterator[Difference]:
    old, new = _input_text(left), _input_text(right)
    if old != new:
        yield Difference(what="input", text=text_phrase(old, new), left=old, right=new)


def _input_text(turn: Turn) -> str:
    return "\n".join(_lines(block for each in turn.inputs for block in each.content))


def _lines(content: Any) -> Iterator[str]:
    for line in content_lines(content):
        yield f"{line.mark} {line.text}".lstrip()


def _of_endings(left: Turn, right: Turn) -> Iterator[Difference]:
    old, new = _ending(left), _ending(right)
    if old != new:
        yield _sides("ending", old, new)


def _ending(turn: Turn) -> str:
    if turn.ending is None:
        return "open"
    data, word = turn.ending.data, turn.ending.type.removeprefix("turn.")
    if isinstance(data, TurnFailed):
        return f"{word}: {kind_of(data.failure)}"
    return f"{word} ({data.stop_reason})" if isinstance(data, TurnCompleted) else word


# ------------------------------------------------------------------------------------------------------- of a step


def _of_step(left: Step, right: Step) -> Iterator[Difference]:
    place = _place(left.id, right.id)
    if left.request is not None and right.request is not None:
        yield from _at(place, request_differences(left.request.request, right.request.request))
        yield from _at(place, _of_written_messages(left, right))
    yield from _at(place, _of_answers(left, right))
    for call, twin in aligned([*left.calls.values()], [*right.calls.values()], _asked):
        if call is not None and twin is not None and call.block.name == twin.block.name:
            yield from _at(_place(call.block.id, twin.block.id), _of_calls(call, twin))
    yield from _at(place, _of_figures(left, right))


def _of_written_messages(left: Step, right: Step) -> Iterator[Difference]:
    """Messages that plugins put into the request, and summaries that stand for history."""
    old, new = ("\n".join(_written(step)) for step in (left, right))
    if old != new:
        yield Difference(what="messages of plugins", text=text_phrase(old, new), left=old, right=new)


def _written(step: Step) -> Iterator[str]:
    assert step.request is not None
    for message, seq in zip(step.request.request.messages, step.request.seqs, strict=True):
        if seq is None or message.kind == "summary":
            yield from _lines(message.content)


def _of_answers(left: Step, right: Step) -> Iterator[Difference]:
    old_calls, new_calls = ([call.block.name for call in step.calls.values()] for step in (left, right))
    words = [_words(step) for step in (left, right)]
    sides: dict[str, Any] = {"left": _answer(left), "right": _answer(right)}
    if old_calls != new_calls or (left.answer is None) != (right.answer is None):
        yield Difference(what="answer", text=f"{words[0]} → {words[1]}", **sides)
    elif sides["left"] != sides["right"]:
        yield Difference(what="answer", text=text_phrase(sides["left"], sides["right"]), **sides)
    thoughts = ["\n".join(b.text for b in _blocks(step, ThinkingBlock)) for step in (left, right)]
    if thoughts[0] != thoughts[1]:
        yield Difference(what="thoughts", text=text_phrase(*thoughts), left=thoughts[0], right=thoughts[1])
    if left.answer is not None and right.answer is not None and left.answer.stop_reason != right.answer.stop_reason:
        yield _sides("stop reason", left.answer.stop_reason, right.answer.stop_reason)


def _blocks(step: Step, kind: type) -> list[Any]:
    return [part for part in step.entry.parts if isinstance(part, kind)]


def _answer(step: Step) -> str:
    """What was answered besides thoughts and calls."""
    kept = [part for part in step.entry.parts if attrs.has(type(part)) and not isinstance(part, ThinkingBlock | Call)]
    return "\n".join(_lines(part for part in kept if not hasattr(part, "seq")))


def _words(step: Step) -> str:
    """`calls refund(…)`, `text "Sorry."`, or why there is no answer."""
    if step.answer is None:
        return listed(f"no answer ({kind_of(each.failure)})" for each in step.failed[-1:]) or "no answer"
    text = "".join(block.text for block in step.entry.parts if isinstance(block, TextBlock | RefusalBlock))
    names = [f"{name_text(call.block.name)}(…)" for call in step.calls.values()]
    parts = [*([f"text {excerpt(text)}"] if text else []), *([f"calls {', '.join(names)}"] if names else [])]
    return ", ".join(parts) or "an empty answer"


# ------------------------------------------------------------------------------------------------------- of a call


def _of_calls(left: Call, right: Call) -> Iterator[Difference]:
    for what, old, new in (
        ("arguments", _arguments(left), _arguments(right)),
        ("arguments after plugins", _effective(left), _effective(right)),
    ):
        if old != new:
            yield Difference(what=what, text=json_phrase(old, new), left=old, right=new)
    decisions = [", ".join(_decisions(call)) or "nobody asked" for call in (left, right)]
    if decisions[0] != decisions[1]:
        yield _sides("approval", *decisions)
    results = [_result(call) for call in (left, right)]
    if results[0] != results[1]:
        values = [_value(call) for call in (left, right)]
        text = f"{_outcome(left)} → {_outcome(right)}" if None in values else json_phrase(*values)
        yield Difference(what="result", text=text, left=results[0], right=results[1])


def _arguments(call: Call) -> Any:
    return call.block.arguments_text if call.block.arguments is None else plain(call.block.arguments)


def _effective(call: Call) -> Any:
    given = [
        f.data
        for f in call.facts
        if "changed" in deeds(getattr(f.data, "patches", ())) and hasattr(f.data, "arguments")
    ]
    return plain(given[-1].arguments) if given else None


def _decisions(call: Call) -> Iterator[str]:
    for fact in call.facts:
        if isinstance(fact.data, ApprovalDecided):
            yield with_reason(f"{fact.data.decision} by {one_line(fact.data.by)}", fact.data.reason)


def _result(call: Call) -> Any:
    status: ToolStatus | None = None if call.completed is None else call.completed.status
    return {"status": status, "content": None if call.result is None else plain(call.result.content)}


def _value(call: Call) -> Any:
    """The JSON value that a good result is; None when it is something else."""
    content = () if call.result is None or call.result.is_error else call.result.content
    return plain(content[0].value) if len(content) == 1 and isinstance(content[0], JsonBlock) else None


def _outcome(call: Call) -> str:
    if call.result is None or call.completed is None:
        return "no result"
    return result_phrase(call.result, call.completed.status)


# -------------------------------------------------------------------------------------------------------- of figures


def _of_figures(left: Step, right: Step) -> Iterator[Difference]:
    old, new = left.figures, right.figures
    if old.attempts != new.attempts:
        yield Difference(
            what="attempts", text=f"{old.attempts} → {new.attempts}", left=old.attempts, right=new.attempts
        )
    used = [tokens(figures.usage) or "unknown" for figures in (old, new)]
    if used[0] != used[1]:
        yield Difference(what="usage", text=" → ".join(used), left=plain(old.usage), right=plain(new.usage))
    yield from _of_costs(old.cost, new.cost)


def _of_costs(old: Cost | None, new: Cost | None) -> Iterator[Difference]:
    if old != new:
        texts = ["unknown" if cost is None else money(cost) for cost in (old, new)]
        yield Difference(what="cost", text=" → ".join(texts), left=plain(old), right=plain(new))


def _sums(left: Course, right: Course) -> Iterator[Difference]:
    old, new = left.usage.total, right.usage.total
    for what, before, after in (
        ("turns", len(left.turns), len(right.turns)),
        ("steps", old.steps, new.steps),
        ("calls", old.tool_calls, new.tool_calls),
        ("tokens in", old.usage.input_tokens, new.usage.input_tokens),
        ("tokens out", old.usage.output_tokens, new.usage.output_tokens),
    ):
        if before != after:
            text = " → ".join("unknown" if side is None else f"{side:,}" for side in (before, after))
            yield Difference(what=what, text=text, left=before, right=after, place="sum")
    yield from _at("sum", _of_costs(old.cost, new.cost))


# ----------------------------------------------------------------------------------------------------------- in words


def diff_text(found: Comparison) -> str:
    """The differences in lines for people, without a newline at the end."""
    if found.is_equal:
        return f"no difference between {found.left} and {found.right}: {found.both}"
    rows = [(each.place, each.what, each.text) for each in found.differences]
    widths = [max((len(row[i]) for row in rows), default=3) for i in (0, 1)]
    lines = [f"{place.ljust(widths[0])}  {what.ljust(widths[1])}   {text}" for place, what, text in rows]
    if found.sums:
        sums = (each.text if each.what == "cost" else f"{each.what} {each.text}" for each in found.sums)
        lines.append(f"{'sum'.ljust(widths[0])}  {' · '.join(sums)}")
    return "\n".join(lines)


def diff_json(found: Comparison) -> dict[str, Any]:
    """The differences for programs."""
    return {
        "left": found.left,
        "right": found.right,
        "equal": found.is_equal,
        "differences": [attrs.asdict(each) for each in found.differences],
        "sums": {each.what: {"left": each.left, "right": each.right} for each in found.sums},
    }
