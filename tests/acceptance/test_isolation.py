"""Promises about neighbours: ids, sessions, plugins, observers and clocks do not get in each other's way."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from stage import (
    ALONE,
    Adapter,
    agent_of,
    data_of,
    events_of,
    judge,
    plugin,
    results_of,
    staged,
    text_of_result,
    tool_of,
)

from spine import Runtime, Section
from spine.clock import SystemClock
from spine.errors import PluginFailed, SessionExists, SessionOwned, SessionUnknown, StoreUnavailable, UsageError
from spine.llm import chunks as c
from spine.llm.assemble import assemble
from spine.llm.response import ModelResponse
from spine.stores.memory import MemoryStore
from spine.testing.script import call, fail, say, stall
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


def answer(*chunks: Any) -> Any:
    yield from chunks
    yield ModelResponse(message=assemble(chunks), stop_reason="tool_use")


def playing(*answers: Any) -> Adapter:
    remaining = iter(answers)

    async def play(request: Any) -> Any:
        for item in next(remaining):
            yield item

    return Adapter(play)


# ---------------------------------------------------------------------------------------------- vendors' call ids

VENDOR_IDS: dict[str, list[str | None]] = {
    "the same twice": ["call_0", "call_0", "call_0"],
    "missing": [None, None, None],
    "empty": ["", "", ""],
    "of any text": ["a b\n", "é" * 200, "../x"],
}


@pytest.mark.parametrize("ids", VENDOR_IDS.values(), ids=VENDOR_IDS)
async def test_results_match_their_calls_whatever_ids_the_vendor_sent(ids: list[str | None]) -> None:
    """Ours are unique in the session; the vendor's stands beside; count and order of results are those of the calls."""

    def calls() -> list[Any]:
        chunks: list[Any] = []
        for index, vendor_id in enumerate(ids):
            chunks += [c.ToolCallStarted(index, "look", vendor_id), c.ToolCallDelta(index, f'{{"n": {index}}}')]
        return chunks

    model = playing(answer(*calls()), answer(*calls()), answer(c.TextDelta(0, "ok")))
    async with staged(model=model) as runtime:
        tool = tool_of("look", lambda arguments, context: f"{context.call}: {arguments['n']}")
        session = await runtime.session("s", agent_of(tool))
        turn = await session.run("Go.")
        minted = [call.id for call in turn.tool_calls]
        assert minted == [f"t1s{step}c{n}" for step in (1, 2) for n in (1, 2, 3)]
        assert [block.vendor_id for block in session.history()[1].tool_calls] == ids
        shown = {id: text_of_result(block) for id, block in results_of(session.history()).items()}
        assert shown == {id: f"{id}: {(int(id[-1]) - 1)}" for id in minted}
        judge(session.log)


# ------------------------------------------------------------------------------------------------- many sessions


async def test_one_failing_hanging_or_huge_session_leaves_the_others_alone() -> None:
    """A hundred sessions at once: some break, one hangs; all others complete, without cross-talk."""

    async def play(request: Any) -> Any:
        text = request.messages[-1].text
        await checkpoint()
        match text.split():
            case ["fail", *_]:
                raise ZeroDivisionError("broken adapter")
            case ["hang", *_]:
                await anyio.sleep_forever()
        yield c.TextDelta(0, f"echo {text}")
        yield ModelResponse(message=assemble([c.TextDelta(0, f"echo {text}")]), stop_reason="end_turn")

    async with staged(model=Adapter(play)) as runtime:
        results: dict[str, str] = {}

        async def one(number: int) -> None:
            word = "fail" if number % 10 == 3 else "hang" if number == 50 else "say"
            session = await runtime.session(f"s{number}", agent_of())
            if word == "hang":
                await session.submit(f"hang {number}")
                return
            turn = await session.run(f"{word} {number}", check=False)
            results[session.id] = turn.text if turn.status == "completed" else turn.status
            judge(session.log)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                for number in range(100):
                    group.start_soon(one, number)
        assert sorted(results.values()).count("failed") == 10
        good = {id: text for id, text in results.items() if text != "failed"}
        assert good == {id: f"echo say {id[1:]}" for id in good}
        assert len(good) == 89
        hanging = await runtime.session("s50", agent_of())
        assert hanging.turn.status == "open"
    assert hanging.turn.status == "cancelled"


