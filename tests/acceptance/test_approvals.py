"""Approvals: a call waits for a person, across restarts and processes, and what was approved is what runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from stage import agent_of, data_of, events_of, judge, kinds_of, plugin, staged, text_of_result, tool_of

from spine.errors import ApprovalUnknown, SessionBusy, UsageError
from spine.hooks import Ask
from spine.stores.memory import MemoryStore
from spine.testing.script import Entry, call, expect, say
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


class Till:
    """Tools that pay, and what they were called with."""

    def __init__(self) -> None:
        self.paid: list[Any] = []

    def tool(self, name: str = "pay", **fields: Any) -> Any:
        async def handler(arguments: Any, context: Any) -> str:
            self.paid.append((name, dict(arguments)))
            return f"paid by {name}"

        return tool_of(name, handler, **{"approval": "ask", "approval_reason": "money", **fields})


async def test_approving_runs_the_call_and_the_turn_goes_on() -> None:
    """The turn is suspended with the open approval; approving runs exactly that call."""
    till = Till()
    async with staged(say("Let me.") + call("pay", cents=5), say("Paid.")) as runtime:
        session = await runtime.session("s", agent_of(till.tool()))
        turn = await session.run("Go.")
        assert (turn.status, till.paid) == ("suspended", [])
        asked = turn.approvals[0]
        assert (asked.id, asked.call, asked.name, asked.reason) == ("a1", "t1s1c1", "pay", "money")
        assert asked.arguments == {"cents": 5}
        turn = await session.approve("a1", by="me", reason="fine")
        assert (turn.status, turn.text, till.paid) == ("completed", "Paid.", [("pay", {"cents": 5})])
        decided = data_of(session, "approval.decided")[0]
        assert (decided.decision, decided.by, decided.channel, decided.reason) == (
            "approved",
            "me",
            "session.approve",
            "fine",
        )
        kinds = kinds_of(session)
        assert kinds.index("approval.decided") < kinds.index("tool.started") < kinds.index("turn.completed")
        judge(session.log)


async def test_denying_tells_the_model_and_runs_nothing() -> None:
    """A denial is an outcome with its reason; the turn goes on."""
    till = Till()
    model = ScriptedAdapter(call("pay", cents=5), expect(contains="still shipped") + say("Then not."))
    async with staged(model=model) as runtime:
        session = await runtime.session("s", agent_of(till.tool()))
        await session.run("Go.")
        turn = await session.deny("a1", by="me", reason="still shipped")
        assert (turn.status, turn.text, till.paid) == ("completed", "Then not.", [])
        assert turn.tool_calls[0].outcome.status == "denied"
        assert "tool.started" not in kinds_of(session)
        judge(session.log)


def two() -> Entry:
    return call("pay", cents=1) + call("look") + call("pay", cents=2)


async def test_in_a_group_the_others_run_to_the_end_then_the_turn_waits() -> None:
    """Calls that need no approval are done before the turn is suspended; later groups have not begun."""
    till = Till()
    tools = (
        till.tool(parallel=True),
        till.tool("look", approval="never", parallel=True),
        till.tool("later", approval="never"),
    )
    async with staged(two() + call("later"), say("Done.")) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        turn = await session.run("Go.")
        assert turn.status == "suspended"
        assert till.paid == [("look", {})]
        assert [a.id for a in turn.approvals] == ["a1", "a2"]
        turn = await session.approve("a2", by="me")
        assert (turn.status, [a.id for a in turn.approvals]) == ("suspended", ["a1"])
        turn = await session.deny("a1", by="me")
        assert turn.status == "completed"
        assert till.paid == [("look", {}), ("pay", {"cents": 2}), ("later", {})]
        assert [c.outcome.status for c in turn.tool_calls] == ["denied", "ok", "ok", "ok"]
        judge(session.log)


async def test_what_does_not_fit_any_more_is_asked_again() -> None:
    """When the tool changed since, the approval is not used: it is asked anew, as a new approval that names the old."""
    store, till = MemoryStore(), Till()
    async with staged(call("pay", cents=5), store=store) as runtime:
        await (await runtime.session("s", agent_of(till.tool()))).run("Go.")
    changed = till.tool(schema={"type": "object", "properties": {"cents": {"type": "integer"}}})
    async with staged(say("Paid."), store=store) as runtime:
        session = await runtime.session("s", agent_of(changed))
        turn = await session.approve("a1", by="me")
        assert (turn.status, till.paid) == ("suspended", [])
        assert [(a.id, a.replaces) for a in turn.approvals] == [("a2", "a1")]
        with pytest.raises(ApprovalUnknown):
            await session.approve("a1", by="me")
        turn = await session.approve("a2", by="me")
        assert (turn.status, till.paid) == ("completed", [("pay", {"cents": 5})])
        judge(session.log)


def changed_policy(till: Till) -> tuple[Any, Any]:
    return agent_of(till.tool()), agent_of(till.tool(approval=lambda invocation: "ask"))


def changed_effect(till: Till) -> tuple[Any, Any]:
    return agent_of(till.tool()), agent_of(till.tool(effect="idempotent"))


def changed_agent_policy(till: Till) -> tuple[Any, Any]:
    return agent_of(till.tool(), approval="ask"), agent_of(till.tool(), approval=lambda invocation: "ask")


def over(cents: int) -> Callable[[Any], str]:
    source = f"def over(invocation): return 'ask' if invocation.arguments['cents'] > {cents} else 'never'"
    names: dict[str, Any] = {"__name__": "policies"}
    exec(source, names)
    policy: Callable[[Any], str] = names["over"]
    return policy


def changed_code(till: Till) -> tuple[Any, Any]:
    return agent_of(till.tool(approval=over(2))), agent_of(till.tool(approval=over(3)))


@pytest.mark.parametrize("agents", [changed_policy, changed_effect, changed_agent_policy, changed_code])
async def test_a_changed_policy_or_effect_makes_an_approval_stale(agents: Callable[[Till], tuple[Any, Any]]) -> None:
    """The decision is bound to tool, arguments, schema, effect, policy and plugin versions."""
    store, till = MemoryStore(), Till()
    before, after = agents(till)
    async with staged(call("pay", cents=5), store=store) as runtime:
        await (await runtime.session("s", before)).run("Go.")
    async with staged(say("Paid."), store=store) as runtime:
        session = await runtime.session("s", after)
        turn = await session.approve("a1", by="me")
        assert [a.replaces for a in turn.approvals] == ["a1"]
        assert till.paid == []


async def test_the_same_code_of_a_policy_in_another_process_keeps_an_approval() -> None:
    """What decides is what the policy does, not which object does it."""
    store, till = MemoryStore(), Till()
    async with staged(call("pay", cents=5), store=store) as runtime:
        await (await runtime.session("s", agent_of(till.tool(approval=over(2))))).run("Go.")
    async with staged(say("Paid."), store=store) as runtime:
        session = await runtime.session("s", agent_of(till.tool(approval=over(2))))
        turn = await session.approve("a1", by="me")
        assert (turn.status, till.paid) == ("completed", [("pay", {"cents": 5})])


async def test_a_plugin_of_another_version_makes_an_approval_stale() -> None:
    """An upgraded plugin might judge differently: it is asked again, also within one process."""
    till = Till()

    async def pre(call: Any, call_next: Any) -> Any:
        return await call_next(call)

    async with staged(call("pay", cents=5), say("Paid."), plugins=[plugin("judge", "1", pre_execute=pre)]) as runtime:
        session = await runtime.session("s", agent_of(till.tool()))
        await session.run("Go.")
        runtime.unload_plugin("judge")
        runtime.load_plugin(plugin("judge", "2", pre_execute=pre))
        turn = await session.approve("a1", by="me")
        assert [a.replaces for a in turn.approvals] == ["a1"]
        assert till.paid == []
        turn = await session.approve("a2", by="me")
        assert (turn.status, len(till.paid)) == ("completed", 1)


async def test_after_an_approval_that_fits_pre_execute_is_not_asked_again() -> None:
    """The stored effective arguments run; hooks were asked before the person was."""
    till, asked = Till(), []

    async def pre(call: Any, call_next: Any) -> Any:
        asked.append(call.arguments["cents"])
        return await call_next(call.evolve(arguments={"cents": call.arguments["cents"] * 2}))

    async with staged(call("pay", cents=5), say("Paid."), plugins=[plugin("double", pre_execute=pre)]) as runtime:
        session = await runtime.session("s", agent_of(till.tool()))
        turn = await session.run("Go.")
        assert turn.approvals[0].arguments == {"cents": 10}
        await session.approve("a1", by="me")
        assert (asked, till.paid) == ([5], [("pay", {"cents": 10})])
        started = data_of(session, "tool.started")[0]
        assert (started.requested, started.patches[0].plugin) == ({"cents": 5}, "double@1")
        judge(session.log)


@pytest.mark.parametrize("decide", ["approve", "deny"])
async def test_a_decision_in_another_runtime_continues_the_turn(tmp_path: Path, decide: str) -> None:
    """Suspended on disk, decided after a restart: the turn completes there."""
    till, store = Till(), f"sqlite:{tmp_path / 's.db'}"
    async with staged(call("pay", cents=5), store=store) as runtime:
        session = await runtime.session("s", agent_of(till.tool()))
        assert (await session.run("Go.")).status == "suspended"
    async with staged(say("Done."), store=store) as runtime:
        session = await runtime.session("s", agent_of(till.tool()))
        assert session.turn.status == "suspended"
        assert [a.id for a in session.turn.approvals] == ["a1"]
        turn = await getattr(session, decide)("a1", by="me")
        assert (turn.status, turn.text) == ("completed", "Done.")
        assert len(till.paid) == (1 if decide == "approve" else 0)
        assert kinds_of(session).count("session.resumed") == 1
        judge(session.log)


async def test_a_decision_through_the_inbox_reaches_the_living_owner(tmp_path: Path) -> None:
    """Another process puts its decision into the inbox; the owner records it once and goes on."""
    till, store = Till(), f"sqlite:{tmp_path / 's.db'}"
    async with staged(call("pay", cents=5), say("Done."), store=store) as owner, staged(store=store) as other:
        session = await owner.session("s", agent_of(till.tool()))
        await session.run("Go.")
        decision = {"id": "a1", "decision": "approved", "by": "duty-manager", "reason": "fine"}
        assert other.send("s", "decision", decision, key="k1") is True
        assert other.send("s", "decision", decision, key="k1") is False
        with anyio.fail_after(5):
            while session.turn.status != "completed" or session.log.head[0] < session.log.seq:
                await anyio.sleep(0.02)
        decided = data_of(session, "approval.decided")
        assert [(d.by, d.channel, d.reason) for d in decided] == [("duty-manager", "inbox", "fine")]
        assert till.paid == [("pay", {"cents": 5})]
        assert owner.store.inbox("s") == []
        judge(session.log)


async def test_a_decision_that_comes_too_late_changes_nothing(tmp_path: Path) -> None:
    """A second decision through the inbox is recorded and has no effect."""
    till, store = Till(), f"sqlite:{tmp_path / 's.db'}"
    async with staged(call("pay", cents=5), say("Done."), store=store) as owner, staged(store=store) as other:
        session = await owner.session("s", agent_of(till.tool()))
        await session.run("Go.")
        await session.deny("a1", by="first")
        other.send("s", "decision", {"id": "a1", "decision": "approved", "by": "second"}, key="k1")
        with anyio.fail_after(5):
            while len(data_of(session, "approval.decided")) < 2:
                await anyio.sleep(0.02)
        assert (session.turn.status, till.paid) == ("completed", [])
        judge(session.log)


BAD_REQUESTS = {
    "an unknown kind": ("abolish", {"by": "me"}),
    "a decision without an id": ("decision", {"decision": "approved", "by": "me"}),
    "a decision that is none": ("decision", {"id": "a1", "decision": "perhaps", "by": "me"}),
    "a decision of the wrong types": ("decision", {"id": 1, "decision": "approved", "by": 5}),
    "an input without a message": ("input", {"delivery": "queue"}),
    "an input of another role": ("input", {"message": {"role": "system", "content": ["x"]}}),
    "a cancel by nobody's type": ("cancel", {"by": 5}),
}


@pytest.mark.parametrize(("kind", "data"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
async def test_a_malformed_request_is_refused_at_the_sender_and_harmless_at_the_owner(kind: str, data: Any) -> None:
    """`send` refuses what fits no event; an entry that got there anyway keeps nobody else waiting."""
    from spine.values import encode

    till = Till()
    async with staged(call("pay", cents=5), say("Done.")) as runtime:
        session = await runtime.session("s", agent_of(till.tool()))
        await session.run("Go.")
        with pytest.raises(UsageError):
            runtime.send("s", kind, data, key="k")
        runtime.store.put_inbox("s", "evil", kind, encode(data))
        runtime.send("s", "decision", {"id": "a1", "decision": "denied", "by": "me"}, key="good")
        with anyio.fail_after(5):
            while session.turn.status != "completed":
                await anyio.sleep(0.02)
        judge(session.log)


async def test_an_approval_that_is_not_open_is_refused() -> None:
    """Unknown, decided and used approvals are named, with those that are open."""
    till = Till()
    async with staged(call("pay", cents=5) + call("pay", cents=6), say("Done."), say("More.")) as runtime:
        session = await runtime.session("s", agent_of(till.tool(parallel=True)))
        await session.run("Go.")
        with pytest.raises(ApprovalUnknown, match="open: a1, a2"):
            await session.approve("a9", by="me")
        await session.approve("a1", by="me")
        with pytest.raises(ApprovalUnknown, match="approved by me already"):
            await session.deny("a1", by="other")
        await session.approve("a2", by="me")
        with pytest.raises(ApprovalUnknown, match="open: none"):
            await session.approve("a2", by="me")
        assert len(till.paid) == 2


async def test_a_suspended_session_takes_no_other_turn() -> None:
    """`run` names what is waited for; cancelling the turn frees the session."""
    till = Till()
    async with staged(call("pay", cents=5), say("Fresh.")) as runtime:
        session = await runtime.session("s", agent_of(till.tool()))
        await session.run("Go.")
        with pytest.raises(SessionBusy, match="waits for a1"):
            await session.run("Something else.")
        await session.cancel()
        assert session.turn.status == "cancelled"
        assert (await session.run("Something else.")).text == "Fresh."
        with pytest.raises(ApprovalUnknown):
            await session.approve("a1", by="me")
        assert [text_of_result(d.result)[:11] for d in data_of(session, "tool.completed")] == ["not started"]
        judge(session.log)


async def test_a_decision_while_its_group_still_runs_is_not_lost() -> None:
    """Approved before the turn is even suspended: when the group is done the call simply runs."""
    till, release = Till(), anyio.Event()

    async def slow(arguments: Any, context: Any) -> str:
        await release.wait()
        return "x"

    tools = (till.tool(parallel=True), tool_of("slow", slow, parallel=True))
    async with staged(call("pay", cents=5) + call("slow"), say("Done.")) as runtime, anyio.create_task_group() as group:
        session = await runtime.session("s", agent_of(*tools))
        group.start_soon(session.run, "Go.")
        with anyio.fail_after(2):
            while not session.turn or (not session.turn.approvals and "tool.started" not in kinds_of(session)):
                await anyio.sleep(0.005)
        await session.approve("a1", by="me")
        release.set()
        with anyio.fail_after(2):
            while session.turn.status != "completed":
                await anyio.sleep(0.005)
        assert till.paid == [("pay", {"cents": 5})]
        assert "turn.suspended" not in kinds_of(session)
        judge(session.log)


def policy_raises(invocation: Any) -> Any:
    raise ZeroDivisionError("oops")


BROKEN_POLICIES = {
    "raises": policy_raises,
    "says nothing": lambda invocation: None,
    "says something else": lambda invocation: "maybe",
    "says True": lambda invocation: True,
}


@pytest.mark.parametrize("policy", BROKEN_POLICIES.values(), ids=BROKEN_POLICIES)
async def test_a_policy_that_breaks_lets_nothing_run(policy: Any) -> None:
    """A policy answers `never` or `ask`; anything else fails the step closed and is named."""
    till = Till()
    async with staged(call("pay", cents=5), say("never")) as runtime:
        session = await runtime.session("s", agent_of(till.tool(approval=policy)))
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.error.category, till.paid) == ("failed", "hook_failed", [])
        assert "pay" in turn.error.message
        judge(session.log)


async def test_policies_of_plugins_and_agents_decide_by_name() -> None:
    """An agent's policy beats a plugin's, and that beats the tool's own; a policy sees the effective arguments."""
    till = Till()

    def register(registrar: Any) -> None:
        registrar.add(lambda invocation: "ask" if invocation.arguments["cents"] > 100 else "never", name="pay")

    rules = plugin("rules", spine_register_policies=register)
    script = (call("pay", cents=5), say("Done."), call("pay", cents=500), call("pay", cents=1), say("Done."))
    async with staged(*script, plugins=[rules]) as runtime:
        session = await runtime.session("s", agent_of(till.tool(approval="ask")))
        assert (await session.run("Go.")).status == "completed"
        assert (await session.run("Go.")).status == "suspended"
        strict = await runtime.session("strict", agent_of(till.tool(approval="never"), approval="ask"))
        assert (await strict.run("Go.")).status == "suspended"
        assert till.paid == [("pay", {"cents": 5})]


async def test_an_ask_of_a_plugin_beats_never() -> None:
    """`Ask` from pre_execute suspends even where the tool's policy asks nobody."""
    till = Till()

    async def pre(call: Any, call_next: Any) -> Any:
        return Ask("unusual")

    async with staged(call("pay", cents=5), say("ok"), plugins=[plugin("p", pre_execute=pre)]) as runtime:
        session = await runtime.session("s", agent_of(till.tool(approval="never")))
        turn = await session.run("Go.")
        assert [(a.reason, a.patches[0].plugin) for a in turn.approvals] == [("unusual", "p@1")]
        turn = await session.approve("a1", by="me")
        assert (turn.status, len(till.paid)) == ("completed", 1)
        assert len(events_of(session, "approval.requested")) == 1
