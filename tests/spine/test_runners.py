"""The runners of step hooks: values down and up, each change noted so that the notes lead to what came out."""

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spine.errors import HookMisused, PluginFailed
from spine.hooks import Hooks, Waterfall, hookimpl
from spine.runners import HookWatch, observe, waterfall
from spine.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


class Number:
    """A value that is told apart by identity."""

    def __init__(self, value: int) -> None:
        self.value = value


class Verdict:
    """What a hook may return instead."""


def hooks_of(*functions: Any, hook: str = "spine_pre_step") -> Hooks:
    """Plugins p0, p1, …; the last one is asked first."""
    hooks = Hooks()
    for number, function in enumerate(functions):
        plugin = type(f"P{number}", (), {})()
        setattr(plugin, hook, hookimpl(specname=hook)(function))
        hooks.register(plugin, f"p{number}@1")
    return hooks


KIND = Waterfall("spine_pre_step", "request", (Number, Verdict))


async def run(*functions: Any, value: Any = None, watch: HookWatch | None = None) -> tuple[Any, list[Any]]:
    chain = hooks_of(*functions).chain("spine_pre_step")
    start = value or Number(0)
    return await waterfall(chain, KIND, start, lambda: {"context": "ctx"}, watch or HookWatch())


ACTIONS = ("pass", "down", "up", "both", "replace", "same", "catch", "raise", "verdict")


def acting(action: str, number: int) -> Any:
    async def hook(request: Any, call_next: Any) -> Any:
        match action:
            case "pass":
                return await call_next(request)
            case "down":
                return await call_next(Number(request.value * 10 + number))
            case "up":
                found = await call_next(request)
                return Number(found.value + number) if isinstance(found, Number) else found
            case "both":
                await call_next(Number(number))
                return Number(-number)
            case "replace":
                return Number(number)
            case "same":
                return request
            case "catch":
                try:
                    return await call_next(Number(number))
                except PluginFailed:
                    return request
            case "verdict":
                return Verdict()
        raise ValueError("on purpose")

    return hook


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=6))
@pytest.mark.parametrize("backend", ["asyncio"])
def test_the_notes_of_changes_lead_from_the_first_value_to_what_came_out(backend: str, actions: list[str]) -> None:
    """Whatever hooks do, also when one catches what broke below it: each note begins where the one before it ended."""

    async def main() -> None:
        start = Number(0)
        try:
            result, changes = await run(*(acting(a, n + 1) for n, a in enumerate(actions)), value=start)
        except PluginFailed:
            assert "raise" in actions
            return
        current: Any = start
        for change in changes:
            assert change.old is current
            assert change.new is not change.old
            current = change.new
        assert current is result

    anyio.run(main, backend=backend)


async def test_phases_say_on_which_way_a_change_was_made() -> None:
    """`before` on the way down, or without going down; `after` on the way up."""

    async def both(request: Any, call_next: Any) -> Any:
        await call_next(Number(1))
        return Number(2)

    _, changes = await run(both)
    assert [(c.plugin, c.phase, c.old.value, c.new.value) for c in changes] == [
        ("p0@1", "before", 0, 1),
        ("p0@1", "after", 1, 2),
    ]


async def test_hooks_take_the_arguments_that_they_name() -> None:
    """In any order and number."""
    seen: list[Any] = []

    async def all_of_them(context: Any, call_next: Any, request: Any) -> Any:
        seen.append((context, request.value))
        return await call_next(request)

    async def only_next(call_next: Any) -> Any:
        return Number(5)

    result, _ = await run(only_next, all_of_them)
    assert (seen, result.value) == [("ctx", 0)] or (seen == [("ctx", 0)] and result.value == 5)


async def test_forgetting_to_await_call_next_is_said() -> None:
    """A coroutine is no request."""

    async def forgets(request: Any, call_next: Any) -> Any:
        pending = call_next(request)
        pending.close()
        return pending

    with pytest.raises(HookMisused, match="returned coroutine"):
        await run(forgets)


async def test_passing_on_twice_is_refused_also_before_the_first_one_was_awaited() -> None:
    """However the two calls follow each other, the plugin that made them is named."""

    async def at_once(request: Any, call_next: Any) -> Any:
        first = call_next(request)
        try:
            return call_next(request)
        finally:
            first.close()

    async def after_it_failed(request: Any, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except PluginFailed:
            return await call_next(request)

    async def breaks(request: Any, call_next: Any) -> Any:
        raise ValueError("on purpose")

    for below, hook in ((acting("pass", 0), at_once), (breaks, after_it_failed)):
        with pytest.raises(HookMisused, match="plugin p1@1 called call_next twice in spine_pre_step"):
            await run(below, hook)


async def test_cancellation_passes_through_and_leaves_no_trace_on_the_watch() -> None:
    """Nothing is blamed for a cancel."""

    async def hangs(request: Any, call_next: Any) -> Any:
        await anyio.sleep_forever()

    watch = HookWatch()
    with anyio.move_on_after(0.01) as scope:
        await run(hangs, watch=watch)
    assert scope.cancelled_caught
    assert not watch.running


async def test_the_watch_names_the_hook_that_has_the_word() -> None:
    """The innermost of a chain; the one around it gets fresh time when that returns; parallel chains are apart."""
    clock = FakeClock()
    watch = HookWatch(clock=clock.monotonic, timeout_s=30)
    looks: list[Any] = []

    def look(seconds: float) -> None:
        clock.advance(seconds)
        looks.append(watch.overdue())

    async def inner(request: Any, call_next: Any) -> Any:
        look(0)
        look(31)
        return await call_next(request)

    async def outer(request: Any, call_next: Any) -> Any:
        look(0)
        look(29)
        result = await call_next(request)
        look(0)
        look(29)
        look(2)
        return result

    await run(inner, outer, watch=watch)
    named = [("p0@1", "spine_pre_step"), ("p1@1", "spine_pre_step")]
    assert looks == [None, None, None, named[0], None, None, named[1]]
    assert watch.overdue() is None


async def test_observers_are_asked_in_turn_whatever_one_does() -> None:
    """Failures are reported with plugin and hook; answers come with their plugin's name."""

    async def answers(response: Any) -> Any:
        return [response]

    async def breaks(response: Any) -> Any:
        raise ValueError("on purpose")

    failed: list[PluginFailed] = []
    chain = hooks_of(answers, breaks, answers, hook="spine_post_step").chain("spine_post_step")
    watch = HookWatch()
    found = await observe(chain, "spine_post_step", 5, dict, watch, failed.append)
    assert found == [("p2@1", [5]), ("p0@1", [5])]
    assert [(error.plugin, error.hook) for error in failed] == [("p1@1", "spine_post_step")]
    assert not watch.running


async def test_a_hook_that_exits_is_blamed_like_any_that_raises() -> None:
    """A plugin does not end the program."""

    async def pre_step(request: Any, call_next: Any) -> Any:
        raise SystemExit(3)

    async def post_step(context: Any) -> Any:
        raise SystemExit(4)

    with pytest.raises(PluginFailed, match="plugin p0@1 failed in spine_pre_step: SystemExit: 3"):
        await run(pre_step)
    failures: list[PluginFailed] = []
    chain = hooks_of(post_step, hook="spine_post_step").chain("spine_post_step")
    assert await observe(chain, "spine_post_step", 5, lambda: {"context": None}, HookWatch(), failures.append) == []
    assert [failure.message for failure in failures] == ["plugin p0@1 failed in spine_post_step: SystemExit: 4"]
