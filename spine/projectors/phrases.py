"""How numbers, calls and failures read (floor 6): one wording for transcript, log and usage, in no locale.

Everything returned stands in one line and holds no character that acts or hides.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from spine.events import FieldChange, Patch
from spine.llm.errors import Failure
from spine.llm.usage import Cost, Usage
from spine.projectors.visible import one_line

_HISSING = ("s", "x", "z", "ch", "sh")
_VOWEL_Y = ("ay", "ey", "oy", "uy")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME_SIGNS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-/:@")


def counted(number: int, noun: str) -> str:
    """`1 step`, `3 steps`, `4,717 tokens`, `2 retries`, `0 processes`."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and not noun.endswith(_VOWEL_Y):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(_HISSING) else "s")


def duration(seconds: float) -> str:
    """`31 ms`, `2 s`, `2.5 s`."""
    if seconds >= 1:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    milliseconds = round(seconds * 1000)
    return f"{milliseconds} ms" if milliseconds or seconds <= 0 else "under 1 ms"


def clock(at: int, zone: tzinfo = UTC, *, day: bool = True) -> str:
    """`2026-11-30 14:02:11.009` of microseconds since 1970, in `zone`; beyond the calendar the number itself."""
    try:
        moment = (_EPOCH + timedelta(microseconds=at)).astimezone(zone)
    except (OverflowError, ValueError):
        return f"{at} µs"
    text = moment.isoformat(" ", "milliseconds")[:23]
    return text if day else text[11:]


def money(cost: Cost) -> str:
    """`$0.008833`, or `0.008833 EUR`."""
    return one_line(str(cost))


def tokens(usage: Usage) -> str:
    """`1,512 in (1,408 written to cache) 24 out`; empty when nothing was reported."""
    return "" if usage.input_tokens is None and usage.output_tokens is None else str(usage)


def kind_of(failure: Failure) -> str:
    """`rate_limit (HTTP 429)`, or `connection` when no status was seen."""
    return failure.category if failure.status is None else f"{failure.category} (HTTP {failure.status})"


def with_reason(text: str, reason: str | None) -> str:
    """`text: reason`, or `text` when there is no reason."""
    return f"{text}: {one_line(reason)}" if reason else text


def deeds(patches: Iterable[Patch]) -> Mapping[str, tuple[str, ...]]:
    """What plugins did to something, as a verb (`changed`, `held for a person`, …), and which of them did it."""
    found: dict[str, dict[str, None]] = {}
    for patch in patches:
        for change in patch.changes or (None,):
            decision = change.value if isinstance(change, FieldChange) and change.field == "decision" else None
            found.setdefault(_DECIDED.get(str(decision), "changed"), {})[patch.plugin] = None
    return {verb: tuple(plugins) for verb, plugins in found.items()}


_DECIDED = {"ask": "held for a person", "deny": "denied", "outcome": "answered"}


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; each name once, in order of appearance."""
    unique = [one_line(name) for name in dict.fromkeys(names)]
    return unique[0] if len(unique) == 1 else " and ".join([", ".join(unique[:-1]), unique[-1]]) if unique else ""


def json_text(value: Any) -> str:
    """A JSON value in one line, as `{"item": "mug", "paid_cents": 1290}`.

    Keys are sorted: a log keeps no order of keys, so a live event and the stored one must read the same.
    """
    return one_line(json.dumps(value, ensure_ascii=False, sort_keys=True))


def name_text(name: str) -> str:
    """A name as it is when it could be one, else as a JSON string."""
    return name if name and _NAME_SIGNS.issuperset(name) else json_text(name)


def call_text(name: str, arguments: Mapping[str, Any] | None, raw: str | None = None, order: Iterable[str] = ()) -> str:
    """`refund(order_id="1017", amount_cents=1290)`.

    Arguments named in `order` (required parameters, as the tool declares them) come first, the others sorted.
    `arguments` None: the model's text was no object; then `raw` stands there as a JSON string.
    """
    if arguments is None:
        return f"{name_text(name)}({json_text(raw or '')})"
    keys = [key for key in order if key in arguments]
    keys += sorted(arguments.keys() - set(keys))
    return f"{name_text(name)}({', '.join(f'{name_text(key)}={json_text(arguments[key])}' for key in keys)})"


def excerpt(text: str, limit: int = 60) -> str:
    """The beginning of `text` in one line, as a JSON string; `…` when something was cut."""
    return json_text(text if len(text) <= limit else text[: limit - 1] + "…")
