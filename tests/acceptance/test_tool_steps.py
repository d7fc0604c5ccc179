"""Steps go on until the model is done; what goes wrong with a call is something the model sees."""

from typing import Any

import anyio
import pytest
from stage import agent_of, data_of, events_of, judge, kinds_of, plugin, results_of, staged, text_of_result, tool_of

from spine import Limits, Section
from spine.errors import TurnFailed
from spine.llm.request import Route
from spine.testing.script import call, call_text, expect, fail, say
from spine.testing.scripted import ScriptedAdapter
from spine.tools import ToolOutcome
from spine.values import encode

pytestmark = pytest.mark.anyio
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


async def weather(arguments: Any, context: Any) -> str:
    return f"rain in {arguments['city']}"


async def test_start_and_completion_of_a_call_are_recorded_with_its_exact_arguments() -> None:
    """`tool.started` and `tool.completed` hold call, name, arguments as written, effect and result."""
    arguments = {"city": "Oulu", "n": 2**70, "deep": {"a": [1, None, True, 1.5, "é\0"]}}
    async with staged(call("weather", **arguments), say("Rain.")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("weather", weather, effect="read_only")))
        await session.run("Go.")
        started, completed = data_of(session, "tool.started")[0], data_of(session, "tool.completed")[0]
        assert (started.call, started.name, started.effect) == ("t1s1c1", "weather", "read_only")
        assert encode(started.arguments) == encode(arguments)
        assert started.requested is None
        assert (completed.call, completed.status, text_of_result(completed.result)) == ("t1s1c1", "ok", "rain in Oulu")
        assert [e.step for e in events_of(session, "tool.started", "tool.completed")] == ["t1s1", "t1s1"]


async def test_a_turn_goes_on_over_several_steps_with_everything_that_was_said() -> None:
    """Each step's request holds the messages and results of the steps before it, in order."""
    model = ScriptedAdapter(
        say("First.") + call("weather", city="Oulu"),
        expect(last_role="tool", contains="rain in Oulu", messages=3) + call("weather", city="Turku"),
        expect(last_role="tool", contains="rain in Turku", messages=5) + say("Rain everywhere."),
    )
    async with staged(model=model) as runtime:
        session = await runtime.session("s", agent_of(tool_of("weather", weather)))
        turn = await session.run("Go.")
        assert (turn.status, turn.steps, turn.text) == ("completed", 3, "Rain everywhere.")
        assert [c.id for c in turn.tool_calls] == ["t1s1c1", "t1s2c1"]
        assert [m.role for m in session.history()] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
        model.check_used()
        judge(session.log)


async def test_an_unknown_tool_is_told_to_the_model_which_can_correct_it() -> None:
    """The first result names the unknown tool and lists the real ones; the second step runs the right one."""
    model = ScriptedAdapter(
        call("wether", city="Oulu"),
        expect(contains=['no tool "wether"', "read_note, weather"]) + call("weather", city="Oulu"),
        say("Rain."),
    )
    async with staged(model=model) as runtime:
        tools = (tool_of("weather", weather), tool_of("read_note", weather))
        session = await runtime.session("s", agent_of(*tools))
        turn = await session.run("Go.")
        assert [c.outcome.status for c in turn.tool_calls] == ["error", "ok"]
        assert turn.tool_calls[0].outcome.error.kind == "unknown_tool"
        assert len(data_of(session, "tool.started")) == 1
        judge(session.log)


async def test_unknown_calls_without_end_meet_the_limit_of_steps() -> None:
    """A model that never learns is stopped by the turn's limit."""
    async with staged(*[call("nope")] * 9) as runtime:
        session = await runtime.session("s", agent_of(limits=Limits(steps=3)))
        with pytest.raises(TurnFailed) as failed:
            await session.run("Go.")
        assert failed.value.turn.error.details == {"limit": "steps", "allowed": 3, "used": 3}


