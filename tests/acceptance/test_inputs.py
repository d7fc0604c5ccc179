"""Inputs: run, submit, steer, interrupt, from here and through the inbox; and what is refused beforehand."""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from stage import Adapter, Gate, agent_of, data_of, judge, kinds_of, staged, tool_of, until

from spine.errors import KeyMissing, RouteUnknown, SessionBusy, UsageError, ValueTooLarge
from spine.llm.catalogue import Provider
from spine.messages import Message, TextBlock, user_message
from spine.stores.memory import MemoryStore
from spine.testing.script import call, expect, say, stall
from spine.testing.scripted import ScriptedAdapter
from spine.values import Secret

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------------------------------- while it runs


async def test_an_input_submitted_while_a_turn_runs_is_the_next_turn() -> None:
    """`queue` waits: the running turn does not see it, the next one does, in the order of submission."""
    gate = Gate()
    async with (
        staged(call("gate"), say("One."), say("Two."), say("Three.")) as runtime,
        anyio.create_task_group() as group,
    ):
        session = await runtime.session("s", agent_of(gate.tool()))
        group.start_soon(session.run, "first")
        await gate.entered.wait()
        first = await session.submit("second")
        second = await session.submit("third")
        assert second > first
        gate.release.set()
        await until(lambda: session.log.status.turns == 3 and session.log.status.turn is None)
        assert [m.text for m in session.history()] == ["first", "", "", "One.", "second", "Two.", "third", "Three."]
        judge(session.log)


async def test_steering_joins_the_running_turn_at_its_next_step() -> None:
    """A steering input stands after the tool results and before the next request, in the same turn."""
    gate = Gate()
    model = ScriptedAdapter(call("gate"), expect(contains="be quick", messages=4) + say("Quickly."))
    async with staged(model=model) as runtime, anyio.create_task_group() as group:
        session = await runtime.session("s", agent_of(gate.tool()))
        group.start_soon(session.run, "first")
        await gate.entered.wait()
        await session.steer("be quick")
        gate.release.set()
        await until(lambda: session.log.status.turn is None and session.log.status.turns == 1)
        assert [m.role for m in session.history()] == ["user", "assistant", "tool", "user", "assistant"]
        delivered = data_of(session, "input.delivered")
        assert [d.place for d in delivered] == ["turn", "step"]
        judge(session.log)


async def test_steering_that_comes_with_the_last_answer_makes_one_more_step() -> None:
    """A turn does not end on an input it was steered by."""
    steered: list[int] = []

    async def play(request: Any) -> Any:
        async for item in ScriptedAdapter(say("Two." if steered else "One.")).stream(request):
            yield item
        if not steered:
            steered.append(await session.steer("wait"))

    async with staged(model=Adapter(play)) as runtime:
        session = await runtime.session("s", agent_of())
        turn = await session.run("first")
        assert (turn.steps, turn.text) == (2, "Two.")
        judge(session.log)


async def test_an_interrupting_input_cancels_the_turn_and_is_the_next() -> None:
    """`interrupt` is recorded, the running turn ends as cancelled, and the input begins a new one."""
    gate = Gate()
    async with staged(call("gate"), say("Instead.")) as runtime, anyio.create_task_group() as group:
        session = await runtime.session("s", agent_of(gate.tool()))
        group.start_soon(session.run, "first")
        await gate.entered.wait()
        await session.submit("something else", delivery="interrupt")
        await until(lambda: session.log.status.turns == 2 and session.log.status.turn is None)
        kinds = kinds_of(session)
        assert kinds.index("cancel.requested") < kinds.index("turn.cancelled") < kinds.index("turn.completed")
        assert session.history()[-1].text == "Instead."
        judge(session.log)


