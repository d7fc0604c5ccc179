"""One call of one tool: outcomes for what goes wrong, a way out for what must not be held, threads that are counted."""

import contextvars
import functools
import itertools
import threading
import time

import anyio
import anyio.from_thread
import attrs
import pytest

from spine.errors import KeyMissing, ValueRefused
from spine.execution import ArgumentsRefused, Executed, ToolContext, execute, runs_on_loop, validate
from spine.messages import TextBlock
from spine.threads import Job, ThreadsExhausted, Workers
from spine.tools import Tool, ToolDefinition, ToolOutcome
from spine.values import CallId, Secret, SessionId, freeze_object

pytestmark = pytest.mark.anyio
NO_ARGUMENTS = freeze_object({})
variable = contextvars.ContextVar("variable", default="unset")


def tool_of(handler, **options):
    return Tool(definition=ToolDefinition(name="probe"), handler=handler, **options)


def context_of(**fields):
    return ToolContext(**{"deps": None, "session": SessionId("s"), "call": CallId("t2s3c1"), **fields})


async def run(handler, *, workers=None, context=None, **options):
    with anyio.fail_after(5):
        return await execute(tool_of(handler, **options), NO_ARGUMENTS, context or context_of(), workers=workers)


async def outcome_of(handler, **options):
    return (await run(handler, **options)).outcome


# --------------------------------------------------------------------------------------------- how handlers run


async def on_loop(arguments, context):
    return threading.current_thread() is threading.main_thread()


def in_thread(arguments, context):
    return threading.current_thread() is threading.main_thread()


class AsyncCallable:
    async def __call__(self, arguments, context):
        return await on_loop(arguments, context)


class SyncCallable:
    def __call__(self, arguments, context):
        return in_thread(arguments, context)

    async def method(self, arguments, context):
        return await on_loop(arguments, context)


def gives_awaitable(arguments, context):
    """A decorator that is not async around a coroutine function looks like this."""
    return on_loop(arguments, context)


@pytest.mark.parametrize(
    ("handler", "is_on_loop"),
    [
        (on_loop, True),
        (in_thread, False),
        (AsyncCallable(), True),
        (SyncCallable(), False),
        (SyncCallable().method, True),
        (functools.partial(on_loop), True),
        (functools.partial(in_thread), False),
    ],
)
async def test_coroutine_functions_run_on_the_loop_and_others_in_a_thread(handler, is_on_loop):
    assert runs_on_loop(handler) is is_on_loop
    assert (await outcome_of(handler)).content[0].value is is_on_loop


async def test_an_awaitable_from_a_plain_function_is_awaited_on_the_loop():
    assert (await outcome_of(gives_awaitable)).content[0].value is True


async def test_context_variables_are_visible_in_a_thread():
    variable.set("seen")
    assert (await outcome_of(lambda arguments, context: variable.get())).content == (TextBlock(text="seen"),)


async def test_blocking_tools_overlap_and_leave_the_loop_alone():
    """Two tools that sleep 0.3 s take 0.3 s together, and a heartbeat never pauses for long."""
    beats = [time.monotonic()]

    async def heart():
        while True:
            await anyio.sleep(0.02)
            beats.append(time.monotonic())

    started = time.monotonic()
    async with anyio.create_task_group() as group:
        group.start_soon(heart)
        async with anyio.create_task_group() as calls:
            for _ in range(2):
                calls.start_soon(outcome_of, lambda arguments, context: time.sleep(0.3))
        group.cancel_scope.cancel()
    assert time.monotonic() - started < 0.55
    assert max(later - sooner for sooner, later in itertools.pairwise(beats)) < 0.15


async def test_the_duration_comes_from_the_given_clock():
    ticks = iter([10.0, 12.5])
    executed = await execute(tool_of(on_loop), NO_ARGUMENTS, context_of(), clock=lambda: next(ticks))
    assert executed.outcome.duration_s == 2.5


async def test_what_is_too_large_comes_back_for_storing():
    executed = await run(lambda arguments, context: "x" * 100, max_result_bytes=10)
    assert type(executed) is Executed
    assert executed.outcome.truncated
    assert executed.overflow.data == b"x" * 100


