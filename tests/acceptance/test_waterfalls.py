"""The waterfall over a request: what plugins may change, what they may not, and that the log tells whose it was."""

import math
from typing import Any

import pytest
from stage import (
    agent_of,
    events_of,
    judge,
    only,
    plugin,
    run_with,
    staged,
    tool_of,
)

from spine.errors import TurnFailed
from spine.events import FieldChange, Splice
from spine.hooks import Deny
from spine.llm.request import ModelRequest
from spine.messages import SystemBlock, TextBlock, user_message
from spine.testing.script import say
from spine.tools import ToolDefinition
from spine.values import StepId, freeze_object

pytestmark = pytest.mark.anyio


def pre_step(change: Any) -> Any:
    async def hook(request: Any, call_next: Any) -> Any:
        return await call_next(change(request))

    return hook


# ------------------------------------------------------------------------------------- what a waterfall does


async def test_call_next_goes_on_with_the_rest() -> None:
    """Each plugin gets what the one before it passed on, and what the rest returned on the way back."""
    seen: list[Any] = []

    def hook(name: str, temperature: float) -> Any:
        async def pre(request: Any, call_next: Any) -> Any:
            seen.append((name, "down", request.temperature))
            result = await call_next(request.evolve(temperature=temperature))
            seen.append((name, "up", result.temperature))
            return result

        return plugin(name, pre_step=pre)

    turn, _ = await run_with(hook("first", 0.1), hook("second", 0.2))
    assert turn.status == "completed"
    assert seen == [("second", "down", None), ("first", "down", 0.2), ("first", "up", 0.1), ("second", "up", 0.1)]


async def test_returning_without_call_next_replaces_the_rest() -> None:
    """A plugin that does not call the rest stands for it: the others are not asked."""
    asked: list[str] = []

    async def below(request: Any, call_next: Any) -> Any:
        asked.append("below")
        return await call_next(request)

    async def above(request: Any, call_next: Any) -> Any:
        return request.evolve(seed=7)

    turn, events = await run_with(plugin("below", pre_step=below), plugin("above", pre_step=above))
    assert turn.status == "completed"
    assert asked == []
    patch = only(events, "model.requested").patches[0]
    assert (patch.plugin, patch.phase) == ("above@1", "before")
    assert patch.changes == (FieldChange(field="seed", value=7),)


async def twice(request: Any, call_next: Any) -> Any:
    await call_next(request)
    return await call_next(request)


async def nothing(request: Any, call_next: Any) -> Any:
    await call_next(request)


async def text(request: Any, call_next: Any) -> Any:
    return "a request"


async def passes_text(request: Any, call_next: Any) -> Any:
    return await call_next("a request")


async def passes_none(request: Any, call_next: Any) -> Any:
    return await call_next(None)


async def raises(request: Any, call_next: Any) -> Any:
    raise ValueError("broken on purpose")


async def raises_late(request: Any, call_next: Any) -> Any:
    await call_next(request)
    raise KeyError("late")


async def mutates(request: Any, call_next: Any) -> Any:
    request.temperature = 1.0
    return await call_next(request)


async def adds_tool(request: Any, call_next: Any) -> Any:
    return await call_next(request.evolve(tools=(*request.tools, ToolDefinition(name="smuggled"))))


async def changes_step(request: Any, call_next: Any) -> Any:
    return await call_next(request.evolve(step=StepId("t9s9")))


async def no_message(request: Any, call_next: Any) -> Any:
    return await call_next(request.evolve(messages=("not a message",)))


async def infinite(request: Any, call_next: Any) -> Any:
    return await call_next(request.evolve(temperature=math.nan))


async def text_for_system(request: Any, call_next: Any) -> Any:
    return await call_next(request.evolve(system=("text",)))


async def deny_a_step(request: Any, call_next: Any) -> Any:
    return Deny("not a verdict of this hook")


MISUSES = {
    "calls the rest twice": (twice, "call_next twice"),
    "returns nothing": (nothing, "None (forgot return?)"),
    "returns the wrong type": (text, "returned str"),
    "passes on the wrong type": (passes_text, "passed on str"),
    "passes on nothing": (passes_none, "passed on None"),
    "raises": (raises, "ValueError: broken on purpose"),
    "raises on the way up": (raises_late, "KeyError"),
    "changes its argument in place": (mutates, "FrozenInstanceError"),
    "adds a tool": (adds_tool, 'added the tool "smuggled"'),
    "changes the step": (changes_step, "step"),
    "gives a message that is none": (no_message, "messages"),
    "gives a number that is none": (infinite, "nan"),
    "gives a section that is none": (text_for_system, "system"),
    "gives another hook's verdict": (deny_a_step, "returned Deny"),
}


@pytest.mark.parametrize(("hook", "message"), MISUSES.values(), ids=MISUSES)
async def test_a_misused_waterfall_fails_the_step_and_is_named(hook: Any, message: str) -> None:
    """A waterfall that raises or returns what it may not fails its step closed: plugin and hook are named, nothing is
    sent."""
    turn, events = await run_with(plugin("innocent"), plugin("guilty", pre_step=hook))
    assert turn.status == "failed"
    assert turn.error.category == "hook_failed"
    assert message in turn.error.message
    assert "guilty@1" in turn.error.message
    assert "spine_pre_step" in turn.error.message
    assert turn.error.details["plugin"] == "guilty@1"
    kinds = [event.type for event in events]
    assert kinds[-2:] == ["step.failed", "turn.failed"]
    assert "model.requested" not in kinds