BAD_ARGUMENTS = {
    "of the wrong type": (call_text("weather", '{"city": 5}'), "city"),
    "missing": (call_text("weather", "{}"), "city"),
    "empty text": (call_text("weather", ""), "city"),
    "too many": (call_text("weather", '{"city": "x", "zip": 1}'), "zip"),
    "no JSON": (call_text("weather", "city=Oulu"), "no JSON object"),
    "cut off": (call_text("weather", '{"city": "Ou'), "no JSON object"),
    "a list": (call_text("weather", '["Oulu"]'), "no JSON object"),
    "null": (call_text("weather", "null"), "no JSON object"),
    "text": (call_text("weather", '"Oulu"'), "no JSON object"),
    "duplicate keys": (call_text("weather", '{"city": "Oulu", "city": "Turku"}'), "no JSON object"),
    "NaN": (call_text("weather", '{"city": NaN}'), "no JSON object"),
    "nested without end": (call_text("weather", '{"city":' * 10_000), "no JSON object"),
    "deep": (call_text("weather", '{"city":' + "[" * 10_000 + "]" * 10_000 + "}"), "no JSON object"),
    "two objects": (call_text("weather", '{"city": "a"}{"city": "b"}'), "no JSON object"),
}


@pytest.mark.parametrize(("entry", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
async def test_invalid_arguments_are_told_to_the_model_and_do_not_run(entry: Any, message: str) -> None:
    """Arguments that do not fit are an outcome of the call: the next step shows what is wrong."""
    model = ScriptedAdapter(entry, expect(last_role="tool", contains=message) + say("Sorry."))
    async with staged(model=model) as runtime:
        session = await runtime.session("s", agent_of(tool_of("weather", weather, CITY)))
        turn = await session.run("Go.")
        assert (turn.status, turn.text) == ("completed", "Sorry.")
        assert turn.tool_calls[0].outcome.error.kind == "invalid_arguments"
        assert data_of(session, "tool.started") == []
        judge(session.log)


async def test_the_text_of_unusable_arguments_stays_in_the_answer() -> None:
    """History shows the call as the model wrote it, with its text instead of arguments."""
    async with staged(call_text("weather", "city=Oulu"), say("Sorry.")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("weather", weather)))
        await session.run("Go.")
        block = session.history()[1].tool_calls[0]
        assert (block.arguments, block.arguments_text) == (None, "city=Oulu")


class Custom(Exception):
    """An exception with a message."""


def raising(error: BaseException) -> Any:
    async def handler(arguments: Any, context: Any) -> None:
        raise error

    return handler


@pytest.mark.parametrize("is_sync", [False, True], ids=["on the loop", "in a thread"])
async def test_an_exception_of_a_handler_is_a_structured_error_the_model_sees(is_sync: bool) -> None:
    """Type and message reach the model; no stack trace does; the turn goes on."""

    def handler(arguments: Any, context: Any) -> None:
        raise Custom("the oven is off")

    model = ScriptedAdapter(call("bake"), expect(contains="Custom: the oven is off", lacks="Traceback") + say("Cold."))
    async with staged(model=model) as runtime:
        tool = tool_of("bake", handler if is_sync else raising(Custom("the oven is off")))
        session = await runtime.session("s", agent_of(tool))
        turn = await session.run("Go.")
        error = turn.tool_calls[0].outcome.error
        assert (error.kind, error.type, error.message) == ("exception", "Custom", "the oven is off")
        assert results_of(session.history())["t1s1c1"].is_error


async def test_a_timeout_is_an_outcome_that_says_what_may_have_happened() -> None:
    """An overdue handler is stopped; the model is told that effects are possible."""

    async def hangs(arguments: Any, context: Any) -> None:
        await anyio.sleep_forever()

    async with staged(call("slow"), say("Pity.")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("slow", hangs, timeout_s=0.02)))
        turn = await session.run("Go.")
        assert turn.tool_calls[0].outcome.status == "timeout"
        assert "may have happened" in turn.tool_calls[0].outcome.content[0].text


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=["KeyboardInterrupt", "SystemExit"])
def test_stopping_the_program_in_a_handler_leaves_the_closing_facts(error: BaseException, anyio_backend: str) -> None:
    """KeyboardInterrupt and SystemExit are no outcomes: they go on, after the turn is recorded as cancelled."""
    from spine.stores.memory import MemoryStore

    store = MemoryStore()

    async def main() -> None:
        async with staged(call("stop"), say("Never."), store=store) as runtime:
            session = await runtime.session("s", agent_of(tool_of("stop", raising(error))))
            await session.run("Go.")

    with pytest.raises((type(error), BaseExceptionGroup)) as stopped:
        anyio.run(main, backend=anyio_backend)
    assert isinstance(stopped.value, type(error)) or stopped.value.subgroup(type(error))
    kinds = [row.type for row in store.read("s")]  # type: ignore[arg-type]
    assert kinds[-3:] == ["cancel.requested", "tool.completed", "turn.cancelled"]


