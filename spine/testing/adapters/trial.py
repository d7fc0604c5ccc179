"""One fault against one adapter, and everything that must hold afterwards (floor 14).

A whole session asks, so the log is judged as well as the error: one typed outcome of the right category, in time,
within memory, the connection let go, no task left, the attempts on record, the log consistent, the key nowhere.
"""

import contextlib
import logging
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import attrs

from spine.agent import Agent
from spine.errors import TurnFailed
from spine.llm.errors import RETRYABLE, Failure
from spine.llm.protocols import Adapter
from spine.llm.retry import RetryPolicy
from spine.proof.verify import verify
from spine.testing.chaos.render import Render
from spine.testing.chaos.server import ChaosServer, Fault, chaos_server
from spine.testing.clock import FakeClock
from spine.testing.fixtures import offline_runtime
from spine.testing.script import Refuse, Say, say
from spine.values import Secret
from spine.wire.limits import Deadlines, WireLimits

__all__ = ["LATER", "LIMITS", "Subject", "Wire", "try_fault"]

LATER: Final = say("Done.")
"""What a server says after the fault."""
LIMITS: Final = WireLimits(response_bytes=8 * 1024 * 1024)
"""What an adapter under test is given: small enough to be reached, large enough to be seen in a process."""
SLACK_S: Final = 1.0
BEAT_S: Final = 0.01
CALM: Final[dict[str, Any]] = {
    "connect_s": 5.0,
    "first_byte_s": 20.0,
    "idle_s": 20.0,
    "progress_s": 20.0,
    "total_s": 25.0,
    "linger_s": 0.1,
}
"""Deadlines that nothing reaches, on a busy machine neither; a fault brings the one that ends it."""
HANGS_S: Final = 30.0
MEMORY_NOISE: Final = 8 * 1024 * 1024
"""What a process takes for itself while something else is measured, in bytes."""
_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")


@attrs.frozen(kw_only=True)
class Wire:
    """What an adapter under test is made of."""

    base_url: str
    secret: Secret
    deadlines: Deadlines
    limits: WireLimits = LIMITS


class Subject(Protocol):
    """What is tried."""

    @property
    def render(self) -> Render:
        """Writes answers in the adapter's protocol."""

    def make(self, wire: Wire) -> Adapter:
        """A fresh adapter that calls this server."""


@attrs.define
class _Seen:
    """What a trial leaves behind."""

    turn: Any = None
    events: tuple[Any, ...] = ()
    took_s: float = 0.0
    cpu_s: float = 0.0
    """What it cost, server included."""
    late_s: float = 0.0
    """How long this process had to wait for the machine; no fault of the adapter's."""
    told: list[str] = attrs.Factory(list)
    broken: list[str] = attrs.Factory(list)
    was_let_go: bool = True
    grown: int | None = None


async def try_fault(subject: Subject, fault: Fault, *, retry: bool = False) -> list[str]:
    """What does not hold, a sentence each; nothing when all is well. With `retry` up to three attempts are allowed."""
    good, later = subject.render(fault.entry), subject.render(LATER)
    before = len(anyio.get_running_tasks())
    secret = Secret(f"canary-{fault.name.rpartition('/')[2]}-in-the-coal-mine")
    async with chaos_server(fault, good, later) as server:
        with fault.around(server):
            seen = await _talk(subject, fault, server, secret, attempts=3 if retry else 1)
    left = len(anyio.get_running_tasks()) - before
    problems = [*seen.broken, *_judge_outcome(fault, seen, server, retry=retry)]
    if left > 0:
        problems.append(f"{left} tasks are left")
    if not seen.was_let_go:
        problems.append("the connection is still open a second later")
    if any(secret.reveal() in text for text in seen.told):
        problems.append("the key stands in what is told of the failure")
    bound = 3 * LIMITS.response_bytes + MEMORY_NOISE
    if fault.is_bomb and seen.grown is not None and seen.grown > bound:
        problems.append(f"memory grew by {seen.grown:,} bytes, more than {bound:,}")
    return problems