async def test_a_failure_in_the_background_ends_neither_the_runtime_nor_other_sessions() -> None:
    """Turns of submitted inputs fail in their own log; the next input is taken, and others never notice."""

    async def breaks(response: Any) -> None:
        raise ValueError("observer")

    script = (fail("auth"), say("two"), say("other"))
    async with staged(*script, plugins=[plugin("p", post_step=breaks)]) as runtime:
        session = await runtime.session("s", agent_of())
        await session.submit("one")
        await session.submit("two")
        with anyio.fail_after(3):
            while session.log.status.turns < 2 or session.log.status.turn is not None:
                await anyio.sleep(0.005)
        assert [e.type for e in events_of(session, "turn.failed", "turn.completed")] == [
            "turn.failed",
            "turn.completed",
        ]
        assert (await (await runtime.session("other", agent_of())).run("Go.")).text == "other"


async def test_a_session_whose_store_failed_in_the_middle_of_a_stream_does_not_end_the_runtime() -> None:
    """The watchdog finds its log closed; the others go on, and the turn learns it at its next event."""

    class Failing(MemoryStore):
        broken = ""

        def append(self, batches: Any) -> Any:
            if any(batch.session == self.broken for batch in batches):
                raise StoreUnavailable("the disk is full")
            return super().append(batches)

    store, release = Failing(), anyio.Event()

    async def play(request: Any) -> Any:
        chunk = c.TextDelta(0, "ok")
        yield chunk
        if request.messages[-1].text == "stall":
            store.broken = "stuck"
            await anyio.sleep(0.15)
            yield c.TextDelta(0, " and more")
            await release.wait()
        yield ModelResponse(message=assemble([chunk]), stop_reason="end_turn")

    failed: list[Exception] = []

    async def run_stuck(session: Any) -> None:
        try:
            await session.run("stall")
        except StoreUnavailable as error:
            failed.append(error)

    async with staged(model=Adapter(play), store=store) as runtime, anyio.create_task_group() as group:
        stuck = await runtime.session("stuck", agent_of())
        group.start_soon(run_stuck, stuck)
        await anyio.sleep(0.35)
        assert stuck.log.is_closed
        other = await runtime.session("other", agent_of())
        assert (await other.run("Go.")).text == "ok"
        release.set()
    assert len(failed) == 1


async def test_fifty_sessions_share_one_file_and_its_commits(tmp_path: Path) -> None:
    """Concurrent turns on one SQLite file all become durable, none waits for its time to be over."""
    async with staged(*[say("ok")] * 50, store=f"sqlite:{tmp_path / 's.db'}") as runtime:
        sessions = [await runtime.session(f"s{n}", agent_of()) for n in range(50)]
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for session in sessions:
                    group.start_soon(session.run, "Go.")
        for session in sessions:
            assert judge(session.log)[-1].type == "turn.completed"


# ---------------------------------------------------------------------------------------------------- ownership


async def test_a_session_has_one_owner_at_a_time() -> None:
    """Another runtime is refused while the first one lives, may read and follow, and takes over when it is gone."""
    store = MemoryStore()
    async with staged(say("one"), store=store) as first, staged(say("two"), store=store) as second:
        session = await first.session("s", agent_of())
        await session.run("Go.")
        with pytest.raises(SessionOwned):
            await second.session("s", agent_of())
        assert [e.type for e in second.reader("s").read()][-1] == "turn.completed"
    async with staged(say("three"), store=store) as third:
        session = await third.session("s", agent_of())
        assert (await session.run("Again.")).text == "three"
        judge(session.log)


async def test_the_strict_forms_of_opening_a_session() -> None:
    """`create_session` refuses one that is there, `open_session` one that is not; asking again gives the same."""
    async with staged(say("ok")) as runtime:
        with pytest.raises(SessionUnknown):
            await runtime.open_session("s", agent_of())
        session = await runtime.create_session("s", agent_of())
        assert runtime.sessions() == [], "opening writes nothing"
        await session.run("Go.")
        with pytest.raises(SessionExists):
            await runtime.create_session("s", agent_of())
        assert await runtime.open_session("s", agent_of()) is session
        assert [info.id for info in runtime.sessions()] == ["s"]


async def test_a_changed_contract_is_recorded_or_refused() -> None:
    """Another agent in the same session is said in `session.resumed`, once; `on_change="refuse"` does not open."""
    store = MemoryStore()
    async with staged(say("one"), store=store) as runtime:
        await (await runtime.session("s", agent_of(instructions="Be brief."))).run("Go.")
    async with staged(say("two"), say("three"), store=store) as runtime:
        changed = agent_of(instructions="Be long.")
        with pytest.raises(UsageError, match="is not the one"):
            await runtime.session("s", changed, on_change="refuse")
        session = await runtime.session("s", changed)
        await session.run("Go.")
        await session.run("Go.")
        assert [d.changes for d in data_of(session, "session.resumed")] == [("contract",)]
        judge(session.log)


