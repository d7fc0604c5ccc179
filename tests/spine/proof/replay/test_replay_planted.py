"""A change that somebody made since a session was recorded is found where it first shows, and attributed."""

import itertools
import types
from collections.abc import Callable
from typing import Any

import anyio
import attrs
import pytest

from spine.agent import Agent, Limits
from spine.config import Settings
from spine.erasing import erase
from spine.hooks import Deny, hookimpl
from spine.messages import TextBlock
from spine.proof.replay.run import Given, Replayed, replay
from spine.proof.replay.text import finding, replay_fact
from spine.runtime import Runtime
from spine.sections import Section
from spine.store import Owner
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.testing.clock import FakeClock, FakeRandom
from spine.testing.script import call, fail, say
from spine.testing.scripted import ScriptedAdapter
from spine.tools import Tool, ToolDefinition
from spine.values import SessionId

pytestmark = pytest.mark.anyio
ALONE = Settings(installed_plugins=False)
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}
POLICY = "Refunds are paid within 30 days of delivery."
SCRIPT = (
    say("Let me look.") + call("look", n=1) + call("look", n=2),
    call("pay", n=3),
    fail("overloaded"),
    say("Done."),
)


async def done(arguments: Any, context: Any) -> str:
    return f"order {arguments.get('n')}: key-1234"


def tool(name: str, **fields: Any) -> Tool:
    definition = ToolDefinition(
        name=name, description=fields.pop("description", "As named."), parameters=fields.pop("schema", NUMBER)
    )
    return Tool(definition=definition, handler=done, **fields)


async def larger(request: Any, call_next: Any) -> Any:
    return await call_next(attrs.evolve(request, max_output_tokens=512))


async def tenfold(call: Any, call_next: Any) -> Any:
    return await call_next(attrs.evolve(call, arguments={"n": call.arguments["n"] * 10}))


async def masked(outcome: Any, call_next: Any) -> Any:
    result = await call_next(outcome)
    return result.evolve(content=tuple(TextBlock(text=b.text.replace("1234", "****")) for b in result.content))


async def cooler(request: Any, call_next: Any) -> Any:
    return await call_next(attrs.evolve(request, temperature=(request.temperature or 1.0) / 2))


ORDERS: dict[str, Any] = {
    "version": "0.3.0",
    "sections": [Section("refund-policy", render=POLICY, order=50), Section("tone", render="Be kind.", order=60)],
    "spine_pre_step": larger,
    "spine_pre_execute": tenfold,
    "spine_post_execute": masked,
}
BRIEF: dict[str, Any] = {"version": "1.0", "sections": [], "spine_pre_step": cooler}


def plugin(name: str, given: dict[str, Any]) -> types.ModuleType:
    module = types.ModuleType(f"spine_{name}")
    module.__dict__["__version__"] = given["version"]

    def prompts(registrar: Any) -> None:
        for section in given["sections"]:
            registrar.add(section)

    hooks = {**given, "spine_register_prompts": prompts}
    for hook, function in hooks.items():
        if hook.startswith("spine_") and function is not None:
            setattr(module, hook, hookimpl(specname=hook)(function))
    return module


AGENT: dict[str, Any] = {
    "instructions": "You help with orders.",
    "temperature": 0.2,
    "tools": (tool("look", effect="read_only", parallel=True), tool("pay", approval="ask")),
    "limits": Limits(steps=9),
}


def setting(orders: Any = None, brief: Any = None, order: Any = ("orders", "brief"), **agent: Any) -> Given:
    """What the session is given, with what somebody changed."""
    fields = {**AGENT, **agent}
    plugins = {"orders": {**ORDERS, **(orders or {})}, "brief": {**BRIEF, **(brief or {})}}
    return Given(
        agent=Agent(fields.pop("model", "lab:one"), **fields),
        plugins=[plugin(name, plugins[name]) for name in order],
        settings=ALONE,
    )


async def recorded(given: Given) -> StoredLog:
    store, clock = MemoryStore(), FakeClock()
    model = ScriptedAdapter(*SCRIPT, clock=clock)
    async with Runtime.open(
        store, model=model, plugins=given.plugins, settings=ALONE, clock=clock, random=FakeRandom()
    ) as runtime:
        session = await runtime.session("shop", given.agent)
        turn = await session.run("Refund my mug.")
        await session.approve(turn.approvals[0].id, by="someone")
        return StoredLog(store, runtime.codec, SessionId("shop"))