# --------------------------------------------------------------------------------------------------------- limits


async def test_the_limit_of_steps_fails_the_turn_with_the_numbers_and_keeps_everything() -> None:
    """After N requests the turn fails; the results of the last step stay, and the next turn goes on with them."""
    async with staged(*[call("weather", city="Oulu")] * 3, say("Enough.")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("weather", weather), limits=Limits(steps=3)))
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.steps, turn.error.category) == ("failed", 3, "limit")
        assert turn.error.details == {"limit": "steps", "allowed": 3, "used": 3}
        assert [c.outcome.status for c in turn.tool_calls] == ["ok"] * 3
        assert len(data_of(session, "model.requested")) == 3
        assert (await session.run("And?")).text == "Enough."
        judge(session.log)


async def test_a_turn_may_have_limits_of_its_own() -> None:
    """`run(limits=…)` counts for that turn alone."""
    async with staged(*[call("weather", city="x")] * 2, call("weather", city="x"), say("Ok.")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("weather", weather)))
        turn = await session.run("Go.", limits=Limits(steps=2), check=False)
        assert turn.error.details["allowed"] == 2
        assert (await session.run("Go.")).status == "completed"


# ------------------------------------------------------------------------------------------ one snapshot per step


async def test_a_tool_registered_during_a_step_exists_from_the_next_step_on() -> None:
    """A call to it in the running step is unknown; the next request lists it, and there it runs."""
    async with staged() as runtime:
        scope = runtime.scope("tenant")
        added: list[Any] = []

        def adds(arguments: Any, context: Any) -> str:
            if not added:
                added.append(scope.add(tool_of("b", lambda a, c: "b ran")))
            return "added"

        model = ScriptedAdapter(
            expect(tools=["a"]) + call("a") + call("b"),
            expect(tools=["a", "b"], contains='no tool "b"') + call("b"),
            expect(tools=["a", "b"], contains="b ran") + say("Done."),
        )
        runtime.routes._everything = model
        session = await runtime.session("s", agent_of(tool_of("a", adds)), scope=scope)
        turn = await session.run("Go.")
        assert [c.outcome.status for c in turn.tool_calls] == ["ok", "error", "ok"]
        model.check_used()
        judge(session.log)


async def test_a_tool_removed_during_a_step_still_runs_in_it() -> None:
    """The snapshot that the request was made with holds for its calls; the next request does not list it."""
    async with staged() as runtime:
        scope = runtime.scope("tenant")
        dispose = scope.add(tool_of("b", lambda a, c: "b ran"))

        async def removes(arguments: Any, context: Any) -> str:
            dispose()
            return "removed"

        model = ScriptedAdapter(
            expect(tools=["a", "b"]) + call("a") + call("b"),
            expect(tools=["a"], contains="b ran") + say("Done."),
        )
        runtime.routes._everything = model
        session = await runtime.session("s", agent_of(tool_of("a", removes)), scope=scope)
        assert (await session.run("Go.")).status == "completed"
        model.check_used()


async def test_retries_of_a_request_use_the_same_snapshot() -> None:
    """A tool that comes while an attempt waits is not in the next attempt: the request stays the same."""
    async with staged() as runtime:
        scope = runtime.scope("tenant")

        def late(request: Any) -> Any:
            scope.add(tool_of("b", lambda a, c: "x"))
            return fail("overloaded", retry_after_s=0)

        model = ScriptedAdapter(late, expect(tools=["a"]) + say("One."), expect(tools=["a", "b"]) + say("Two."))
        runtime.routes._everything = model
        session = await runtime.session("s", agent_of(tool_of("a", lambda a, c: "x")), scope=scope)
        await session.run("Go.")
        await session.run("Go.")
        assert model.requests[0] is model.requests[1]
        assert len(data_of(session, "model.requested")) == 2