async def test_nothing_can_be_done_with_a_session_of_a_closed_runtime() -> None:
    """After its runtime is left, every act is refused with a sentence, and the log stays as it was."""
    store = MemoryStore()
    async with staged(say("ok"), store=store) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.")
    head = store.head(session.id)
    for act in (lambda: session.run("x"), lambda: session.submit("x"), lambda: session.rename("x")):
        with pytest.raises(UsageError):
            await act()
    assert store.head(session.id) == head
    assert store.owner(session.id) is None


async def test_leaving_the_runtime_cancels_what_runs() -> None:
    """A running turn is cancelled with its closing facts, and nothing is left running."""
    store = MemoryStore()
    async with staged(say("Half") + stall(), store=store) as runtime:
        session = await runtime.session("s", agent_of())
        await session.submit("Go.")
        with anyio.fail_after(2):
            while session.log.status.turn is None:
                await checkpoint()
        await anyio.sleep(0.01)
    kinds = [row.type for row in store.read(session.id)]
    assert kinds[-1] == "turn.cancelled"
    assert "message.interrupted" in kinds


async def test_the_callers_own_error_leaves_the_runtime_as_it_is() -> None:
    """An exception in the block is not wrapped in a group."""
    with pytest.raises(ZeroDivisionError):
        async with staged():
            raise ZeroDivisionError


# ----------------------------------------------------------------------------------------------------- the clock


class Jumping(SystemClock):
    """A wall clock that jumps years back and forth at each reading."""

    def __init__(self) -> None:
        self.readings = 0

    def now(self) -> int:
        """Microseconds since 1970 UTC."""
        self.readings += 1
        return (
            1_800_000_000_000_000
            + (-1) ** self.readings * self.readings * 300_000_000_000_000 % 250_000_000_000_000_000
        )


async def test_a_wall_clock_that_jumps_changes_no_order_and_no_duration() -> None:
    """Order is by seq; durations are never negative; leases and retries go on."""
    async with staged(fail("overloaded", retry_after_s=0), call("look"), say("ok"), clock=Jumping()) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: "x")))
        turn = await session.run("Go.")
        assert (turn.status, turn.retries) == ("completed", 1)
        assert turn.duration_s >= 0
        assert all(d.duration_s is None or d.duration_s >= 0 for d in data_of(session, "tool.completed"))
        judge(session.log)


# ------------------------------------------------------------------------------------------------------- plugins


async def test_the_same_plugins_give_the_same_prompt_bytes() -> None:
    """Whatever order plugins are found in: sections by (order, name), tools by name; two runs send equal requests."""

    def contributor(name: str, order: int) -> Any:
        return plugin(
            name,
            spine_register_prompts=lambda registrar: registrar.add(Section(name, order=order, render=f"I am {name}.")),
            spine_register_tools=lambda registrar: registrar.add(tool_of(f"{name}.tool", lambda a, c: "x")),
        )

    plugins = [contributor(name, order) for name, order in (("b", 5), ("a", 5), ("c", 1))]
    frames = []
    for chosen in (plugins, plugins[::-1]):
        async with staged(say("ok"), plugins=chosen) as runtime:
            session = await runtime.session("s", agent_of("*"))
            await session.run("Go.")
            frames.append(data_of(session, "model.requested")[0].digest)
            request = session.log.request(events_of(session, "model.requested")[0].seq)
            assert [b.name for b in request.system] == ["c", "a", "b"]
            assert [t.name for t in request.tools] == ["a.tool", "b.tool", "c.tool"]
    assert frames[0] == frames[1]


HOOKS = ("pre_step", "post_step", "pre_execute", "post_execute")


class Fault(Exception):
    """A plugin's own error."""


def zoo(kind: str, session: list[Any], runtime: list[Any]) -> Any:
    """A hook that misbehaves in one way."""

    async def behave(value: Any, call_next: Any) -> Any:
        match kind:
            case "raises":
                raise Fault("x")
            case "raises a group":
                raise ExceptionGroup("x", [Fault("y")])
            case "exits by generator":
                raise GeneratorExit
            case "re-enters":
                await session[0].run("again")
            case "unregisters itself":
                runtime[0].unload_plugin("zoo")
            case "spawns a task":
                runtime[0].spawn(checkpoint)
            case "appends":
                session[0].log.append(value)
            case "blocks":
                threading.Event().wait(0.02)
        return None if call_next is None else await call_next(value)

    return behave


