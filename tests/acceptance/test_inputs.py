"""Inputs: run, submit, steer, interrupt, retry; watching a turn as it runs."""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from stage import Adapter, agent_of, data_of, events_of, judge, kinds_of, staged, tool_of

from spine.errors import KeyMissing, RouteUnknown, SessionBusy, StoreUnavailable, TurnFailed, UsageError, ValueTooLarge
from spine.llm.catalogue import Provider
from spine.llm.chunks import TextDelta
from spine.log import Synchronised
from spine.messages import Message, TextBlock, user_message
from spine.stores.memory import MemoryStore
from spine.testing.script import call, expect, fail, say, stall
from spine.testing.scripted import ScriptedAdapter
from spine.values import Secret

pytestmark = pytest.mark.anyio


class Gate:
    """A tool that waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.release = anyio.Event(), anyio.Event()

    def tool(self) -> Any:
        async def handler(arguments: Any, context: Any) -> str:
            self.entered.set()
            await self.release.wait()
            return "through"

        return tool_of("gate", handler)


async def until(condition: Any, seconds: float = 3) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.002)


# ------------------------------------------------------------------------------------------------- while it runs


async def test_an_input_submitted_while_a_turn_runs_is_the_next_turn() -> None:
    """`queue` waits: the running turn does not see it, the next one does, in the order of submission."""
    gate = Gate()
    async with staged(call("gate"), say("One."), say("Two."), say("Three.")) as runtime, anyio.create_task_group() as group:
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
    async with staged(call("gate"), store=store) as owner, staged(store=store) as other, anyio.create_task_group() as group:
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
        with pytest.raises(RouteUnknown, match=message):
            session = await runtime.session("s", Agent(model))
            await session.run("Go.")
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


# ----------------------------------------------------------------------------------------------------------- retry


async def test_retry_runs_the_input_of_a_failed_turn_again() -> None:
    """The failed turn leaves history and stays in the transcript; the new one has the same input."""
    async with staged(say("Half an ans") + fail("connection"), say("The answer.")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.", check=False)
        turn = await session.retry()
        assert (turn.id, turn.status, turn.text) == ("t2", "completed", "The answer.")
        assert [m.text for m in session.history()] == ["Go.", "The answer."]
        assert data_of(session, "turn.started")[1].repeats.turn == "t1"
        assert len(data_of(session, "input.accepted")) == 1
        from spine.projectors import to_text

        assert "Half an ans" in to_text(session.transcript())
        judge(session.log)


async def test_retry_can_keep_the_partial_text() -> None:
    """With `keep_partial` the model goes on from what was said."""
    model = ScriptedAdapter(
        say("Half an ans") + fail("connection"), expect(last_role="assistant", messages=2) + say("wer.")
    )
    async with staged(model=model) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.", check=False)
        await session.retry(keep_partial=True)
        assert [m.text for m in session.history()] == ["Go.", "Half an ans", "wer."]
        judge(session.log)


async def test_retry_of_a_cancelled_turn_takes_its_steps_out_of_history() -> None:
    """Steps, results and partial text of the cancelled turn go; its input and earlier turns stay."""

    async def cancels(arguments: Any, context: Any) -> str:
        await session.cancel()
        await checkpoint()
        return "x"

    async with staged(say("Before."), say("So.") + call("stop"), say("Now.")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("stop", cancels)))
        await session.run("One.")
        await session.run("Two.")
        assert session.turn.status == "cancelled"
        await session.retry()
        assert [m.text for m in session.history()] == ["One.", "Before.", "Two.", "Now."]
        judge(session.log)


async def test_retry_of_a_retry_has_the_input_once() -> None:
    """However often it is repeated, the input stands once."""
    async with staged(fail("auth"), fail("auth"), fail("auth"), say("At last.")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.", check=False)
        await session.retry(check=False)
        await session.retry(check=False)
        assert (await session.retry()).text == "At last."
        assert [m.text for m in session.history()] == ["Go.", "At last."]
        judge(session.log)


async def test_there_is_nothing_to_retry_after_a_good_turn() -> None:
    """Only failed and cancelled turns can be run again."""
    async with staged(say("ok")) as runtime:
        session = await runtime.session("s", agent_of())
        with pytest.raises(UsageError, match="there is no turn yet"):
            await session.retry()
        await session.run("Go.")
        with pytest.raises(UsageError, match="t1 completed"):
            await session.retry()


# ------------------------------------------------------------------------------------------------------- watching


async def test_follow_has_no_gaps_under_a_concurrent_writer() -> None:
    """Stored events, one synchronisation marker, then each as it is committed: 1, 2, 3, … for every follower."""
    turns = 12
    async with staged(*[say("ok")] * turns) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("first")
        followed: dict[int, list[int]] = {}
        marks: list[int] = []

        async def follow(after: int) -> None:
            seqs = followed.setdefault(after, [])
            async for item in session.follow(after):
                if isinstance(item, Synchronised):
                    marks.append(item.seq)
                    continue
                assert item.seq <= session.log.head[0], "only what is committed is shown"
                seqs.append(item.seq)
                await checkpoint()

        async with anyio.create_task_group() as group:
            for after in (0, 3, 8):
                group.start_soon(follow, after)
            for number in range(1, turns):
                await session.run(f"input {number}")
            head = session.log.head[0]
            await until(lambda: all(seqs and seqs[-1] == head for seqs in followed.values()))
            group.cancel_scope.cancel()
        for after, seqs in followed.items():
            assert seqs == list(range(after + 1, head + 1))
        assert len(marks) == 3


async def test_another_runtime_follows_a_session_it_does_not_own() -> None:
    """Reading needs no lease."""
    store = MemoryStore()
    async with staged(say("One."), say("Two."), store=store) as owner, staged(store=store) as reader:
        session = await owner.session("s", agent_of())
        await session.run("first")
        seen: list[int] = []

        async def follow() -> None:
            async for item in reader.follow("s"):
                if not isinstance(item, Synchronised):
                    seen.append(item.seq)

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await session.run("second")
            await until(lambda: seen and seen[-1] == session.log.head[0])
            group.cancel_scope.cancel()
        assert seen == list(range(1, session.log.head[0] + 1))


async def test_a_stream_gives_text_as_it_arrives_and_then_the_turn() -> None:
    """`text()` yields each piece while the model is still speaking."""
    heard: list[str] = []
    spoken: list[int] = []

    async def play(request: Any) -> Any:
        for item in (TextDelta(0, "One"), TextDelta(0, " two"), TextDelta(0, " three")):
            spoken.append(len(heard))
            yield item
            for _ in range(5):
                await checkpoint()
        async for item in ScriptedAdapter(say("One two three")).stream(request):
            if type(item) is not TextDelta:
                yield item

    async with staged(model=Adapter(play)) as runtime:
        session = await runtime.session("s", agent_of())
        async with session.stream("Go.") as stream:
            async for piece in stream.text():
                heard.append(piece)
        assert heard == ["One", " two", " three"]
        assert spoken == [0, 1, 2]
        assert (stream.turn.status, stream.turn.text) == ("completed", "One two three")


async def test_a_stream_gives_the_turns_committed_events() -> None:
    """Iterating over a stream yields this turn's events, in order, to its end."""
    async with staged(say("Before."), call("look"), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: "x")))
        await session.run("first")
        head = session.log.head[0]
        async with session.stream("Go.") as stream:
            seen = [event async for event in stream]
        assert [event.seq for event in seen] == list(range(head + 1, session.log.head[0] + 1))
        assert seen[-1].type == "turn.completed"


