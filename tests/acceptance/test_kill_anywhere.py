"""A process may end between any two commits: the next one finishes the turn, and no harm is done twice.

The store copies its file after every commit. Each copy is what a killed process leaves behind; it is opened in a new
runtime, resumed, and compared with the run that nobody interrupted.
"""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from anyio.lowlevel import checkpoint
from stage import Adapter, agent_of, data_of, judge, plugin, results_of, staged, text_of_result, tool_of

from spine.clock import SystemClock
from spine.errors import SpineError
from spine.llm.errors import ProviderError
from spine.llm.retry import RetryPolicy
from spine.stores.sqlite import SqliteStore
from spine.testing.script import Entry, call, fail, say, think
from spine.testing.scripted import ScriptedAdapter, prepare

pytestmark = pytest.mark.anyio


class Later(SystemClock):
    """The clock of a process that starts when the dead one's lease is over."""

    def __init__(self, minutes: int) -> None:
        self._ahead = minutes * 60_000_000

    def now(self) -> int:
        """Microseconds since 1970 UTC."""
        return super().now() + self._ahead


@attrs.define
class Copy:
    """What a killed process leaves: the file, and which tools had run by then (at the latest)."""

    path: Path
    ran: list[str]


class CopyingStore:
    """A SQLite store that copies its file after each commit."""

    def __init__(self, path: Path, ran: list[str]) -> None:
        self._store = SqliteStore(str(path))
        self._path, self._ran = path, ran
        self.copies: list[Copy] = []

    def append(self, batches: Any) -> Any:
        if self.copies:
            self.copies[-1].ran = list(self._ran)  # until just before the next commit, anything may have run
        verdicts = self._store.append(batches)
        folder = self._path.parent / f"{self._path.stem}-{len(self.copies)}"
        folder.mkdir()
        for suffix in ("", "-wal"):
            source = self._path.with_name(self._path.name + suffix)
            if source.exists():
                shutil.copy(source, folder / ("s.db" + suffix))
        self.copies.append(Copy(folder / "s.db", list(self._ran)))
        return verdicts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class World:
    """A scenario: its model's answers by step, its tools, and what ran."""

    def __init__(self, script: dict[str, list[Entry]], **tools: dict[str, Any]) -> None:
        self.script, self.kinds = script, tools
        self.ran: list[str] = []

    def adapter(self, *, is_next: bool = False) -> Adapter:
        """The model; to the next process it answers at once (an open step always gets one more attempt, no more)."""
        attempts: dict[str, Iterator[Entry]] = {
            step: iter(entries[-1:] if is_next else entries) for step, entries in self.script.items()
        }

        async def play(request: Any) -> AsyncIterator[Any]:
            for item in prepare(next(attempts[request.step])).items:
                await checkpoint()
                if hasattr(item, "failure"):
                    raise ProviderError(item.failure)
                yield item

        return Adapter(play)

    def agent(self) -> Any:
        def tool(name: str) -> Any:
            async def handler(arguments: Any, context: Any) -> str:
                self.ran.append(name)
                await checkpoint()
                await checkpoint()
                return f"{name} done"

            return tool_of(name, handler, **self.kinds[name])

        return agent_of(*map(tool, self.kinds))


async def post_execute(outcome: Any, call_next: Any) -> Any:
    await checkpoint()
    return await call_next(outcome)


PLUGIN = plugin("slow", post_execute=post_execute)
RETRY = RetryPolicy(base_s=0)


def parallel() -> Entry:
    return call("a") + call("b") + call("c")


WORLDS: dict[str, Callable[[], World]] = {
    "text": lambda: World({"t1s1": [think("Hm.") + say("Done.")]}),
    "one tool": lambda: World({"t1s1": [say("So.") + call("a")], "t1s2": [say("Done.")]}, a={}),
    "an idempotent tool": lambda: World(
        {"t1s1": [call("a")], "t1s2": [say("Done.")]}, a={"effect": "idempotent"}
    ),
    "a reconcilable tool": lambda: World(
        {"t1s1": [call("a")], "t1s2": [say("Done.")]},
        a={"effect": "reconcilable", "reconcile": lambda arguments, context: "a done"},
    ),
    "three parallel tools": lambda: World(
        {"t1s1": [parallel()], "t1s2": [say("Done.")]},
        a={"parallel": True}, b={"parallel": True, "effect": "read_only"}, c={"parallel": True},
    ),
    "an approval": lambda: World(
        {"t1s1": [call("a") + call("b")], "t1s2": [say("Done.")]}, a={"approval": "ask"}, b={"effect": "idempotent"}
    ),
    "a retry": lambda: World({"t1s1": [fail("overloaded", retry_after_s=0), say("Done.")]}),
    "a retry after a tool": lambda: World(
        {"t1s1": [call("a")], "t1s2": [fail("overloaded", retry_after_s=0), say("Done.")]}, a={}
    ),
}  # fmt: skip


