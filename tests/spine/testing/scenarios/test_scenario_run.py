"""Running scenario files: results in lines, snapshots, kept logs, folders."""

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from spine.errors import ScenarioInvalid
from spine.testing.scenarios.run import ScenarioResult, find_scenarios, run_scenario, run_scenarios
from spine.testing.scenarios.scenario import Fault, Moment

RunText = Callable[..., ScenarioResult]
TEXT = """\
scenario: says hello
agent: {model: "demo:small"}
inputs: [{user: Hi}]
model: [{say: Hello}]
expect: {transcript: snapshot}
"""


def test_a_snapshot_is_written_compared_and_written_anew(run_text: RunText, tmp_path: Path) -> None:
    snapshot = tmp_path / "x.transcript.txt"
    missing = run_text(TEXT)
    assert missing.problems == ("there is no x.transcript.txt yet; write it with --snapshot-update",)
    assert not snapshot.exists()

    written = run_text(TEXT, update=True)
    assert written.is_ok
    assert written.is_updated
    assert snapshot.read_text() == (
        "x · demo:small\n\nUSER\n    Hi\n\nASSISTANT t1s1\n    Hello\n\nturn t1 completed: 1 step\n"
    )
    again = run_text(TEXT, update=True)
    assert again.is_ok
    assert not again.is_updated

    assert run_text(TEXT).is_ok
    changed = run_text(TEXT.replace("Hello", "Goodbye"))
    (problem,) = changed.problems
    assert problem.startswith("the transcript differs\n--- x.transcript.txt\n+++ this run\n")
    assert "\n-    Hello\n+    Goodbye\n" in problem


def test_a_run_that_went_wrong_writes_no_snapshot(run_text: RunText, tmp_path: Path) -> None:
    result = run_text(TEXT.replace("{say: Hello}", "{say: Hello}, {say: Bye}"), update=True)
    assert not result.is_ok
    assert not (tmp_path / "x.transcript.txt").exists()


def test_a_long_difference_is_cut(run_text: RunText) -> None:
    run_text(TEXT, update=True)
    words = "|\n" + "\n".join(f"        line {number}" for number in range(100))
    (problem,) = run_text(TEXT.replace("[{say: Hello}]", f"\n  - say: {words}")).problems
    assert problem.count("\n") < 45
    assert problem.endswith("more")


def test_the_log_of_a_failure_is_kept_beside_it(run_text: RunText, tmp_path: Path) -> None:
    result = run_text(TEXT, keep_failed=True)
    kept = tmp_path / ".failed" / "x.db"
    assert result.store == kept
    assert kept.read_bytes()[:15] == b"SQLite format 3"
    assert str(result).endswith(f"Try: spine log --store sqlite:{kept}")


def test_a_log_that_holds_is_not_kept(run_text: RunText, tmp_path: Path) -> None:
    assert run_text(TEXT.replace("{transcript: snapshot}", "{}"), keep_failed=True).is_ok
    assert not (tmp_path / ".failed").exists()


def test_a_file_that_does_not_parse_is_a_result(run_text: RunText) -> None:
    result = run_text(TEXT.replace("model:", "modle:"))
    assert str(result).startswith('FAIL  x.scenario.yaml:4:1       unknown key "modle"')


# ---------------------------------------------------------------------------------------------------------- words


OK = ScenarioResult(path=Path("a/refund.scenario.yaml"), events=42, duration_s=0.0213)
CRASH = Fault(at=Moment("tool.started"), do="crash")
RESTART = Fault(at=Moment("tool.started"), do="restart")

LINES: list[tuple[ScenarioResult, str]] = [
    (OK, "ok    refund.scenario.yaml      42 events · 0.02 s"),
    (
        attrs.evolve(OK, ends=((CRASH, 29),)),
        "ok    refund.scenario.yaml      42 events · crashed once, resumed (seq 29) · 0.02 s",
    ),
    (
        attrs.evolve(OK, ends=((CRASH, 9), (RESTART, 12), (CRASH, 19)), is_updated=True),
        "ok    refund.scenario.yaml      42 events · crashed twice, resumed (seq 9, 19) · "
        "restarted once, resumed (seq 12) · snapshot written · 0.02 s",
    ),
    (
        attrs.evolve(OK, ends=((CRASH, 9),) * 3),
        "ok    refund.scenario.yaml      42 events · crashed 3 times, resumed (seq 9, 9, 9) · 0.02 s",
    ),
    (
        attrs.evolve(OK, path=Path("a-rather-long-name.scenario.yaml")),
        "ok    a-rather-long-name.scenario.yaml  42 events · 0.02 s",
    ),
    (
        attrs.evolve(OK, problems=("first\n  more", "second"), line=14),
        "FAIL  refund.scenario.yaml:14   first\n          more\n        second",
    ),
]


@pytest.mark.parametrize(("result", "text"), LINES, ids=range(len(LINES)))
def test_a_result_reads_as_a_line(result: ScenarioResult, text: str) -> None:
    assert str(result) == text


# ---------------------------------------------------------------------------------------------------------- folders


def test_scenarios_are_found_in_folders_and_by_name(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    names = ["b.scenario.yaml", "a.scenario.yaml", "in/c.scenario.yaml"]
    for name in [*names, "other.yaml"]:
        (tmp_path / name).write_text(TEXT)
    found = [tmp_path / name for name in sorted(names)]
    assert find_scenarios([tmp_path]) == found
    assert find_scenarios([found[1], tmp_path, found[1]]) == [found[1], found[0], found[2]]
    with pytest.raises(ScenarioInvalid, match="no such file or folder"):
        find_scenarios([tmp_path / "no"])


def test_each_result_comes_when_it_is_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.scenario.yaml").write_text(TEXT.replace("{transcript: snapshot}", "{}"))
    results = run_scenarios([tmp_path])
    assert next(results).path.name == "a.scenario.yaml"
    assert [result.is_ok for result in results] == [True]


def test_the_same_scenario_gives_the_same_log_on_both_event_loops() -> None:
    """Chunks, waits, parallel tools, an approval and a crash: nothing depends on the event loop."""
    root = Path(__file__).parents[4] / "scenarios"
    for name in ("refund", "parallel-tools", "steering", "cancelled"):
        path = root / f"{name}.scenario.yaml"
        results = [run_scenario(path, backend=backend, keep_failed=False) for backend in ("asyncio", "trio")]
        assert all(result.is_ok for result in results)
        assert len({result.events for result in results}) == 1