async def test_leaving_a_stream_early_cancels_the_turn() -> None:
    """The turn ends as cancelled, what was heard stays in history, and the model's stream is closed."""
    closed: list[bool] = []

    async def play(request: Any) -> Any:
        try:
            yield TextDelta(0, "The first reason is")
            await anyio.sleep_forever()
        finally:
            closed.append(True)

    async with staged(model=Adapter(play)) as runtime:
        session = await runtime.session("s", agent_of())
        for _ in range(3):
            with anyio.fail_after(2):
                async with session.stream("Go.") as stream:
                    async for _piece in stream.text():
                        break
            assert stream.turn.status == "cancelled"
        assert closed == [True] * 3
        assert [m.text for m in session.history()][:2] == ["Go.", "The first reason is"]
        assert data_of(session, "cancel.requested")[0].cause == "the stream was left"
        judge(session.log)


async def test_an_error_in_a_streams_block_comes_out_as_it_is() -> None:
    """The caller's own exception is not wrapped; the turn is cancelled."""
    async with staged(say("ok") + stall()) as runtime:
        session = await runtime.session("s", agent_of())
        with anyio.fail_after(2), pytest.raises(ZeroDivisionError):
            async with session.stream("Go."):
                raise ZeroDivisionError
        assert session.turn.status == "cancelled"
        with pytest.raises(UsageError):
            async with session.stream(()):
                pass