def sections(*changed: Section) -> dict[str, Any]:
    return {"sections": list(changed)}


POLICY_14 = POLICY.replace("30", "14")
TONE = ORDERS["sections"][1]
COUNTER = itertools.count()


async def deny(call: Any, call_next: Any) -> Any:
    return Deny("not today") if call.name == "look" else await call_next(call)


async def broken(request: Any, call_next: Any) -> Any:
    raise ValueError("it is broken")


async def asks_nothing(call: Any, call_next: Any) -> Any:
    return await call_next(call)


async def shows_all(outcome: Any, call_next: Any) -> Any:
    return await call_next(outcome)


async def eightfold(call: Any, call_next: Any) -> Any:
    return await call_next(attrs.evolve(call, arguments={"n": call.arguments["n"] * 8}))


def look(**changes: Any) -> dict[str, Any]:
    return {"tools": (tool("look", **{"effect": "read_only", "parallel": True, **changes}), AGENT["tools"][1])}


def pay(**changes: Any) -> dict[str, Any]:
    return {"tools": (AGENT["tools"][0], tool("pay", **{"approval": "ask", **changes}))}


def from_set(words: set[str]) -> str:
    return " ".join(words)


Plant = Callable[[], Given]
PLANTED: dict[str, tuple[Plant, str, str, str]] = {
    # what somebody changed: the setting, then the kind, the name and the owner that must be found
    "a word of the instructions": (
        lambda: setting(instructions="You help with parcels."), "section", "instructions", "agent agent"),
    "a word of a plugin's section": (
        lambda: setting({"version": "0.4.0", **sections(Section("refund-policy", render=POLICY_14, order=50), TONE)}),
        "section", "refund-policy", "orders"),
    "the order of sections": (
        lambda: setting(sections(Section("refund-policy", render=POLICY, order=70), TONE)),
        "section", "refund-policy", "orders"),
    "a new section": (
        lambda: setting(brief=sections(Section("extra", render="More.", order=90))), "section", "extra", "brief"),
    "a section that went": (lambda: setting(sections(TONE)), "section", "refund-policy", "orders"),
    "a clock read in a section": (
        lambda: setting(sections(Section("refund-policy", render=lambda c: f"{next(COUNTER)}", order=50), TONE)),
        "section", "refund-policy", "orders"),
    "the order of a set in a section": (
        lambda: setting(sections(
            Section("refund-policy", render=lambda c: from_set({POLICY, "a", "b"}), order=50), TONE)),
        "section", "refund-policy", "orders"),
    "a section that became dynamic": (
        lambda: setting(sections(Section("refund-policy", render=lambda c: POLICY, order=50, dynamic=True), TONE)),
        "section", "refund-policy", "orders"),
    "a tool's description": (lambda: setting(**look(description="Otherwise.")), "tool", "look", "agent agent"),
    "a tool's schema": (
        lambda: setting(**look(schema={"type": "object", "properties": {"n": {"type": "number"}}})),
        "tool", "look", "agent agent"),
    "a new tool": (
        lambda: setting(tools=(*AGENT["tools"], tool("more"))), "tool", "more", "agent agent"),
    "a tool that went": (lambda: setting(tools=AGENT["tools"][1:]), "tool", "look", "agent agent"),
    "a tool's effect": (lambda: setting(**look(effect="idempotent")), "tool", "look", "agent agent"),
    "a tool's approval": (lambda: setting(**pay(approval="never")), "tool", "pay", "agent agent"),
    "whether a tool is parallel": (lambda: setting(**look(parallel=False)), "tool", "look", "agent agent"),
    "the temperature": (lambda: setting(temperature=0.9), "parameter", "temperature", "agent agent"),
    "the output limit": (lambda: setting(max_output_tokens=77), "parameter", "max_output_tokens", "agent agent"),
    "thinking": (lambda: setting(thinking="high"), "parameter", "thinking", "agent agent"),
    "provider options": (
        lambda: setting(provider_options={"lab": {"a": 1}}), "parameter", "provider_options", "agent agent"),
    "the model": (lambda: setting(model="lab:two"), "route", "route", "agent agent"),
    "the limit of steps": (lambda: setting(limits=Limits(steps=1)), "limit", "steps", "agent agent"),
    "the order of hooks": (lambda: setting(order=("brief", "orders")), "hook", "spine_pre_step", "brief"),
    "a hook that went": (lambda: setting(brief={"spine_pre_step": None}), "hook", "spine_pre_step", "brief"),
    "a new hook": (lambda: setting(brief={"spine_pre_execute": asks_nothing}), "hook", "spine_pre_execute", "brief"),
    "a hook's other value": (
        lambda: setting(brief={"spine_pre_step": larger}), "hook", "spine_pre_step", "brief"),
    "a hook's other arguments": (
        lambda: setting({"spine_pre_execute": eightfold}), "hook", "spine_pre_execute", "orders"),
    "a hook that denies": (lambda: setting({"spine_pre_execute": deny}), "hook", "spine_pre_execute", "orders"),
    "a hook that shows more": (
        lambda: setting({"spine_post_execute": shows_all}), "hook", "spine_post_execute", "orders"),
    "a hook that breaks": (lambda: setting({"spine_pre_step": broken}), "hook", "spine_pre_step", "orders"),
    "a plugin's version": (lambda: setting({"version": "0.4.0"}), "section", "refund-policy", "orders"),
}  # fmt: skip


