"""Cancelling at any await leaves a log that another turn, or another process, can go on from.

One turn with everything in it (a retry, thinking, one tool, three parallel tools, all hooks) is cancelled at each of
its awaits, by `session.cancel()`, by a cancel scope around the caller, by asyncio's own `task.cancel()`, and by a limit
on time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint, current_token
from stage import Adapter, agent_of, judge, plugin, staged, tool_of

from spine import Limits
from spine.commits import at_next_tick
from spine.llm.errors import ProviderError
from spine.llm.retry import RetryPolicy
from spine.stores.memory import MemoryStore
from spine.testing.clock import FakeClock
from spine.testing.script import call, fail, say, think
from spine.testing.scripted import prepare

pytestmark = pytest.mark.anyio

SCRIPT: dict[str, Any] = {
    "t1s1": [fail("rate_limit", retry_after_s=0), think("Hm.") + say("Let me look.") + call("look", n=1)],
    "t1s2": [say("All three.") + call("a") + call("b") + call("c")],
    "t1s3": [say("Done.")],
    "t2s1": [say("Fresh.")],
}
MAX_POINTS = 400


class Trip:
    """Counts awaits and acts at the n-th."""

    def __init__(self, number: int, *, then_awaits: bool = True) -> None:
        self.number, self.then_awaits = number, then_awaits
        self.count = 0
        self.action: Callable[[], Awaitable[None]] | None = None
        self.fired = False
        self.clock = FakeClock()
        """The runtime's, where time decides."""

    async def __call__(self) -> None:
        self.count += 1
        if self.count == self.number and self.action is not None:
            self.fired = True
            await self.action()
            if not self.then_awaits:
                return
        await checkpoint()


class Scene:
    """The turn's model, tools and hooks, each of which passes the trip wire at every await."""

    def __init__(self, trip: Callable[[], Awaitable[None]]) -> None:
        self.trip = trip
        self.open_streams = 0
        self.running: set[str] = set()
        self.attempts: dict[str, Iterator[Any]] = {step: iter(entries) for step, entries in SCRIPT.items()}
        self.adapter = Adapter(self.play)

    async def play(self, request: Any) -> AsyncIterator[Any]:
        self.open_streams += 1
        try:
            await self.trip()
            for item in prepare(next(self.attempts[request.step])).items:
                if hasattr(item, "failure"):
                    raise_failure(item)
                yield item
                await self.trip()
        finally:
            self.open_streams -= 1

    def tool(self, name: str, *, parallel: bool) -> Any:
        async def handler(arguments: Any, context: Any) -> str:
            self.running.add(name)
            try:
                await self.trip()
                context.progress("half")
                await self.trip()
            finally:
                self.running.discard(name)
            return f"{name} done"

        return tool_of(name, handler, parallel=parallel, effect="read_only")

    def agent(self) -> Any:
        return agent_of(self.tool("look", parallel=False), *(self.tool(n, parallel=True) for n in "abc"))

    def hooks(self) -> Any:
        async def pre_step(request: Any, call_next: Any) -> Any:
            await self.trip()
            result = await call_next(request.evolve(temperature=0.5))
            await self.trip()
            return result

        async def post_step(response: Any) -> None:
            await self.trip()

        async def pre_execute(call: Any, call_next: Any) -> Any:
            await self.trip()
            return await call_next(call)

        async def post_execute(outcome: Any, call_next: Any) -> Any:
            result = await call_next(outcome)
            await self.trip()
            return result

        async def step_failed(error: Any, call_next: Any) -> Any:
            return await call_next(error)

        return plugin(
            "wire",
            pre_step=pre_step,
            post_step=post_step,
            pre_execute=pre_execute,
            post_execute=post_execute,
            step_failed=step_failed,
        )


def raise_failure(part: Any) -> None:
    raise ProviderError(part.failure)


# ----------------------------------------------------------------------------------------- ways to cancel a turn


async def by_session(session: Any, trip: Trip) -> str:
    trip.action = session.cancel
    turn = await session.run("Go.")
    return str(turn.status)


async def by_scope(session: Any, trip: Trip) -> str:
    with anyio.CancelScope() as scope:

        async def cancel() -> None:
            scope.cancel()

        trip.action = cancel
        await session.run("Go.")
    return str(session.turn.status)


async def by_task(session: Any, trip: Trip) -> str:
    task = asyncio.ensure_future(session.run("Go."))

    async def cancel() -> None:
        task.cancel()

    trip.action = cancel
    try:
        await task
    except asyncio.CancelledError:
        assert trip.fired
    return str(session.turn.status)


async def by_limit(session: Any, trip: Trip) -> str:
    async def late() -> None:
        trip.clock.advance(60)
        session.tick()

    trip.action = late
    return str((await session.run("Go.", limits=Limits(wall_s=10), check=False)).status)


WAYS: dict[str, Any] = {"session": by_session, "scope": by_scope, "task": by_task, "limit": by_limit}


