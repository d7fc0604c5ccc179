"""What the acceptance tests share: a runtime on a stage, plugins made of functions, and a judge of logs.

Nothing here decides what is right but `judge`, which holds the rules that every log keeps whatever happened.
"""

import types
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs

from spine import Agent, Runtime
from spine.clock import SystemClock
from spine.codec import Codec, row_hash
from spine.config import Settings
from spine.events import ModelRequested, RecordedEvent, ToolCompleted
from spine.hooks import hookimpl
from spine.log import LogReader
from spine.messages import Message, ToolCallBlock, ToolResultBlock
from spine.rebuild import Rebuilder
from spine.store import Row
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter
from spine.tools import Tool, ToolDefinition
from spine.values import SessionId, session_id

ALONE = Settings(installed_plugins=False)
"""No file, no environment, no installed plugin."""
MODEL = "scripted:demo"
TURN_ENDINGS = frozenset(("turn.completed", "turn.failed", "turn.cancelled"))


@asynccontextmanager
async def staged(*entries: Any, store: Any = "memory:", model: Any = None, **options: Any) -> AsyncIterator[Any]:
    """A runtime that plays `entries` (or asks `model`), with no plugin but those given."""
    adapter = ScriptedAdapter(*entries) if model is None else model
    async with Runtime.open(store, model=adapter, settings=options.pop("settings", ALONE), **options) as runtime:
        yield runtime


def agent_of(*tools: Any, **fields: Any) -> Agent:
    """An agent of the scripted model."""
    return Agent(fields.pop("model", MODEL), tools=tools, **fields)


def tool_of(name: str, handler: Callable[..., Any], schema: Mapping[str, Any] | None = None, **fields: Any) -> Tool:
    """A tool around a handler of (arguments, context); any arguments are valid unless a schema is given."""
    definition = ToolDefinition(name=name, parameters=schema or {"type": "object"})
    return Tool(definition=definition, handler=handler, **fields)


def plugin(name: str, version: str = "1", **hooks: Callable[..., Any]) -> types.ModuleType:
    """A plugin module made of functions; the prefix `spine_` of their names may be left out.

    Function attributes `tryfirst` and `trylast` are passed to `hookimpl`.
    """
    module = types.ModuleType(f"spine_{name}")
    module.__dict__["__version__"] = version
    for hook, function in hooks.items():
        full = hook if hook.startswith("spine_") else f"spine_{hook}"
        order = {key: True for key in ("tryfirst", "trylast") if getattr(function, key, False)}
        marked = hookimpl(specname=full, **order)(function)
        setattr(module, full, marked)
    return module


# ------------------------------------------------------------------------------------------------------- reading


def events_of(source: Any, *kinds: str) -> list[RecordedEvent]:
    """The committed events of a session or a log, of some types when given."""
    log = getattr(source, "log", source)
    return [event for event in log.read() if not kinds or event.type in kinds]


def kinds_of(source: Any) -> list[str]:
    """The types of the committed events, in order."""
    return [event.type for event in events_of(source)]


def data_of(source: Any, kind: str) -> list[Any]:
    """The data of all events of one type."""
    return [event.data for event in events_of(source, kind)]


def results_of(messages: Any) -> dict[str, ToolResultBlock]:
    """The tool results among messages, by call id."""
    blocks = (block for message in messages for block in message.content)
    return {block.call_id: block for block in blocks if isinstance(block, ToolResultBlock)}


def text_of_result(block: ToolResultBlock) -> str:
    """The text of a result's blocks."""
    return "".join(getattr(part, "text", repr(part)) for part in block.content)


def rows_of(store: Any, id: str) -> list[Row]:
    """A session's stored rows."""
    return list(store.read(session_id(id)))


# ------------------------------------------------------------------------------------------------------- judging


def judge(log: LogReader, *, open_turn: bool = False) -> list[RecordedEvent]:
    """Check what every log must keep, and return its events.

    Numbers without gap, a whole chain, each request rebuilt with its digest and valid, each call answered at most once
    and before the next request, nothing but recorded results and the closing batch after a cancel, and (unless
    `open_turn`) every turn closed.
    """
    rows = list(log.rows())
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    previous = log.genesis
    for row in rows:
        assert row.hash == row_hash(previous, row), f"chain broken at {row.seq} ({row.type})"
        previous = row.hash
    events = list(log.read())
    _judge_requests(log, events)
    _judge_calls(events)
    _judge_turns(events, open_turn=open_turn)
    return events