async def test_what_nobody_changed_is_equal() -> None:
    found = await replay(await recorded(setting()), setting())
    assert found.is_equal
    assert found.is_exact
    assert found.drift == ()


@pytest.mark.parametrize("what", PLANTED)
async def test_a_planted_change_is_found_and_attributed(what: str) -> None:
    plant, kind, name, owner = PLANTED[what]
    found = await replay(await recorded(setting()), plant())
    assert found.verdict == "different"
    assert found.cause is not None
    assert (found.cause.kind, found.cause.name, found.cause.owner) == (kind, name, owner)
    assert found.difference is not None
    assert found.difference.seq > 4
    assert found.difference.path not in ("$.digest", "$.size", "$.estimate"), "these follow from something"
    moved = "order of hooks" in what
    assert ("another order" in found.cause.change) == moved, found.cause.change


async def test_the_finding_reads_as_a_person_needs_it() -> None:
    found = await replay(await recorded(setting()), PLANTED["a word of a plugin's section"][0]())
    first, log, now, cause, *drift = finding(found).split("\n")
    assert first == "DIFFERENT at seq 6 content.added t1s1, path $.text, character 24"
    assert log == "  log  Refunds are paid within 30 days of delivery."
    assert now == "  now  Refunds are paid within 14 days of delivery."
    assert cause == (
        "  from section refund-policy of orders, 0.3.0 in the log, 0.4.0 now (changed). "
        "It reaches requests t1s1, t1s2, t1s3."
    )
    assert drift == ["  drift: orders 0.3.0 in the log, 0.4.0 now"]


IDLE: dict[str, Any] = {"version": "2.0", "sections": []}
"""A plugin that is loaded and does nothing."""


async def hears(event: Any) -> None:
    """A listener is told, and asked nothing."""


HEARS: dict[str, Any] = {**IDLE, "spine_event_recorded": hears}
APART = {
    "one that came": ({}, {"idle": IDLE}, ("idle loaded now and not then",)),
    "one that only listens": ({}, {"hears": HEARS}, ("hears loaded now and not then",)),
    "one that went": ({"idle": IDLE}, {}, ("idle loaded then and not now",)),
    "one of another version": (
        {"idle": IDLE}, {"idle": {**IDLE, "version": "2.1"}}, ("idle 2.0 in the log, 2.1 now",)),
    "two": (
        {"hears": HEARS}, {"idle": IDLE},
        ("hears loaded then and not now", "idle loaded now and not then")),
    "two of the same fate": (
        {}, {"hears": HEARS, "idle": IDLE}, ("hears, idle loaded now and not then",)),
}  # fmt: skip


