"""A session may be forked at every event: the fork is whole, sound, and goes on; the parent is left as it was."""

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stage import ALONE, MODEL, agent_of, data_of, judge, kinds_of, plugin, rows_of, staged, text_of_result, tool_of

from spine import Runtime, TurnFailed
from spine.codec import Codec, row_hash
from spine.errors import SessionBusy, SessionExists, SessionUnknown, UsageError
from spine.hooks import Ask
from spine.proof.verify import verify
from spine.store import Append, Owner
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.testing.script import Entry, call, fail, say, stop, think
from spine.testing.scripted import ScriptedAdapter
from spine.values import SessionId, decode, encode

pytestmark = pytest.mark.anyio
OWNER = Owner("o", "h", 1, 1)

STEPS: dict[str, Entry] = {
    "text": say("So."),
    "thought": think("Hm.") + say("Well."),
    "one call": call("look"),
    "three calls": say("Look.") + call("look", n=1) + call("look", n=2) + call("wait", n=3),
    "unknown": call("nope") + call("look"),
    "cut": say("Half") + fail("connection"),
    "pause": say("So far") + stop("pause"),
    "dropped": call("look") + stop("max_tokens"),
    "money": call("pay") + call("look"),
}


def tools() -> list[Any]:
    return [
        tool_of("look", lambda a, c: "seen", parallel=True, effect="read_only"),
        tool_of("wait", lambda a, c: c.progress("half") or "waited"),
        tool_of("pay", lambda a, c: "paid", approval="ask"),
    ]


async def make_log(store: Any, turns: list[tuple[list[str], str]]) -> None:
    """A session of some turns; `ending` says what becomes of a turn that waits for a person."""
    entries = [STEPS[name] for steps, _ in turns for name in steps]
    model = ScriptedAdapter(*entries, *(say("End.") for _ in range(20)))
    async with Runtime.open(store, model=model, settings=ALONE, retry=None) as runtime:
        session = await runtime.session("s", agent_of(*tools()))
        for _, ending in turns:
            try:
                turn = await session.run("Go.", check=False)
            except SessionBusy:  # the queued input's own turn waits for a person
                return
            while turn.status == "suspended" and ending != "waits":
                if ending == "cancel":
                    await session.cancel("enough")
                    break
                decide = session.approve if ending == "approve" else session.deny
                try:
                    turn = await decide(turn.approvals[0].id, by="me")
                except TurnFailed as failed:
                    turn = failed.turn
            if session.turn.status == "suspended":
                return
            if ending == "queue":
                await session.submit("Later.", delivery="queue")


async def fork_everywhere(store: Any) -> None:
    """Fork at each seq, and go on with each fork."""
    model = ScriptedAdapter(*(say("On.") for _ in range(2_000)))
    before = rows_of(store, "s")
    async with Runtime.open(store, model=model, settings=ALONE) as runtime:
        for seq in range(1, len(before) + 1):
            made = await runtime.fork("s", f"f{seq}", seq=seq)
            child = await runtime.session(f"f{seq}", agent_of(*tools()))
            assert (made.shared, child.log.head[0]) == (seq, made.seq)
            assert rows_of(store, f"f{seq}")[:seq] == before[:seq]
            judge(child.log)
            turn = await child.run("And now?")
            assert turn.text == "On."
            judge(child.log)
            found = verify(StoredLog(store, Codec(), SessionId(f"f{seq}")))
            assert (found.verdict, found.problems) == ("ok", ())
            await child.close()
    assert rows_of(store, "s") == before


TURNS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
        st.sampled_from(["approve", "deny", "cancel", "waits", "queue"]),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=20, deadline=None)
@given(turns=TURNS)
def test_a_fork_at_every_seq_goes_on(backend: str, turns: list[tuple[list[str], str]]) -> None:
    store = MemoryStore()
    anyio.run(make_log, store, turns, backend=backend)
    anyio.run(fork_everywhere, store, backend=backend)


# ------------------------------------------------------------------------------------------------- single promises


async def test_open_calls_are_told_the_truth() -> None:
    """At a fork in the middle of two calls: the one that ran keeps its result, one that had started may have acted."""
    entries = [call("wait", n=1) + call("wait", n=2), say("Done.")]
    async with staged(*entries, say("On.")) as runtime:
        session = await runtime.session("s", agent_of(*tools()))
        await session.run("Go.")
        kinds = kinds_of(session)
        first = kinds.index("tool.started")
        results = {}
        for seq in (first, first + 1, kinds.index("tool.completed") + 1):
            child = await session.fork(f"f{seq}", seq=seq)
            results[seq - first] = [
                text_of_result(data.result).partition(":")[0] for data in data_of(child, "tool.completed")
            ]
            assert kinds_of(child)[-1] == "turn.cancelled"
            await child.close()
    assert list(results.values()) == [
        ["not started", "not started"],
        ["interrupted", "not started"],
        ["waited", "not started"],
    ]


