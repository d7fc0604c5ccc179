"""One call of one tool: its handler runs, and whatever comes of it becomes an outcome (floor 4).

Strategy: arguments were validated before; here the handler runs on the event loop when it is a coroutine function,
else in a worker thread. An exception, a timeout or an unusable result is an outcome that the model sees. Cancellation,
KeyboardInterrupt and SystemExit are not outcomes and pass through.

A coroutine function without a timeout is awaited directly: no task group, no cancel scope. Nothing is awaited between
a handler's return and the return of `execute`.
"""

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import anyio
import anyio.from_thread
import attrs

from spine import outcomes
from spine.drafts import maker
from spine.errors import KeyMissing
from spine.frozen import frozen
from spine.results import ResultUnusable, checked_outcome, content_of, fit
from spine.schema import compile_schema
from spine.secrecy import Secrecy
from spine.store import Content
from spine.threads import Job, ThreadsExhausted, Workers
from spine.tools import Tool, ToolHandler, ToolOutcome
from spine.values import (
    EMPTY_OBJECT,
    CallId,
    Json,
    JsonObject,
    Secret,
    SessionId,
    StepId,
    TurnId,
    clean_text,
    freeze,
    freeze_object,
    step_of,
    turn_of,
)
from spine.wording import WORDING_VERSION

__all__ = ["ArgumentsRefused", "Executed", "ToolContext", "execute", "runs_on_loop", "settle", "validate"]

Deps = TypeVar("Deps")
Report = Callable[[str | None, Json], None]
_REACH: Final[Mapping[str, outcomes.Reach]] = MappingProxyType(
    {"waiting": "waiting", "running": "thread", "ended": "task"}
)
"""A job's state when its time was over, to what became of it."""
_COROUTINE: Final = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE


def _ignore(text: str | None, data: Json) -> None:
    """Where progress goes when nobody listens."""


@frozen(kw_only=True, eq=False)
class ToolContext(Generic[Deps]):
    """What a handler knows of its call. `deps` is what the application gave the session; it never reaches the log."""

    deps: Deps = attrs.field(repr=False)
    session: SessionId
    call: CallId
    metadata: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    _report: Report = attrs.field(default=_ignore, alias="report", repr=False)
    _secrets: Mapping[str, Secret] = attrs.field(default=MappingProxyType({}), alias="secrets", repr=False)

    @property
    def turn(self) -> TurnId:
        """The turn in which the call was made."""
        return turn_of(self.call)

    @property
    def step(self) -> StepId:
        """The step in which the call was made."""
        return step_of(self.call)

    @property
    def idempotency_key(self) -> str:
        """The same whenever this call runs, also after a crash: `<session>/<call>`."""
        return f"{self.session}/{self.call}"

    def progress(self, text: str | None = None, data: Any = None) -> None:
        """Report how far the call is; recorded at once. `data` is any JSON value.

        May be called from the handler's own thread. Once the call was given up it does nothing.
        """
        self._report(None if text is None else clean_text(text), freeze(data))

    def secret(self, name: str) -> Secret:
        """A secret the application provides. Raises `KeyMissing` naming those that there are."""
        found = self._secrets.get(name)
        if found is None:
            known = ", ".join(sorted(self._secrets)) or "none"
            raise KeyMissing(f'a tool asked for the secret "{name}", which was not provided; provided are: {known}')
        return found


class ArgumentsRefused(Exception):
    """Raised by a handler that cannot take its arguments; the message is the sentence for the model."""


class Executed(NamedTuple):
    """What came of a call; `overflow` is content to store first, when the outcome refers to it by digest."""

    outcome: ToolOutcome
    overflow: Content | None = None


@frozen
class _Pending:
    """An awaitable on its way from a thread to the loop; trio takes no bare coroutine from a thread."""

    awaitable: Awaitable[Any]


def validate(tool: Tool, arguments: JsonObject) -> str | None:
    """What is wrong with a call's arguments in one sentence; None when the tool may run with them."""
    problem = compile_schema(tool.definition.parameters)(arguments)
    if problem is None and tool.check is not None:
        return tool.check(arguments)
    return problem


def runs_on_loop(handler: ToolHandler) -> bool:
    """Whether a handler is a coroutine function, to be awaited on the event loop; others run in a thread."""
    code = getattr(handler, "__code__", None)
    if code is not None:
        return bool(code.co_flags & _COROUTINE)
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


async def execute(
    tool: Tool,
    arguments: JsonObject,
    context: ToolContext[Any],
    *,
    workers: Workers | None = None,
    clock: Callable[[], float] = time.monotonic,
    wording: int = WORDING_VERSION,
    secrecy: Secrecy | None = None,
) -> Executed:
    """Run a tool's handler with validated arguments; always returns, unless cancelled or told to exit.

    `workers` are the threads for synchronous handlers (None: threads of its own). `clock` gives monotonic seconds.
    `secrecy` masks what came back, before it is cut to size.
    """
    started = clock()
    try:
        if tool.timeout_s is None and runs_on_loop(tool.handler):
            result = await tool.handler(arguments, context)
        else:
            result = await _bounded(tool, arguments, context, workers or Workers(), wording, secrecy)
    except Exception as exc:
        return Executed(_timed(_failure(exc, wording, secrecy), _since(started, clock)))
    if type(result) is Executed:
        return Executed(_timed(result.outcome, _since(started, clock)), result.overflow)
    took = _since(started, clock)
    return settle(result, max_bytes=tool.max_result_bytes, duration_s=took, wording=wording, secrecy=secrecy)


