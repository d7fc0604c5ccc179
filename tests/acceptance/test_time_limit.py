"""A limit on time stops whatever runs, with what had arrived kept; the turn fails with the numbers, whoever ends it."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from stage import ALONE, Adapter, agent_of, data_of, judge, kinds_of, plugin, staged, text_of_result, tool_of
from test_kill_anywhere import Later, crashed

from spine import Limits
from spine.llm.chunks import TextDelta
from spine.proof.replay.run import Given, replay
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.testing.clock import FakeClock
from spine.testing.script import Entry, call, fail, say, stall
from spine.testing.scripted import ScriptedAdapter
from spine.values import SessionId

pytestmark = pytest.mark.anyio

LATE: dict[str, Any] = {"limit": "wall_s", "allowed": 10, "used": 60.0}
WORDS = "10 s used"


def limited(*tools: Any, **fields: Any) -> Any:
    return agent_of(*tools, limits=fields.pop("limits", Limits(wall_s=10)), **fields)


def taking(clock: Any, name: str, delay_s: float, **fields: Any) -> Any:
    """A tool that takes so long."""

    async def handler(arguments: Any, context: Any) -> str:
        await clock.sleep(delay_s)
        return f"{name} done"

    return tool_of(name, handler, **fields)


def playing(clock: Any, *script: Any, **options: Any) -> Any:
    """A stage whose model and runtime have the same clock."""
    return staged(model=ScriptedAdapter(*script, clock=clock), clock=clock, **options)


async def replayed(session: Any, **options: Any) -> Any:
    log = StoredLog(session.log.store, session.log.codec, SessionId("s"))
    return await replay(log, Given(agent=session.agent, settings=ALONE, **options))


# ----------------------------------------------------------------------------------------------------------- endings


def stalled(clock: Any) -> tuple[list[Entry], Any, list[str]]:
    return [say("Half a") + stall(60) + say(" story.")], limited(), ["message.interrupted", "turn.failed"]


def silent(clock: Any) -> tuple[list[Entry], Any, list[str]]:
    return [stall(60) + say("Late.")], limited(), ["message.interrupted", "turn.failed"]


def in_a_tool(clock: Any) -> tuple[list[Entry], Any, list[str]]:
    return [call("slow")], limited(taking(clock, "slow", 60)), ["tool.completed", "turn.failed"]


def in_a_retry(clock: Any) -> tuple[list[Entry], Any, list[str]]:
    return [fail("rate_limit", retry_after_s=60)], limited(), ["message.interrupted", "turn.failed"]


ENDINGS = {"an answer": stalled, "before an answer": silent, "a tool": in_a_tool, "a wait to try again": in_a_retry}


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
@pytest.mark.parametrize("name", ENDINGS)
async def test_time_that_is_up_stops_what_runs(name: str, store: str, tmp_path: Any) -> None:
    """The turn fails with the numbers; the next one has its own time; a replay comes to the same end."""
    clock = FakeClock()
    script, agent, closing = ENDINGS[name](clock)
    url = store if store == "memory:" else f"sqlite:{tmp_path / 's.db'}"
    async with playing(clock, *script, say("Again."), store=url) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.error.category) == ("failed", "limit")
        assert (turn.error.details, turn.error.message) == (LATE, WORDS)
        asked = data_of(session, "cancel.requested")[0]
        assert (asked.cause, asked.by, asked.failure) == ("limit", None, turn.error)
        kinds = kinds_of(session)
        assert kinds[kinds.index("cancel.requested") + 1 :] == closing
        assert (await session.run("And?")).text == "Again."
        judge(session.log)
        found = await replayed(session)
        assert found.is_exact, found


async def test_what_had_arrived_of_an_answer_is_kept_and_told() -> None:
    clock = FakeClock()
    async with playing(clock, *stalled(clock)[0]) as runtime:
        session = await runtime.session("s", limited())
        with pytest.raises(Exception, match="turn t1 failed: 10 s used"):
            await session.run("Go.")
        assert data_of(session, "message.interrupted")[0].message.text == "Half a"
        assert session.transcript().text.splitlines()[5:] == [
            "ASSISTANT t1s1",
            "    Half a",
            "  ~ stopped by a limit: 10 s used",
            "  ~ the answer was cancelled",
            "",
            "turn t1 failed (limit): 1 step",
            "  ! limit: 10 s used",
        ]


async def test_time_of_the_turn_stands_in_place_of_the_agents() -> None:
    clock = FakeClock()
    async with playing(clock, stall(60) + say("Late."), stall(60) + say("Late.")) as runtime:
        session = await runtime.session("s", limited())
        assert (await session.run("Go.", limits=Limits(wall_s=100))).text == "Late."
        assert (await session.run("Go.", check=False)).error.message == WORDS


async def test_parallel_calls_that_were_cut_tell_the_truth() -> None:
    """What was done is done, what ran may have acted, what had not begun did not."""
    clock = FakeClock()
    tools = [taking(clock, "quick", 1, parallel=True), taking(clock, "slow", 60, parallel=True)]
    tools += [taking(clock, "slower", 90, parallel=True), taking(clock, "next", 1)]
    script = call("quick") + call("slow") + call("slower") + call("next")
    async with playing(clock, script, say("I see.")) as runtime:
        session = await runtime.session("s", limited(*tools))
        turn = await session.run("Go.", check=False)
        assert turn.error.details == LATE
        assert [c.outcome.status for c in turn.tool_calls] == ["ok", "interrupted", "interrupted", "not_started"]
        texts = [text_of_result(completed.result) for completed in data_of(session, "tool.completed")]
        assert texts[0] == "quick done"
        assert all("Some of its effects may have happened" in text for text in texts[1:3])
        assert "Nothing was executed" in texts[3]
        assert (await session.run("And?")).text == "I see."
        judge(session.log)
        assert (await replayed(session)).is_exact


async def test_a_turn_that_ends_in_time_is_not_stopped_afterwards() -> None:
    """Neither when time is up while nothing runs, nor while the next turn runs."""
    clock = FakeClock()
    async with playing(clock, say("One."), stall(9) + say("Two.")) as runtime:
        session = await runtime.session("s", limited())
        await session.run("Go.")
        clock.advance(100)
        assert (await session.run("Go.")).text == "Two."
        assert "cancel.requested" not in kinds_of(session)


async def test_waiting_for_people_takes_no_time() -> None:
    """A suspended turn goes on after any time, and its time begins anew."""
    clock = FakeClock()
    script = (stall(6) + call("pay"), stall(6) + say("Done."))
    async with playing(clock, *script) as runtime:
        session = await runtime.session("s", limited(taking(clock, "pay", 1, approval="ask")))
        turn = await session.run("Go.")
        assert turn.status == "suspended"
        clock.advance(3600)
        await anyio.sleep(0.01)
        turn = await session.approve("a1", by="ann")
        assert (turn.status, turn.text) == ("completed", "Done.")
        judge(session.log)
        assert (await replayed(session)).is_exact


async def test_a_turn_that_has_begun_to_wait_is_not_stopped() -> None:
    """Its time may be up in the same moment: from then on it is a person's."""
    clock = FakeClock()
    async with playing(clock, call("pay"), say("Done.")) as runtime:
        session = await runtime.session("s", limited(taking(clock, "pay", 1, approval="ask")))

        def late(event: Any) -> None:
            if event.type == "turn.suspended":
                clock.advance(60)
                session.tick()

        session.log.observe(late)
        assert (await session.run("Go.")).status == "suspended"
        assert (await session.approve("a1", by="ann")).text == "Done."


