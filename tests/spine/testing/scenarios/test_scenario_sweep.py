"""The crash sweep: the same end wherever the process dies, and a difference is found."""

from pathlib import Path

import attrs
import pytest

from spine.recovery import RULES
from spine.testing.scenarios.sweep import SweepResult, sweep_scenario

FOLDER = Path(__file__).parents[4] / "scenarios"
TEXT = """\
scenario: x
agent: {model: "demo:small", tools: [{buy: {effect: irreversible}}]}
tools: {buy: {returns: bought, times: 1}}
inputs: [{user: Buy it.}]
model: [{call: {buy: {}}}, {expect: {contains: bought}, say: Done.}]
expect: {turns: [{status: completed, steps: 2}], calls: [buy], outcomes: [ok]}
"""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.scenario.yaml")), ids=lambda path: path.name.partition(".")[0])
def test_each_scenario_comes_to_the_same_end_wherever_it_dies(path: Path) -> None:
    result = sweep_scenario(path)
    assert result.is_ok, f"\n{result}"
    assert result.skipped or result.deaths >= 3


def test_scenarios_are_skipped_only_for_their_faults() -> None:
    skipped = {"crash", "approval-stale", "resume-in-tool", "resume-in-parallel-tools"}
    assert all(sweep_scenario(FOLDER / f"{name}.scenario.yaml").skipped for name in skipped)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_must_not_run_twice_never_does(tmp_path: Path, backend: str) -> None:
    """Where the process dies while it runs, the model is told so, and that is no difference."""
    path = tmp_path / "buy.scenario.yaml"
    path.write_text(TEXT)
    result = sweep_scenario(path, backend=backend)
    assert result.is_ok, result
    assert result.deaths >= 10


def test_a_call_that_acted_and_was_not_written_down_must_not_act_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep dies between a tool's deed and its record, and counts the deeds of all processes."""
    path = tmp_path / "buy.scenario.yaml"
    path.write_text(TEXT.replace(", times: 1", ""))
    assert sweep_scenario(path).is_ok
    monkeypatch.setitem(RULES, "irreversible", "rerun")
    result = sweep_scenario(path)
    assert "died at tool.buy.after: tool buy acted 2 times, 1 without the crash" in result.problems


def test_a_difference_is_found_with_its_place(tmp_path: Path) -> None:
    """The tool says another thing at its second run, so whoever makes it run twice is seen."""
    path = tmp_path / "look.scenario.yaml"
    text = TEXT.replace("effect: irreversible", "effect: read_only").replace(
        "{returns: bought, times: 1}", "[{returns: bought}, {returns: sold}]"
    )
    path.write_text(text.replace("model: [{call: {buy: {}}}, {", "model: [{call: {buy: {}}}, {call: {buy: {}}}, {"))
    result = sweep_scenario(path)
    assert not result.is_ok
    assert result.deaths == 0
    assert result.problems[0].startswith("without a crash: ")


def test_a_file_that_does_not_parse_is_a_result(tmp_path: Path) -> None:
    path = tmp_path / "x.scenario.yaml"
    path.write_text("nonsense")
    assert "expected a mapping" in str(sweep_scenario(path))


OK = SweepResult(path=Path("a/refund.scenario.yaml"), deaths=11, duration_s=0.2)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (OK, "ok    refund.scenario.yaml      died 11 times, same end · 0.20 s"),
        (attrs.evolve(OK, deaths=1), "ok    refund.scenario.yaml      died once, same end · 0.20 s"),
        (attrs.evolve(OK, skipped="a story"), "skip  refund.scenario.yaml      a story"),
        (attrs.evolve(OK, problems=("one", "two")), "FAIL  refund.scenario.yaml      one\n        two"),
    ],
)
def test_a_result_reads_as_a_line(result: SweepResult, text: str) -> None:
    assert str(result) == text