async def test_a_plugin_unloaded_during_a_step_finishes_the_step_and_is_not_asked_again() -> None:
    """Hooks are part of the snapshot; the plugin closes when no running step holds it any more."""
    asked: list[str] = []

    async def pre_execute(call: Any, call_next: Any) -> Any:
        asked.append("pre_execute")
        return await call_next(call)

    async def pre_step(request: Any, call_next: Any) -> Any:
        asked.append("pre_step")
        return await call_next(request)

    def close() -> None:
        asked.append("close")

    guard = plugin("guard", pre_execute=pre_execute, pre_step=pre_step, spine_close=close)
    async with staged(plugins=[guard]) as runtime:

        def unload(request: Any) -> Any:
            runtime.unload_plugin("guard")
            return call("a")

        runtime.routes._everything = ScriptedAdapter(unload, say("Done."))
        session = await runtime.session("s", agent_of(tool_of("a", lambda a, c: "x")))
        await session.run("Go.")
        assert asked == ["pre_step", "pre_execute", "close"]


async def test_a_plugin_can_hide_a_tool_from_one_request() -> None:
    """What the effective request does not offer cannot be called in that step."""

    async def hide(request: Any, call_next: Any) -> Any:
        return await call_next(request.evolve(tools=()))

    async with staged(call("weather", city="x"), say("Ok."), plugins=[plugin("hide", pre_step=hide)]) as runtime:
        session = await runtime.session("s", agent_of(tool_of("weather", weather)))
        turn = await session.run("Go.")
        assert turn.tool_calls[0].outcome.error.kind == "unknown_tool"
        judge(session.log)


async def test_sections_are_rendered_in_order_and_stand_in_the_request() -> None:
    """Same sections, same prompt bytes: order decides, then the name; a dynamic one is rendered at each step."""
    steps: list[str] = []

    def moving(context: Any) -> str:
        steps.append(context.step)
        return f"Step {context.step}."

    async with staged(call("weather", city="x"), say("Ok."), say("Ok.")) as runtime:
        scope = runtime.scope("tenant")
        scope.add(Section("b", order=20, render="Second."))
        scope.add(Section("a", order=20, render="First."))
        scope.add(Section("z", order=5, render=moving, dynamic=True))
        scope.add(Section("empty", order=1, render=""))
        session = await runtime.session(
            "s", agent_of(tool_of("weather", weather), instructions="Be brief."), scope=scope
        )
        await session.run("Go.")
        await session.run("Go.")
        requests = [session.log.request(event.seq) for event in events_of(session, "model.requested")]
        assert [block.text for block in requests[0].system] == ["Step t1s1.", "Be brief.", "First.", "Second."]
        assert [request.system[0].text for request in requests] == ["Step t1s1.", "Step t1s2.", "Step t2s1."]
        assert steps == ["t1s1", "t1s2", "t2s1"]


async def test_a_section_that_fails_fails_the_step_and_is_named() -> None:
    """A section that raises, or renders no text, fails its step with the section's owner in the message."""

    def breaks(context: Any) -> str:
        raise ZeroDivisionError("oops")

    for render, message in ((breaks, "ZeroDivisionError"), (lambda context: 5, "rendered int")):
        async with staged(say("Ok.")) as runtime:
            scope = runtime.scope("tenant")
            scope.add(Section("moody", render=render))
            session = await runtime.session("s", agent_of(), scope=scope)
            turn = await session.run("Go.", check=False)
            assert (turn.status, turn.error.category) == ("failed", "hook_failed")
            assert message in turn.error.message
            assert "moody" in turn.error.message
            assert "application" in turn.error.message
            assert "model.requested" not in kinds_of(session)


async def test_an_outcome_of_a_handlers_own_is_taken_as_it_is() -> None:
    """A handler may return a `ToolOutcome` instead of a value."""

    async def handler(arguments: Any, context: Any) -> Any:
        return ToolOutcome(status="error", content=(), error=None)

    async with staged(call("odd"), say("Ok.")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("odd", handler)))
        turn = await session.run("Go.")
        assert turn.tool_calls[0].outcome.status == "error"


async def test_the_model_of_one_turn_may_differ() -> None:
    """`run(model=…)` is this turn's route; the agent's comes back with the next."""
    async with staged(say("One."), say("Two.")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.", model="other:big")
        await session.run("Go.")
        routes = [data.message.origin.route for data in data_of(session, "message.committed")]
        assert routes == ["other:big", "scripted:demo"]
        assert session.log.request(events_of(session, "model.requested")[0].seq).route == Route("other", "big")
