"""With real tools, or a real model, a session is run again and its drift is told."""

from typing import Any

import pytest
import test_replay_planted as shop

from spine.errors import NoVerdict
from spine.inputs import input_messages
from spine.proof.diff import diff_text
from spine.proof.replay.live import LivePart, replay_live
from spine.proof.replay.run import Given
from spine.runtime import Runtime
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.testing.script import call, say
from spine.testing.scripted import ScriptedAdapter
from spine.values import SessionId

pytestmark = pytest.mark.anyio


async def otherwise(arguments: Any, context: Any) -> str:
    return "order 7: it went another way"


def with_tools(handler: Any) -> Given:
    return shop.setting(tools=tuple(tool.evolve(handler=handler) for tool in shop.AGENT["tools"]))


async def test_real_tools_that_answer_as_they_did_make_no_drift() -> None:
    found, log = await replay_live(await shop.recorded(shop.setting()), shop.setting(), "tools")
    assert found.is_equal, diff_text(found)
    assert "turn.completed" in [row.type for row in log.rows()]


async def test_a_tools_other_result_is_told_at_its_call() -> None:
    found, _ = await replay_live(await shop.recorded(shop.setting()), with_tools(otherwise), "tools")
    places = {each.place for each in found.differences}
    assert {"t1s1c1", "t1s1c2", "t1s2c1"} <= places
    assert "another way" in diff_text(found)


async def test_a_real_model_that_answers_as_it_did_makes_no_drift_and_runs_no_tool() -> None:
    async def never(arguments: Any, context: Any) -> str:
        raise AssertionError("no tool runs")

    model = ScriptedAdapter(say("Let me look.") + call("look", n=1) + call("look", n=2), call("pay", n=3), say("Done."))
    found, _ = await replay_live(await shop.recorded(shop.setting()), with_tools(never), "model", model=model)
    assert [each.what for each in found.differences] == ["attempts"], diff_text(found)


async def test_a_call_that_the_model_did_not_make_then_has_no_result() -> None:
    model = ScriptedAdapter(call("look", n=9), say("I see."))
    found, log = await replay_live(await shop.recorded(shop.setting()), shop.setting(), "model", model=model)
    assert any("the log has no result of look" in str(event.data) for event in log.read())
    assert not found.is_equal


async def test_an_approval_that_was_not_asked_alike_waits() -> None:
    model = ScriptedAdapter(call("pay", n=5))
    found, log = await replay_live(await shop.recorded(shop.setting()), shop.setting(), "model", model=model)
    assert [row.type for row in log.rows()][-1] == "turn.suspended"
    assert not found.is_equal


@pytest.mark.parametrize("part", ["tools", "model"])
async def test_without_a_plugin_that_had_a_part_there_is_no_verdict(part: LivePart) -> None:
    log = await shop.recorded(shop.setting())
    with pytest.raises(NoVerdict, match=r"^orders took part in shop and is not loaded now$"):
        await replay_live(log, shop.setting(order=("brief",)), part)


async def test_people_steer_and_cancel_where_they_did() -> None:
    setting = shop.setting()
    log = await steered(setting)
    found, again = await replay_live(log, setting, "tools")
    assert found.is_equal, diff_text(found)
    kinds = [row.type for row in again.rows() if row.type in ("input.accepted", "cancel.requested", "turn.cancelled")]
    assert kinds == ["input.accepted", "input.accepted", "cancel.requested", "turn.cancelled"]


async def steered(setting: Given) -> Any:
    """A turn that is steered while a tool runs, and cancelled when a person is asked."""
    store = MemoryStore()
    model = ScriptedAdapter(say("Let me look.") + call("look", n=1), call("pay", n=3))
    async with Runtime.open(store, model=model, plugins=setting.plugins, settings=shop.ALONE) as runtime:
        session = await runtime.session("shop", setting.agent)

        def steer(event: Any) -> None:
            if event.type == "tool.started":
                session._accept(input_messages("Hurry."), "steer")

        session.log.observe(steer)
        await session.run("Refund my mug.")
        await session.cancel("enough")
        return StoredLog(store, runtime.codec, SessionId("shop"))
