"""Nothing that `spine_post_execute` has not let through reaches the model, however its asking was stopped."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from stage import agent_of, data_of, events_of, judge, plugin, staged, tool_of
from test_kill_anywhere import CrashingStore, Later

from spine.messages import TextBlock
from spine.stores.memory import MemoryStore
from spine.testing.script import call, say
from spine.testing.scripted import ScriptedAdapter
from spine.tools import ToolOutcome
from spine.values import encode

pytestmark = pytest.mark.anyio
SECRET = "the number is 4711"


def secretive(*names: str, **fields: Any) -> list[Any]:
    """Tools whose results hold the secret."""
    return [tool_of(name, lambda arguments, context: SECRET, **fields) for name in names]


def redacting(before: Callable[[Any], Awaitable[None]]) -> Any:
    """A plugin that takes results out, after it has awaited something."""

    async def redact(call: Any, outcome: Any, call_next: Any) -> Any:
        await before(call)
        return await call_next(outcome.evolve(content=()))

    return plugin("redact", post_execute=redact)


async def gone_on(session: Any, model: Any) -> None:
    """Whatever the session is asked next, the secret is in no request."""
    await session.run("And now?")
    assert SECRET not in str(tuple(session.history()))
    assert all(SECRET not in str(tuple(request.messages)) for request in model.requests)
    judge(session.log)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("way", ["session", "caller"])
async def test_a_cancel_while_results_are_revised_withholds_them(way: str, parallel: bool) -> None:
    """A cancel that comes while the plugin looks something up leaves no raw result behind, a sibling's neither."""
    model = ScriptedAdapter(call("a") + call("b") + call("c"), say("Fine."))

    async def stop(invocation: Any) -> None:
        if invocation.name == "b":
            if way == "session":
                await session.cancel()
            else:
                scope.cancel()
        await anyio.sleep(0.01 if invocation.name == "a" else 0.05)

    async with staged(model=model, plugins=[redacting(stop)]) as runtime:
        session = await runtime.session("s", agent_of(*secretive("a", "b", "c", parallel=parallel)))
        with anyio.CancelScope() as scope:
            await session.run("Go.")
        assert session.turn.status == "cancelled"
        await gone_on(session, model)


async def test_a_cancel_withholds_the_outcomes_that_hooks_gave_and_nobody_revised_yet() -> None:
    """Outcomes recorded together are revised one by one; those behind the cancelled one are withheld, too."""
    model = ScriptedAdapter(call("a") + call("b"), say("Fine."))

    async def stop(invocation: Any) -> None:
        await session.cancel()

    async def answer(call: Any, call_next: Any) -> Any:
        return ToolOutcome(content=(TextBlock(text=SECRET),))

    async with staged(model=model, plugins=[redacting(stop), plugin("cache", pre_execute=answer)]) as runtime:
        session = await runtime.session("s", agent_of(*secretive("a", "b", parallel=True)))
        turn = await session.run("Go.")
        assert turn.status == "cancelled"
        assert len(data_of(session, "tool.revised")) == 2
        await gone_on(session, model)


async def nothing(invocation: Any) -> None:
    """Let it through at once."""


async def approve(session: Any) -> None:
    await session.approve("a1", by="me")


async def deny(session: Any) -> None:
    await session.deny("a1", by="me")


async def cancel(session: Any) -> None:
    await session.cancel()


async def by_inbox(session: Any) -> None:
    data = encode({"id": "a1", "decision": "approved", "by": "me"})
    session.log.store.put_inbox(session.id, "k", "decision", data)
    await session.take_inbox()
    with anyio.fail_after(5):
        while session.turn.status != "completed":
            await anyio.sleep(0.01)


@pytest.mark.parametrize("door", [approve, deny, cancel, by_inbox])
async def test_results_of_an_earlier_process_are_revised_whatever_door_the_turn_goes_on_through(door: Any) -> None:
    """After a restart the plugin is asked about the result that no request has shown yet."""
    store = MemoryStore()
    agent = agent_of(*secretive("look", parallel=True), *secretive("pay", parallel=True, approval="ask"))

    async def let_through(outcome: Any, call_next: Any) -> Any:
        return await call_next(outcome)

    trusting = plugin("redact", post_execute=let_through)  # approvals are bound to names and versions of plugins
    async with staged(call("look") + call("pay"), store=store, plugins=[trusting]) as runtime:
        session = await runtime.session("s", agent)
        assert (await session.run("Go.")).status == "suspended"
    model = ScriptedAdapter(*[say("Fine.")] * (1 if door is cancel else 2))
    async with staged(model=model, store=store, plugins=[redacting(nothing)]) as runtime:
        session = await runtime.session("s", agent)
        await door(session)
        await gone_on(session, model)


async def test_a_turn_that_an_earlier_process_left_is_cancelled_without_its_raw_results() -> None:
    """The process died between a result and its revision; cancelling the turn instead of resuming withholds it."""
    store = MemoryStore()
    agent = agent_of(*secretive("look"))

    async def wait(invocation: Any) -> None:
        await session_log().commit()

    def session_log() -> Any:
        return held[0].log

    held: list[Any] = []
    model = ScriptedAdapter(call("look"))
    async with staged(model=model, store=CrashingStore(store, "tool.completed"), plugins=[redacting(wait)]) as runtime:
        held.append(await runtime.session("s", agent))
        with pytest.raises(Exception, match="dead"):
            await held[0].run("Go.")
    model = ScriptedAdapter(say("Fine."))
    async with staged(model=model, store=store, clock=Later(5), plugins=[redacting(nothing)]) as runtime:
        session = await runtime.session("s", agent)
        await session.cancel()
        assert session.turn.status == "cancelled"
        await gone_on(session, model)


async def test_a_result_that_a_request_has_shown_stays_as_it_was_shown() -> None:
    """Cancelling the open request of an earlier process does not rewrite the results that it held."""
    store = MemoryStore()
    agent = agent_of(*secretive("look"))
    async with staged(call("look"), say("Never."), store=SecondRequest(store, "model.requested")) as runtime:
        session = await runtime.session("s", agent)
        with pytest.raises(Exception, match="dead"):
            await session.run("Go.")
    async with staged(store=store, clock=Later(5), plugins=[redacting(nothing)]) as runtime:
        session = await runtime.session("s", agent)
        await session.cancel()
        assert events_of(session, "tool.revised") == []
        judge(session.log)


class SecondRequest(CrashingStore):
    """A store that dies with the second event of a kind."""

    seen = 0

    def append(self, batches: Any) -> Any:
        verdicts = self._store.append(batches) if not self.is_dead else None
        if verdicts is None:
            raise RuntimeError("dead")
        self.seen += sum(row.type == self._fatal for batch in batches for row in batch.rows)
        self.is_dead = self.seen > 1
        if self.is_dead:
            raise RuntimeError("dead")
        return verdicts
