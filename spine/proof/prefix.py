"""How much of a request the next one begins with (floor 13): what a provider's cache can serve again, and who moved it.

A request is read in the order in which providers keep it: tools, sections, messages. What stands before the first
thing that differs is kept, of a section's text also its unchanged beginning. Sizes are estimates (a token for four
characters), so shares are those of text and not of money; another route keeps nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import attrs

from spine.errors import UsageError
from spine.estimates import HistoryEstimate, estimate_tokens, message_tokens
from spine.events import Patch, Splice
from spine.llm.catalogue import Prices
from spine.llm.request import ModelRequest, Route
from spine.llm.usage import Cost
from spine.messages import Message, SystemBlock
from spine.projectors.json import plain
from spine.projectors.model_history import History
from spine.projectors.phrases import counted, listed, money, name_text
from spine.projectors.visible import one_line
from spine.proof.course import Step
from spine.proof.differences import request_differences
from spine.proof.request_view import RequestView, frame_origins, frame_selection, kept_messages
from spine.stored import StoredLog
from spine.values import encode

__all__ = ["KeptPrefix", "cost_of_loss", "kept_prefixes", "least_share", "parse_share", "prefix_json", "prefix_text"]

FindPrices = Callable[[Route], Prices | None]
"""The prices of a route as known here; None when there are none."""


@attrs.frozen(kw_only=True)
class KeptPrefix:
    """What a step kept of the request before it. Tokens are estimates."""

    step: str
    earlier: str
    kept_tokens: int
    lost_tokens: int
    """Of the earlier request, what stands after the first thing that moved."""
    moved: str | None = None
    """That thing, as `section policy`; None when everything was kept."""
    how: str = ""
    owner: str | None = None
    """Who moved it; None when the log does not say it."""
    lost: Cost | None = None
    """What reading the lost tokens anew costs more than from a cache; None without prices for both."""
    cached_tokens: int | None = None
    """What the provider reported to have read from its cache in this step."""

    @property
    def percent(self) -> int:
        """The share kept, rounded down: 100 only when nothing moved."""
        total = self.kept_tokens + self.lost_tokens
        return 100 if self.moved is None else min(99, 100 * self.kept_tokens // total if total else 0)


@attrs.frozen
class _Item:
    """A piece of a request in cache order."""

    kind: str
    name: str
    value: Any
    tokens: int


@attrs.frozen
class _Sized:
    """A request with the estimates of its parts: what stands before the messages, and all of these."""

    view: RequestView
    head: tuple[_Item, ...]
    messages: int

    @property
    def tokens(self) -> int:
        return sum(item.tokens for item in self.head) + self.messages


def kept_prefixes(reader: StoredLog, steps: Iterable[Step], prices: FindPrices) -> Iterator[KeptPrefix]:
    """For each request but the first, what it kept of the one before."""
    estimate = HistoryEstimate()
    earlier: _Sized | None = None
    for step in steps:
        if step.request is None:
            continue
        now = _sized(step.request, estimate)
        if earlier is not None:
            yield _compared(reader, earlier, now, step, prices)
        earlier = now


def _sized(view: RequestView, estimate: HistoryEstimate) -> _Sized:
    messages = view.request.messages
    if isinstance(messages, History):
        tokens = estimate.of(messages, estimate_tokens)
    else:
        tokens = sum(message_tokens(message, estimate_tokens) for message in messages)
    return _Sized(view, tuple(_head(view.request)), tokens)


def _head(request: ModelRequest) -> Iterator[_Item]:
    yield _Item("route", str(request.route), request.route, 0)
    for tool in request.tools:
        yield _Item("tool", tool.name, tool, estimate_tokens(encode(plain(tool)).decode()))
    for block in request.system:
        yield _Item("section", block.name, (block.name, block.text), estimate_tokens(block.text))


def _compared(reader: StoredLog, earlier: _Sized, now: _Sized, step: Step, prices: FindPrices) -> KeptPrefix:
    view, cached = now.view, step.figures.usage.cache_read_tokens
    old, new = earlier.view.request.messages, view.request.messages
    found = KeptPrefix(
        step=view.step, earlier=earlier.view.step, kept_tokens=earlier.tokens, lost_tokens=0, cached_tokens=cached
    )
    pairs = zip(earlier.head, now.head, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a.value != b.value), min(len(earlier.head), len(now.head)))
    if same == len(earlier.head) == len(now.head):
        number = kept_messages(old, new)
        if number == len(old):
            return found
        kept = earlier.tokens - sum(message_tokens(message, estimate_tokens) for message in old[number:])
        before, after = _message(old, number), _message(new, number)
    else:
        before, after = (
            side.head[same] if same < len(side.head) else _message(side.view.request.messages, 0)
            for side in (earlier, now)
        )
        kept = sum(item.tokens for item in earlier.head[:same]) + _partly(before, after)
    moved, how = _moved(before, after, earlier.view.request, view.request)
    lost = earlier.tokens - kept
    return attrs.evolve(
        found,
        kept_tokens=kept,
        lost_tokens=lost,
        moved=moved,
        how=how,
        owner=_owner(reader, earlier.view, view, moved.partition(" ")[0], before, after),
        lost=cost_of_loss(lost, prices(view.request.route), frame_selection(reader, view).get("prices")),
    )


def _message(messages: Sequence[Message], at: int) -> _Item | None:
    return _Item("message", str(at + 1), messages[at], 0) if at < len(messages) else None


def _partly(before: _Item | None, after: _Item | None) -> int:
    """The tokens of a section's text that still stand at its beginning."""
    if before is None or after is None or (before.kind, before.name) != (after.kind, after.name):
        return 0
    if before.kind != "section":
        return 0
    old, new = before.value[1], after.value[1]
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return same // 4


