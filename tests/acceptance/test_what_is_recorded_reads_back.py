"""Whatever callers, plugins and adapters give: it is refused by name, or recorded so that it can be read again."""

from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
from stage import Adapter, agent_of, data_of, events_of, judge, plugin, staged, tool_of

from spine.errors import UsageError
from spine.events import EventType
from spine.hooks import Ask, Compact, Deny, NextStep, hookimpl
from spine.llm.chunks import BlockAdded, BlockEnded, ResponseStarted, TextDelta, ToolCallStarted, UsageReported
from spine.llm.errors import Failure, ProviderError
from spine.llm.response import ModelResponse
from spine.llm.usage import Usage
from spine.messages import Message, ProviderState, TextBlock
from spine.stores.memory import MemoryStore
from spine.testing.script import call, fail, say
from spine.values import JsonObject

pytestmark = pytest.mark.anyio
LONE = "a\ud800b"
"""Text that no UTF-8 can hold."""


async def reopened(store: Any, agent: Any, **options: Any) -> None:
    """The session can be read and folded from the start."""
    async with staged(say("Yes."), store=store, **options) as runtime:
        session = await runtime.session("s", agent)
        events_of(session)
        judge(session.log, open_turn=True)


# ------------------------------------------------------------------------------------------------------- callers

BAD_CALLS: dict[str, Any] = {
    "approve by nobody": lambda s: s.approve("a1", by=None),
    "approve for a number": lambda s: s.approve("a1", by="me", reason=5),
    "approve through a number": lambda s: s.approve("a1", by="me", channel=5),
    "deny by a number": lambda s: s.deny("a1", by=5),
    "approve no id": lambda s: s.approve(["a1"], by="me"),
    "submit somehow": lambda s: s.submit("x", delivery="bogus"),
    "submit with a number as key": lambda s: s.submit("x", key=5),
    "submit with a list as key": lambda s: s.submit("x", key=["k"]),
    "submit no text": lambda s: s.submit(Message(role="user", content=(TextBlock(text=5),))),  # type: ignore[arg-type]
    "submit no block": lambda s: s.submit(Message(role="user", content=(5,))),  # type: ignore[arg-type]
    "cancel without a cause": lambda s: s.cancel(None),
    "cancel by a number": lambda s: s.cancel("x", by=5),
    "rename to a number": lambda s: s.rename(5),
}


@pytest.mark.parametrize("door", BAD_CALLS.values(), ids=BAD_CALLS)
async def test_what_a_caller_gives_wrong_is_refused_and_leaves_nothing_behind(door: Any) -> None:
    """A usage error, and the log is as it was."""
    store, agent = MemoryStore(), agent_of(tool_of("pay", lambda arguments, context: "paid", approval="ask"))
    async with staged(call("pay"), say("Paid."), store=store) as runtime:
        session = await runtime.session("s", agent)
        await session.run("Go.")
        before = session.log.seq
        with pytest.raises(UsageError):
            await door(session)
        assert session.log.seq == before
    await reopened(store, agent)


async def test_lone_surrogates_of_callers_are_replaced() -> None:
    """They cannot be written as UTF-8, and are no reason to fail."""
    store, agent = MemoryStore(), agent_of(tool_of("pay", lambda arguments, context: "paid", approval="ask"))
    async with staged(call("pay"), say("Paid."), store=store) as runtime:
        session = await runtime.session("s", agent)
        await session.run("Go.")
        await session.rename(LONE)
        await session.deny("a1", by=LONE, reason=LONE, channel=LONE)
        decided = data_of(session, "approval.decided")[0]
        assert {decided.by, decided.reason, decided.channel} == {"a\ufffdb"}
    await reopened(store, agent)


# ------------------------------------------------------------------------------------------------------ adapters


def response(**fields: Any) -> ModelResponse:
    return ModelResponse(**{"message": Message(content=(TextBlock(text="Hi."),)), "stop_reason": "end_turn", **fields})


