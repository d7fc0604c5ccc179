"""The prefix law on real sessions: what the live projections held after each event is the fold of the stored prefix."""

import copy
from typing import Any

import attrs
import pytest
from stage import agent_of, judge, plugin, staged, tool_of

from spine.hooks import Ask
from spine.projectors.model_history import ModelHistory
from spine.projectors.status import Status
from spine.testing.script import Entry, call, call_text, fail, say, stop, think

pytestmark = pytest.mark.anyio


def three() -> Entry:
    return call("look", n=1) + call("look", n=2) + call_text("look", "broken")


RUNS: dict[str, tuple[Entry, ...]] = {
    "text": (think("Hm.") + say("Done."),),
    "tools": (say("So.") + three(), call("nope"), say("Done.")),
    "an approval": (call("pay") + call("look"), say("Done.")),
    "a retry": (fail("overloaded", retry_after_s=0), say("Done.")),
    "a failure": (call("look"), say("Half") + fail("connection")),
    "a pause and a cut": (say("So far") + stop("pause"), call("look") + stop("max_tokens"), say("Done.")),
}


@pytest.mark.parametrize("name", RUNS)
async def test_live_projections_are_folds_of_the_stored_prefix(name: str) -> None:
    """After every append: history and status as the loop saw them equal a fresh fold of what is stored up to there."""
    live: list[tuple[int, Any, Any]] = []

    async def post(outcome: Any, call_next: Any) -> Any:
        return await call_next(outcome.evolve(content=()))

    async def pre(call: Any, call_next: Any) -> Any:
        return Ask("money") if call.name == "pay" else await call_next(call)

    plugins = [plugin("p", post_execute=post, pre_execute=pre)]
    async with staged(*RUNS[name], say("Next."), plugins=plugins) as runtime:
        tools = [tool_of(n, lambda a, c: "x", parallel=True) for n in ("look", "pay")]
        session = await runtime.session("s", agent_of(*tools))
        log = session.log
        log.observe(lambda event: live.append((event.seq, tuple(log.history), copy.deepcopy(log.status))))
        turn = await session.run("Go.", check=False)
        if turn.status == "suspended":
            await session.deny(turn.approvals[0].id, by="me")
        await session.run("Again.")
        events = judge(log)

    history, status = ModelHistory(), Status()
    held, stands = history.initial(), status.initial()
    assert [seq for seq, _, _ in live] == [event.seq for event in events]
    for event, (_, messages, was) in zip(events, live, strict=True):
        if event.type in history.types:
            history.apply(held, event)
        if event.type in status.types:
            status.apply(stands, event)
        assert tuple(held.view()) == messages
        assert attrs.asdict(stands, recurse=False) == attrs.asdict(was, recurse=False)