async def _talk(subject: Subject, fault: Fault, server: ChaosServer, secret: Secret, *, attempts: int) -> _Seen:
    """Ask once in a session of its own, with everything logged."""
    seen = _Seen()
    address = fault.address(server) if fault.address else server.url
    deadlines = Deadlines(**{**CALM, **fault.deadlines})
    adapter: Any = subject.make(Wire(base_url=address, secret=secret, deadlines=deadlines))
    policy = RetryPolicy(attempts=attempts)
    with _everything_logged(seen.told), _memory_watched(seen, fault.is_bomb):
        try:
            async with offline_runtime(adapter, FakeClock(), retry=policy) as runtime:
                session = await runtime.session("chaos", Agent("chaos:model"))
                started, worked = time.monotonic(), time.process_time()
                async with _attended(session, fault, server, seen):
                    with anyio.move_on_after(HANGS_S) as scope:
                        seen.turn = await _run(session, seen)
                seen.took_s, seen.cpu_s = time.monotonic() - started, time.process_time() - worked
                if scope.cancelled_caught:
                    seen.broken.append(f"it hung: no outcome after {HANGS_S:g} s")
                if seen.turn is None:
                    return seen
                seen.events = tuple(session.log.read())
                found = verify(session.log)
                seen.broken += [f"the log does not hold at seq {p.seq}: {p.text}" for p in found.problems]
                seen.told += [repr(seen.events), repr(session.transcript()), repr(seen.turn)]
        finally:
            await adapter.aclose()
        seen.was_let_go = await server.gone()
    return seen


@contextlib.asynccontextmanager
async def _attended(session: Any, fault: Fault, server: ChaosServer, seen: _Seen) -> AsyncIterator[None]:
    """Cancel the turn when the server says so; note for how long the machine let nobody here run."""

    async def cancel() -> None:
        await server.reached.wait()
        await anyio.sleep(0.02)  # what was sent may arrive
        await session.cancel()

    async def beat() -> None:
        while True:
            began = time.monotonic()
            await anyio.sleep(BEAT_S)
            seen.late_s += max(time.monotonic() - began - 2 * BEAT_S, 0.0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        if "cancelled" in fault.expect:
            tasks.start_soon(cancel)
        yield
        tasks.cancel_scope.cancel()


async def _run(session: Any, seen: _Seen) -> Any:
    try:
        return await session.run("What is the weather?")
    except TurnFailed as error:
        seen.told += ["".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())]
        return error.turn
    except Exception as error:
        seen.broken.append(f"{type(error).__name__} came out of the turn: {str(error)[:200]}")
        return None


# ------------------------------------------------------------------------------------------------------- judging


def _judge_outcome(fault: Fault, seen: _Seen, server: ChaosServer, *, retry: bool) -> Iterator[str]:
    if seen.turn is None:
        return
    if "cancelled" in fault.expect:
        if seen.turn.status != "cancelled":
            yield f"expected a cancelled turn, got one that is {seen.turn.status}"
        return
    failures = [
        event.data.failure for event in seen.events if event.type == "model.attempt_failed" and _is_first(event)
    ]
    first = failures[0] if failures else None
    yield from _judge_first(fault, seen, first)
    longest = max((value for value in fault.deadlines.values() if value), default=0.0)
    allowed = fault.within_s if fault.within_s is not None else longest + SLACK_S
    allowed *= max(len(failures), 1) if fault.repeats or fault.hits > 1 else 1
    spent = seen.cpu_s if fault.is_bomb and not fault.deadlines else seen.took_s - seen.late_s
    if spent > allowed:
        yield f"it took {spent:.2f} s, {allowed:.2f} s are allowed"
    yield from _judge_log(fault, seen, first, failures, server, retry=retry)
    if fault.next_step is not None:
        yield from _judge_next_step(fault.next_step, seen, retry=retry)


def _judge_first(fault: Fault, seen: _Seen, first: Failure | None) -> Iterator[str]:
    """What the attempt that met the fault came to."""
    wanted = " or ".join(sorted("an answer" if one == "answer" else f"ProviderError {one}" for one in fault.expect))
    if first is None:
        stop = seen.turn.stop_reason or seen.turn.status
        if "answer" not in fault.expect:
            yield f"expected {wanted}, got a ModelResponse with {stop}"
        elif (told := _first_text(seen)) != _text_of(fault):
            yield f"expected the text {_text_of(fault)!r:.80}, got {told!r:.80}"
        return
    if first.category not in fault.expect:
        yield f"expected {wanted}, got ProviderError {first.category}: {first.message[:120]}"
        return
    retryable = first.category in RETRYABLE if fault.retryable is None else fault.retryable
    if first.retryable is not retryable:
        yield f"expected retryable {retryable}, got {first.retryable} ({first.category})"
    if fault.retry_after_s is not None and first.retry_after_s != fault.retry_after_s:
        yield f"expected a delay of {fault.retry_after_s} s, got {first.retry_after_s}"