STATE = ProviderState(protocol=5, provider="p", model="m", data=1)  # type: ignore[arg-type]
BAD_ANSWERS: dict[str, Any] = {
    "raw_stop_reason": lambda: response(raw_stop_reason=7),
    "stop_reason": lambda: response(stop_reason="weird"),
    "unhashable stop_reason": lambda: response(stop_reason=[]),
    "message": lambda: response(message=None),
    "usage": lambda: response(usage=None),
    "counts": lambda: response(usage=Usage(input_tokens="5")),  # type: ignore[arg-type]
    "model": lambda: response(model=5),
    "metadata": lambda: response(metadata={"x": float("nan")}),
    "started": lambda: ResponseStarted(5, 6),  # type: ignore[arg-type]
    "call": lambda: ToolCallStarted(1, 5),  # type: ignore[arg-type]
    "vendor id": lambda: ToolCallStarted(1, "pay", 5),  # type: ignore[arg-type]
    "reported": lambda: UsageReported(Usage(output_tokens=1.5)),  # type: ignore[arg-type]
    "reported nothing": lambda: UsageReported(None),  # type: ignore[arg-type]
    "block": lambda: BlockAdded(1, 5),  # type: ignore[arg-type]
    "block within": lambda: BlockAdded(1, TextBlock(text=5)),  # type: ignore[arg-type]
    "state": lambda: BlockEnded(0, 5),  # type: ignore[arg-type]
    "state within": lambda: BlockEnded(0, STATE),
    "delta": lambda: TextDelta(0, 5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("item", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_what_an_adapter_gives_wrong_is_a_protocol_error(item: Any) -> None:
    """The attempt fails as the adapter's fault, what had arrived is kept, and the log can be read."""
    store, agent = MemoryStore(), agent_of()

    async def play(request: Any) -> AsyncIterator[Any]:
        yield TextDelta(0, "Hi.")
        made = item()
        yield made
        if not isinstance(made, ModelResponse):
            yield response()

    async with staged(model=Adapter(play), store=store) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.error.category) == ("failed", "protocol_error")
    await reopened(store, agent)


@pytest.mark.parametrize("fields", [{"category": "weird"}, {"message": 5}, {"code": 5}, {"status": "x"}, {"raw": 5}])
async def test_a_failure_that_no_event_may_hold_is_a_protocol_error(fields: Any) -> None:
    """An adapter's own failure is checked where it is made."""
    store, agent = MemoryStore(), agent_of()

    async def play(request: Any) -> AsyncIterator[Any]:
        raise ProviderError(Failure(**{"category": "auth", "message": "no", **fields}))
        yield

    async with staged(model=Adapter(play), store=store) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.run("Go.", check=False)
        assert turn.error.category == "protocol_error"
    await reopened(store, agent)


async def test_lone_surrogates_of_adapters_are_replaced() -> None:
    """In what a provider says of itself, and in how it fails."""
    store, agent = MemoryStore(), agent_of()
    plans = iter(["answer", "failure", "crash"])

    async def play(request: Any) -> AsyncIterator[Any]:
        plan = next(plans)
        if plan == "failure":
            raise ProviderError(Failure(category="auth", message=LONE, code=LONE, raw=LONE, request_id=LONE))
        if plan == "crash":
            raise RuntimeError(LONE)
        yield ResponseStarted(LONE, LONE)
        yield TextDelta(0, "Hi.")
        yield response(raw_stop_reason=LONE)

    async with staged(model=Adapter(play), store=store) as runtime:
        session = await runtime.session("s", agent)
        assert (await session.run("Go.")).text == "Hi."
        for category in ("auth", "protocol_error"):
            turn = await session.run("Go.", check=False)
            assert turn.error.category == category
            assert "a\ufffdb" in turn.error.message
    await reopened(store, agent)


# ------------------------------------------------------------------------------------------------------- plugins


@pytest.mark.parametrize("verdict", [Ask(5), Deny(123), Deny(None)])  # type: ignore[arg-type]
async def test_a_verdict_without_a_text_fails_the_step_in_the_plugins_name(verdict: Any) -> None:
    """A reason is told to the model or a person."""
    store, agent = MemoryStore(), agent_of(tool_of("pay", lambda arguments, context: "paid"))

    async def decide(call: Any, call_next: Any) -> Any:
        return verdict

    async with staged(call("pay"), say("ok"), store=store, plugins=[plugin("p", pre_execute=decide)]) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.run("Go.", check=False)
        assert (turn.error.category, turn.error.details["plugin"]) == ("hook_failed", "p@1")
    await reopened(store, agent)


@pytest.mark.parametrize("verdict", [Ask(LONE), Deny(LONE)])
async def test_lone_surrogates_in_a_verdict_are_replaced(verdict: Any) -> None:
    """They come from foreign texts that a plugin quotes."""
    store, agent = MemoryStore(), agent_of(tool_of("pay", lambda arguments, context: "paid"))

    async def decide(call: Any, call_next: Any) -> Any:
        return verdict

    async with staged(call("pay"), say("ok"), store=store, plugins=[plugin("p", pre_execute=decide)]) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.run("Go.")
        assert turn.status in ("suspended", "completed")
    await reopened(store, agent)


@pytest.mark.parametrize("hook", ["pre_step", "post_step", "pre_execute", "post_execute", "step_failed"])
async def test_lone_surrogates_in_what_a_hook_raises_are_replaced(hook: str) -> None:
    """The failure is recorded as that of the plugin, whatever its text."""
    store, agent = MemoryStore(), agent_of(tool_of("pay", lambda arguments, context: "paid"))

    async def broken() -> Any:
        raise RuntimeError(LONE)

    script = (fail("auth"),) if hook == "step_failed" else (call("pay"), say("ok"))
    async with staged(*script, store=store, plugins=[plugin("p", **{hook: broken})]) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.run("Go.", check=False)
        assert turn.status == ("completed" if hook == "post_step" else "failed")
    await reopened(store, agent)


@attrs.frozen
class Noted:
    """A plugin's event."""

    text: str


@pytest.mark.parametrize("given", [5, object(), [Noted(text=5)], [Noted(text=LONE)], [5], [Noted]])  # type: ignore[arg-type]
async def test_an_observer_that_returns_no_events_is_reported_and_the_turn_goes_on(given: Any) -> None:
    """Whatever it is: `hook.failed`, never an error out of the turn."""
    store, agent = MemoryStore(), agent_of()

    async def note() -> Any:
        return given

    module = plugin("p", post_step=note)

    def declare(registrar: Any) -> None:
        registrar.add(EventType(name="p.noted", data=Noted))

    module.spine_register_events = hookimpl(specname="spine_register_events")(declare)  # type: ignore[attr-defined]
    async with staged(say("ok"), store=store, plugins=[module]) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.run("Go.")
        assert turn.status == "completed"
        assert [failed.plugin for failed in data_of(session, "hook.failed")] == ["p@1"]
    await reopened(store, agent)


SUMMARIES: dict[str, tuple[Any, str]] = {
    "number": (Message(role="user", content=(TextBlock(text=5),)), "failed"),  # type: ignore[arg-type]
    "no block": (Message(role="user", content=(5,)), "failed"),  # type: ignore[arg-type]
    "surrogate": (Message(role="user", content=(TextBlock(text=LONE),)), "completed"),
}


@pytest.mark.parametrize(("summary", "status"), SUMMARIES.values(), ids=SUMMARIES)
@pytest.mark.parametrize("hook", ["pre_step", "step_failed"])
async def test_a_summary_is_recorded_only_when_it_can_be_read_again(hook: str, summary: Any, status: str) -> None:
    """Surrogates are replaced; anything else fails the step in the plugin's name."""
    store, agent = MemoryStore(), agent_of()
    asked: list[Any] = []

    async def pre_step(request: Any, call_next: Any) -> Any:
        asked.append(request)
        return Compact(summary, 3) if len(asked) == 1 else await call_next(request)

    async def step_failed(error: Any, call_next: Any) -> Any:
        asked.append(error)
        return NextStep(compaction=Compact(summary, 3)) if len(asked) == 1 else await call_next(error)

    hooks = {"pre_step": pre_step} if hook == "pre_step" else {"step_failed": step_failed}
    script = (say("ok"),) if hook == "pre_step" else (fail("auth"), say("ok"))
    async with staged(*script, store=store, plugins=[plugin("p", **hooks)]) as runtime:
        session = await runtime.session("s", agent)
        assert (await session.run("Go.", check=False)).status == status
        assert (data_of(session, "history.compacted") != []) is (status == "completed")
    await reopened(store, agent)


async def test_a_tool_that_raises_a_lone_surrogate_has_failed_like_any_other() -> None:
    """The model is told, with the character replaced."""
    store = MemoryStore()

    def broken(arguments: Any, context: Any) -> Any:
        context.progress(LONE, {LONE: LONE})
        raise RuntimeError(LONE)

    agent = agent_of(tool_of("pay", broken))
    async with staged(call("pay"), say("ok"), store=store) as runtime:
        session = await runtime.session("s", agent)
        assert (await session.run("Go.")).status == "completed"
        assert isinstance(data_of(session, "tool.progress")[0].data, JsonObject)
    await reopened(store, agent)
