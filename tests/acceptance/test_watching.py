"""Repeating a turn, and watching one while it runs."""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from stage import Adapter, agent_of, data_of, judge, staged, tool_of, until

from spine.errors import StoreUnavailable, TurnFailed, UsageError
from spine.llm.assemble import assemble
from spine.llm.chunks import TextDelta
from spine.llm.response import ModelResponse
from spine.log import Synchronised
from spine.stores.memory import MemoryStore
from spine.testing.script import call, expect, fail, say, stall
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


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


async def test_a_listener_that_lagged_once_reads_the_rest_from_the_log(monkeypatch: Any) -> None:
    """What comes live after a gap does not stand before what was missed."""
    monkeypatch.setattr("spine.stream.MAX_LIVE_ITEMS", 10)
    pieces = [f"{n} " for n in range(40)]
    heard: list[str] = []

    async def play(request: Any) -> Any:
        for number, piece in enumerate(pieces):
            if number == 20:
                await until(lambda: len(heard) >= 10)
            yield TextDelta(0, piece)
        yield ModelResponse(message=assemble([TextDelta(0, piece) for piece in pieces]), stop_reason="end_turn")

    async with staged(model=Adapter(play)) as runtime:
        session = await runtime.session("s", agent_of())
        async with session.stream("Go.") as stream:
            async for piece in stream.text():
                heard.append(piece)
                await checkpoint()
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
        assert session.log.seq == 0
        assert session.log.store.head("s") is None