async def test_a_failed_turn_raises_when_its_stream_is_done() -> None:
    """As `run`, a stream raises `TurnFailed` with the turn, unless told not to."""
    async with staged(fail("auth"), fail("auth")) as runtime:
        session = await runtime.session("s", agent_of())
        with pytest.raises(TurnFailed) as failed:
            async with session.stream("Go.") as stream:
                assert [piece async for piece in stream.text()] == []
        assert failed.value.turn.error.category == "auth"
        async with session.stream("Go.", check=False) as stream:
            pass
        assert stream.turn.status in ("failed", "cancelled")


async def test_a_slow_listener_gets_the_whole_text_and_holds_nothing_back(monkeypatch: Any) -> None:
    """A listener that lags is bounded in memory; what it missed it reads from the log, in order and once."""
    monkeypatch.setattr("spine.stream.MAX_LIVE_ITEMS", 10)
    pieces = [f"{n} " for n in range(100)]
    async with staged(say(chunks=pieces)) as runtime:
        session = await runtime.session("s", agent_of())
        async with session.stream("Go.") as stream:
            heard = []
            async for piece in stream.text():
                heard.append(piece)
                await anyio.sleep(0.001)
        assert "".join(heard) == "".join(pieces)


async def test_a_store_that_fails_stops_the_turn_with_its_error_and_the_session_can_be_opened_again() -> None:
    """After a failed commit nothing more is appended in memory; opening again reads the truth."""

    class Failing(MemoryStore):
        is_full = False

        def append(self, batches: Any) -> Any:
            if self.is_full:
                raise StoreUnavailable("the disk is full")
            return super().append(batches)

    store = Failing()

    async def fills(arguments: Any, context: Any) -> str:
        store.is_full = True
        return "x"

    async with staged(say("One."), call("fill"), say("Three."), store=store) as runtime:
        session = await runtime.session("s", agent_of(tool_of("fill", fills)))
        await session.run("first")
        with pytest.raises(StoreUnavailable):
            await session.run("second")
        head = session.log.head
        with pytest.raises(StoreUnavailable):
            await session.run("third")
        store.is_full = False
        again = await runtime.session("s", agent_of(tool_of("fill", fills)))
        assert again is not session
        assert again.log.head == head
        turn = await again.resume()
        assert turn.status == "completed"
        judge(again.log)


async def test_a_turn_that_is_cancelled_before_it_begins_writes_nothing() -> None:
    """A caller that is cancelled already starts no turn."""
    async with staged(say("ok")) as runtime:
        session = await runtime.session("s", agent_of())
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.run("Go.")
        assert nothing_written(session)
        assert events_of(session.log) if session.log.seq else True
