"""Every scenario of ours holds, and together they show what they are there to show."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spine.testing.scenarios.file import read_scenario
from spine.testing.scenarios.run import run_scenario

FOLDER = Path(__file__).parents[2] / "scenarios"
PATHS = sorted(FOLDER.glob("*.scenario.yaml"))
SHOWN = (
    "plain-text",
    "one-tool",
    "several-steps",
    "parallel-tools",
    "unknown-tool",
    "invalid-arguments",
    "tool-exception",
    "tool-timeout",
    "retry",
    "broken-stream",
    "request-rewritten",
    "tool-vetoed",
    "result-redacted",
    "scope-shadowing",
    "section-trimmed",
    "step-limit",
    "token-limit",
    "time-limit",
    "time-limit-in-tools",
    "steering",
    "cancelled",
    "approved",
    "denied",
    "approval-stale",
    "crash",
    "resume-in-stream",
    "resume-in-tool",
    "resume-in-parallel-tools",
    "refund",
    "cut-answer",
    "refusal",
    "pause",
    "interruption",
    "fallback",
    "compaction",
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.partition(".")[0])
def test_a_scenario_holds(path: Path, backend: str, request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--snapshot-update"))
    result = run_scenario(path, update=update, backend=backend)
    assert result.is_ok, f"\n{result}"


def test_nothing_is_missing() -> None:
    assert {path.name.partition(".")[0] for path in PATHS} >= set(SHOWN)


def snapshots() -> Iterator[Path]:
    return FOLDER.glob("*.transcript.txt")


def test_every_scenario_has_a_transcript_and_the_reverse() -> None:
    wanted = {read_scenario(path).snapshot for path in PATHS if read_scenario(path).expect.transcript}
    assert wanted == set(snapshots())
    assert len(wanted) == len(PATHS)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.partition(".")[0])
def test_a_scenario_says_what_it_shows_and_expects_something(path: Path) -> None:
    scenario = read_scenario(path)
    assert len(scenario.name.split()) >= 4
    assert scenario.expect.turns
