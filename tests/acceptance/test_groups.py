"""Groups of parallel calls: started in order, completed as they come, told to the model in order."""

import itertools
import time
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stage import agent_of, data_of, events_of, judge, kinds_of, plugin, staged, text_of_result, tool_of

from spine.hooks import Deny
from spine.testing.script import Entry, call, say

pytestmark = pytest.mark.anyio


def calls_to(*names: str) -> Entry:
    entry = call(names[0])
    for name in names[1:]:
        entry = entry + call(name)
    return entry


class Gates:
    """Tools that return in a given order: each waits for the one before it."""

    def __init__(self, order: Sequence[str]) -> None:
        self.order = list(order)
        self.events: dict[str, anyio.Event] = {}
        self.running: list[str] = []
        self.most = 0

    def tool(self, name: str, **fields: Any) -> Any:
        async def handler(arguments: Any, context: Any) -> str:
            self.running.append(name)
            await anyio.lowlevel.checkpoint()
            self.most = max(self.most, len(self.running))
            self.events.setdefault(name, anyio.Event())
            place = self.order.index(name)
            if place:
                await self.events.setdefault(self.order[place - 1], anyio.Event()).wait()
            self.events[name].set()
            self.running.remove(name)
            return f"{name} done"

        return tool_of(name, handler, **{"parallel": True, "effect": "read_only", **fields})


async def run_group(order: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """A group that completes in `order`: calls by their starts, completions, and place in history."""
    names = sorted(order)
    gates = Gates(order)
    async with staged(calls_to(*names), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(*(gates.tool(name) for name in names)))
        await session.run("Go.")
        judge(session.log)
        starts = [data.name for data in data_of(session, "tool.started")]
        completions = [data.result.name for data in data_of(session, "tool.completed")]
        results = [m.content[0].name for m in session.history() if m.role == "tool"]
        assert gates.most == len(names)
        return starts, completions, results


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6).flatmap(lambda n: st.permutations("abcdef"[:n])))
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_history_is_in_call_order_whatever_the_order_of_completion(backend: str, order: list[str]) -> None:
    """Starts in call order, completions as they come, history in call order: for any order of completion."""
    starts, completions, results = anyio.run(run_group, order, backend=backend)
    assert starts == results == sorted(order)
    assert completions == order


