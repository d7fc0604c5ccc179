"""A call that may have acted when its process ended: where so configured, a person decides whether it runs again."""

from typing import Any

import pytest
from stage import agent_of, data_of, judge, staged, tool_of
from test_kill_anywhere import CrashingStore, Later, crashed

from spine.errors import UsageError
from spine.stores.memory import MemoryStore
from spine.testing.script import call, say
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


def paying(keys: list[str], **fields: Any) -> Any:
    async def handler(arguments: Any, context: Any) -> str:
        keys.append(context.idempotency_key)
        return "paid"

    return agent_of(tool_of("pay", handler, after_crash="ask", **fields))


async def left_behind(agent: Any) -> Any:
    store = MemoryStore()
    await crashed(store, "tool.started", agent, call("pay", amount=5))
    return store


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_person_decides_and_the_model_is_told_what_came_of_it(decision: str) -> None:
    """Nothing runs before; approved, it runs once with the same key; denied, the model is told the truth."""
    keys: list[str] = []
    agent = paying(keys)
    store = await left_behind(agent)
    async with staged(say("Done."), store=store, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.resume()
        assert (turn.status, keys) == ("suspended", [])
        assert [(a.name, a.arguments["amount"]) for a in turn.approvals] == [("pay", 5)]
        assert "may have taken effect" in turn.approvals[0].reason
        turn = await getattr(session, decision)(turn.approvals[0].id, by="ann")
        assert turn.status == "completed"
        approved = decision == "approve"
        assert keys == ["s/t1s1c1"] * approved
        assert turn.tool_calls[0].outcome.status == ("ok" if approved else "interrupted")
        decisions = [(r.decision, r.reason) for r in data_of(session, "tool.resolved")]
        assert decisions == [
            ("asked", "irreversible"),
            ("rerun", "approved by ann") if approved else ("interrupted", "denied by ann"),
        ]
        judge(session.log)


async def test_a_crash_while_the_allowed_call_ran_again_asks_again() -> None:
    """One permission is for one run: what was cut off twice is asked about twice, and never runs by itself."""
    keys: list[str] = []
    agent = paying(keys)
    store = await left_behind(agent)
    model = ScriptedAdapter(say("Done."))
    async with staged(model=model, store=CrashingStore(store, "tool.completed"), clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.resume()
        session.log.store._fatal = "tool.resolved"  # dies once the permission is used
        with pytest.raises(Exception, match="dead"):
            await session.approve(turn.approvals[0].id, by="ann")
    assert keys == []
    async with staged(say("Done."), store=store, clock=Later(10)) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.resume()
        assert (turn.status, [a.id for a in turn.approvals]) == ("suspended", ["a2"])
        turn = await session.approve("a2", by="bob")
        assert (turn.status, keys) == ("completed", ["s/t1s1c1"])
        assert [r.decision for r in data_of(session, "tool.resolved")] == ["asked", "rerun", "asked", "rerun"]
        judge(session.log)


async def test_a_reconcilable_call_whose_check_cannot_tell_is_asked_about() -> None:
    def unsure(arguments: Any, context: Any) -> Any:
        raise LookupError("cannot tell")

    agent = paying([], effect="reconcilable", reconcile=unsure)
    store = await left_behind(agent)
    async with staged(store=store, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        assert (await session.resume()).status == "suspended"


async def test_calls_that_may_run_again_are_never_asked_about() -> None:
    keys: list[str] = []
    agent = paying(keys, effect="idempotent")
    store = await left_behind(agent)
    async with staged(say("Done."), store=store, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        assert (await session.resume()).status == "completed"
        assert keys == ["s/t1s1c1"]


def test_the_option_has_two_words() -> None:
    with pytest.raises(UsageError, match="after_crash is 'retry'; it must be one of tell, ask"):
        agent_of(tool_of("pay", lambda a, c: "x", after_crash="retry"))
