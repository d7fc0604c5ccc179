"""What a session gives its user beside running turns: typed answers, titles, looks, and what it refuses."""

from typing import Any

import attrs
import pytest

from spine import Agent, Runtime
from spine.config import Settings
from spine.errors import RouteUnknown, ToolSchemaInvalid, UsageError
from spine.llm.usage import Usage
from spine.stores.memory import MemoryStore
from spine.testing.script import call, fail, say
from spine.testing.scripted import ScriptedAdapter
from spine.tools import Tool, ToolDefinition

pytestmark = pytest.mark.anyio
ALONE = Settings(installed_plugins=False)
PAY = Tool(definition=ToolDefinition(name="pay"), handler=lambda arguments, context: "paid", approval="ask")


@attrs.frozen
class Decision:
    approve: bool
    reason: str = ""


YES = '{"approve": true, "reason": "ok"}'


def opened(*script: Any, store: Any = "memory:") -> Runtime:
    return Runtime.open(store, model=ScriptedAdapter(*script), settings=ALONE)


async def test_a_typed_answer_is_parsed_and_its_schema_is_in_the_request() -> None:
    """Asked for in `run`, in `stream`, or by the agent for every turn."""
    model = ScriptedAdapter(say(YES), say(YES), say("Just text."), say(YES))
    async with Runtime.open("memory:", model=model, settings=ALONE) as runtime:
        session = await runtime.session("s", Agent("p:m"))
        turn = await session.run("Decide.", output=Decision)
        assert turn.output == Decision(True, "ok")
        assert model.requests[0].response_format.name == "Decision"  # type: ignore[union-attr]
        async with session.stream("Decide.", output=Decision) as stream:
            assert "".join([piece async for piece in stream.text()]) == YES
        assert stream.turn is not None
        assert stream.turn.output == Decision(True, "ok")
        assert (await session.run("Talk.")).output is None
        assert model.requests[2].response_format is None
        own = await runtime.session("own", Agent("p:m", output=Decision))
        assert (await own.run("Decide.")).output == Decision(True, "ok")


async def test_an_answer_that_is_not_of_its_type_is_a_warning() -> None:
    """The turn is complete, the text is there, `output` is None."""
    async with opened(say("Yes, sure.")) as runtime:
        session = await runtime.session("s", Agent("p:m", output=Decision))
        turn = await session.run("Decide.")
        assert (turn.status, turn.output, turn.text) == ("completed", None, "Yes, sure.")
        assert any("the answer is no Decision" in warning for warning in turn.warnings)


async def test_a_typed_answer_is_parsed_after_an_approval_a_retry_and_a_restart() -> None:
    """Wherever the turn ends."""
    store = MemoryStore()
    agent = Agent("p:m", tools=[PAY], output=Decision)
    async with opened(call("pay"), say(YES), fail("auth"), say(YES), call("pay"), store=store) as runtime:
        session = await runtime.session("s", agent)
        await session.run("Pay.")
        assert (await session.approve("a1", by="me")).output == Decision(True, "ok")
        await session.run("Fail.", check=False)
        assert (await session.retry()).output == Decision(True, "ok")
        await session.run("Pay again.")
    async with opened(say(YES), store=store) as runtime:
        session = await runtime.session("s", agent)
        assert (await session.deny("a2", by="me")).output == Decision(True, "ok")


async def test_a_type_without_a_schema_is_refused_before_anything_is_written() -> None:
    """As is a model that is none."""
    async with opened(say("x")) as runtime:
        session = await runtime.session("s", Agent("p:m"))
        with pytest.raises(ToolSchemaInvalid):
            await session.run("Go.", output=complex)
        with pytest.raises(RouteUnknown):
            await session.run("Go.", model="none")
        assert session.log.seq == 0


async def test_a_session_shows_title_usage_transcript_and_turns() -> None:
    """Looking changes nothing."""
    script = (say("One.", usage=Usage(input_tokens=5, output_tokens=2)), say("Two.", usage={"input_tokens": 7}))
    async with opened(*script) as runtime:
        session = await runtime.session("s", Agent("p:m"))
        assert session.turn is None
        await session.run("First.")
        await session.run("Second.")
        await session.rename("Ti\ud83dtle")
        head = session.log.head
        assert session.log.status.title == "Ti\ufffdtle"
        assert (session.turn.id, session.turn.text, session.turn.usage.input_tokens) == ("t2", "Two.", 7)
        assert session.usage().total.usage.input_tokens == 12
        assert [message.text for message in session.history()] == ["First.", "One.", "Second.", "Two."]
        assert session.transcript() is not None
        assert session.log.head == head


async def test_watchers_see_live_chunks_until_they_are_taken_off() -> None:
    """A watcher that is taken off twice is no mistake."""
    async with opened(say("One two."), say("Three.")) as runtime:
        session = await runtime.session("s", Agent("p:m"))
        seen: list[Any] = []
        stop = session.watch(seen.append)
        await session.run("Go.")
        stop()
        await session.run("Go.")
        assert "".join(chunk.text for chunk in seen if hasattr(chunk, "text")) == "One two."


async def test_a_failed_run_does_not_leave_queued_inputs_waiting() -> None:
    """They are the next turns all the same."""
    import anyio

    from spine.errors import TurnFailed

    async with opened(fail("auth"), say("Second.")) as runtime:
        session = await runtime.session("s", Agent("p:m"))

        async with anyio.create_task_group() as group:

            def submit_once(event: Any) -> None:
                if event.type == "turn.started":
                    stop()
                    group.start_soon(session.submit, "second")

            stop = session.log.observe(submit_once)
            with pytest.raises(TurnFailed):
                await session.run("first")
        with anyio.fail_after(2):
            while session.log.status.turns < 2 or session.log.status.turn is not None:
                await anyio.sleep(0.005)
        assert "Second." in [message.text for message in session.history()]


async def test_metadata_of_the_agent_and_the_session_are_recorded() -> None:
    """The session's own win; a hook sees them; they never change."""
    async with opened(say("x")) as runtime:
        session = await runtime.session("s", Agent("p:m", metadata={"a": 1, "b": 1}), metadata={"b": 2})
        await session.run("Go.")
        created = next(iter(session.log.read())).data
        assert created.metadata == {"a": 1, "b": 2}
        with pytest.raises(UsageError):
            await runtime.session("t", Agent("p:m"), metadata={"k": float("nan")})