async def cancelled_at(
    number: int, way: str, *, store: Any = "memory:", then_awaits: bool = True, trips: bool = True
) -> tuple[bool, list[str]]:
    """Run the scene, cancelled at await `number`; whether the cancel came in time, and the event types."""
    trip = Trip(number, then_awaits=then_awaits)
    scene = Scene(trip if trips else checkpoint)
    async with staged(
        model=scene.adapter,
        plugins=[scene.hooks()],
        store=store,
        retry=RetryPolicy(base_s=0),
        clock=trip.clock if way == "limit" else None,
    ) as runtime:
        session = await runtime.session("s", scene.agent())
        with anyio.fail_after(5):
            if not trips:
                store.trip = trip
            status = await WAYS[way](session, trip)
        if not trip.fired:
            assert status == "completed"
            return False, []
        stopped = "failed" if way == "limit" else "cancelled"
        assert status in (stopped, "completed")
        assert scene.open_streams == 0
        assert scene.running == set()
        assert not session.is_running
        turn = await session.run("Go on.")
        assert turn.status == "completed"
        assert turn.text in ("Fresh.", "Done.")
        kinds = [event.type for event in judge(session.log)]
        assert "hook.failed" not in kinds
        assert "step.failed" not in kinds
        if status == stopped:
            first = kinds[: kinds.index("turn.started", kinds.index("turn.started") + 1)]
            assert f"turn.{stopped}" in first[-2:]
        return True, kinds


def ways_of(backend: str) -> list[str]:
    return [way for way in WAYS if way != "task" or backend == "asyncio"]


async def sweep(run: Callable[[int], Awaitable[tuple[bool, list[str]]]]) -> int:
    """Cancel at 1, 2, 3, … until the turn ends before its cancel; how many points there were."""
    for number in range(1, MAX_POINTS):
        fired, _ = await run(number)
        if not fired:
            return number - 1
    raise AssertionError("the turn has no end")


@pytest.mark.parametrize("then_awaits", [True, False], ids=["then awaits", "then goes on"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_cancel_at_any_await_of_model_tool_or_hook_leaves_a_log_to_go_on_from(
    way: str, then_awaits: bool, anyio_backend_name: str
) -> None:
    if way not in ways_of(anyio_backend_name):
        pytest.skip("task.cancel() belongs to asyncio")
    points = await sweep(partial(cancelled_at, way=way, then_awaits=then_awaits))
    assert points >= 40


class TrippingStore(MemoryStore):
    """A store that waits, and passes the trip wire from its thread while a batch is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = True
        self.trip: Trip | None = None
        self.loop: Any = None

    def append(self, batches: Any) -> Any:
        trip = self.trip
        if trip is not None and trip.action is not None:
            trip.count += 1
            if trip.count == trip.number:
                trip.fired = True
                anyio.from_thread.run(trip.action, token=self.loop)
        return super().append(batches)


class At(TrippingStore):
    """Acts while the batch with the first event of one type is under way."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.act: Callable[[], Awaitable[None]] | None = None

    def append(self, batches: Any) -> Any:
        if self.act is not None and any(row.type == self.kind for batch in batches for row in batch.rows):
            act, self.act = self.act, None
            anyio.from_thread.run(act, token=self.loop)
        return super().append(batches)


@pytest.mark.parametrize("kind", ["model.requested", "tool.started"])
async def test_nothing_leaves_after_a_cancel_that_came_during_its_commit(kind: str) -> None:
    """Neither the provider is asked nor a handler started once the caller was cancelled, though the fact is durable."""
    ran: list[str] = []

    async def handler(arguments: Any, context: Any) -> str:
        ran.append("handler")
        return "x"

    async def play(request: Any) -> AsyncIterator[Any]:
        ran.append("model")
        for item in prepare(call("look")).items:
            yield item

    store = At(kind)
    store.loop = current_token()
    async with staged(model=Adapter(play), store=store) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", handler)))
        with anyio.CancelScope() as scope:

            async def cancel() -> None:
                scope.cancel()

            store.act = cancel
            await session.run("Go.")
        assert ran == ([] if kind == "model.requested" else ["model"])
        kinds = [event.type for event in judge(session.log)]
        assert kind in kinds
        assert kinds[-1] == "turn.cancelled"


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancel_during_any_commit_waits_for_the_store_and_then_goes_on(
    way: str, anyio_backend_name: str
) -> None:
    if way not in ways_of(anyio_backend_name):
        pytest.skip("task.cancel() belongs to asyncio")

    async def run(number: int) -> tuple[bool, list[str]]:
        store = TrippingStore()
        store.loop = current_token()
        if way == "session":  # its own commit waits for the one under way: do not wait for it in the store
            return await cancelled_at(number, "session in background", store=store, trips=False)
        return await cancelled_at(number, way, store=store, trips=False)

    async def in_background(session: Any, trip: Trip) -> str:
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                group.start_soon(session.cancel)

            trip.action = cancel
            turn = await session.run("Go.")
        return str(turn.status)

    WAYS["session in background"] = in_background
    try:
        assert await sweep(run) >= 8
    finally:
        del WAYS["session in background"]


def later(ticks: int, act: Callable[[], object]) -> None:
    """Act after so many ticks of the event loop."""
    at_next_tick()(partial(later, ticks - 1, act) if ticks else act)


@pytest.mark.parametrize("ticks", range(3))
async def test_a_cancel_that_comes_when_all_calls_of_a_group_are_done_stops_what_would_follow(ticks: int) -> None:
    async def ready(arguments: Any, context: Any) -> str:
        return "done"

    tools = [tool_of("ask", ready, parallel=True, approval="ask"), tool_of("a", ready, parallel=True)]
    async with staged(say("Go.") + call("ask") + call("a") + call("a"), say("Not asked.")) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        done: list[Any] = []

        def cancel_when_all_are_done(event: Any) -> None:
            done.extend([event] if event.type == "tool.completed" else [])
            if len(done) == 2 and event is done[-1]:
                later(ticks, partial(session._ask_to_stop, "cancelled"))

        session.log.observe(cancel_when_all_are_done)
        turn = await session.run("Go.")
    is_late = turn.status == "suspended"
    kinds = [event.type for event in judge(session.log, open_turn=is_late)]
    assert is_late or kinds[-3:] == ["cancel.requested", "tool.completed", "turn.cancelled"]