async def test_an_outcome_of_its_own_stays():
    made = ToolOutcome(status="error", content=(TextBlock(text="no"),))
    outcome = await outcome_of(lambda arguments, context: made)
    assert outcome.evolve(duration_s=None) == made


# ------------------------------------------------------------------------------------------------ what goes wrong


def raises(error):
    async def handler(arguments, context):
        raise error

    return handler


def raises_in_thread(error):
    def handler(arguments, context):
        raise error

    return handler


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("mute")


FAILURES = (
    (ValueError("no such order"), "error: ValueError: no such order"),
    (KeyError("a"), "error: KeyError: 'a'"),
    (ValueError(), "error: ValueError"),
    (Mute("x"), "error: Mute"),
    (ValueError("\ud800"), "error: ValueError: \ufffd"),
    (TimeoutError("slow disk"), "error: TimeoutError: slow disk"),
    (ExceptionGroup("two", [ValueError(), KeyError()]), "error: ExceptionGroup: two (2 sub-exceptions)"),
    (RecursionError("too deep"), "error: RecursionError: too deep"),
    (MemoryError(), "error: MemoryError"),
    (AssertionError("x" * 5000), "error: AssertionError: " + "x" * 1999 + "…"),
    (ArgumentsRefused('missing "city"'), 'error: missing "city"'),
)


@pytest.mark.parametrize("make", [raises, raises_in_thread])
@pytest.mark.parametrize(("error", "text"), FAILURES, ids=[text[:40] for _, text in FAILURES])
async def test_an_exception_is_an_outcome_without_a_stack_trace(make, error, text):
    outcome = await outcome_of(make(error))
    assert outcome.status == "error"
    assert outcome.content == (TextBlock(text=text),)
    assert "Traceback" not in text


@pytest.mark.parametrize("make", [raises, raises_in_thread])
async def test_an_exception_names_its_type_and_kind(make):
    outcome = await outcome_of(make(ValueError("no")))
    assert (outcome.error.kind, outcome.error.type, outcome.error.message) == ("exception", "ValueError", "no")
    assert outcome.duration_s is not None


@pytest.mark.parametrize("make", [raises, raises_in_thread])
async def test_stop_iteration_is_an_outcome_too(make):
    assert (await outcome_of(make(StopIteration(5)))).status == "error"


async def test_refused_arguments_never_ran():
    outcome = await outcome_of(raises(ArgumentsRefused('missing "city"')))
    assert outcome.error.kind == "invalid_arguments"
    assert outcome.duration_s is None


class Leave(BaseException):
    pass


@pytest.mark.parametrize("make", [raises, raises_in_thread])
@pytest.mark.parametrize("error", [Leave(), BaseExceptionGroup("g", [Leave()])])
async def test_what_is_no_exception_passes_through(make, error):
    with pytest.raises(type(error)):
        await outcome_of(make(error))