def beside(given: Given, others: dict[str, dict[str, Any]]) -> Given:
    return attrs.evolve(given, plugins=[*given.plugins, *(plugin(name, other) for name, other in others.items())])


@pytest.mark.parametrize("what", APART)
async def test_a_plugin_without_a_part_is_no_drift(what: str) -> None:
    """Nothing of it is in the log or in the replay, so one line names it, below whatever did drift."""
    then, now, told = APART[what]
    found = await replay(await recorded(beside(setting(), then)), beside(setting(), now))
    assert (found.is_equal, found.drift, found.beside) == (True, (), told)
    assert finding(found).split("\n")[1:] == [f"  without a part in it: {'; '.join(told)}"]
    assert replay_fact(found)["beside"] == list(told)


ASKED = {
    "in the log": ({"spine_pre_execute": asks_nothing}, {}),
    "now": ({}, {"spine_pre_execute": asks_nothing}),
}


@pytest.mark.parametrize("when", ASKED)
async def test_a_plugin_that_was_asked_had_a_part_whatever_it_answered(when: str) -> None:
    """Its hook stands in the chain of a step, so its version is drift, also where it changed nothing."""
    then, now = ASKED[when]
    given = [setting(brief={**IDLE, "spine_pre_step": None, **hooks}) for hooks in (then, {**now, "version": "2.1"})]
    found = await replay(await recorded(given[0]), given[1])
    assert (found.drift, found.beside) == (("brief 2.0 in the log, 2.1 now",), ())


async def test_a_plugin_that_took_part_and_is_gone_gives_no_verdict() -> None:
    found: Replayed = await replay(await recorded(setting()), setting(order=("brief",)))
    assert found.verdict == "missing"
    assert found.missing == ("orders",)
    assert finding(found) == "no verdict: orders took part in shop and is not loaded now"


@pytest.mark.parametrize("gone", [("orders",), ("brief",), ("orders", "brief")])
async def test_what_an_absent_plugin_did_is_applied_as_recorded(gone: tuple[str, ...]) -> None:
    order = tuple(name for name in ("orders", "brief") if name not in gone)
    found = await replay(await recorded(setting()), setting(order=order), recorded_hooks=True)
    assert found.is_equal, str(found)


async def test_what_an_absent_plugin_denied_is_denied_again() -> None:
    denying = {"spine_pre_execute": deny}
    found = await replay(await recorded(setting(denying)), setting(order=("brief",)), recorded_hooks=True)
    assert found.is_equal, str(found)


async def test_a_hook_that_was_cut_is_cut_again() -> None:
    async def hanging(request: Any, call_next: Any) -> Any:
        await anyio.sleep_forever()

    given = setting(brief={"spine_pre_step": hanging})
    store = MemoryStore()
    async with Runtime.open(store, model=ScriptedAdapter(), plugins=given.plugins, settings=ALONE) as runtime:
        session = await runtime.session("shop", given.agent)
        session._run.watch.timeout_s = 0.05
        turn = await session.run("Refund my mug.", check=False)
        assert turn.status == "failed"
        found = await replay(session.log, given)
    assert found.difference is not None  # only the bound, which this test has set lower, is another
    assert (found.difference.path, found.difference.old, found.difference.new) == (
        "$.failure.message",
        "plugin brief@1.0 did not return from spine_pre_step within 0.05 s",
        "plugin brief@1.0 did not return from spine_pre_step within 30 s",
    )


async def test_erased_data_leave_nothing_to_compare() -> None:
    store = MemoryStore()
    given = setting()
    async with Runtime.open(store, model=ScriptedAdapter(*SCRIPT), plugins=given.plugins, settings=ALONE) as runtime:
        session = await runtime.session("shop", given.agent)
        turn = await session.run("Refund my mug.")
        await session.approve(turn.approvals[0].id, by="someone")
        await session.close()
        log = StoredLog(store, runtime.codec, SessionId("shop"))
        owner = Owner(id="test", host="", pid=0, started=0)
        erase(log, seqs=(2,), owner=owner, now=1, reason="asked to")
        found = await replay(log, given)
    assert found.verdict == "missing"
    assert str(found) == "no verdict: private data of shop were erased (seq 2)"
