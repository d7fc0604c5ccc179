"""The floors: the least that anyone could do for the same job, written down as plain code.

None of this is the runtime. A floor keeps what makes the job the job (typed events, a fold, hooks that are awaited, a
streamed answer) and leaves out everything that makes it durable, provable or safe.
"""

import itertools
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import attrs

__all__ = [
    "bare_loop",
    "bare_waterfall",
    "event_payloads",
    "read_rows",
    "read_stream",
    "write_steps",
]


@attrs.frozen
class BareEvent:
    """An event of the bare loop, with the header that an event needs."""

    session: str
    seq: int
    kind: str
    version: int
    at: int
    turn: str
    step: str
    data: Any


@attrs.frozen
class BareDelta:
    """A piece of text."""

    index: int
    text: str


async def _answer(pieces: Sequence[str]) -> AsyncIterator[BareDelta]:
    for piece in pieces:
        yield BareDelta(0, piece)


async def _hook(value: Any) -> Any:
    return value


async def _tool(word: str) -> str:
    return "found " + word


async def bare_loop(steps: int, pieces: Sequence[str] = ("Let me ", "look that ", "up.")) -> int:
    """A turn of `steps` steps: five attrs events, a fold, four awaited hooks, three deltas and a tool for each.

    Returns the number of events.
    """
    numbers = itertools.count(1)
    log: list[BareEvent] = []
    history: list[tuple[str, str]] = [("user", "go")]

    def append(kind: str, step: str, data: Any) -> None:
        log.append(BareEvent("bare", next(numbers), kind, 1, time.time_ns() // 1000, "t1", step, data))
        if kind == "committed":
            history.append(("assistant", data))
        elif kind == "completed":
            history.append(("tool", data))

    for number in range(steps):
        step = f"t1s{number + 1}"
        request = await _hook(tuple(history[-1:]))
        append("requested", step, len(request))
        parts = [delta.text async for delta in _answer(pieces)]
        append("chunks", step, parts)
        append("committed", step, "".join(parts))
        await _hook(parts)
        append("started", step, await _hook({"word": "spine"}))
        result = await _tool("spine")
        append("completed", step, result)
        await _hook(result)
    return len(log)


def bare_waterfall(chain: Sequence[Callable[..., Awaitable[Any]]]) -> Callable[[Any], Awaitable[Any]]:
    """A function that asks each of `chain`, each one with the rest as its `call_next`; nothing is checked or recorded.

    The rest of the chain is bound once, not at each call.
    """

    def bound(hook: Callable[..., Awaitable[Any]], call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        return lambda value: hook(value, call_next)

    whole: Callable[[Any], Awaitable[Any]] = _hook
    for hook in reversed(chain):
        whole = bound(hook, whole)
    return whole


# ------------------------------------------------------------------------------------------------------- storing


def event_payloads(path: str) -> list[bytes]:
    """The stored payloads of a session's file, in order."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT data FROM events ORDER BY key").fetchall()
    connection.close()
    return [bytes(row[0]) for row in rows]


def write_steps(path: str, payloads: Sequence[bytes], *, synchronous: str = "NORMAL") -> int:
    """Store payloads with sequence numbers, five a step in two transactions. Returns the number of transactions."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, data BLOB)")
    commits = 0
    for start in range(0, len(payloads), 5):
        for group in (payloads[start : start + 2], payloads[start + 2 : start + 5]):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO events (data) VALUES (?)", ((data,) for data in group))
            connection.execute("COMMIT")
            commits += 1
    connection.close()
    return commits


def read_rows(path: str) -> int:
    """Read every row of a stored session and parse its payload. Returns their number."""
    connection = sqlite3.connect(path)
    count = 0
    for _, data in connection.execute("SELECT key, data FROM events ORDER BY key"):
        json.loads(data)
        count += 1
    connection.close()
    return count


# ------------------------------------------------------------------------------------------------------ decoding


def read_stream(pieces: Sequence[bytes]) -> str:
    """An event stream to its text: cut into events, parse each one's JSON, join the content."""

    def events() -> Iterator[bytes]:
        rest = b""
        for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n\n")
            yield from whole

    text = []
    for event in events():
        data = event[6:]
        if data != b"[DONE]":
            choices = json.loads(data)["choices"]
            if choices:
                text.append(choices[0]["delta"].get("content") or "")
    return "".join(text)