async def test_a_siblings_failure_leaves_the_others_alone() -> None:
    """A and C finish and keep their outputs; B's error has type and message; the turn goes on."""

    async def slow(arguments: Any, context: Any) -> str:
        await anyio.sleep(0.02)
        return "A"

    async def broken(arguments: Any, context: Any) -> str:
        raise ValueError("at once")

    async def quick(arguments: Any, context: Any) -> str:
        return "C"

    tools = [tool_of(n, h, parallel=True) for n, h in (("a", slow), ("b", broken), ("c", quick))]
    async with staged(calls_to("a", "b", "c"), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        turn = await session.run("Go.")
        assert [c.outcome.status for c in turn.tool_calls] == ["ok", "error", "ok"]
        shown = [text_of_result(m.content[0]) for m in session.history() if m.role == "tool"]
        assert shown == ["A", "error: ValueError: at once", "C"]
        assert "Traceback" not in str(shown)
        judge(session.log)


async def test_groups_are_the_longest_runs_of_parallel_neighbours() -> None:
    """a b | W | c d: W runs alone between the two groups, in response order."""
    log: list[str] = []

    def tool(name: str, parallel: bool) -> Any:
        async def handler(arguments: Any, context: Any) -> str:
            log.append(f"+{name}")
            await anyio.sleep(0.005)
            log.append(f"-{name}")
            return name

        return tool_of(name, handler, parallel=parallel)

    tools = [tool(n, n != "W") for n in ("a", "b", "W", "c", "d")]
    async with staged(calls_to("a", "b", "W", "c", "d"), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        await session.run("Go.")
    assert {*log[:2]} == {"+a", "+b"}
    assert {*log[2:4]} == {"-a", "-b"}
    assert log[4:6] == ["+W", "-W"]
    assert {*log[6:8]} == {"+c", "+d"}


async def test_in_a_group_all_waterfalls_run_before_any_handler() -> None:
    """pre_execute is asked about every call of the group, in order, and then the group starts."""
    log: list[str] = []

    async def pre(call: Any, call_next: Any) -> Any:
        log.append(f"pre {call.name}")
        return await call_next(call)

    def tool(name: str) -> Any:
        async def handler(arguments: Any, context: Any) -> str:
            log.append(f"run {name}")
            return name

        return tool_of(name, handler, parallel=True)

    async with staged(calls_to("a", "b"), say("ok"), plugins=[plugin("p", pre_execute=pre)]) as runtime:
        session = await runtime.session("s", agent_of(tool("a"), tool("b")))
        await session.run("Go.")
        assert log[:2] == ["pre a", "pre b"]
        assert sorted(log[2:]) == ["run a", "run b"]
        kinds = [k for k in kinds_of(session) if k.startswith("tool.")]
        assert kinds == ["tool.started", "tool.started", "tool.completed", "tool.completed"]


async def test_refused_calls_of_a_group_are_answered_and_the_rest_runs() -> None:
    """A denial, an unknown name and broken arguments in a group do not keep the others from running."""

    async def pre(call: Any, call_next: Any) -> Any:
        return Deny("no") if call.name == "b" else await call_next(call)

    tools = [tool_of(n, lambda a, c: "x", parallel=True, effect="read_only") for n in ("a", "b", "c")]
    async with staged(calls_to("a", "b", "nope", "c"), say("ok"), plugins=[plugin("p", pre_execute=pre)]) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        turn = await session.run("Go.")
        assert [c.outcome.status for c in turn.tool_calls] == ["ok", "denied", "error", "ok"]
        judge(session.log)


async def test_a_failing_hook_of_one_call_does_not_stop_its_siblings_handlers() -> None:
    """A post_execute that breaks for one call fails the step after the others have come back."""

    async def post(call: Any, outcome: Any, call_next: Any) -> Any:
        if call.name == "a":
            raise RuntimeError("broken")
        return await call_next(outcome)

    gates = Gates("ab")
    async with staged(calls_to("a", "b"), say("never"), plugins=[plugin("p", post_execute=post)]) as runtime:
        session = await runtime.session("s", agent_of(gates.tool("a"), gates.tool("b")))
        turn = await session.run("Go.", check=False)
        assert turn.status == "failed"
        assert [c.outcome.status for c in turn.tool_calls] == ["ok", "ok"]
        judge(session.log)


async def test_a_denied_group_member_that_fails_in_preparation_starts_nothing() -> None:
    """When pre_execute breaks for one call of a group, no handler of the group runs."""
    ran: list[str] = []

    async def pre(call: Any, call_next: Any) -> Any:
        if call.name == "b":
            raise RuntimeError("broken")
        return await call_next(call)

    tools = [tool_of(n, lambda a, c: ran.append("x"), parallel=True) for n in ("a", "b")]
    async with staged(calls_to("a", "b"), plugins=[plugin("p", pre_execute=pre)]) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        turn = await session.run("Go.", check=False)
        assert (turn.status, ran) == ("failed", [])
        assert [c.outcome.status for c in turn.tool_calls] == ["not_started", "not_started"]
        judge(session.log)


async def test_synchronous_tools_of_a_group_overlap_and_leave_the_loop_free() -> None:
    """Two blocking handlers take the time of one, and a heartbeat on the loop goes on meanwhile."""

    def sleeps(arguments: Any, context: Any) -> str:
        time.sleep(0.15)
        return "x"

    beats: list[float] = []

    async def heartbeat() -> None:
        while True:
            beats.append(time.monotonic())
            await anyio.sleep(0.01)

    tools = [tool_of(n, sleeps, parallel=True, effect="read_only") for n in ("a", "b")]
    async with staged(calls_to("a", "b"), say("ok")) as runtime, anyio.create_task_group() as group:
        session = await runtime.session("s", agent_of(*tools))
        group.start_soon(heartbeat)
        began = time.monotonic()
        await session.run("Go.")
        took = time.monotonic() - began
        group.cancel_scope.cancel()
    assert took < 0.29
    assert max(b - a for a, b in itertools.pairwise(beats)) < 0.1


async def test_many_calls_of_one_message_have_ids_of_their_own() -> None:
    """Two hundred calls with the same name are two hundred calls."""
    count = 200
    tool = tool_of("a", lambda a, c: "x", parallel=True, effect="read_only")

    async def handler(arguments: Any, context: Any) -> str:
        await anyio.lowlevel.checkpoint()
        return context.call

    async with staged(calls_to(*["a"] * count), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool.evolve(handler=handler)))
        turn = await session.run("Go.")
        assert [c.id for c in turn.tool_calls] == [f"t1s1c{n}" for n in range(1, count + 1)]
        assert [text_of_result(m.content[0]) for m in session.history() if m.role == "tool"] == [
            c.id for c in turn.tool_calls
        ]
        assert len(events_of(session, "tool.completed")) == count
        judge(session.log)