def settle(
    result: Any,
    *,
    max_bytes: int,
    duration_s: float | None = None,
    wording: int = WORDING_VERSION,
    secrecy: Secrecy | None = None,
) -> Executed:
    """The outcome for what a handler or a hook returned: shown, masked, checked, cut to `max_bytes`; never raises."""
    try:
        outcome = checked_outcome(result) if type(result) is ToolOutcome else None
        if outcome is not None and secrecy is not None and secrecy.is_on:
            outcome = secrecy.outcome(outcome)
        content = content_of(result) if outcome is None else outcome.content
        if outcome is None and secrecy is not None and secrecy.is_on:
            content = secrecy.content(content)
        fitted = fit(content, max_bytes, wording=wording)
    except ResultUnusable as exc:
        return Executed(outcomes.unusable_result(str(exc), wording=wording).evolve(duration_s=duration_s))
    except Exception as exc:  # a foreign object's own methods and properties may raise anything
        problem = f"reading it raised {type(exc).__name__}: {outcomes.message_of(exc)}"
        return Executed(outcomes.unusable_result(problem, wording=wording).evolve(duration_s=duration_s))
    is_cut = fitted.overflow is not None
    if outcome is None:
        return Executed(_make_outcome("ok", fitted.content, None, is_cut, duration_s, EMPTY_OBJECT), fitted.overflow)
    outcome = outcome.evolve(content=fitted.content, truncated=is_cut or outcome.truncated, duration_s=duration_s)
    return Executed(outcome, fitted.overflow)


_make_outcome: Final = maker(ToolOutcome)


def _timed(outcome: ToolOutcome, duration_s: float) -> ToolOutcome:
    has_run = outcome.status != "not_started" and (outcome.error is None or outcome.error.kind != "invalid_arguments")
    return outcome.evolve(duration_s=duration_s) if has_run else outcome


def _since(started: float, clock: Callable[[], float]) -> float:
    elapsed = clock() - started
    return 0.0 if elapsed < 0.0005 else round(elapsed, 3)  # rounding costs more than most of a short call


def _failure(error: Exception, wording: int, secrecy: Secrecy | None) -> ToolOutcome:
    outcome = _failed(error, wording)
    return outcome if secrecy is None else secrecy.outcome(outcome)


def _failed(error: Exception, wording: int) -> ToolOutcome:
    match error:
        case ArgumentsRefused():
            return outcomes.invalid_arguments(str(error), wording=wording)
        case ThreadsExhausted():
            return outcomes.not_started("threads", count=error.count, wording=wording)
        case _:
            return outcomes.raised(error, wording=wording)


async def _bounded(
    tool: Tool,
    arguments: JsonObject,
    context: ToolContext[Any],
    workers: Workers,
    wording: int,
    secrecy: Secrecy | None,
) -> Any:
    """What the handler returns, or the outcome of a timeout; a thread's result comes back as `Executed`."""
    job = None if runs_on_loop(tool.handler) else _job(tool, arguments, context, wording, secrecy)
    if tool.timeout_s is None:
        return await _call(tool, arguments, context, workers, job)
    with anyio.move_on_after(tool.timeout_s) as scope:
        try:
            return await _call(tool, arguments, context, workers, job)
        except Exception:
            # What a handler raises while it is being stopped is about the stop, not about the call.
            if not scope.cancel_called:
                raise
    return outcomes.timed_out(tool.timeout_s, reach=_REACH[job.state] if job else "task", wording=wording)


async def _call(
    tool: Tool,
    arguments: JsonObject,
    context: ToolContext[Any],
    workers: Workers,
    job: Job[Executed | _Pending] | None,
) -> Any:
    if job is None:
        return await tool.handler(arguments, context)
    result = await workers.run(job)
    return await result.awaitable if isinstance(result, _Pending) else result


def _job(
    tool: Tool, arguments: JsonObject, context: ToolContext[Any], wording: int, secrecy: Secrecy | None
) -> Job[Executed | _Pending]:
    def work() -> Executed | _Pending:
        # Everything is caught and converted here, in the thread: a large result must not hold up the event loop.
        try:
            result = tool.handler(arguments, attrs.evolve(context, report=partial(_from_thread, job, context._report)))
        except Exception as exc:
            return Executed(_failure(exc, wording, secrecy))
        if inspect.isawaitable(result):
            return _Pending(result)
        return settle(result, max_bytes=tool.max_result_bytes, wording=wording, secrecy=secrecy)

    job = Job(f"{tool.name} {context.idempotency_key}", work)
    return job


def _from_thread(job: Job[Any], report: Report, text: str | None, data: Json) -> None:
    if not job.is_abandoned:
        anyio.from_thread.run_sync(report, text, data)
