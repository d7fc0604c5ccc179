"""Hooks around a step: observers, fallback, compaction, and hooks that hang or do not fit."""

from typing import Any

import anyio
import attrs
import pytest
from stage import (
    agent_of,
    data_of,
    judge,
    kinds_of,
    only,
    plugin,
    run_with,
    staged,
    tool_of,
)

from spine.errors import HookUnknown
from spine.events import EventType
from spine.hooks import Compact, NextStep, Stop, hookimpl
from spine.llm.request import Route
from spine.messages import Message, TextBlock, user_message
from spine.testing.clock import FakeClock
from spine.testing.script import call, fail, say, stall
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------------------------------------------- observers


async def test_a_failing_observer_is_contained_and_recorded() -> None:
    """`spine_post_step` that raises is `hook.failed` with plugin and hook; the others are asked, the turn goes on."""
    seen: list[str] = []

    async def breaks(response: Any) -> None:
        raise ValueError("broken on purpose")

    async def sees(response: Any, context: Any) -> None:
        seen.append(response.message.text)

    turn, events = await run_with(plugin("sees", post_step=sees), plugin("breaks", post_step=breaks))
    assert (turn.status, seen) == ("completed", ["ok"])
    failed = only(events, "hook.failed")
    assert (failed.plugin, failed.hook) == ("breaks@1", "spine_post_step")
    assert "broken on purpose" in failed.error


@attrs.frozen(kw_only=True)
class Noted:
    text: str


async def test_an_observer_may_record_events_of_its_own_plugin_only() -> None:
    """Declared events are appended in the step; anything else is that plugin's failure."""

    def register(registrar: Any) -> None:
        registrar.add(EventType(name="notes.noted", data=Noted))

    async def notes(response: Any) -> Any:
        return [Noted(text=response.message.text)]

    async def borrows(response: Any) -> Any:
        return [Noted(text="not mine")]

    turn, events = await run_with(
        plugin("borrows", post_step=borrows),
        plugin("notes", post_step=notes, spine_register_events=register),
    )
    assert turn.status == "completed"
    noted = [event for event in events if event.type == "notes.noted"]
    assert [(event.data.text, event.origin, event.step) for event in noted] == [("ok", "notes@1", "t1s1")]
    assert only(events, "hook.failed").plugin == "borrows@1"


# ---------------------------------------------------------------------------------------------------- step_failed


async def test_a_plugin_can_fall_back_to_another_route() -> None:
    """After a failed step `NextStep(route)` makes another step on that route; both stand in the log."""

    async def fall_back(error: Any, context: Any, call_next: Any) -> Any:
        return NextStep(Route("scripted", "spare")) if error.category == "overloaded" else await call_next(error)

    turn, events = await run_with(
        plugin("fallback", step_failed=fall_back),
        script=(*[fail("overloaded", retry_after_s=0)] * 3, say("from the spare")),
    )
    assert (turn.status, turn.text, turn.steps) == ("completed", "from the spare", 2)
    assert [event.type for event in events if event.type.startswith("step")] == ["step.failed"]
    assert [e.data.message.origin.route for e in events if e.type == "message.committed"] == ["scripted:spare"]


async def test_without_a_fallback_the_core_stops() -> None:
    """The core's own answer to a failed step is Stop; a plugin sees it by calling the rest."""
    seen: list[Any] = []

    async def look(error: Any, call_next: Any) -> Any:
        seen.append((error.category, await call_next(error)))
        return seen[-1][1]

    turn, _ = await run_with(plugin("look", step_failed=look), script=(fail("auth"),))
    assert (turn.status, seen) == ("failed", [("auth", Stop())])


async def test_a_fallback_without_end_meets_the_limit_of_steps() -> None:
    """A plugin that always tries again is stopped by the turn's limit, with the numbers."""

    async def again(error: Any, call_next: Any) -> Any:
        return NextStep()

    turn, events = await run_with(plugin("again", step_failed=again), script=[fail("auth")] * 60)
    assert (turn.status, turn.error.category) == ("failed", "limit")
    assert turn.error.details == {"limit": "steps", "allowed": 50, "used": 50}
    assert [event.type for event in events].count("step.failed") == 50


# -------------------------------------------------------------------------------------------------------- compact


async def test_compaction_replaces_what_was_before_and_begins_the_step_again_once() -> None:
    """`Compact` records the summary and the step is asked again, where it may not compact a second time."""
    asked: list[int] = []

    async def compact(request: Any, call_next: Any) -> Any:
        asked.append(len(request.messages))
        if len(request.messages) > 3:
            summary = Message(role="user", content=(TextBlock(text="Earlier: much."),), kind="summary")
            return Compact(summary, until=request.messages.seqs[-2])
        return await call_next(request)

    async with staged(*[say("yes")] * 3, plugins=[plugin("compact", pre_step=compact)]) as runtime:
        session = await runtime.session("s", agent_of())
        for text in ("one", "two", "three"):
            await session.run(text)
        assert asked == [1, 3, 5, 2]
        assert [message.text for message in session.history()] == ["Earlier: much.", "three", "yes"]
        assert kinds_of(session).count("history.compacted") == 1
        judge(session.log)


async def test_compacting_again_and_again_is_refused() -> None:
    """A hook that answers the second asking with `Compact` too fails the step."""

    async def compact(request: Any, call_next: Any) -> Any:
        return Compact(user_message("x", kind="summary"), until=1)

    turn, _ = await run_with(plugin("compact", pre_step=compact))
    assert (turn.status, turn.error.category) == ("failed", "hook_failed")
    assert "compact@1" in turn.error.message


