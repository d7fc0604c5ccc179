"""Step hooks: what plugins may change, what they may not, and that the log tells whose change it was."""

import math
from typing import Any

import anyio
import attrs
import pytest
from stage import agent_of, data_of, events_of, judge, kinds_of, plugin, results_of, staged, text_of_result, tool_of

from spine.errors import HookUnknown, TurnFailed
from spine.events import EventType, FieldChange, Splice
from spine.hooks import Ask, Compact, Deny, NextStep, Stop, hookimpl
from spine.llm.request import ModelRequest, Route
from spine.messages import Message, SystemBlock, TextBlock, user_message
from spine.testing.clock import FakeClock
from spine.testing.script import call, fail, say, stall
from spine.testing.scripted import ScriptedAdapter
from spine.tools import ToolDefinition, ToolOutcome
from spine.values import StepId, freeze_object

pytestmark = pytest.mark.anyio


async def run_with(*plugins: Any, script: Any = (say("ok"),), tools: Any = (), **options: Any) -> tuple[Any, Any]:
    """One turn with plugins: the turn (failed or not) and a copy of its events."""
    async with staged(*script, plugins=plugins, **options) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        turn = await session.run("Go.", check=False)
        return turn, judge(session.log)


def only(events: Any, kind: str) -> Any:
    found = [event.data for event in events if event.type == kind]
    assert len(found) == 1, f"{len(found)} of {kind}"
    return found[0]


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


async def test_tool_arguments_pass_through_the_waterfall_and_both_forms_are_kept() -> None:
    """A hook's change reaches the handler; history shows what the model wrote, the log holds both and whose it was."""
    got: list[Any] = []
    asked: list[str] = []

    def hook(name: str, change: Any) -> Any:
        async def pre(call: Any, call_next: Any) -> Any:
            asked.append(name)
            return await call_next(call.evolve(arguments={"city": change(call.arguments["city"])}))

        return plugin(name, pre_execute=pre)

    async def mutate(call: Any, call_next: Any) -> Any:
        asked.append("mutant")
        with pytest.raises(TypeError):
            call.arguments["city"] = "elsewhere"
        with pytest.raises(TypeError):
            call.requested.arguments["city"] = "elsewhere"
        return await call_next(call)

    async def weather(arguments: Any, context: Any) -> str:
        got.append(dict(arguments))
        return "rain"

    turn, events = await run_with(
        plugin("mutant", pre_execute=mutate),
        hook("appender", lambda city: city + " FI"),
        hook("upper", str.upper),
        script=(call("weather", city="oulu"), say("Rain.")),
        tools=(tool_of("weather", weather),),
    )
    assert got == [{"city": "OULU FI"}]
    assert asked == ["upper", "appender", "mutant"]
    started = only(events, "tool.started")
    assert (started.arguments, started.requested) == ({"city": "OULU FI"}, {"city": "oulu"})
    assert [(p.plugin, p.changes[0].value) for p in started.patches] == [
        ("upper@1", {"city": "OULU"}),
        ("appender@1", {"city": "OULU FI"}),
    ]
    assert turn.tool_calls[0].arguments == {"city": "OULU FI"}
    message = next(event.data.message for event in events if event.type == "message.committed")
    assert message.tool_calls[0].arguments == {"city": "oulu"}


async def test_changed_arguments_are_validated_again() -> None:
    """Arguments that a hook broke do not run; the model is told what is wrong with them."""

    async def pre(call: Any, call_next: Any) -> Any:
        return await call_next(call.evolve(arguments={"city": 5}))

    ran: list[Any] = []
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    turn, events = await run_with(
        plugin("breaker", pre_execute=pre),
        script=(call("weather", city="oulu"), say("Hm.")),
        tools=(tool_of("weather", lambda arguments, context: ran.append(1), schema),),
    )
    assert ran == []
    assert turn.tool_calls[0].outcome.error.kind == "invalid_arguments"
    assert only(events, "tool.completed").patches[0].plugin == "breaker@1"


VERDICTS = {
    "deny": (Deny("over budget"), "denied", "over budget", "deny"),
    "an outcome of its own": (ToolOutcome(content=(TextBlock(text="from cache"),)), "ok", "from cache", "outcome"),
}


@pytest.mark.parametrize(("verdict", "status", "text", "decision"), VERDICTS.values(), ids=VERDICTS)
async def test_a_verdict_stands_for_the_call_and_is_attributed(
    verdict: Any, status: str, text: str, decision: str
) -> None:
    """A plugin may deny a call or answer it itself: the handler does not run, the model sees it, the log says who."""

    async def pre(call: Any, call_next: Any) -> Any:
        return verdict

    ran: list[Any] = []
    turn, events = await run_with(
        plugin("policy", pre_execute=pre),
        script=(call("pay", cents=1), say("Fine.")),
        tools=(tool_of("pay", lambda arguments, context: ran.append(1)),),
    )
    assert ran == []
    outcome = turn.tool_calls[0].outcome
    assert outcome.status == status
    assert text in outcome.content[0].text
    completed = only(events, "tool.completed")
    assert completed.patches[0].plugin == "policy@1"
    assert completed.patches[0].changes == (FieldChange(field="decision", value=decision),)
    assert "tool.started" not in [event.type for event in events]


