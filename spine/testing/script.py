"""What a scripted model is told to answer: entries, one for each attempt, made of small parts (floor 14).

Parts are joined with `+`, in the order in which they arrive: `say("One moment.") + call("refund", order_id="1017")`. A
part that ends an attempt badly (`fail`, `cut`) comes last. Values only;
`spine.testing.scripted` plays them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from spine.errors import UsageError
from spine.llm.errors import CATEGORIES, Category, Failure, provider_error
from spine.llm.request import ModelRequest
from spine.llm.response import STOP_REASONS, StopReason
from spine.llm.usage import Usage
from spine.testing.expectation import Expectation
from spine.values import encode, freeze_object

__all__ = [
    "Call",
    "Entry",
    "Fail",
    "Part",
    "Refuse",
    "Say",
    "ScriptItem",
    "Stall",
    "Think",
    "call",
    "call_text",
    "cut",
    "expect",
    "fail",
    "refuse",
    "say",
    "stall",
    "stop",
    "think",
    "usage",
]

_WORD: Final = re.compile(r"\s*\S+|\s+\Z")


@attrs.frozen
class Say:
    """Text, in the pieces in which it arrives."""

    pieces: tuple[str, ...]


@attrs.frozen
class Think:
    """Visible reasoning, in pieces."""

    pieces: tuple[str, ...]


@attrs.frozen
class Refuse:
    """A refusal, in pieces."""

    pieces: tuple[str, ...]


@attrs.frozen
class Call:
    """A tool call; `text` is the raw text of its arguments."""

    name: str
    text: str


@attrs.frozen
class Stall:
    """Silence for `delay_s` seconds; None: until somebody cancels."""

    delay_s: float | None


@attrs.frozen
class Fail:
    """The attempt ends with this failure."""

    failure: Failure


Part = Say | Think | Refuse | Call | Stall | Fail


@attrs.frozen(kw_only=True)
class Entry:
    """The answer to one attempt. `usage` None: none is reported. `where` says where it is written, as `line 14`."""

    parts: tuple[Part, ...] = ()
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    """None: `tool_use` with calls, `refusal` with a refusal, else `end_turn`."""
    expectation: Expectation | None = None
    """What the request must be like; None: anything."""
    where: str | None = None

    def __add__(self, other: "Entry") -> "Entry":
        if not isinstance(other, Entry):
            return NotImplemented
        if other.parts and self.parts and isinstance(self.parts[-1], Fail):
            raise UsageError(f"a script adds {other} after {_describe(self.parts[-1])}, which ends the attempt")
        return Entry(
            parts=self.parts + other.parts,
            **{name: _one_of(name, getattr(self, name), getattr(other, name)) for name in _ONCE},
        )

    def evolve(self, **changes: Any) -> "Entry":
        """This entry with some fields replaced."""
        return attrs.evolve(self, **changes)

    def __str__(self) -> str:
        return " + ".join(map(_describe, self.parts)) or "nothing"


ScriptItem = Entry | Callable[[ModelRequest], Entry]
"""An entry, or a function of the request that gives one."""

_ONCE: Final = ("usage", "stop_reason", "expectation", "where")


def _one_of(name: str, left: Any, right: Any) -> Any:
    if left is not None and right is not None:
        raise UsageError(f"an entry of a script gives {name} twice; found {left} and {right}")
    return right if left is None else left


# -------------------------------------------------------------------------------------------------------- builders


def say(
    text: str | None = None,
    *,
    chunks: Sequence[str] | None = None,
    usage: Usage | Mapping[str, int] | None = None,
    stop: StopReason | None = None,
) -> Entry:
    """Answer with text, which arrives word by word, or in the pieces of `chunks`. One of the two may be left out."""
    if text is None and chunks is None:
        raise UsageError("say() was given neither a text nor chunks")
    pieces = words(text or "") if chunks is None else tuple(chunks)
    if text is not None and "".join(pieces) != text:
        raise UsageError(f"the chunks of a script give {''.join(pieces)!r:.80}, its text says {text!r:.80}")
    return Entry(parts=(Say(pieces),), usage=_usage(usage), stop_reason=_checked(stop))


def think(text: str) -> Entry:
    """Reason visibly."""
    return Entry(parts=(Think(words(text)),))


def refuse(text: str) -> Entry:
    """Decline, in these words; the stop reason is `refusal`."""
    return Entry(parts=(Refuse(words(text)),))


def call(name: str, /, **arguments: Any) -> Entry:
    """Call a tool."""
    return call_text(name, encode(freeze_object(arguments)).decode())


def call_text(name: str, text: str) -> Entry:
    """Call a tool with arguments as raw text, which need not be JSON: `call_text("refund", "{broken")`."""
    return Entry(parts=(Call(name, text),))


def fail(
    category: Category,
    *,
    status: int | None = None,
    retry_after_s: float | None = None,
    message: str | None = None,
    code: str | None = None,
    retryable: bool | None = None,
) -> Entry:
    """End the attempt as a failure; `retryable` follows from the category unless given."""
    if category not in CATEGORIES:
        raise UsageError(f'a script fails with "{category}"; categories are {", ".join(CATEGORIES)}')
    given = {} if retryable is None else {"retryable": retryable}
    text = message or f"the script says {category}"
    error = provider_error(category, text, status=status, retry_after_s=retry_after_s, code=code, **given)
    return Entry(parts=(Fail(error.failure),))


def cut() -> Entry:
    """End the stream without its end, as a connection that is closed too early does."""
    return fail("stream_truncated", message="the stream ended before the answer did")


def stall(delay_s: float | None = None) -> Entry:
    """Fall silent for some seconds; without a number, until somebody cancels."""
    return Entry(parts=(Stall(delay_s),))


def stop(reason: StopReason) -> Entry:
    """End with this stop reason instead of the natural one."""
    return Entry(stop_reason=_checked(reason))


def usage(**counts: int) -> Entry:
    """Report these token counts: `usage(input_tokens=1512, output_tokens=24)`."""
    return Entry(usage=_usage(counts))


def expect(
    *,
    last_role: str | None = None,
    contains: str | Sequence[str] = (),
    lacks: str | Sequence[str] = (),
    system_contains: str | Sequence[str] = (),
    system_lacks: str | Sequence[str] = (),
    tools: Sequence[str] | None = None,
    messages: int | None = None,
) -> Entry:
    """Demand that the request looks like this; see `Expectation`."""
    expectation = Expectation(
        last_role=last_role,
        contains=_texts(contains),
        lacks=_texts(lacks),
        system_contains=_texts(system_contains),
        system_lacks=_texts(system_lacks),
        tools=None if tools is None else tuple(tools),
        messages=messages,
    )
    return Entry(expectation=expectation)


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def words(text: str) -> tuple[str, ...]:
    """The pieces in which a scripted text arrives unless it says others."""
    return tuple(_WORD.findall(text))


def _usage(given: Usage | Mapping[str, int] | None) -> Usage | None:
    if given is None or isinstance(given, Usage):
        return given
    known = [field.name for field in attrs.fields(Usage) if field.name.endswith("_tokens")]
    for name in given:
        if name not in known:
            raise UsageError(f'a script reports "{name}"; token counts are {", ".join(known)}')
    counts: dict[str, Any] = dict(given)
    return Usage(**counts)


def _checked(reason: StopReason | None) -> StopReason | None:
    if reason is not None and reason not in STOP_REASONS:
        raise UsageError(f'a script stops with "{reason}"; stop reasons are {", ".join(STOP_REASONS)}')
    return reason


# ----------------------------------------------------------------------------------------------------- in words


def _describe(part: Part) -> str:
    match part:
        case Say(pieces) | Think(pieces) | Refuse(pieces):
            text = "".join(pieces)
            shown = text if len(text) <= 40 else text[:39] + "…"
            return f'{type(part).__name__.lower()} "{shown}"'
        case Call(name):
            return f"call {name}"
        case Stall(None):
            return "stall"
        case Stall(delay_s):
            return f"stall {delay_s:g} s"
        case Fail(failure):
            return f"fail {failure.category}"