async def test_a_hook_that_hangs_is_cut_with_its_turn() -> None:
    """By the limit, when that is up before the hook's own time."""
    clock = FakeClock()

    async def pre_step(request: Any, call_next: Any) -> Any:
        await clock.sleep(12)
        return await call_next(request)

    slow = plugin("slow", pre_step=pre_step)
    async with playing(clock, plugins=[slow]) as runtime:
        session = await runtime.session("s", limited())
        turn = await session.run("Go.", check=False)
        assert turn.error.details == {"limit": "wall_s", "allowed": 10, "used": 12.0}
        judge(session.log)
        assert (await replayed(session, plugins=[slow])).is_exact


async def test_results_that_no_hook_has_passed_are_withheld() -> None:
    clock = FakeClock()

    async def post_execute(outcome: Any, call_next: Any) -> Any:
        await clock.sleep(12)
        return await call_next(outcome)

    slow = plugin("slow", post_execute=post_execute)
    async with playing(clock, call("look"), say("I see."), plugins=[slow]) as runtime:
        session = await runtime.session("s", limited(taking(clock, "look", 1)))
        turn = await session.run("Go.", check=False)
        assert turn.error.category == "limit"
        assert "withheld" in text_of_result(data_of(session, "tool.revised")[0].result)
        assert (await session.run("And?")).text == "I see."
        judge(session.log)
        assert (await replayed(session, plugins=[slow])).is_exact