async def finish(session: Any, *, fresh: bool) -> Any:
    """Run or resume to the end, with every approval given."""
    turn = await session.run("Go.") if fresh else await session.resume()
    if turn is None and not session.log.head[0]:
        turn = await session.run("Go.")
    turn = turn or session.turn
    while turn.status == "suspended":
        turn = await session.approve(turn.approvals[0].id, by="me")
    return turn


async def uninterrupted(world: World, folder: Path) -> tuple[list[Copy], Any]:
    store = CopyingStore(folder / "first.db", world.ran)
    async with staged(model=world.adapter(), store=store, plugins=[PLUGIN], retry=RETRY) as runtime:
        session = await runtime.session("s", world.agent())
        turn = await finish(session, fresh=True)
        assert turn.status == "completed"
        return store.copies, tuple(session.history())


async def resumed(world: World, copy: Copy, minutes: int, *, store: Any = None) -> tuple[Any, Any]:
    """Resume from a copy in a new runtime; the session's history and its judged events."""
    options = {"store": store or f"sqlite:{copy.path}", "plugins": [PLUGIN], "retry": RETRY, "clock": Later(minutes)}
    async with staged(model=world.adapter(is_next=True), **options) as runtime:
        session = await runtime.session("s", world.agent())
        turn = await finish(session, fresh=False)
        assert (turn.status, turn.text) == ("completed", "Done.")
        events = judge(session.log)
        assert await session.resume() is None, "resuming twice changes nothing"
        assert session.log.head[0] == events[-1].seq
        return tuple(session.history()), events


def harms(world: World, ran: list[str]) -> list[str]:
    """Tools that ran twice and must not have."""
    once = [
        name
        for name, kind in world.kinds.items()
        if kind.get("effect", "irreversible") in ("irreversible", "reconcilable")
    ]
    return [name for name in once if ran.count(name) > 1]


def assert_same_but_for_interruptions(found: Any, expected: Any, events: Any) -> None:
    """The same messages; results of calls that recovery interrupted say so, and nothing else differs."""
    assert [(m.role, m.text, len(m.content)) for m in found] == [(m.role, m.text, len(m.content)) for m in expected]
    resolved = {e.data.call: e.data.decision for e in events if e.type == "tool.resolved"}
    there = results_of(expected)
    for call_id, block in results_of(found).items():
        if resolved.get(call_id) == "interrupted":
            assert text_of_result(block).startswith("interrupted: The process ended")
        else:
            assert block == there[call_id]


@pytest.mark.parametrize("name", WORLDS)
async def test_a_turn_killed_after_any_commit_is_finished_by_the_next_process(name: str, tmp_path: Path) -> None:
    """From every copy the turn completes; irreversible tools run at most once; what is projected is the same."""
    world = WORLDS[name]()
    copies, expected = await uninterrupted(world, tmp_path)
    assert len(copies) >= 2
    decisions = set()
    for number, copy in enumerate(copies, 1):
        world.ran = list(copy.ran)
        found, events = await resumed(world, copy, number)
        assert harms(world, world.ran) == [], f"killed after commit {number}"
        assert_same_but_for_interruptions(found, expected, events)
        decisions |= {e.data.decision for e in events if e.type == "tool.resolved"}
        assert sum(e.type == "session.resumed" for e in events) == (1 if number < len(copies) else 0)
    if "tool" in name and "retry" not in name:
        assert decisions


