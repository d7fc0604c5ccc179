"""What must hold in the end: each expectation met and not met, and the invariants of every log."""

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from spine.events import ToolCompleted
from spine.testing.scenarios.check import failed_invariants
from spine.testing.scenarios.file import read_scenario
from spine.testing.scenarios.play import Ending, play
from spine.testing.scenarios.run import ScenarioResult

RunText = Callable[..., ScenarioResult]

TEXT = """\
scenario: x
agent: {model: "demo:small", steps: 2, tools: [{slow: {effect: read_only}}, {fast: {effect: read_only}}]}
tools: {slow: {returns: 1, delay_s: 2}, fast: {raises: broke, delay_s: 1}}
inputs: [{user: Go.}, {user: Again.}]
model:
  - {say: Let me see., call: [{slow: {}}, {fast: {}}]}
  - {say: Done.}
  - {call: {slow: {}}}
  - {call: {slow: {}}}
expect: """

MET = [
    "{turns: [{status: completed, steps: 2, retries: 0, tool_calls: 2}, {status: failed, error: limit}]}",
    "{turns: [{status: completed, stop_reason: end_turn, text: Done.}, {status: failed, steps: 2}]}",
    "{calls: [slow, fast, slow, slow]}",
    "{finished: [fast, slow, slow, slow]}",
    "{outcomes: [ok, error, ok, ok]}",
    "{events: [turn.started, tool.started, turn.completed, turn.failed]}",
    "{never: [turn.cancelled, crm.linked]}",
    "{}",
]  # fmt: skip
NOT_MET = [
    ("{turns: [{status: completed}]}", "expected 1 turns; found 2: [completed, failed]"),
    ("{turns: [{status: failed}, {status: failed}]}", "turn t1: expected status failed; found completed"),
    ("{turns: [{status: completed, steps: 3}, {status: failed}]}", "turn t1: expected steps 3; found 2"),
    ("{turns: [{status: completed, retries: 1}, {status: failed}]}", "turn t1: expected retries 1; found 0"),
    ("{turns: [{status: completed, tool_calls: 1}, {status: failed}]}", "turn t1: expected tool_calls 1; found 2"),
    ("{turns: [{status: completed, text: Hm.}, {status: failed}]}", "turn t1: expected text Hm.; found Done."),
    ("{turns: [{status: completed, stop_reason: pause}, {status: failed}]}", "expected stop_reason pause"),
    ("{turns: [{status: completed}, {status: completed}]}", "completed; found failed (limit: 2 steps used)"),
    ("{turns: [{status: completed}, {status: failed, error: auth}]}", "turn t2: expected error auth; found limit"),
    ("{calls: [fast, slow]}", "expected calls [fast, slow]; found [slow, fast, slow, slow]"),
    ("{finished: [slow, fast]}", "expected finished [slow, fast]; found [fast, slow, slow, slow]"),
    ("{outcomes: []}", "expected outcomes []; found [ok, error, ok, ok]"),
    ("{events: [turn.completed, turn.completed]}", "expected turn.completed after turn.completed; there is none"),
    ("{events: [turn.suspended]}", "expected turn.suspended; there is none"),
    ("{never: [turn.failed]}", "turn.failed must never occur; it did at seq"),
]  # fmt: skip


@pytest.mark.parametrize("expected", MET)
def test_an_expectation_that_is_met(run_text: RunText, expected: str) -> None:
    result = run_text(TEXT + expected)
    assert result.is_ok, result


@pytest.mark.parametrize(("expected", "message"), NOT_MET)
def test_an_expectation_that_is_not_met(run_text: RunText, expected: str, message: str) -> None:
    result = run_text(TEXT + expected)
    assert len(result.problems) == 1
    assert message in result.problems[0]


# ------------------------------------------------------------------------------------------------------ invariants


@pytest.fixture
async def ending(tmp_path: Path) -> Ending:
    scenario = read_scenario(Path("x.scenario.yaml"), TEXT + "{}")
    return await play(scenario, tmp_path / "x.db")


async def test_a_good_log_has_every_invariant(ending: Ending) -> None:
    assert list(failed_invariants(ending.events, ending.verification)) == []


async def test_a_call_without_an_answer_is_found(ending: Ending) -> None:
    events = [event for event in ending.events if not isinstance(event.data, ToolCompleted)]
    (problem,) = failed_invariants(events, ending.verification)
    assert problem == "the calls t1s1c1, t1s1c2, t2s1c1, t2s2c1 were asked for, answered are none"


async def test_a_broken_log_is_found(ending: Ending) -> None:
    assert ending.verification is not None
    from spine.proof.verify import Problem

    broken = attrs.evolve(ending.verification, problems=(Problem(seq=2, what="x", text="it is odd"),), broken_at=2)
    (problem,) = failed_invariants(ending.events, broken)
    assert "it is odd" in problem


def test_nothing_recorded_is_found() -> None:
    assert list(failed_invariants((), None)) == ["nothing was recorded"]
