"""Hooks around a call: changed arguments, verdicts, and what the model sees of an outcome."""

from typing import Any

import anyio
import pytest
from stage import (
    agent_of,
    data_of,
    events_of,
    judge,
    only,
    plugin,
    results_of,
    run_with,
    staged,
    text_of_result,
    tool_of,
)

from spine.events import FieldChange
from spine.hooks import Ask, Deny
from spine.messages import TextBlock
from spine.testing.script import call, say
from spine.tools import ToolOutcome

pytestmark = pytest.mark.anyio


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
        assert "secret" not in str(list(session.log.request(events_of(session, "model.requested")[1].seq).messages))
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
