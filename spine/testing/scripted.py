"""A model that answers from a script (floor 14): the whole adapter contract, without a network and without chance.

One entry answers one attempt, in order, whichever session asks. When script and run disagree, the run stops with a
`ScriptMismatch` that says what was asked: too many requests, an unexpected one, or entries left over.

Strategy: entries become chunks and a response when they are added, so that playing one costs next to nothing.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol

import anyio
import attrs
from anyio.lowlevel import checkpoint

from spine.errors import ScriptMismatch, UsageError
from spine.llm.assemble import assemble
from spine.llm.chunks import (
    Chunk,
    RefusalDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from spine.llm.errors import ProviderError
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse, StopReason
from spine.llm.usage import Usage
from spine.messages import Message, ToolResultBlock
from spine.testing.script import Call, Entry, Fail, Refuse, Say, ScriptItem, Stall, Think

__all__ = ["ScriptedAdapter"]

MAX_KEPT_REQUESTS: Final = 256
SILENCE_S: Final = 1.0
"""How far a silence without end moves a fake clock, so that whatever was due in it happens."""
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_SUFFIXES: Final[Mapping[int, str]] = {1: "st", 2: "nd", 3: "rd"}
_DELTAS: Final[Mapping[type, Any]] = {Say: TextDelta, Think: ThinkingDelta, Refuse: RefusalDelta}
_NO_USAGE: Final = {"usage": "the script reports none"}


class _Sleeps(Protocol):
    async def sleep(self, delay_s: float) -> None:
        """Wait."""


@attrs.frozen
class _Prepared:
    """An entry ready to be played. `is_plain`: chunks and a response, nothing to wait for and nothing to raise."""

    entry: Entry
    items: tuple[Chunk | ModelResponse | Stall | Fail, ...]
    is_plain: bool


class ScriptedAdapter:
    """An `Adapter` that plays `entries`, one for each attempt. Used as a context manager, it demands that all are used.

    `protocol` is what the log calls it. `clock` does the waiting of stalls (None: real time). With `live` other tasks
    get a turn after every chunk, so that a watcher sees each one as it comes; without, once an attempt.
    """

    def __init__(
        self,
        *entries: ScriptItem,
        protocol: str = "scripted",
        clock: _Sleeps | None = None,
        live: bool = False,
    ) -> None:
        self.protocol = protocol
        self.is_closed = False
        self._clock = clock
        self._live = live
        self._items: list[Callable[[ModelRequest], Entry] | _Prepared] = []
        self._position = 0
        self._asked = 0
        self._requests: deque[ModelRequest] = deque(maxlen=MAX_KEPT_REQUESTS)
        self._mismatch: tuple[int, str] | None = None
        self.add(*entries)

    # ------------------------------------------------------------------------------------------- the contract

    def check(self, request: ModelRequest) -> None:
        """Nothing is beyond a scripted model."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | ModelResponse, None]:
        """Play the next entry. Raises `ScriptMismatch`, or the `ProviderError` that the entry fails with."""
        self._asked += 1
        self._requests.append(request)
        prepared = self._next(request)
        await checkpoint()
        if prepared.is_plain and not self._live:
            for item in prepared.items:
                yield item  # type: ignore[misc]
            return
        for item in prepared.items:
            if type(item) is Stall:
                await self._stall(item)
            elif type(item) is Fail:
                raise ProviderError(item.failure)
            else:
                yield item  # type: ignore[misc]
                if self._live:
                    await checkpoint()

    async def aclose(self) -> None:
        """Nothing to let go of; `is_closed` tells that it was called. Idempotent."""
        self.is_closed = True

    async def _stall(self, stall: Stall) -> None:
        sleep = anyio.sleep if self._clock is None else self._clock.sleep
        if stall.delay_s is not None:
            await sleep(stall.delay_s)
            return
        if self._clock is not None:
            await sleep(SILENCE_S)
        await anyio.sleep_forever()

    # --------------------------------------------------------------------------------------------- the script

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The requests seen, oldest first; of more than 256 only the last ones."""
        return tuple(self._requests)

    @property
    def mismatch(self) -> tuple[int, str] | None:
        """Number of the entry (from 1) at which script and run first disagreed, and how; None while they agree."""
        return self._mismatch

    def add(self, *entries: ScriptItem) -> None:
        """Write more entries at the script's end."""
        prepared: dict[int, _Prepared] = {}  # a long script says the same entry again and again
        for item in entries:
            if not isinstance(item, Entry) and not callable(item):
                raise UsageError(
                    f"an entry of a script is {item!r:.80}; it must come from say, call, …, or be a function"
                )
            if isinstance(item, Entry) and id(item) not in prepared:
                prepared[id(item)] = prepare(item)
            self._items.append(prepared[id(item)] if isinstance(item, Entry) else item)

    def seek(self, ended: int) -> None:
        """Go to where `ended` attempts are over: after a crash, what it swallowed is answered again."""
        self._position = min(ended, len(self._items))

    def left_over(self) -> tuple[ScriptItem, ...]:
        """The entries that nobody has asked for yet."""
        return tuple(item.entry if isinstance(item, _Prepared) else item for item in self._items[self._position :])

    def check_used(self) -> None:
        """Raise `ScriptMismatch` when entries are left over, or when script and run disagreed before."""
        if self._mismatch is not None:
            raise ScriptMismatch(self._mismatch[1])
        left = self.left_over()
        if left:
            number, count = self._position + 1, len(self._items)
            words = left[0] if isinstance(left[0], Entry) else "a function"
            raise ScriptMismatch(
                f"script left over: {len(left)} of {_entries(count)} not asked for, from {self._name(number)}: {words}"
            )

    def __enter__(self) -> "ScriptedAdapter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.check_used()

    def _next(self, request: ModelRequest) -> _Prepared:
        if self._position == len(self._items):
            raise self._disagree(self._position + 1, self._exhausted(request))
        item = self._items[self._position]
        self._position += 1
        prepared = item if isinstance(item, _Prepared) else prepare(item(request))
        expectation = prepared.entry.expectation
        if expectation is not None:
            differences = list(expectation.differences(request))
            if differences:
                raise self._disagree(self._position, self._unexpected(request, differences))
        return prepared

    def _disagree(self, number: int, message: str) -> ScriptMismatch:
        self._mismatch = self._mismatch or (number, message)
        return ScriptMismatch(message)

    def _exhausted(self, request: ModelRequest) -> str:
        return (
            f"script exhausted: step {request.step} asked the model a {_ordinal(self._asked)} time, "
            f"the script has {_entries(len(self._items))}; last message was {_last_message(request)}"
        )

    def _unexpected(self, request: ModelRequest, differences: Sequence[str]) -> str:
        near = next(self._fitting(request), None)
        fits = f"; {self._name(near)} would fit" if near is not None else ""
        return (
            f"{self._name(self._position)}: {'; '.join(differences)} "
            f"(step {request.step}, last message was {_last_message(request)}){fits}"
        )

    def _fitting(self, request: ModelRequest) -> Iterator[int]:
        for number, item in enumerate(self._items, 1):
            expectation = item.entry.expectation if isinstance(item, _Prepared) else None
            if expectation is not None and not any(expectation.differences(request)):
                yield number

    def _name(self, number: int) -> str:
        item = self._items[number - 1]
        where = item.entry.where if isinstance(item, _Prepared) else None
        return f"model entry {number}" + (f" ({where})" if where else "")


