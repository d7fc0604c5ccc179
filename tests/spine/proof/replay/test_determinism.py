"""A plugin whose section or hook depends on more than it is given is named."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
import test_replay_planted as shop

from spine.proof.replay.determinism import Conditions, Determinism, determinism, report
from spine.proof.replay.run import Given
from spine.sections import Section

pytestmark = pytest.mark.anyio
COUNT = itertools.count()


async def counting(request: Any, call_next: Any) -> Any:
    return await call_next(attrs.evolve(request, seed=next(COUNT)))


OFFENDERS: dict[str, tuple[Callable[[], Given], str]] = {
    "a section that counts": (
        lambda: shop.setting(
            brief=shop.sections(Section("count", render=lambda c: f"number {next(COUNT)}", order=5, dynamic=True))
        ),
        "section count of brief",
    ),
    "a hook that counts": (lambda: shop.setting(brief={"spine_pre_step": counting}), "hook spine_pre_step of brief"),
}


async def test_a_session_of_pure_plugins_is_deterministic() -> None:
    found: Determinism = await determinism(await shop.recorded(shop.setting()), shop.setting())
    assert found.is_whole
    assert found.offenders == ()
    assert report(found).split("\n")[0] == "shop  ok"


@pytest.mark.parametrize("what", OFFENDERS)
async def test_whoever_gives_another_answer_the_second_time_is_named(what: str) -> None:
    given, offender = OFFENDERS[what]
    setting = given()
    found = await determinism(await shop.recorded(setting), setting)
    assert "a second time" in [trial.name for trial in found.offenders]
    assert {trial.offender for trial in found.offenders} == {offender}
    assert report(found).startswith("shop  NOT DETERMINISTIC")


async def test_what_happens_elsewhere_is_compared_with_what_happens_here() -> None:
    seen: list[Conditions] = []

    def elsewhere(conditions: Conditions) -> Mapping[str, Any]:
        seen.append(conditions)
        if not conditions.moved_s:
            return {"difference": None, "cause": None}
        difference = {"seq": 5, "now": "content.added t1s1", "recorded": "content.added t1s1", "path": "$.text"}
        return {"difference": difference, "cause": {"kind": "section", "name": "clock", "owner": "orders"}}

    found = await determinism(await shop.recorded(shop.setting()), shop.setting(), elsewhere)
    (trial,) = found.offenders
    assert (trial.name, trial.offender) == ("clock, zone and locale moved", "section clock of orders")
    assert trial.where == "seq 5 content.added t1s1, path $.text"
    assert [each.variables["PYTHONHASHSEED"] for each in seen] == ["1", "2", "1"]


async def test_a_session_that_changed_since_is_looked_at_up_to_there() -> None:
    log = await shop.recorded(shop.setting())
    found = await determinism(log, shop.setting(temperature=0.9))
    assert found.offenders == ()
    assert not found.is_whole
    assert "Try: spine replay shop" in report(found)