async def test_real_time_stops_a_real_wait_soon() -> None:
    """Within two looks of the runtime; a handler's clean-up still runs."""
    cleaned: list[str] = []

    async def hang(arguments: Any, context: Any) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append("yes")

    async with staged(call("hang")) as runtime:
        session = await runtime.session("s", limited(tool_of("hang", hang), limits=Limits(wall_s=0.05)))
        with anyio.fail_after(5):
            turn = await session.run("Go.", check=False)
    assert cleaned == ["yes"]
    assert turn.error.message == "0.05 s used"
    assert 0.05 <= turn.error.details["used"] < 3


async def test_a_cancel_and_a_limit_stop_a_turn_once() -> None:
    """Whoever is first says how the turn ends."""
    clock = FakeClock()
    session: Any = None

    async def play(request: Any) -> AsyncIterator[Any]:
        yield TextDelta(0, "Half")
        await session.cancel("enough")
        await clock.sleep(60)

    async with staged(model=Adapter(play), clock=clock) as runtime:
        session = await runtime.session("s", limited())
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.error) == ("cancelled", None)
        assert len(data_of(session, "cancel.requested")) == 1
        judge(session.log)


# ----------------------------------------------------------------------------------------------------- other processes


async def test_a_crash_between_the_limit_and_its_end_resumes_to_a_failed_turn() -> None:
    """Another process writes the closing facts and makes no request; a replay of both processes is equal."""
    store, clock = MemoryStore(), FakeClock()

    async def hold(arguments: Any, context: Any) -> None:
        try:
            await clock.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):  # the cancel is durable before the closing batch is written
                await anyio.sleep(0.05)

    agent = limited(tool_of("hold", hold))
    await crashed(store, "cancel.requested", agent, call("hold"), clock=clock)
    assert [row.type for row in store.read(SessionId("s"))][-1] == "cancel.requested"
    async with staged(store=store, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.resume(check=False)
        assert (turn.status, turn.error.details, turn.error.message) == ("failed", LATE, WORDS)
        assert [c.outcome.status for c in turn.tool_calls] == ["interrupted"]
        judge(session.log)
        found = await replayed(session)
        assert found.is_exact, found


async def test_a_resumed_turn_has_its_time_anew() -> None:
    """However much the dead process had used."""
    store, clock = MemoryStore(), FakeClock()
    agent = limited(taking(clock, "look", 6, effect="read_only"))
    await crashed(store, "tool.started", agent, call("look"), clock=clock)
    clock.advance(60)
    async with playing(clock, stall(3) + say("Done."), store=store) as runtime:
        session = await runtime.session("s", agent)
        assert (await session.resume()).text == "Done."
        judge(session.log)


async def test_nobody_outside_can_say_that_a_limit_stopped_a_turn() -> None:
    """A cancel that comes through the inbox is a cancel."""
    clock = FakeClock()
    failure = {"category": "limit", "message": "999 s used"}
    async with playing(clock, call("hold"), say("x")) as runtime:
        entered = anyio.Event()

        async def hold(arguments: Any, context: Any) -> None:
            entered.set()
            await anyio.sleep_forever()

        session = await runtime.session("s", limited(tool_of("hold", hold)))
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await entered.wait()
                runtime.send("s", "cancel", {"cause": "enough", "failure": failure}, key="k")
                clock.advance(1)

            group.start_soon(stop)
            turn = await session.run("Go.", check=False)
        assert turn.status == "cancelled"
        assert data_of(session, "cancel.requested")[0].failure is None


async def test_a_turn_that_ran_out_of_time_is_erased_like_any_other() -> None:
    """What is left says that a limit ended it, in no words."""
    clock, store = FakeClock(), MemoryStore()
    async with playing(clock, *stalled(clock)[0], store=store) as runtime:
        session = await runtime.session("s", limited())
        await session.run("Go.", check=False)
        seqs = [event.seq for event in session.log.read(types=["cancel.requested", "turn.failed"])]
        await runtime.erase("s", seqs, reason="asked for")
        left = [event.data.failure for event in session.log.read(types=["cancel.requested", "turn.failed"])]
        assert [(failure.category, failure.message) for failure in left] == [("limit", "[erased]")] * 2
        assert session.turn.status == "failed"