# -------------------------------------------------------------------------------------------------- preparing


def prepare(entry: Entry) -> _Prepared:
    """The chunks and the response of an entry."""
    if not isinstance(entry, Entry):
        raise UsageError(f"a function in a script returned {entry!r:.80}; it must return an entry, as say(…) makes it")
    items: list[Chunk | Stall | Fail] = []
    for index, part in enumerate(entry.parts):
        match part:
            case Call(name, text):
                items.append(ToolCallStarted(index, name))
                items.append(ToolCallDelta(index, text))
            case Stall():
                items.append(part)
            case Fail():
                return _Prepared(entry, (*items, *_usage_chunks(entry.usage), part), False)
            case _:
                items.extend(_DELTAS[type(part)](index, piece) for piece in part.pieces)
    items.extend(_usage_chunks(entry.usage))
    chunks = [item for item in items if not isinstance(item, Stall | Fail)]
    response = ModelResponse(
        message=assemble(chunks),
        stop_reason=entry.stop_reason or _natural_ending(entry),
        usage=entry.usage or Usage(),
        metadata={} if entry.usage else _NO_USAGE,
    )
    return _Prepared(entry, (*items, response), len(chunks) == len(items))


def _usage_chunks(usage: Usage | None) -> tuple[UsageReported, ...]:
    return () if usage is None else (UsageReported(usage),)


def _natural_ending(entry: Entry) -> StopReason:
    kinds = {type(part) for part in entry.parts}
    return "tool_use" if Call in kinds else "refusal" if Refuse in kinds else "end_turn"


# --------------------------------------------------------------------------------------------------- in words


def _ordinal(number: int) -> str:
    if number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    suffix = "th" if number % 100 in (11, 12, 13) else _SUFFIXES.get(number % 10, "th")
    return f"{number}{suffix}"


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count or 'no'} entries"


def _last_message(request: ModelRequest) -> str:
    if not request.messages:
        return "none"
    message: Message = request.messages[-1]
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    if results:
        return f"the result of {results[-1].name} ({'error' if results[-1].is_error else 'ok'})"
    text = " ".join(message.text.split())
    return f'the {message.role}\'s "{text if len(text) <= 40 else text[:39] + "…"}"'