@pytest.mark.parametrize("make", ["raises", "raises_in_thread"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_interrupt_and_exit_end_the_program(make, error, backend):
    handler = {"raises": raises, "raises_in_thread": raises_in_thread}[make](error())

    async def main():
        await execute(tool_of(handler), NO_ARGUMENTS, context_of())

    with pytest.raises((error, BaseExceptionGroup)) as left:
        anyio.run(main, backend=backend)
    assert error is left.type or left.group_contains(error)


# --------------------------------------------------------------------------------------- timeouts and cancellation


async def test_a_coroutine_over_its_time_is_stopped():
    stopped = []

    async def handler(arguments, context):
        try:
            await anyio.sleep(5)
        finally:
            stopped.append(True)

    outcome = await outcome_of(handler, timeout_s=0.02)
    assert outcome.status == "timeout"
    assert outcome.error.kind == "timeout"
    assert "was stopped" in outcome.content[0].text
    assert stopped


async def test_in_time_is_in_time():
    assert (await outcome_of(on_loop, timeout_s=5)).status == "ok"
    assert (await outcome_of(in_thread, timeout_s=5)).status == "ok"


async def test_an_error_while_being_stopped_is_a_timeout():
    async def handler(arguments, context):
        try:
            await anyio.sleep(5)
        finally:
            raise ValueError("clean-up failed")

    assert (await outcome_of(handler, timeout_s=0.02)).status == "timeout"


async def test_a_result_that_came_after_the_time_counts():
    """The handler ended by itself: its result is the truth, however late."""

    async def handler(arguments, context):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.05)
        return "done"

    outcome = await outcome_of(handler, timeout_s=0.01)
    assert (outcome.status, outcome.content) in (("ok", (TextBlock(text="done"),)), ("timeout", outcome.content))


async def test_a_timeout_of_the_tools_own_is_no_timeout_of_ours():
    async def handler(arguments, context):
        with anyio.fail_after(0.01):
            await anyio.sleep(5)

    outcome = await outcome_of(handler, timeout_s=5)
    assert outcome.error.type == "TimeoutError"
    assert outcome.status == "error"


async def test_a_thread_over_its_time_goes_on_and_is_named():
    workers, release = Workers(), threading.Event()
    outcome = await outcome_of(lambda arguments, context: release.wait(5), workers=workers, timeout_s=0.05)
    assert outcome.status == "timeout"
    assert "may still take effect" in outcome.content[0].text
    assert workers.abandoned == ("probe s/t2s3c1",)
    release.set()
    await _until(lambda: workers.abandoned == ())


async def test_an_awaitable_from_a_thread_is_stopped_in_time():
    async def slow():
        await anyio.sleep(5)

    outcome = await outcome_of(lambda arguments, context: slow(), timeout_s=0.05)
    assert outcome.status == "timeout"
    assert "was stopped" in outcome.content[0].text


async def test_a_call_that_got_no_thread_in_time_never_ran():
    workers, release, ran = Workers(max_threads=1), threading.Event(), []
    async with anyio.create_task_group() as group:
        group.start_soon(functools.partial(run, lambda arguments, context: release.wait(5), workers=workers))
        await anyio.sleep(0.05)
        outcome = await outcome_of(lambda arguments, context: ran.append(1), workers=workers, timeout_s=0.05)
        release.set()
    assert outcome.status == "timeout"
    assert outcome.content[0].text.endswith("Nothing was executed.")
    await anyio.sleep(0.05)
    assert ran == []
    assert workers.abandoned == ()


async def test_abandoned_threads_are_limited():
    workers, release = Workers(max_threads=4, max_abandoned=2), threading.Event()
    for _ in range(2):
        await outcome_of(lambda arguments, context: release.wait(5), workers=workers, timeout_s=0.03)
    outcome = await outcome_of(in_thread, workers=workers)
    assert outcome.status == "not_started"
    assert outcome.content[0].text.startswith("not started: 2 earlier calls")
    assert outcome.duration_s is None
    assert (await outcome_of(on_loop, workers=workers)).status == "ok"
    release.set()
    await _until(lambda: workers.abandoned == ())
    assert (await outcome_of(in_thread, workers=workers)).status == "ok"


@pytest.mark.parametrize("timeout_s", [None, 5])
@pytest.mark.parametrize("is_sync", [False, True])
async def test_cancellation_passes_through(is_sync, timeout_s):
    workers, release, reached = Workers(), threading.Event(), []

    async def waits(arguments, context):
        await anyio.sleep(5)

    def blocks(arguments, context):
        release.wait(5)

    async def call():
        await run(blocks if is_sync else waits, workers=workers, timeout_s=timeout_s)
        reached.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.sleep(0.05)
        group.cancel_scope.cancel()
    assert reached == []
    assert len(workers.abandoned) == (1 if is_sync else 0)
    release.set()
    await _until(lambda: workers.abandoned == ())


async def test_a_sibling_that_raises_disturbs_nobody():
    done = {}

    async def slow(arguments, context):
        await anyio.sleep(0.05)
        return "A"

    async def call(name, handler):
        done[name] = await outcome_of(handler)

    async with anyio.create_task_group() as group:
        for name, handler in (("A", slow), ("B", raises(ValueError("no"))), ("C", lambda arguments, context: "C")):
            group.start_soon(call, name, handler)
    assert {name: outcome.status for name, outcome in done.items()} == {"A": "ok", "B": "error", "C": "ok"}


async def _until(claim):
    with anyio.fail_after(5):
        while not claim():
            await anyio.sleep(0.005)


async def test_a_job_that_was_given_up_never_runs():
    workers, ran = Workers(), []
    job = Job("label", lambda: ran.append(1))
    job.is_abandoned = True
    with pytest.raises(ThreadsExhausted):
        await workers.run(job)
    assert ran == []


# ------------------------------------------------------------------------------------------------------- context


async def test_progress_is_reported_from_loop_and_thread_on_the_loop():
    reports = []

    def report(text, data):
        reports.append((text, data, threading.current_thread() is threading.main_thread()))

    def sync(arguments, context):
        context.progress("half", {"done": [1]})

    async def on_the_loop(arguments, context):
        context.progress(data=2)

    context = context_of(report=report)
    await run(sync, context=context)
    await run(on_the_loop, context=context)
    assert reports == [("half", {"done": (1,)}, True), (None, 2, True)]


async def test_progress_after_the_call_was_given_up_goes_nowhere():
    reports, release, over = [], threading.Event(), threading.Event()

    def handler(arguments, context):
        release.wait(5)
        context.progress("late")
        over.set()

    context = context_of(report=lambda text, data: reports.append(text))
    assert (await outcome_of(handler, context=context, timeout_s=0.03)).status == "timeout"
    release.set()
    await anyio.to_thread.run_sync(over.wait, 5)
    assert over.is_set()
    assert reports == []


def test_progress_must_be_json():
    with pytest.raises(ValueRefused):
        context_of().progress(data=object())


def test_a_context_knows_its_place():
    context = context_of(metadata={"customer": "c-77"})
    assert (context.turn, context.step, context.call) == ("t2", "t2s3", "t2s3c1")
    assert context.idempotency_key == "s/t2s3c1"
    assert context.metadata == {"customer": "c-77"}


def test_a_context_shows_neither_deps_nor_secrets():
    context = context_of(deps="the deps", secrets={"lab": Secret("k-value")})
    assert context.secret("lab").reveal() == "k-value"
    assert "k-value" not in repr(context)
    assert "the deps" not in repr(context)


def test_an_unknown_secret_names_the_known_ones():
    with pytest.raises(KeyMissing, match='secret "shop", which was not provided; provided are: lab'):
        context_of(secrets={"lab": Secret("x")}).secret("shop")


@pytest.mark.parametrize("field", ["deps", "call", "session", "metadata", "turn", "idempotency_key"])
def test_a_context_is_frozen(field):
    with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError)):
        setattr(context_of(), field, "other")


# ---------------------------------------------------------------------------------------------------- validation


def test_the_schema_is_asked_first_and_then_the_tools_own_check():
    schema = {"type": "object", "properties": {"day": {"type": "string"}}}
    checked = []

    def check(arguments):
        checked.append(arguments["day"])
        return None if arguments["day"] == "monday" else "day: no such day"

    tool = Tool(definition=ToolDefinition(name="a", parameters=schema), handler=on_loop, check=check)
    assert validate(tool, freeze_object({"day": 1})) == "day: expected string, found integer 1"
    assert validate(tool, freeze_object({"day": "x"})) == "day: no such day"
    assert validate(tool, freeze_object({"day": "monday"})) is None
    assert checked == ["x", "monday"]


async def test_an_async_call_costs_little_over_the_bare_call():
    """The measured figure is 3 µs; the bound leaves room for a busy machine."""

    async def handler(arguments, context):
        return "12 °C, rain"

    tool, context, best = tool_of(handler), context_of(), 1.0
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(500):
            await execute(tool, NO_ARGUMENTS, context)
        best = min(best, (time.perf_counter() - began) / 500)
    assert best < 15e-6
