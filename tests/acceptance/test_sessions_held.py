"""Sessions as their runtime holds them: given up, asked for again, put back in their scope; and what a frame covers."""

from typing import Any

import anyio
import attrs
import pytest
from stage import Gate, agent_of, data_of, events_of, judge, staged, until

from spine import Section
from spine.errors import UsageError
from spine.stores.sqlite import SqliteStore
from spine.testing.script import call, say
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


@attrs.frozen
class Verdict:
    """A typed answer."""

    good: bool


async def test_a_session_given_up_may_be_owned_by_another_runtime_at_once(tmp_path: Any) -> None:
    """`close` commits and releases; the session object refuses further turns, a new one goes on."""
    path = tmp_path / "held.db"
    async with (
        staged(say("One."), store=SqliteStore(path)) as first,
        staged(say("Two."), store=SqliteStore(path)) as second,
    ):
        session = await first.session("s", agent_of())
        await session.run("a")
        await session.close()
        await session.close()
        with pytest.raises(UsageError, match="was closed"):
            await session.run("b")
        other = await second.session("s", agent_of())
        await other.run("b")
        assert [message.text for message in other.history()] == ["a", "One.", "b", "Two."]
        judge(other.log)


async def test_closing_a_running_session_cancels_its_turn(tmp_path: Any) -> None:
    """The turn ends as cancelled, and the log is whole."""
    gate = Gate()
    async with (
        staged(call("gate"), store=SqliteStore(tmp_path / "held.db")) as runtime,
        anyio.create_task_group() as group,
    ):
        session = await runtime.session("s", agent_of(gate.tool()))
        group.start_soon(session.run, "a")
        await gate.entered.wait()
        await session.close()
        assert events_of(runtime.reader("s"))[-1].type == "turn.cancelled"
        judge(runtime.reader("s"))


async def test_an_open_session_refuses_another_agent_and_takes_new_dependencies() -> None:
    """The same object comes back, or a sentence says why not; nothing is ignored silently."""
    async with staged(say("One.")) as runtime:
        session = await runtime.session("s", agent_of(), deps="old")
        assert await runtime.session("s", agent_of(), deps="new") is session
        assert session._run.deps == "new"
        with pytest.raises(UsageError, match="open with another agent"):
            await runtime.session("s", agent_of(instructions="Be rude."))
        with pytest.raises(UsageError, match="is open in scope None, not tenant"):
            await runtime.session("s", agent_of(), scope="tenant")


async def test_a_session_goes_back_to_the_scope_it_was_created_in(tmp_path: Any) -> None:
    """Left out, the recorded scope holds; another one is refused."""
    path = tmp_path / "held.db"
    async with staged(say("One."), store=SqliteStore(path)) as runtime:
        runtime.scope("tenant").add(Section("house", render="House rules."))
        session = await runtime.session("s", agent_of(), scope="tenant")
        await session.run("a")
    async with staged(say("Two."), store=SqliteStore(path)) as runtime:
        runtime.scope("tenant").add(Section("house", render="House rules."))
        with pytest.raises(UsageError, match="created in scope tenant; it cannot move to other"):
            await runtime.session("s", agent_of(), scope="other")
        session = await runtime.session("s", agent_of())
        await session.run("b")
        assert [block.name for block in session.log.request(_requests(session)[-1]).system] == ["house"]


async def test_two_tasks_that_ask_for_a_session_get_the_same_one(tmp_path: Any) -> None:
    """Opening is one at a time, so no token is claimed behind the other's back."""
    got: list[Any] = []
    async with staged(say("One."), store=SqliteStore(tmp_path / "held.db")) as runtime:

        async def ask() -> None:
            got.append(await runtime.session("s", agent_of()))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask)
        assert all(session is got[0] for session in got)
        await got[0].run("a")


async def test_queued_input_runs_although_the_caller_before_it_was_cancelled() -> None:
    """`submit` promised the background; whoever ran the turn before does not matter."""
    gate = Gate()
    async with staged(call("gate"), say("Second.")) as runtime, anyio.create_task_group() as group:
        session = await runtime.session("s", agent_of(gate.tool()))

        async def run_for_a_while() -> None:
            with anyio.move_on_after(0.05):
                await session.run("first")

        group.start_soon(run_for_a_while)
        await gate.entered.wait()
        await session.submit("second")
        await until(lambda: session.log.status.turns == 2 and session.log.status.turn is None)
        assert session.log.status.last.status == "completed"
        judge(session.log)


@pytest.mark.parametrize("leaving", [SystemExit(3), KeyboardInterrupt()])
async def test_leaving_the_program_inside_the_runtime_goes_on_as_it_is(leaving: BaseException) -> None:
    """No group is put around what is not the runtime's own."""
    with pytest.raises(type(leaving)) as caught:
        async with staged(say("One.")):
            raise leaving
    assert caught.value is leaving


async def test_the_recorded_request_is_the_one_that_was_sent_whatever_changed_between_turns() -> None:
    """Output type, model and tools are part of the frame: a kept frame never stands for another request."""
    model = ScriptedAdapter(say('{"good": true}'), say("Free."), say("Other."))
    async with staged(model=model) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("a", output=Verdict)
        await session.run("b")
        await session.run("c", model="scripted:other")
        recorded = data_of(session, "model.requested")
        for seq, sent, fact in zip(_requests(session), model.requests, recorded, strict=True):
            rebuilt = session.log.request(seq)
            assert tuple(rebuilt.messages) == tuple(sent.messages)
            assert rebuilt.evolve(messages=()) == sent.evolve(messages=())
            assert fact.digest != recorded[0].digest or fact is recorded[0]
        assert [request.response_format is not None for request in model.requests] == [True, False, False]
        assert [str(request.route) for request in model.requests][2] == "scripted:other"


def _requests(session: Any) -> list[int]:
    return [event.seq for event in events_of(session, "model.requested")]