def _moved(before: _Item | None, after: _Item | None, old: ModelRequest, new: ModelRequest) -> tuple[str, str]:
    """What moved first, and how."""
    if after is not None and after.kind in ("tool", "section") and (after.kind, after.name) not in _names(old):
        return f"{after.kind} {name_text(after.name)}", "added"
    if before is None:  # every part is there, and what follows it is new
        return f"{after.kind} {name_text(after.name)}" if after is not None else "messages", "added"
    if before.kind == "message":
        return f"message {before.name}", "gone" if after is None else "replaced"
    what = "route" if before.kind == "route" else f"{before.kind} {name_text(before.name)}"
    return what, next((each.text for each in request_differences(old, new) if each.what == what), "moved")


def _names(request: ModelRequest) -> set[tuple[str, str]]:
    return {("tool", tool.name) for tool in request.tools} | {("section", block.name) for block in request.system}


# ----------------------------------------------------------------------------------------------------------- owners


def _owner(
    reader: StoredLog, earlier: RequestView, view: RequestView, kind: str, before: _Item | None, after: _Item | None
) -> str | None:
    """Plugins whose patches touched that kind of thing in either request, or else whose the thing is."""
    patchers = [patch.plugin for each in (earlier, view) for patch in each.data.patches if _touches(patch, kind)]
    if patchers:
        return listed(patchers)
    item = after if after is not None and after.kind == kind else before
    if item is None:
        return None
    if kind == "section":
        blocks: list[SystemBlock] = [*view.request.system, *earlier.request.system]
        return next((block.source or None for block in blocks if block.name == item.name), None)
    if kind == "tool":
        origins = [frame_origins(reader, each) or {} for each in (view, earlier)]
        tools = [tool for each in origins for tool in each.get("tools", ())]
        return next((str(tool["owner"]) for tool in tools if tool["name"] == item.name), None)
    return "a compaction, or a turn that was repeated" if kind == "message" else None


_FIELDS = {"route": "route", "tool": "tools", "section": "system"}


def _touches(patch: Patch, kind: str) -> bool:
    if kind == "message":
        return any(isinstance(change, Splice) for change in patch.changes)
    return any(not isinstance(change, Splice) and change.field == _FIELDS[kind] for change in patch.changes)


def cost_of_loss(tokens: int, prices: Prices | None, recorded: str | None) -> Cost | None:
    """What `tokens` cost more when they are not read from a cache, by the price list that the log names."""
    if prices is None or prices.cache_read is None or prices.id != recorded:
        return None
    micros = round(Fraction(tokens * (prices.input - prices.cache_read), 1_000_000))
    return Cost(micros=micros, currency=prices.currency, prices=prices.id)


# ----------------------------------------------------------------------------------------------------------- in words


def parse_share(text: str) -> int:
    """Read `90%` or `90` as a whole number of percent. Raises `UsageError`."""
    number = text.strip().removesuffix("%").strip()
    if not (number.isascii() and number.isdecimal() and int(number) <= 100):
        raise UsageError(f'--min is "{text}"; it must be a whole share from 0% to 100%')
    return int(number)


def least_share(found: list[KeptPrefix]) -> int:
    """The smallest share that a step kept, in percent; 100 when there was nothing to keep."""
    return min((each.percent for each in found), default=100)


def prefix_text(found: list[KeptPrefix], least: int | None = None) -> str:
    """The shares in lines for people; with `least` (percent) whether all steps kept that much."""
    bad = [each.step for each in found if least is not None and each.percent < least]
    verdict = [] if least is None else [f"BELOW {least} %: {', '.join(bad)}" if bad else "ok"]
    if not found:
        return "   ".join(["fewer than two requests: there is no prefix to keep", *verdict])
    if all(each.moved is None for each in found):
        return "   ".join([*_runs(found), *verdict])
    rows = [_row(each) for each in found]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, _sum(found), *verdict])


def _runs(found: list[KeptPrefix]) -> list[str]:
    if len(found) <= 4:
        return [f"{each.step} 100 %" for each in found]
    return [f"{found[0].step} to {found[-1].step} 100 %"]


def _row(each: KeptPrefix) -> tuple[str, str, str, str]:
    if each.moved is None:
        return each.step, "100 %", "", ""
    owner = "" if each.owner is None else f" ({one_line(each.owner)})"
    extra = "" if each.lost is None else f", {money(each.lost)}"
    lost = f"about {counted(each.lost_tokens, 'token')} lost{extra}"
    return each.step, f"{each.percent:3} %", f"{each.moved}{owner}", f"{each.how}; {lost}"


def _sum(found: list[KeptPrefix]) -> str:
    costs = [each.lost for each in found if each.moved is not None]
    known = [cost for cost in costs if cost is not None]
    same = {(cost.currency, cost.prices) for cost in known}
    extra = ""
    if known and len(known) == len(costs) and len(same) == 1:
        extra = f", {money(attrs.evolve(known[0], micros=sum(cost.micros for cost in known)))}"
    lost = counted(sum(each.lost_tokens for each in found), "token")
    return f"lost in {counted(len(costs), 'step')} of {len(found)}: about {lost}{extra}"


def prefix_json(found: list[KeptPrefix], least: int | None = None) -> dict[str, Any]:
    """The shares for programs."""
    return {
        "steps": [plain(each) | {"percent": each.percent} for each in found],
        "least": least_share(found),
        "min": least,
        "ok": least is None or least_share(found) >= least,
    }