def _is_first(event: Any) -> bool:
    return str(event.step or "") == "t1s1"


def _text_of(fault: Fault) -> str:
    if fault.text is not None:
        return fault.text
    return "".join(piece for part in fault.entry.parts if isinstance(part, Say | Refuse) for piece in part.pieces)


def _first_text(seen: _Seen) -> str:
    committed = next((event.data.message for event in seen.events if event.type == "message.committed"), None)
    blocks = committed.content if committed is not None else ()
    return "".join(block.text for block in blocks if type(block).__name__ in ("TextBlock", "RefusalBlock"))


def _judge_log(
    fault: Fault, seen: _Seen, first: Failure | None, failures: list[Failure], server: ChaosServer, *, retry: bool
) -> Iterator[str]:
    """Attempts, what was kept of them, and the one ending, as the log has them."""
    kinds = [event.type for event in seen.events if _is_first(event)]
    endings = [kind for kind in kinds if kind in ("message.committed", "step.failed")]
    if len(endings) != 1:
        yield f"the log has {len(endings)} endings of the step: {', '.join(endings) or 'none'}"
        return
    kept = (event.data for event in seen.events if event.type == "message.interrupted" and _is_first(event))
    interrupted = next(kept, None)
    if interrupted is not None and (first is None or interrupted.failure != failures[-1]):
        yield "the log keeps a broken-off answer without the failure that broke it off"
    if first is None:
        return
    if "tool.started" in kinds and fault.repeats:
        yield "a call of an answer that failed was run"
    is_again = retry and first.retryable and interrupted is None and (first.retry_after_s or 0) <= 60
    wanted = "message.committed" if is_again and not fault.repeats else "step.failed"
    if endings != [wanted]:
        yield f"after {first.category} the step ended with {endings[0]}, not with {wanted}"
    attempts = 1 + kinds.count("model.attempt_started")
    expected = (3 if fault.repeats else 1 + fault.hits) if is_again else 1
    if attempts != expected:
        yield f"{attempts} attempts were made, not {expected}"
    if fault.reads and fault.address is None and server.plays < expected:
        yield f"the server saw {server.plays} requests of {expected}"


def _judge_next_step(category: str, seen: _Seen, *, retry: bool) -> Iterator[str]:
    """A step whose connection was of no use: tried again once, because nothing of an answer had been read."""
    events = [event for event in seen.events if str(event.step or "") == "t1s2"]
    failed = [event.data.failure.category for event in events if event.type == "model.attempt_failed"]
    if failed != [category]:
        yield f"the attempts after the tool's result failed as {failed}, not as {[category]}"
    wanted = "completed" if retry else "failed"
    if seen.turn.status != wanted:
        yield f"the turn is {seen.turn.status}, not {wanted}"


# -------------------------------------------------------------------------------------------------------- watching


class _Listening(logging.Handler):
    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what was logged, arguments included."""
        text = record.getMessage()
        if not text.startswith("receive_response_headers"):  # what a server echoes there is its own doing
            self._told.append(f"{text} {record.args!r}")


class _everything_logged:
    """All loggers at DEBUG while the block runs, those of the HTTP libraries included."""

    _NAMES = ("", "spine", "httpx", "httpcore", "httpcore.http11", "httpcore.connection", "anyio")

    def __init__(self, told: list[str]) -> None:
        self._handler = _Listening(told)
        self._levels: dict[str, int] = {}

    def __enter__(self) -> None:
        for name in self._NAMES:
            logger = logging.getLogger(name)
            self._levels[name] = logger.level
            logger.setLevel(logging.DEBUG)
        logging.getLogger().addHandler(self._handler)

    def __exit__(self, *error: object) -> None:
        logging.getLogger().removeHandler(self._handler)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)


class _memory_watched:
    """How far the process's memory rose above its present size, where the system tells (Linux)."""

    def __init__(self, seen: _Seen, is_on: bool) -> None:
        self._seen = seen
        self._is_on = is_on and _STATUS.exists()
        self._before = 0

    def __enter__(self) -> None:
        if self._is_on:
            _CLEAR.write_text("5")  # forget the highest value so far
            self._before = _status_bytes("VmRSS")

    def __exit__(self, *error: object) -> None:
        if self._is_on:
            self._seen.grown = _status_bytes("VmHWM") - self._before


def _status_bytes(name: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
