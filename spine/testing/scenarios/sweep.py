"""The crash sweep (floor 14): a scenario played once for every place where its process can die.

Those are the borders between two batches of its log, and the failpoints at which something outside is done or heard:
model, tools, hooks, waits. After each death the scenario must come to the same end: turns, calls and outcomes as
expected. Where a call was cut off that must not run twice, the model is told the truth instead, so only what holds in
every log is demanded then; and nowhere does such a tool act more often than in the run that nobody interrupted.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import attrs

from spine.errors import SpineError
from spine.testing.failpoints import Failpoint
from spine.testing.scenarios.check import failed_expectations, failed_invariants
from spine.testing.scenarios.file import read_scenario
from spine.testing.scenarios.play import Ending, play
from spine.testing.scenarios.scenario import Expected, Fault, Moment, Scenario

__all__ = ["SweepResult", "sweep_scenario"]


@attrs.frozen(kw_only=True)
class SweepResult:
    """How a scenario fared; `str()` is the line (or lines) to print. `deaths` counts the places that were tried."""

    path: Path
    deaths: int = 0
    problems: tuple[str, ...] = ()
    """What differs, each with the place where the process died."""
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
        faults = () if problems else tuple(_faults(whole))
        for fault in faults:
            where = f"at {Failpoint(*attrs.astuple(fault.at))}" if fault.is_point else f"after seq {fault.at.nth}"
            problems += [f"died {where}: {problem}" for problem in _die(scenario, fault, whole, backend)]
    except SpineError as error:
        return SweepResult(path=path, problems=(error.message,))
    duration = time.perf_counter() - began
    return SweepResult(path=path, deaths=len(faults), problems=tuple(problems), duration_s=duration)


def _play(scenario: Scenario, backend: str) -> Ending:
    with tempfile.TemporaryDirectory(prefix="spine-sweep-") as folder:
        ending: Ending = anyio.run(play, scenario, Path(folder, "scenario.db"), backend=backend)
    return ending


def _faults(whole: Ending) -> Iterator[Fault]:
    """Every border, and every failpoint; of the pieces of answers, which are many alike, the first and the last."""
    for seq in whole.borders:
        yield Fault(at=Moment("*", seq), do="crash")
    pieces = [point.nth for point in whole.points if point.name == "model.item"]
    for point in whole.points:
        if point.name != "model.item" or point.nth in (pieces[0], pieces[-1]):
            yield Fault(at=Moment(*point), do="crash", is_point=True)


def _die(scenario: Scenario, fault: Fault, whole: Ending, backend: str) -> Iterator[str]:
    ending = _play(attrs.evolve(scenario, faults=(fault,)), backend)
    yield from failed_invariants(ending.events, ending.verification)
    yield from _harms(ending, whole)
    decisions = {event.data.decision for event in ending.events if event.type == "tool.resolved"}
    if "interrupted" in decisions:
        return
    is_rerun = "rerun" in decisions
    yield from (problem for problem in ending.problems if not (is_rerun and problem.startswith("tool ")))
    yield from failed_expectations(_same_end(scenario.expect), ending.events)


def _harms(ending: Ending, whole: Ending) -> Iterator[str]:
    """Tools that acted more often than they would have, and must not."""
    started = (event.data for event in ending.events if event.type == "tool.started")
    for name in sorted({data.name for data in started if data.effect in ("irreversible", "reconcilable")}):
        place = f"tool.{name}.after"
        if ending.ran.get(place, 0) > whole.ran.get(place, 0):
            yield f"tool {name} acted {ending.ran[place]} times, {whole.ran.get(place, 0)} without the crash"


def _same_end(expected: Expected) -> Expected:
    """What must be the same after a crash: an attempt that it swallowed is one more, and says so in events."""
    turns = expected.turns
    if turns is not None:
        turns = tuple(attrs.evolve(turn, retries=None) for turn in turns)
    return Expected(turns=turns, calls=expected.calls, outcomes=expected.outcomes)
