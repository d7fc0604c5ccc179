"""Runs scenario files and says how each one went (floor 14): what `spine scenario run` and pytest show.

A scenario is a session, an expectation and a transcript in one; a run of it takes milliseconds and no key. The log of
one that fails is kept beside it, to be looked at with the ordinary commands.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Final

import anyio
import attrs

from spine.errors import ScenarioInvalid, SpineError
from spine.proof.replay.run import Replayed
from spine.proof.replay.text import finding
from spine.testing.scenarios.check import failed_expectations, failed_invariants, transcript_of
from spine.testing.scenarios.file import SUFFIX, read_scenario
from spine.testing.scenarios.play import Ending, play
from spine.testing.scenarios.replay import replay_scenario
from spine.testing.scenarios.scenario import Fault, Scenario

__all__ = ["ScenarioResult", "find_scenarios", "run_scenario", "run_scenarios"]

FAILED_FOLDER: Final = ".failed"
_COUNTS: Final = {1: "once", 2: "twice"}
_MAX_DIFF_LINES: Final = 40


@attrs.frozen(kw_only=True)
class ScenarioResult:
    """How a scenario went; `str()` is the line (or lines) to print. It holds when there are no `problems`."""

    path: Path
    name: str = ""
    """The scenario's sentence."""
    problems: tuple[str, ...] = ()
    """What differs, most telling first; each may have several lines."""
    line: int | None = None
    """Line of the entry at which the run went wrong."""
    events: int = 0
    ends: tuple[tuple[Fault, int], ...] = ()
    """Each fault that struck, with the seq from which the next process went on."""
    transcript: str = ""
    is_updated: bool = False
    """The snapshot was written anew."""
    is_replayed: bool = False
    """It ran a second time from its own log and came out equal, byte for byte."""
    store: Path | None = None
    """The kept log of a scenario that failed."""
    duration_s: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether everything holds."""
        return not self.problems

    def __str__(self) -> str:
        return "\n".join(_report(self))


def find_scenarios(paths: Sequence[Path]) -> list[Path]:
    """The scenario files in these files and folders, each once, sorted within a folder. Raises `ScenarioInvalid`."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found.extend(sorted(path.rglob(f"*{SUFFIX}")))
        elif path.is_file():
            found.append(path)
        else:
            raise ScenarioInvalid(f"{path}: no such file or folder; scenarios are called NAME{SUFFIX}")
    return list(dict.fromkeys(found))


def run_scenarios(
    paths: Sequence[Path], *, update: bool = False, keep_failed: bool = True, backend: str = "asyncio"
) -> Iterator[ScenarioResult]:
    """Run the scenarios in these files and folders one by one; each result comes when it is there.

    A file that does not parse is a result with that problem. `update` writes snapshots anew instead of comparing.
    `backend` is the event loop, asyncio or trio.
    """
    for path in find_scenarios(paths):
        yield run_scenario(path, update=update, keep_failed=keep_failed, backend=backend)


def run_scenario(
    path: Path, *, update: bool = False, keep_failed: bool = True, backend: str = "asyncio"
) -> ScenarioResult:
    """Run one scenario file; never raises for what is wrong with it."""
    began = time.perf_counter()
    try:
        scenario = read_scenario(path)
        with tempfile.TemporaryDirectory(prefix="spine-scenario-") as folder:
            database = Path(folder, "scenario.db")
            ending: Ending = anyio.run(play, scenario, database, backend=backend)
            replayed = replay_scenario(scenario, ending, database, backend=backend)
            result = _judge(scenario, ending, update, replayed)
            if keep_failed and not result.is_ok and result.events:
                result = attrs.evolve(result, store=_keep(database, scenario))
    except SpineError as error:
        result = ScenarioResult(path=path, problems=(error.message,))
    return attrs.evolve(result, duration_s=time.perf_counter() - began)