@pytest.mark.parametrize("way", ["run", "stream"])
async def test_what_was_accepted_earlier_has_its_turn_first(way: str) -> None:
    """`run` and `stream` do not overtake a submitted input, and give the turn of their own."""
    async with staged(say("One."), say("Two."), say("Three.")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.submit("first")
        await session.submit("second")
        if way == "run":
            turn = await session.run("third")
        else:
            async with session.stream("third") as stream:
                assert "".join([text async for text in stream.text()]) == "Three."
            turn = stream.turn
        assert [m.text for m in session.history()] == ["first", "One.", "second", "Two.", "third", "Three."]
        assert (turn.id, turn.text) == ("t3", "Three.")
        judge(session.log)


async def test_a_run_behind_a_turn_that_waits_for_a_person_is_refused() -> None:
    """The earlier input comes first, also when its turn cannot end."""
    pay = tool_of("pay", lambda arguments, context: "paid", approval="ask")
    async with staged(call("pay"), say("never")) as runtime:
        session = await runtime.session("s", agent_of(pay))
        await session.submit("first")
        with pytest.raises(SessionBusy, match="waits for"):
            await session.run("second")
        assert session.turn.status == "suspended"


async def test_an_input_that_came_here_and_through_the_inbox_is_one() -> None:
    """Its key says so, whichever way was first; the entry leaves the inbox all the same."""
    store = MemoryStore()
    async with staged(say("One."), say("Two."), store=store) as owner, staged(store=store) as other:
        session = await owner.session("s", agent_of())
        await session.submit("the same", key="k")
        message = owner.codec.to_json(user_message("the same"))
        assert other.send("s", "input", {"message": message}, key="k")
        await session.take_inbox()
        await session.run("another")
        assert [m.text for m in session.history()] == ["the same", "One.", "another", "Two."]
        assert (len(data_of(session, "input.accepted")), store.inbox(session.id)) == (2, [])
        judge(session.log)


async def test_inputs_of_other_processes_come_through_the_inbox() -> None:
    """Queue, steer and interrupt work from outside as they do inside, each exactly once by its key."""
    gate, store = Gate(), MemoryStore()
    script = (call("gate"), say("One."), say("Two."), say("never"))
    async with staged(*script, store=store) as owner, staged(store=store) as other, anyio.create_task_group() as group:
        session = await owner.session("s", agent_of(gate.tool()))

        def send(text: str, delivery: str, key: str) -> bool:
            message = owner.codec.to_json(user_message(text))
            return bool(other.send("s", "input", {"message": message, "delivery": delivery}, key=key))

        group.start_soon(session.run, "first")
        await gate.entered.wait()
        assert send("steered", "steer", "k1")
        assert send("queued", "queue", "k2")
        assert not send("queued", "queue", "k2")
        await until(lambda: len(data_of(session, "input.accepted")) == 3)
        gate.release.set()
        await until(lambda: session.log.status.turns == 2 and session.log.status.turn is None)
        assert [m.text for m in session.history()] == ["first", "", "", "steered", "One.", "queued", "Two."]
        judge(session.log)


async def test_a_cancel_of_another_process_comes_through_the_inbox() -> None:
    """The running turn stops; who asked stands in the log."""
    gate, store = Gate(), MemoryStore()
    async with (
        staged(call("gate"), store=store) as owner,
        staged(store=store) as other,
        anyio.create_task_group() as group,
    ):
        session = await owner.session("s", agent_of(gate.tool()))
        group.start_soon(session.run, "first")
        await gate.entered.wait()
        other.send("s", "cancel", {"cause": "stop it", "by": "operator"}, key="c1")
        await until(lambda: session.turn.status == "cancelled")
        requested = data_of(session, "cancel.requested")
        assert [(r.cause, r.by) for r in requested] == [("stop it", "operator")]
        judge(session.log)


async def test_an_interrupt_of_another_process_cancels_too() -> None:
    """`interrupt` through the inbox is an input and a cancel."""
    gate, store = Gate(), MemoryStore()
    script = (call("gate"), say("Instead."))
    async with staged(*script, store=store) as owner, staged(store=store) as other, anyio.create_task_group() as group:
        session = await owner.session("s", agent_of(gate.tool()))
        group.start_soon(session.run, "first")
        await gate.entered.wait()
        message = owner.codec.to_json(user_message("now this"))
        other.send("s", "input", {"message": message, "delivery": "interrupt"}, key="i1")
        await until(lambda: session.log.status.turns == 2 and session.log.status.turn is None)
        assert session.history()[-1].text == "Instead."
        judge(session.log)


async def test_an_input_with_a_known_key_changes_nothing() -> None:
    """The same key again is the same input: its seq comes back, in this process and after a restart."""
    store = MemoryStore()
    async with staged(say("One."), store=store) as runtime:
        session = await runtime.session("s", agent_of())
        seq = await session.submit("Go.", key="k")
        assert await session.submit("Go.", key="k") == seq
        await until(lambda: session.turn and session.turn.status == "completed")
        assert await session.submit("Go.", key="k") == seq
    async with staged(store=store) as runtime:
        session = await runtime.session("s", agent_of())
        assert await session.submit("Go.", key="k") == seq
        assert len(data_of(session, "input.accepted")) == 1


async def test_a_second_run_meets_a_busy_session() -> None:
    """One turn at a time: another `run` is refused at once, also in the very moment the first one begins."""
    gate = Gate()
    async with staged(call("gate"), say("One."), say("Two.")) as runtime, anyio.create_task_group() as group:
        session = await runtime.session("s", agent_of(gate.tool()))
        group.start_soon(session.run, "first")
        while not session.is_running:
            await checkpoint()
        for _ in range(5):
            with pytest.raises(SessionBusy) as busy:
                await session.run("second")
            assert busy.value.code == "session_busy"
            await checkpoint()
        await gate.entered.wait()
        for forbidden in (lambda: session.run("second"), session.resume):
            with pytest.raises(SessionBusy):
                await forbidden()
        gate.release.set()
        await until(lambda: session.log.status.turn is None)
        assert (await session.run("second")).text == "Two."
        judge(session.log)


async def test_two_runs_at_once_give_one_turn() -> None:
    """Of two concurrent calls one runs and the other is refused; nothing of the second is in the log."""
    results: list[str] = []

    async def run(session: Any, text: str) -> None:
        try:
            await session.run(text)
            results.append("ran")
        except SessionBusy:
            results.append("busy")

    async with staged(stall(0.01) + say("One.")) as runtime:
        session = await runtime.session("s", agent_of())
        async with anyio.create_task_group() as group:
            group.start_soon(run, session, "a")
            group.start_soon(run, session, "b")
        assert sorted(results) == ["busy", "ran"]
        assert len(data_of(session, "input.accepted")) == 1


# --------------------------------------------------------------------------------------------- refused beforehand


def nothing_written(session: Any) -> bool:
    return session.log.seq == 0 and not session.log.has_pending and session.log.store.head("s") is None


WRONG_INPUTS: dict[str, Any] = {
    "none": (),
    "an assistant's message": Message(role="assistant", content=(TextBlock(text="x"),)),
    "a system message": [Message(role="system", content=(TextBlock(text="x"),))],
}


@pytest.mark.parametrize("value", WRONG_INPUTS.values(), ids=WRONG_INPUTS)
async def test_an_input_that_is_none_is_refused_and_nothing_is_written(value: Any) -> None:
    """Only user messages are inputs, and at least one."""
    async with staged(say("ok")) as runtime:
        session = await runtime.session("s", agent_of())
        with pytest.raises(UsageError):
            await session.run(value)
        assert nothing_written(session)
        assert (await session.run("Go.")).text == "ok"
        assert kinds_of(session)[0] == "session.created"


async def test_one_message_too_large_refuses_all_of_an_input() -> None:
    """An input over the limits leaves nothing behind: not its other messages, not a half-begun turn."""
    large = Message(role="user", kind="user", content=tuple(TextBlock(text="x" * 1000) for _ in range(1200)))
    async with staged(say("ok")) as runtime:
        session = await runtime.session("s", agent_of())
        for value in ([user_message("small"), large], large):
            with pytest.raises(ValueTooLarge):
                await session.run(value)
            with pytest.raises(ValueTooLarge):
                await session.submit(value)
            assert nothing_written(session)
        turn = await session.run("Go.")
        assert (turn.id, turn.text) == ("t1", "ok")
        assert kinds_of(session)[:2] == ["session.created", "input.accepted"]


ROUTES = {
    "an unknown provider": ("nowhere:big", 'unknown provider "nowhere"'),
    "a near miss": ("antropic:x", "unknown provider"),
    "no provider": ("big", "neither provider:name nor an alias"),
    "an empty model": ("openai:", "provider:name"),
}


@pytest.mark.parametrize(("model", "message"), ROUTES.values(), ids=ROUTES)
async def test_a_missing_route_fails_before_anything_is_recorded(model: str, message: str) -> None:
    """The route is resolved first: unknown providers and malformed names raise, and the log stays empty."""
    async with staged(model=None, store="memory:") as _:
        pass
    from spine import Agent, Runtime
    from spine.config import Settings

    async with Runtime.open("memory:", settings=Settings(installed_plugins=False)) as runtime:

        async def run() -> None:
            session = await runtime.session("s", Agent(model))
            await session.run("Go.")

        with pytest.raises(RouteUnknown, match=message):
            await run()
        assert runtime.sessions() == []


KEYS = {"missing": None, "empty": "", "blank": "  ", "with a line break": "abc\ndef", "with a control": "ab\x00cd"}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
async def test_a_key_that_is_none_fails_at_run_with_nothing_written(key: str | None, monkeypatch: Any) -> None:
    """Missing, blank and malformed keys are found when the route is resolved, never at import, and write nothing."""
    from spine import Agent, Runtime
    from spine.config import Settings

    monkeypatch.delenv("LAB_KEY", raising=False)
    if key is not None and "\x00" not in key:
        monkeypatch.setenv("LAB_KEY", key)
    secrets = {"lab": Secret(key)} if key is not None and "\x00" in key else {}
    lab = Provider(id="lab", protocol="fake", base_url="http://127.0.0.1:9/v1", key_env="LAB_KEY")

    class Protocol:
        name = "fake"

    def register(registrar: Any) -> None:
        registrar.add(Protocol())

    from stage import plugin

    settings = Settings(installed_plugins=False, providers=(lab,))
    protocol = plugin("fake", spine_register_protocols=register)
    async with Runtime.open("memory:", settings=settings, plugins=[protocol], secrets=secrets) as runtime:
        session = await runtime.session("s", Agent("lab:tiny"))
        for ask in (session.run, session.submit):
            with pytest.raises(KeyMissing) as refused:
                await ask("Go.")
            assert key is None or not key.strip() or key not in str(refused.value)
        assert nothing_written(session)