def zoo_plugin(hook: str, behave: Any) -> Any:
    async def pre_step(request: Any, call_next: Any) -> Any:
        return await behave(request, call_next)

    async def post_step(response: Any) -> Any:
        return await behave(response, None)

    async def pre_execute(call: Any, call_next: Any) -> Any:
        return await behave(call, call_next)

    async def post_execute(outcome: Any, call_next: Any) -> Any:
        return await behave(outcome, call_next)

    return plugin("zoo", **{hook: locals()[hook]})


FAULTS = ("raises", "raises a group", "re-enters", "unregisters itself", "spawns a task", "appends", "blocks")
HARMLESS = ("unregisters itself", "spawns a task", "blocks")


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("kind", FAULTS)
async def test_a_misbehaving_hook_is_contained_and_named(hook: str, kind: str) -> None:
    """At each hook: a waterfall that misbehaves fails its step, an observer is recorded; the session goes on."""
    sessions: list[Any] = []
    runtimes: list[Any] = []
    module = zoo_plugin(hook, zoo(kind, sessions, runtimes))
    async with staged(call("look"), say("ok"), say("ok"), say("ok"), plugins=[module]) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: "x")))
        sessions.append(session)
        runtimes.append(runtime)
        with anyio.fail_after(3):
            turn = await session.run("Go.", check=False)
        judge(session.log)
        if kind in HARMLESS:
            assert turn.status == "completed"
            return
        if hook == "post_step":
            assert turn.status == "completed"
            assert {(d.plugin, d.hook) for d in data_of(session, "hook.failed")} == {("zoo@1", "spine_post_step")}
        else:
            assert turn.status == "failed"
            assert "zoo@1" in turn.error.message
            assert f"spine_{hook}" in turn.error.message
        runtime.unload_plugin("zoo")
        assert (await session.run("Go on.")).status == "completed"
        judge(session.log)


async def test_a_lagging_observer_sees_committed_events_and_cannot_harm_the_turn() -> None:
    """`spine_event_recorded` gets each committed event in order, some time later; its failures touch no log."""
    seen: list[int] = []

    async def recorded(event: Any) -> None:
        seen.append(event.seq)
        await checkpoint()
        raise ValueError("never mind")

    async with staged(say("ok"), plugins=[plugin("spy", event_recorded=recorded)]) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.")
        head = session.log.head[0]
        with anyio.fail_after(2):
            while len(seen) < head:
                await anyio.sleep(0.005)
        assert seen == list(range(1, head + 1))
        assert data_of(session, "hook.failed") == []


async def test_a_broken_session_opened_hook_is_named_and_the_session_stays_free() -> None:
    """A plugin that fails when a session opens is blamed; the session is not left owned."""

    def opened(registrar: Any) -> None:
        raise RuntimeError("no")

    async with staged(plugins=[plugin("p", spine_session_opened=opened)]) as runtime:
        with pytest.raises(PluginFailed, match="p@1 failed in spine_session_opened"):
            await runtime.session("s", agent_of())
        assert runtime.store.owner("s") is None
        runtime.unload_plugin("p")
        await runtime.session("s", agent_of())


async def test_a_runtime_that_was_not_entered_runs_nothing() -> None:
    """Forgetting `async with` is said in a sentence, before anything is written."""
    store = MemoryStore()
    runtime = Runtime.open(store, model=ScriptedAdapter(say("ok")), settings=ALONE)
    session = await runtime.session("s", agent_of())
    with pytest.raises(UsageError, match="async with"):
        await session.run("Go.")
    assert store.head(session.id) is None


async def test_asyncios_own_timeout_ends_a_turn_in_order(anyio_backend_name: str, tmp_path: Path) -> None:
    """`asyncio.timeout` around `run`: the closing facts are written, and the session goes on."""
    if anyio_backend_name != "asyncio":
        pytest.skip("asyncio.timeout belongs to asyncio")
    async with staged(say("Half") + stall(), say("ok"), store=f"sqlite:{tmp_path / 's.db'}") as runtime:
        session = await runtime.session("s", agent_of())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await session.run("Go.")
        assert session.turn.status == "cancelled"
        assert (await session.run("Go on.")).text == "ok"
        judge(session.log)