def _keep(database: Path, scenario: Scenario) -> Path | None:
    if not database.is_file():
        return None
    folder = scenario.path.parent / FAILED_FOLDER
    folder.mkdir(exist_ok=True)
    return Path(shutil.copy(database, folder / f"{scenario.session}.db"))


# -------------------------------------------------------------------------------------------------------- judging


def _judge(scenario: Scenario, ending: Ending, update: bool, replayed: Replayed | None) -> ScenarioResult:
    if ending.problems and not ending.events:  # nothing ran, so that nothing else can be told of it
        return ScenarioResult(path=scenario.path, name=scenario.name, problems=ending.problems[:1])
    text = transcript_of(ending.events) if ending.events else ""
    problems = [
        *ending.problems,
        *failed_invariants(ending.events, ending.verification),
        *failed_expectations(scenario.expect, ending.events),
    ]
    if replayed is not None and not replayed.is_equal:
        problems.append(f"run a second time from its own log, it is not the same\n{finding(replayed)}")
    is_updated = False
    if scenario.expect.transcript == "snapshot":
        if update and not problems:
            is_updated = _write(scenario.snapshot, text)
        else:
            problems += _snapshot_problems(scenario.snapshot, text)
    entry = None if ending.entry is None or ending.entry > len(scenario.model) else scenario.model[ending.entry - 1]
    return ScenarioResult(
        path=scenario.path,
        name=scenario.name,
        problems=tuple(problems),
        line=int(entry.where.removeprefix("line ")) if entry is not None and entry.where else None,
        events=len(ending.events),
        ends=ending.ends,
        transcript=text,
        is_updated=is_updated,
        is_replayed=replayed is not None and replayed.is_equal,
    )


def _write(snapshot: Path, text: str) -> bool:
    """Write a snapshot when it differs; a run that went wrong writes none."""
    if snapshot.is_file() and snapshot.read_text("utf-8") == f"{text}\n":
        return False
    snapshot.write_text(f"{text}\n", "utf-8")
    return True


def _snapshot_problems(snapshot: Path, text: str) -> list[str]:
    if not snapshot.is_file():
        return [f"there is no {snapshot.name} yet; write it with --snapshot-update"]
    kept = snapshot.read_text("utf-8").splitlines()
    lines = list(unified_diff(kept, text.splitlines(), snapshot.name, "this run", lineterm="", n=2))
    if not lines:
        return []
    shown = (
        lines if len(lines) <= _MAX_DIFF_LINES else [*lines[:_MAX_DIFF_LINES], f"… {len(lines) - _MAX_DIFF_LINES} more"]
    )
    return ["the transcript differs\n" + "\n".join(shown)]


# ------------------------------------------------------------------------------------------------------- in words


def _report(result: ScenarioResult) -> Iterator[str]:
    if result.is_ok:
        yield f"ok    {result.path.name:<24}  {' · '.join(_facts(result))}"
        return
    place = result.path.name if result.line is None else f"{result.path.name}:{result.line}"
    first, *others = [line for problem in result.problems for line in problem.split("\n")]
    if first.startswith(f"{result.path.name}:"):  # the reader's message says the place itself
        place, _, first = first.partition(": ")
    yield f"FAIL  {place:<24}  {first}"
    yield from (f"        {line}".rstrip() for line in others)
    if result.store is not None:
        yield f"        Try: spine log --store sqlite:{_short(result.store)}"


def _facts(result: ScenarioResult) -> Iterator[str]:
    yield f"{result.events} events"
    for kind, word in (("crash", "crashed"), ("restart", "restarted")):
        seqs = [str(seq) for fault, seq in result.ends if fault.do == kind]
        if seqs:
            yield f"{word} {_COUNTS.get(len(seqs), f'{len(seqs)} times')}, resumed (seq {', '.join(seqs)})"
    if result.is_replayed:
        yield "replayed equal"
    if result.is_updated:
        yield "snapshot written"
    yield f"{result.duration_s:.2f} s"


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
