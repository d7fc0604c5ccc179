"""spine.proof.what_if: the same turn goes on with something else in it, and what came of it is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from spine.config import Settings
from spine.errors import RouteUnknown, SessionExists, UsageError
from spine.log import LogReader
from spine.proof.diff import diff_text
from spine.proof.verify import verify
from spine.proof.what_if import Supposed, WhatIf, step_after, what_if
from spine.runtime import Runtime
from spine.testing import Entry, ScriptedAdapter, call, say
from spine.testing.demo import AGENT, play_demo
from spine.values import SessionId

LOOKED = call("refund", order_id="1017", amount_cents=1290)
DONE = say("Done. 12.90 EUR are on their way, reference R-88.")
Suppose = Callable[..., tuple[WhatIf, LogReader]]


@pytest.fixture
def suppose(tmp_path: Path) -> Suppose:
    """What would have happened in the demonstration; and the log of it."""
    url = f"sqlite:{tmp_path}/spine.db?durability=relaxed"
    anyio.run(play_demo, url)

    def run(supposed: Supposed, *script: Entry, step: str, child: str = "other", **options: Any) -> Any:
        async def go() -> Any:
            model = None if options.pop("is_live", False) else ScriptedAdapter(*script)
            async with Runtime.open(url, model=model, settings=Settings(installed_plugins=False)) as runtime:
                agent = options.pop("agent", AGENT)
                found = await what_if(
                    runtime, "refund-1017", agent, supposed, step=step, child=SessionId(child), now=1, **options
                )
                return found, list(runtime.reader(child).read()), verify(runtime.reader(child))

        found, events, verified = anyio.run(go)
        assert verified.verdict == "ok"
        return found, events

    return run


def differences(found: WhatIf) -> list[tuple[str, str]]:
    return [(each.place, each.what) for each in found.comparison.differences]


def test_the_same_again_differs_in_nothing_but_usage(suppose: Suppose) -> None:
    found, events = suppose(Supposed(), LOOKED, DONE, step="t1s2")
    assert set(differences(found)) == {("t1s2", "answer"), ("t1s2", "usage"), ("t1s3", "usage")}
    assert (found.status, found.session) == ("completed", "other")
    assert [event.type for event in events].count("session.forked") == 1
    assert [event.place for event in events if event.type == "model.requested"] == ["t1s1", "t1s2", "t1s3"]


@pytest.mark.parametrize("name", ["instructions", "policy"])
def test_another_section_reaches_the_request(suppose: Suppose, name: str) -> None:
    found, events = suppose(Supposed(sections={name: "Never refund."}), say("No."), step="t1s2")
    assert differences(found)[:2] == [("t1s2", f"section {name}"), ("t1s2", "answer")]
    assert ("t1s3", "") in differences(found)
    assert "refund" not in [event.data.name for event in events if event.type == "tool.started"]


def test_another_model_is_asked(suppose: Suppose) -> None:
    found, _events = suppose(Supposed(model="other:big"), LOOKED, DONE, step="t1s3")
    assert differences(found)[:2] == [("t1s3", ""), ("t1s3/t1s4", "route")]
    assert "scripted:demo → other:big" in diff_text(found.comparison)


def test_another_result_is_what_the_model_sees(suppose: Suppose) -> None:
    """It stands in the log as a revision by the plugin that put it there."""
    found, events = suppose(Supposed(results={"t1s1c1": "lost"}), say("It is lost."), step="t1s2")
    assert differences(found)[:2] == [("t1s1c1", "result"), ("t1s2", "answer")]
    (revised,) = [event.data for event in events if event.type == "tool.revised"]
    assert [patch.plugin for patch in revised.patches] == ["what_if@1"]
    assert revised.result.content[0].text == "lost"


def test_calls_get_what_they_got_and_nothing_runs(suppose: Suppose) -> None:
    """No person is asked either; another call is told that there is nothing."""
    other = call("refund", order_id="1017", amount_cents=1)
    found, events = suppose(Supposed(), LOOKED + other, DONE, step="t1s2")
    after = next(event for event in events if event.type == "session.forked").seq
    results = [event.data.result.content[0].text for event in events[after:] if event.type == "tool.completed"]
    assert results[0] == "refunded 12.90 EUR, reference R-88"
    assert results[1].startswith("error: refund was not called with these arguments before")
    assert not [event for event in events[after:] if event.type in ("tool.started", "approval.requested")]
    assert found.status == "completed"


def test_tools_run_when_they_are_asked_to(suppose: Suppose) -> None:
    """Then people are asked again, too."""
    found, _events = suppose(Supposed(), LOOKED, DONE, step="t1s2", runs_tools=True)
    assert found.status == "suspended"
    assert ("t1s2c1", "approval") in differences(found)


def test_steering_and_later_turns_do_not_count(suppose: Suppose) -> None:
    found, _ = suppose(Supposed(), say("Hello."), step="t1s1")
    assert {place for place, _ in differences(found)} <= {"t1s1", "t1s2", "t1s3"}


@pytest.mark.parametrize(
    ("supposed", "step", "error", "said"),
    [
        (Supposed(), "t9s9", UsageError, 'no request of step "t9s9"'),
        (Supposed(results={"t9s1c1": "x"}), "t1s2", UsageError, 'no result of call "t9s1c1"'),
    ],
)
def test_what_is_not_there_cannot_be_another(
    suppose: Suppose, supposed: Supposed, step: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        suppose(supposed, step=step)


def test_nothing_is_stored_when_the_model_cannot_be_asked(suppose: Suppose) -> None:
    with pytest.raises(RouteUnknown, match="which no plugin offers"):
        suppose(Supposed(model="anthropic:claude-sonnet-4-5"), step="t1s2", is_live=True)
    found, _ = suppose(Supposed(), say("x"), step="t1s2")
    assert found.session == "other"


def test_a_child_is_never_written_over(suppose: Suppose) -> None:
    suppose(Supposed(), say("x"), step="t1s2")
    with pytest.raises(SessionExists):
        suppose(Supposed(), say("x"), step="t1s2")


def test_results_are_shown_by_the_step_that_follows_their_call(demo: LogReader) -> None:
    assert step_after(demo, ["t1s1c1"]) == "t1s2"
    with pytest.raises(UsageError, match="t1s1, t1s2"):
        step_after(demo, ["t1s1c1", "t1s2c1"])