async def test_a_process_killed_while_it_recovers_is_recovered_again(tmp_path: Path) -> None:
    """Killed after any commit, and again after any commit of the recovery: the third process finishes the turn."""
    world = WORLDS["three parallel tools"]()
    copies, expected = await uninterrupted(world, tmp_path)
    pairs = 0
    for number, copy in enumerate(copies, 1):
        world.ran = list(copy.ran)
        second = tmp_path / f"second-{number}"
        second.mkdir()
        for part in copy.path.parent.iterdir():
            shutil.copy(part, second / part.name)
        store = CopyingStore(second / "s.db", world.ran)
        await resumed(world, copy, number * 100, store=store)
        for again, nested in enumerate(store.copies, 1):
            world.ran = list(nested.ran)
            found, events = await resumed(world, nested, number * 100 + again)
            assert harms(world, world.ran) == []
            assert_same_but_for_interruptions(found, expected, events)
            pairs += 1
    assert pairs >= 10


# ------------------------------------------------------------------------------------------ what recovery decides


class Crash(SpineError):
    """The process is gone."""


class CrashingStore:
    """A store that takes nothing any more once a given event is durable."""

    def __init__(self, store: Any, fatal: str) -> None:
        self._store, self._fatal, self.is_dead = store, fatal, False

    def append(self, batches: Any) -> Any:
        if self.is_dead:
            raise Crash("dead")
        verdicts = self._store.append(batches)
        self.is_dead = any(row.type == self._fatal for batch in batches for row in batch.rows)
        if self.is_dead:
            raise Crash("dead")
        return verdicts

    def release(self, *arguments: Any) -> None:
        """The dead give nothing back."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def crashed(store: Any, fatal: str, agent: Any, *script: Any, **options: Any) -> None:
    """Run a turn whose process dies when an event of the type `fatal` is durable."""
    model = ScriptedAdapter(*script, live=True)
    async with staged(model=model, store=CrashingStore(store, fatal), **options) as runtime:
        session = await runtime.session("s", agent)
        with pytest.raises(Crash):
            await session.run("Go.")


@pytest.fixture
def memory() -> Any:
    from spine.stores.memory import MemoryStore

    return MemoryStore()


EFFECTS = {
    "read_only": ("rerun", 1),
    "idempotent": ("rerun", 1),
    "irreversible": ("interrupted", 0),
}


@pytest.mark.parametrize(("effect", "decision"), EFFECTS.items())
async def test_a_started_call_is_resolved_by_its_effect(effect: Any, decision: tuple[str, int], memory: Any) -> None:
    """Read-only and idempotent calls run again with the same key; others are told as interrupted."""
    keys: list[str] = []

    async def handler(arguments: Any, context: Any) -> str:
        keys.append(context.idempotency_key)
        return "done"

    agent = agent_of(tool_of("a", handler, effect=effect))
    await crashed(memory, "tool.started", agent, call("a", n=1))
    assert keys == []
    async with staged(say("Done."), store=memory, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.resume()
        resolved = data_of(session, "tool.resolved")
        assert [(r.call, r.decision) for r in resolved] == [("t1s1c1", decision[0])]
        assert keys == ["s/t1s1c1"] * decision[1]
        assert turn.tool_calls[0].outcome.status == ("ok" if decision[1] else "interrupted")
        judge(session.log)


async def test_a_reconcilable_call_is_decided_by_its_tools_own_check(memory: Any) -> None:
    """The check's answer becomes the result; a check that fails leaves the truth: interrupted."""

    def unsure(arguments: Any, context: Any) -> Any:
        raise LookupError("cannot tell")

    for check, status in ((lambda a, c: "it went through", "ok"), (unsure, "interrupted")):
        store = type(memory)()
        agent = agent_of(tool_of("a", lambda a, c: "done", effect="reconcilable", reconcile=check))
        await crashed(store, "tool.started", agent, call("a"))
        async with staged(say("Done."), store=store, clock=Later(5)) as runtime:
            session = await runtime.session("s", agent)
            turn = await session.resume()
            assert turn.tool_calls[0].outcome.status == status
            judge(session.log)


async def test_a_started_call_whose_tool_is_gone_is_told_as_interrupted(memory: Any) -> None:
    """Not "unknown tool": it may have had its effects."""
    await crashed(memory, "tool.started", agent_of(tool_of("a", lambda a, c: "x")), call("a"))
    async with staged(say("Done."), store=memory, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent_of())
        turn = await session.resume()
        assert turn.tool_calls[0].outcome.status == "interrupted"
        assert "process ended" in text_of_result(results_of(session.history())["t1s1c1"])
        judge(session.log)