async def test_a_session_goes_on_after_a_plugin_broke_a_step() -> None:
    """A failed step ends its turn, not its session."""
    broken = [True]

    async def hook(request: Any, call_next: Any) -> Any:
        if broken:
            raise RuntimeError(broken.pop())
        return await call_next(request)

    async with staged(say("ok"), plugins=[plugin("moody", pre_step=hook)]) as runtime:
        session = await runtime.session("s", agent_of())
        with pytest.raises(TurnFailed, match="moody@1"):
            await session.run("Go.")
        assert (await session.run("Again.")).text == "ok"
        judge(session.log)


# -------------------------------------------------------------------------------------------------------- order


def orders(asked: list[str], name: str, **order: bool) -> Any:
    async def hook(request: Any, call_next: Any) -> Any:
        asked.append(name)
        return await call_next(request)

    for key, value in order.items():
        setattr(hook, key, value)
    return plugin(name, pre_step=hook)


ORDERS: dict[str, tuple[tuple[tuple[str, dict[str, bool]], ...], list[str]]] = {
    "last registered first, trylast last": ((("a", {}), ("b", {}), ("c", {"trylast": True})), ["b", "a", "c"]),
    "the other way round": ((("c", {"trylast": True}), ("b", {}), ("a", {})), ["a", "b", "c"]),
    "tryfirst first": ((("a", {"tryfirst": True}), ("b", {}), ("c", {})), ["a", "c", "b"]),
}


@pytest.mark.parametrize(("registered", "expected"), ORDERS.values(), ids=ORDERS)
async def test_the_order_of_plugins_is_pluggys(registered: Any, expected: list[str]) -> None:
    """Last registered is asked first; `tryfirst` and `trylast` are respected; the runtime can tell the order."""
    asked: list[str] = []
    plugins = [orders(asked, name, **order) for name, order in registered]
    async with staged(say("ok"), plugins=plugins) as runtime:
        await (await runtime.session("s", agent_of())).run("Go.")
        assert asked == expected
        assert runtime.hooks.order("spine_pre_step") == tuple(f"{name}@1" for name in expected)


async def test_the_order_of_changes_is_recorded() -> None:
    """Patches stand in the order in which they apply, each with its plugin and its way (down or up)."""

    async def both(request: Any, call_next: Any) -> Any:
        result = await call_next(request.evolve(seed=1))
        return result.evolve(top_p=0.5)

    turn, events = await run_with(
        plugin("inner", pre_step=pre_step(lambda r: r.evolve(temperature=0.0))), plugin("outer", pre_step=both)
    )
    patches = only(events, "model.requested").patches
    assert [(p.plugin, p.phase, p.changes[0].field) for p in patches] == [
        ("outer@1", "before", "seed"),
        ("inner@1", "before", "temperature"),
        ("outer@1", "after", "top_p"),
    ]
    assert turn.status == "completed"


# ------------------------------------------------------------------------------------------------------- patches


async def test_every_kind_of_change_is_recorded_and_rebuilds_to_the_same_digest() -> None:
    """Fields, sections, fewer tools, and edits of old messages are patches; `judge` rebuilds each request from them."""
    steps: list[ModelRequest] = []
    changes: list[Any] = [
        lambda r: r.evolve(max_output_tokens=512, metadata=freeze_object({"k": ["v" * 400]})),
        lambda r: r.evolve(system=(*r.system, SystemBlock(name="x", source="p", text="Mind the gap."))),
        lambda r: r.evolve(tools=r.tools[:1]),
        lambda r: r.evolve(messages=(*r.messages, user_message("By the way."))),
        lambda r: r.evolve(messages=(r.messages[0].evolve(content=(TextBlock(text="Edited."),)), *r.messages[1:])),
        lambda r: r.evolve(messages=r.messages[2:]),
        lambda r: r.evolve(stop_sequences=("END",), provider_options={"fake": {"a": 1}}, thinking=1024),
    ]

    async def hook(request: Any, call_next: Any) -> Any:
        changed = changes[len(steps)](request)
        steps.append(changed)
        return await call_next(changed)

    script = [say("yes") for _ in changes]
    tools = [tool_of(name, lambda arguments, context: "x") for name in ("a", "b")]
    async with staged(*script, plugins=[plugin("editor", pre_step=hook)]) as runtime:
        session = await runtime.session("s", agent_of(*tools, instructions="Be brief."))
        for number in range(len(changes)):
            await session.run(f"Input {number}.")
        judge(session.log)
        requested = events_of(session, "model.requested")
        assert all(event.data.patches for event in requested)
        for event, sent in zip(requested, steps, strict=True):
            rebuilt = session.log.request(event.seq)
            assert rebuilt.evolve(messages=tuple(rebuilt.messages)) == sent.evolve(messages=tuple(sent.messages))
        assert any(isinstance(c, Splice) for e in requested for p in e.data.patches for c in p.changes)


async def test_an_edit_of_an_old_message_at_each_step_costs_the_same_at_each_step() -> None:
    """Bytes of a step do not grow with the session, even when a plugin edits the same old message every time."""

    async def hook(request: Any, call_next: Any) -> Any:
        edited = request.messages[0].evolve(content=(TextBlock(text="Edited."),))
        return await call_next(request.evolve(messages=(edited, *request.messages[1:])))

    async with staged(*[say("yes")] * 40, plugins=[plugin("editor", pre_step=hook)]) as runtime:
        session = await runtime.session("s", agent_of())
        for _ in range(40):
            await session.run("Input.")
        sizes = [len(row.data) for row in session.log.rows(types=("model.requested",))]
        assert max(sizes[5:]) - min(sizes[5:]) <= 6  # the digits of seqs
        judge(session.log)