def _judge_requests(log: LogReader, events: list[RecordedEvent]) -> None:
    rebuilder = Rebuilder(log.codec, log.content)
    for event in events:
        rebuilt = rebuilder.add(event)
        if isinstance(event.data, ModelRequested):
            assert rebuilt is not None
            assert rebuilt.is_equal, f"request at {event.seq} is not rebuilt equal"
            judge_messages(rebuilt.request.messages)


def judge_messages(messages: Any) -> None:
    """A history that any provider takes: calls answered at once, in order, exactly once; no stray results."""
    waiting: list[str] = []
    for message in messages:
        assert isinstance(message, Message)
        if message.role == "tool":
            for block in message.content:
                assert isinstance(block, ToolResultBlock)
                assert waiting, f"result of {block.call_id} without its call"
                assert block.call_id == waiting.pop(0), "results are not in call order"
        else:
            assert not waiting, f"{waiting} are not answered before a {message.role} message"
            waiting = [block.id for block in message.content if isinstance(block, ToolCallBlock)]
    assert not waiting, f"{waiting} are not answered"


def _judge_calls(events: list[RecordedEvent]) -> None:
    asked: set[str] = set()
    answered: set[str] = set()
    for event in events:
        if event.type == "message.committed":
            ids = [call.id for call in event.data.message.tool_calls]
            assert not asked & set(ids), "a call id is used twice"
            asked.update(ids)
        elif isinstance(event.data, ToolCompleted):
            assert event.data.call in asked - answered, f"{event.data.call} answered twice or never asked"
            answered.add(event.data.call)
        elif event.type in ("model.requested", *TURN_ENDINGS):
            assert asked == answered, f"{asked - answered} open at {event.type} (seq {event.seq})"


_AFTER_CANCEL = frozenset(
    (
        "tool.completed",
        "tool.revised",
        "content.added",
        "message.interrupted",
        "turn.cancelled",
        "model.chunks",
        "input.accepted",
        "session.resumed",
        "session.forked",
    )
)


def _judge_turns(events: list[RecordedEvent], *, open_turn: bool) -> None:
    is_open, is_cancelled = False, False
    for event in events:
        if event.type == "turn.started":
            assert not is_open, f"a turn begins at {event.seq} inside another"
            is_open, is_cancelled = True, False
        elif event.type in TURN_ENDINGS:
            assert is_open
            is_open, is_cancelled = False, False
        elif is_cancelled:
            assert event.type in _AFTER_CANCEL, f"{event.type} at {event.seq} comes after cancel.requested"
        elif event.type == "cancel.requested":
            is_cancelled = True
    assert open_turn or not is_open, "a turn is left open"


# --------------------------------------------------------------------------------------------------------- fakes


class Adapter:
    """An adapter around an async generator function of the request."""

    protocol = "fake"

    def __init__(self, play: Callable[[Any], AsyncIterator[Any]], check: Callable[[Any], None] | None = None) -> None:
        self._play = play
        self._check = check
        self.requests: list[Any] = []
        self.closed = 0

    def check(self, request: Any) -> None:
        """As told."""
        if self._check is not None:
            self._check(request)

    def stream(self, request: Any) -> AsyncIterator[Any]:
        """Play."""
        self.requests.append(request)
        return self._play(request)

    async def aclose(self) -> None:
        """Count."""
        self.closed += 1


@attrs.define
class TickingClock(SystemClock):
    """A clock whose time of day moves by one millisecond at each reading, from a fixed start; nothing takes time."""

    at: int = 1_800_000_000_000_000

    def monotonic(self) -> float:
        """Always the same."""
        return 5.0

    def now(self) -> int:
        """Microseconds since 1970 UTC."""
        self.at += 1000
        return self.at


def reader_of(store: Any, id: str) -> LogReader:
    """A log read from a store without a runtime."""
    return LogReader(store, Codec(), SessionId(id))


SAYS_OK = (say("ok"),)


async def run_with(*plugins: Any, script: Any = SAYS_OK, tools: Any = (), **options: Any) -> tuple[Any, Any]:
    """One turn with plugins: the turn (failed or not) and a copy of its events."""
    async with staged(*script, plugins=plugins, **options) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        turn = await session.run("Go.", check=False)
        return turn, judge(session.log)


def only(events: Any, kind: str) -> Any:
    found = [event.data for event in events if event.type == kind]
    assert len(found) == 1, f"{len(found)} of {kind}"
    return found[0]


class Gate:
    """A tool that waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.release = anyio.Event(), anyio.Event()

    def tool(self) -> Any:
        async def handler(arguments: Any, context: Any) -> str:
            self.entered.set()
            await self.release.wait()
            return "through"

        return tool_of("gate", handler)


async def until(condition: Any, seconds: float = 3) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.002)