async def test_a_compaction_may_not_part_a_call_from_its_result() -> None:
    """A cut between a message and its results would orphan them: it is refused and named."""

    async def compact(request: Any, call_next: Any) -> Any:
        if request.messages[-1].role == "tool":
            return Compact(user_message("x", kind="summary"), until=request.messages.seqs[1])
        return await call_next(request)

    turn, events = await run_with(
        plugin("cutter", pre_step=compact),
        script=(call("look"), say("ok")),
        tools=(tool_of("look", lambda arguments, context: "x"),),
    )
    assert (turn.status, turn.error.category) == ("failed", "hook_failed")
    assert "cutter@1" in turn.error.message
    assert "history.compacted" not in [event.type for event in events]


# -------------------------------------------------------------------------------------------------------- hanging


def hanging(hook: str) -> Any:
    async def hangs(call_next: Any = None) -> Any:
        await anyio.sleep_forever()

    async def hangs_above(call_next: Any) -> Any:
        await anyio.sleep_forever()

    return plugin("stuck", **{hook: hangs if hook == "post_step" else hangs_above})


@pytest.mark.parametrize("hook", ["pre_step", "pre_execute", "post_execute", "step_failed"])
async def test_a_waterfall_that_hangs_is_cut_and_named(hook: str) -> None:
    """A hook that does not return within its time fails its step; the log names plugin and hook."""
    clock = FakeClock()
    script = (fail("auth"),) if hook == "step_failed" else (call("look"), say("ok"))
    async with staged(*script, plugins=[hanging(hook)], clock=clock) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda arguments, context: "x")))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(moved, clock, 31, session)
                turn = await session.run("Go.", check=False)
                group.cancel_scope.cancel()
        assert turn.status == "failed"
        named = turn.error.message
        if hook == "step_failed":  # the step's own failure stays the turn's
            assert turn.error.category == "auth"
            named = data_of(session, "hook.failed")[0].error
        assert "stuck@1" in named
        assert f"spine_{hook}" in named
        judge(session.log)


async def moved(clock: FakeClock, seconds: int, session: Any) -> None:
    """Let time pass while the turn waits for something."""
    for _ in range(1000):
        await anyio.sleep(0.001)
        clock.advance(seconds)


async def test_an_observer_that_hangs_is_cut_reported_and_the_turn_goes_on() -> None:
    """An overdue observer is `hook.failed`, like one that raises."""
    clock = FakeClock()
    async with staged(say("ok"), plugins=[hanging("post_step")], clock=clock) as runtime:
        session = await runtime.session("s", agent_of())
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(moved, clock, 31, session)
                turn = await session.run("Go.", check=False)
                group.cancel_scope.cancel()
        assert (turn.status, turn.text) == ("completed", "ok")
        failed = data_of(session, "hook.failed")[0]
        assert (failed.plugin, failed.hook) == ("stuck@1", "spine_post_step")


async def test_hooks_of_parallel_calls_are_watched_each_for_itself() -> None:
    """Interleaved hooks of a group leave no trace on the watch: a slow model afterwards is nobody's hook."""
    clock = FakeClock()
    gates = {name: anyio.Event() for name in "ab"}

    async def post(call: Any, outcome: Any, call_next: Any) -> Any:
        if call.name == "a":
            await gates["b"].wait()
        else:
            gates["b"].set()
            await anyio.sleep(0.01)
        return await call_next(outcome)

    tools = [tool_of(name, lambda arguments, context: "x", parallel=True, effect="read_only") for name in "ab"]
    script = (call("a") + call("b"), stall(100) + say("slow but sure"))
    async with staged(
        plugins=[plugin("post", post_execute=post)], clock=clock, model=ScriptedAdapter(*script, clock=clock)
    ) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        with anyio.fail_after(5):
            turn = await session.run("Go.", check=False)
        assert (turn.status, turn.text) == ("completed", "slow but sure")


# ---------------------------------------------------------------------------------------------- refused at loading


async def wrong_colour(registrar: Any) -> None:
    """Contribution hooks do not wait."""


def misspelt(registrar: Any) -> None:
    """A hook that does not exist."""


WRONG_HOOKS = {
    "a misspelt name": ({"spine_prestep": misspelt}, 'nearest is "spine_pre_step"'),
    "a contribution hook misspelt": ({"spine_register_tool": misspelt}, 'nearest is "spine_register_tools"'),
    "sync where async is wanted": ({"pre_step": lambda request, call_next: request}, "async def"),
    "async where sync is wanted": ({"spine_register_tools": wrong_colour}, "with def"),
    "an argument that does not exist": ({"pre_step": lambda: None}, "async def"),
}


@pytest.mark.parametrize(("hooks", "message"), WRONG_HOOKS.values(), ids=WRONG_HOOKS)
async def test_a_hook_that_does_not_fit_is_refused_with_the_nearest_name(hooks: Any, message: str) -> None:
    """Misspelt, sync for async and the reverse: refused when the plugin loads, naming plugin, hook and place."""
    module = plugin("typo", **hooks)
    async with staged() as runtime:
        with pytest.raises(HookUnknown, match=r'plugin "typo@1"') as refused:
            runtime.load_plugin(module)
        assert message in refused.value.message
        assert ".py:" in refused.value.message
        assert [info for info in runtime.plugins if info.state == "loaded"] == []


async def test_an_argument_no_hook_has_is_refused() -> None:
    """pluggy's own check of argument names is passed on as ours."""

    @hookimpl
    async def spine_pre_step(request: Any, nonsense: Any) -> Any:
        return request

    module = plugin("typo")
    module.__dict__["spine_pre_step"] = spine_pre_step
    async with staged() as runtime:
        with pytest.raises(HookUnknown, match="nonsense"):
            runtime.load_plugin(module)
