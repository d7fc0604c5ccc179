"""The crash sweep (floor 14): a scenario played once for every place where its process can die.

A process can die between two batches of its log, and nowhere else as far as the next one can tell. After each of them
the scenario must come to the same end: turns, calls and outcomes as expected. Where a call was cut off that must not
run twice, the model is told the truth instead, so only what holds in every log is demanded then.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import attrs

from spine.errors import SpineError
from spine.testing.scenario import Expected, Fault, Moment, Scenario
from spine.testing.scenario_check import failed_expectations, failed_invariants
from spine.testing.scenario_file import read_scenario
from spine.testing.scenario_play import Ending, play

__all__ = ["SweepResult", "sweep_scenario"]


@attrs.frozen(kw_only=True)
class SweepResult:
    """How a scenario fared; `str()` is the line (or lines) to print. `deaths` counts the places that were tried."""

    path: Path
    deaths: int = 0
    problems: tuple[str, ...] = ()
    """What differs, each with the seq after which the process died."""
    skipped: str | None = None
    """Why it was not tried."""
    duration_s: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether it came to the same end everywhere."""
        return not self.problems

    def __str__(self) -> str:
        if self.skipped is not None:
            return f"skip  {self.path.name:<24}  {self.skipped}"
        if self.is_ok:
            times = "once" if self.deaths == 1 else f"{self.deaths} times"
            return f"ok    {self.path.name:<24}  died {times}, same end · {self.duration_s:.2f} s"
        return "\n".join(
            [f"FAIL  {self.path.name:<24}  {self.problems[0]}", *(f"        {p}" for p in self.problems[1:])]
        )


def sweep_scenario(path: Path, *, backend: str = "asyncio") -> SweepResult:
    """Play a scenario and let its process die after each batch in turn; its own faults are left out.

    A scenario that does not come to its end without its faults is skipped: they are part of its story.
    """
    began = time.perf_counter()
    try:
        scenario = read_scenario(path)
        whole = _play(attrs.evolve(scenario, faults=()), backend)
        failed = [*whole.problems, *failed_expectations(_same_end(scenario.expect), whole.events)]
        if failed and scenario.faults:
            return SweepResult(path=path, skipped="its faults are part of its story")
        problems = [f"without a crash: {problem}" for problem in failed]
        borders = () if problems else whole.borders
        for seq in borders:
            problems += [f"died after seq {seq}: {problem}" for problem in _die(scenario, seq, backend)]
    except SpineError as error:
        return SweepResult(path=path, problems=(error.message,))
    duration = time.perf_counter() - began
    return SweepResult(path=path, deaths=len(borders), problems=tuple(problems), duration_s=duration)


def _play(scenario: Scenario, backend: str) -> Ending:
    with tempfile.TemporaryDirectory(prefix="spine-sweep-") as folder:
        ending: Ending = anyio.run(play, scenario, Path(folder, "scenario.db"), backend=backend)
    return ending


def _die(scenario: Scenario, seq: int, backend: str) -> Iterator[str]:
    fault = Fault(at=Moment("*", seq), do="crash")
    ending = _play(attrs.evolve(scenario, faults=(fault,)), backend)
    yield from failed_invariants(ending.events, ending.verification)
    decisions = {event.data.decision for event in ending.events if event.type == "tool.resolved"}
    if "interrupted" in decisions:
        return
    is_rerun = "rerun" in decisions
    yield from (problem for problem in ending.problems if not (is_rerun and problem.startswith("tool ")))
    yield from failed_expectations(_same_end(scenario.expect), ending.events)


def _same_end(expected: Expected) -> Expected:
    """What must be the same after a crash: an attempt that it swallowed is one more, and says so in events."""
    turns = expected.turns
    if turns is not None:
        turns = tuple(attrs.evolve(turn, retries=None) for turn in turns)
    return Expected(turns=turns, calls=expected.calls, outcomes=expected.outcomes)