async def test_a_request_without_answer_gets_one_more_attempt(memory: Any) -> None:
    """Chunks that were kept become a message interrupted by the crash; the next attempt is numbered on."""
    agent = agent_of()
    pieces = [f"{n} " for n in range(70)]
    await crashed(memory, "model.chunks", agent, say(chunks=pieces))
    async with staged(say("Done."), store=memory, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.resume()
        assert (turn.text, turn.retries) == ("Done.", 1)
        kept = data_of(session, "message.interrupted")
        assert [(m.cause, m.message.text) for m in kept] == [("crashed", "".join(pieces[:64]))]
        assert [d.attempt for d in data_of(session, "model.attempt_started")] == [2]
        assert [m.text for m in session.history()] == ["Go.", "Done."]
        judge(session.log)


async def test_texts_of_two_crashed_attempts_are_not_glued(memory: Any) -> None:
    """Two crashes in one request leave two interrupted messages, each with its own attempt's text."""
    agent = agent_of()
    await crashed(memory, "model.chunks", agent, say(chunks=["a"] * 70))

    model = ScriptedAdapter(say(chunks=["b"] * 70), live=True)
    async with staged(model=model, store=CrashingStore(memory, "model.chunks"), clock=Later(5)) as runtime:
        with pytest.raises(Crash):
            await (await runtime.session("s", agent)).resume()
    async with staged(say("Done."), store=memory, clock=Later(10)) as runtime:
        session = await runtime.session("s", agent)
        assert (await session.resume()).text == "Done."
        assert [m.message.text for m in data_of(session, "message.interrupted")] == ["a" * 64, "b" * 64]


async def test_a_crash_between_a_result_and_its_revision_asks_post_execute_again(memory: Any) -> None:
    """A completed call that no request has shown passes the waterfall once more; one that was shown does not."""
    asked: list[str] = []

    async def redact(call: Any, outcome: Any, call_next: Any) -> Any:
        asked.append(call.id)
        await anyio.sleep(0.02)  # long enough for the result to be flushed without its revision
        return await call_next(outcome.evolve(content=()))

    async def tool(arguments: Any, context: Any) -> str:
        return "secret"

    agent = agent_of(tool_of("a", tool))
    async with staged(
        call("a"), store=CrashingStore(memory, "tool.completed"), plugins=[plugin("redact", post_execute=redact)]
    ) as runtime:
        session = await runtime.session("s", agent)
        with pytest.raises(Crash):
            await session.run("Go.")
    asked.clear()
    script = (call("a"), say("Done."))
    async with staged(
        *script, store=memory, clock=Later(5), plugins=[plugin("redact", post_execute=redact)]
    ) as runtime:
        session = await runtime.session("s", agent)
        await session.resume()
        assert asked == ["t1s1c1", "t1s2c1"]
        assert "secret" not in str(tuple(session.history()))
        judge(session.log)


async def test_an_input_nobody_took_before_the_crash_is_run_by_resume(memory: Any) -> None:
    """An acknowledged input is never lost: `resume` takes it when no turn is open."""
    agent = agent_of()
    async with staged(store=CrashingStore(memory, "input.accepted")) as runtime:
        session = await runtime.session("s", agent)
        with pytest.raises(Crash):
            await session.submit("Go.")
    async with staged(say("Done."), store=memory, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.resume()
        assert (turn.status, turn.text) == ("completed", "Done.")
        judge(session.log)


async def test_a_cancel_that_the_crash_cut_short_is_carried_out(memory: Any) -> None:
    """After `cancel.requested` the next process closes the turn as cancelled and asks nobody."""

    async def cancels(arguments: Any, context: Any) -> str:
        await session.cancel("enough")
        return "x"

    agent = agent_of(tool_of("a", cancels))
    async with staged(call("a"), store=CrashingStore(memory, "cancel.requested")) as runtime:
        session = await runtime.session("s", agent)
        with pytest.raises(Crash):
            await session.run("Go.")
    async with staged(store=memory, clock=Later(5)) as runtime:
        again = await runtime.session("s", agent)
        turn = await again.resume()
        assert turn.status == "cancelled"
        assert [e.type for e in judge(again.log)][-2:] == ["tool.completed", "turn.cancelled"]