async def test_a_plugin_can_ask_a_person_with_the_arguments_as_they_are_by_then() -> None:
    """`Ask` suspends the turn; what is approved is what ran, with the changes made above it."""

    async def upper(call: Any, call_next: Any) -> Any:
        return await call_next(call.evolve(arguments={"to": call.arguments["to"].upper()}))

    async def ask(call: Any, call_next: Any) -> Any:
        return Ask("abroad")

    got: list[Any] = []

    async def pay(arguments: Any, context: Any) -> str:
        got.append(dict(arguments))
        return "paid"

    plugins = [plugin("asker", pre_execute=ask), plugin("upper", pre_execute=upper)]
    async with staged(call("pay", to="fi"), say("Paid."), plugins=plugins) as runtime:
        session = await runtime.session("s", agent_of(tool_of("pay", pay)))
        turn = await session.run("Go.")
        assert turn.status == "suspended"
        assert (turn.approvals[0].reason, turn.approvals[0].arguments) == ("abroad", {"to": "FI"})
        turn = await session.approve(turn.approvals[0].id, by="me")
        assert (turn.status, got) == ("completed", [{"to": "FI"}])
        judge(session.log)


# ------------------------------------------------------------------------------------------------- post_execute


async def test_post_execute_changes_what_the_model_sees_and_never_the_fact() -> None:
    """A revised result is `tool.revised` with its plugin; `tool.completed` keeps the fact."""

    async def redact(call: Any, outcome: Any, call_next: Any) -> Any:
        return await call_next(outcome.evolve(content=(TextBlock(text="[redacted]"),)))

    async with staged(call("look"), say("ok"), plugins=[plugin("redact", post_execute=redact)]) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda arguments, context: "secret")))
        await session.run("Go.")
        assert [text_of_result(data.result) for data in data_of(session, "tool.completed")] == ["secret"]
        revised = data_of(session, "tool.revised")[0]
        assert (text_of_result(revised.result), revised.patches[0].plugin) == ("[redacted]", "redact@1")
        assert [text_of_result(block) for block in results_of(session.history()).values()] == ["[redacted]"]
        assert "secret" not in str(
            [m for m in session.log.request(events_of(session, "model.requested")[1].seq).messages]
        )
        judge(session.log)


OUTCOMES = {
    "ok": (call("look"), "ok"),
    "an unknown tool": (call("loook"), "error"),
    "invalid arguments": (call("look", n="x"), "error"),
    "an exception": (call("breaks"), "error"),
    "a timeout": (call("hangs"), "timeout"),
    "denied": (call("denied"), "denied"),
    "not started": (call("look") + say("…", stop="max_tokens"), "not_started"),
}


@pytest.mark.parametrize(("entry", "status"), OUTCOMES.values(), ids=OUTCOMES)
async def test_post_execute_is_asked_about_every_outcome(entry: Any, status: str) -> None:
    """Good, unknown, invalid, raised, timed out, denied, never started: each passes post_execute once."""
    seen: list[str] = []

    async def post(outcome: Any, call_next: Any) -> Any:
        seen.append(outcome.status)
        return await call_next(outcome)

    async def pre(call: Any, call_next: Any) -> Any:
        return Deny("no") if call.name == "denied" else await call_next(call)

    def breaks(arguments: Any, context: Any) -> None:
        raise RuntimeError("x")

    async def hangs(arguments: Any, context: Any) -> None:
        await anyio.sleep_forever()

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = (
        tool_of("look", lambda arguments, context: "x", schema),
        tool_of("breaks", breaks),
        tool_of("hangs", hangs, timeout_s=0.01),
        tool_of("denied", breaks),
    )
    turn, _ = await run_with(
        plugin("watch", post_execute=post, pre_execute=pre), script=(entry, say("ok")), tools=tools
    )
    assert turn.status == "completed"
    assert seen == [status]


async def test_a_failing_post_execute_lets_nothing_unrevised_through() -> None:
    """When the plugin that redacts results breaks, the step fails and no later request shows the raw result."""

    async def redact(outcome: Any, call_next: Any) -> Any:
        raise RuntimeError("broken")

    async with staged(call("look"), say("ok"), plugins=[plugin("redact", post_execute=redact)]) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda arguments, context: "secret")))
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.error.details["plugin"]) == ("failed", "redact@1")
        assert "secret" not in str(tuple(session.history()))
        runtime.unload_plugin("redact")
        await session.run("Go on.")
        assert "secret" not in str(tuple(session.history()))
        judge(session.log)


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


def misspelt(registrar: Any) -> None:
    """A hook that does not exist."""


WRONG_HOOKS = {
    "a misspelt name": ({"spine_prestep": misspelt}, 'nearest is "spine_pre_step"'),
    "a contribution hook misspelt": ({"spine_register_tool": misspelt}, 'nearest is "spine_register_tools"'),
    "sync where async is wanted": ({"pre_step": lambda request, call_next: request}, "async def"),
    "async where sync is wanted": ({"spine_register_tools": twice}, "with def"),
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