async def test_a_fork_in_the_middle_of_an_answer_keeps_what_was_seen() -> None:
    async with staged(say("One. Two. Three."), say("On.")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.")
        seq = kinds_of(session).index("model.chunks") + 1
        child = await session.fork("child", seq=seq)
        (cut,) = data_of(child, "message.interrupted")
        assert (cut.message.text, cut.cause) == ("One. Two. Three.", "cancelled")
        before = await session.fork("before", seq=seq - 1)
        (cut,) = data_of(before, "message.interrupted")
        assert cut.message is None
        await child.run("Go on.")
        assert [message.text for message in child.history()] == ["Go.", "One. Two. Three.", "Go on.", "On."]


async def test_results_that_a_plugin_has_not_checked_are_withheld() -> None:
    async def post(outcome: Any, call_next: Any) -> Any:
        return await call_next(outcome)

    checks = plugin("p", post_execute=post)
    async with staged(call("look"), say("Done."), plugins=[checks]) as runtime:
        session = await runtime.session("s", agent_of(*tools()))
        await session.run("Go.")
        child = await session.fork("child", seq=kinds_of(session).index("tool.completed") + 1)
        (revised,) = data_of(child, "tool.revised")
        assert "withheld" in text_of_result(revised.result)


async def test_a_running_session_is_forked_as_it_is_stored() -> None:
    """The fork closes its open turn; the parent's own goes on to its end."""
    gate = anyio.Event()

    async def hold(arguments: Any, context: Any) -> str:
        await gate.wait()
        return "held"

    async with staged(call("hold"), say("Done."), say("On.")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("hold", hold)))
        async with anyio.create_task_group() as group:
            group.start_soon(session.run, "Go.")
            while not session.log.head[0] or "tool.started" not in kinds_of(session):
                await anyio.sleep(0.001)
            child = await session.fork("child")
            assert kinds_of(child)[-2:] == ["tool.completed", "turn.cancelled"]
            gate.set()
        assert session.turn.text == "Done."
        assert (await child.run("Go on.")).text == "On."
        judge(session.log)
        judge(child.log)


async def test_forks_of_forks_begin_their_chain_with_the_first_session() -> None:
    async with staged(*(say(f"{number}.") for number in range(9))) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("One.")
        child = await session.fork("child")
        await child.run("Two.")
        grandchild = await child.fork("grandchild")
        early = await child.fork("early", seq=4)
        for forked in (child, grandchild, early):
            await forked.run("Three.")
            judge(forked.log)
            assert forked.log.genesis == session.log.genesis
        parents = {forked.id: data_of(forked, "session.forked")[0].parent for forked in (child, grandchild, early)}
        assert parents == {"child": "s", "grandchild": "s", "early": "s"}
        assert [data.parent for data in data_of(grandchild, "session.forked")] == ["s", "child"]
        assert "forked from s at seq" in str(child.transcript())


async def test_what_cannot_be_forked_is_said() -> None:
    async with staged(say("Done."), store=MemoryStore()) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.")
        last = session.log.head[0]
        for seq in (0, -1, last + 1):
            with pytest.raises(UsageError, match=f"fork s at seq {seq}: it has the events 1 to {last}"):
                await session.fork("child", seq=seq)
        with pytest.raises(SessionExists):
            await session.fork("s")
        with pytest.raises(SessionUnknown):
            await runtime.fork("absent", "child")
        assert [info.id for info in runtime.sessions()] == ["s"]


async def test_a_forked_session_keeps_its_agent_and_what_it_was_given() -> None:
    seen: list[Any] = []
    peek = tool_of("peek", lambda a, c: seen.append((c.deps, c.session)) or "ok")
    async with staged(say("Done."), call("peek"), say("On."), plugins=[plugin("q", pre_execute=ask_nobody)]) as runtime:
        session = await runtime.session("s", agent_of(peek), deps={"db": 1}, metadata={"who": "me"})
        await session.run("Go.")
        child = await session.fork("child")
        await child.run("Peek.")
        assert seen == [({"db": 1}, "child")]
        assert "session.resumed" not in kinds_of(child)
        assert child.agent.model == MODEL


async def ask_nobody(call: Any, call_next: Any) -> Any:
    return Ask("never") if call.name == "nobody" else await call_next(call)


async def test_a_fork_that_names_another_event_is_found_out() -> None:
    """The chain holds, and still the log does not say the truth about where it comes from."""
    async with staged(say("Done.")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.")
        child = await session.fork("child")
        rows = rows_of(runtime.store, "child")
        for lie in ({"seq": 2}, {"hash": "ab" * 32}):
            store, prev = MemoryStore(), session.log.genesis
            whole = []
            for row in rows:
                data = encode({**decode(row.data), **lie}) if row.type == "session.forked" else row.data
                row = row._replace(data=data)
                row = row._replace(hash=row_hash(prev, row))
                prev = row.hash
                whole.append(row)
            claim = store.claim(child.id, OWNER, now=1, lease_us=1)
            assert store.append([Append(child.id, claim.token, 0, session.log.genesis, tuple(whole))]) == [None]
            found = verify(StoredLog(store, Codec(), child.id))
            assert (found.verdict, found.broken_at) == ("broken", None)
            assert found.problems[0].what == "session.forked"
