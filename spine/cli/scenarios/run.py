"""`scenario` (floor 15): files that are played without a key; exit status 1 when one does not hold."""

import pathlib
from collections.abc import Callable, Iterable
from typing import Final

import click

from spine.cli.agents import make_importable
from spine.cli.ending import FAILS, HOLDS
from spine.cli.options import options
from spine.cli.scenarios.recording import from_session, record
from spine.cli.scenarios.shrinking import shrink
from spine.cli.screen import note, out, out_json
from spine.config import load_settings
from spine.errors import UsageError
from spine.testing import ScenarioResult, SweepResult, find_scenarios, record_scenario, run_scenarios, sweep_scenario

__all__ = ["COMMANDS"]


@click.group()
@options()
def scenario() -> None:
    """Run scenario files, and write sessions down as such."""


scenario.add_command(from_session)
scenario.add_command(record)
scenario.add_command(shrink)


@scenario.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=pathlib.Path))
@click.option("--snapshot-update", is_flag=True, help="Write transcripts anew instead of comparing.")
@click.option("--crash-sweep", is_flag=True, help="Play each once for every place where its process can die.")
@click.option("--record", "is_recording", is_flag=True, help="Ask the real models anew and write their answers.")
@options("json")
def run(
    paths: tuple[pathlib.Path, ...], snapshot_update: bool, crash_sweep: bool, is_recording: bool, as_json: bool
) -> int:
    """Run the scenarios in files and folders; by default those in scenarios/."""
    if crash_sweep and (snapshot_update or is_recording):
        raise UsageError("--crash-sweep compares no transcript, so it cannot write one", hint="spine scenario run")
    make_importable(load_settings().folder)
    count = failed = 0
    chosen = find_scenarios(paths or (pathlib.Path("scenarios"),))
    mode: Callable[[pathlib.Path], ScenarioResult | SweepResult] | None
    mode = sweep_scenario if crash_sweep else record_scenario if is_recording else None
    results: Iterable[ScenarioResult | SweepResult] = (
        run_scenarios(chosen, update=snapshot_update) if mode is None else map(mode, chosen)
    )
    for result in results:
        count += 1
        failed += not result.is_ok
        if as_json:
            out_json(_fact(result))
        else:
            out(str(result))
    if not count:
        raise UsageError("no scenario was found; files are called NAME.scenario.yaml", hint="spine init NAME")
    note(f"{count - failed} of {count} hold")
    return FAILS if failed else HOLDS


def _fact(result: ScenarioResult | SweepResult) -> dict[str, object]:
    if isinstance(result, SweepResult):
        return {
            "path": str(result.path),
            "ok": result.is_ok,
            "deaths": result.deaths,
            "problems": list(result.problems),
            "skipped": result.skipped,
            "duration_s": result.duration_s,
        }
    return {
        "path": str(result.path),
        "scenario": result.name,
        "ok": result.is_ok,
        "problems": list(result.problems),
        "line": result.line,
        "events": result.events,
        "store": None if result.store is None else str(result.store),
        "duration_s": result.duration_s,
    }


COMMANDS: Final = {"scenario": scenario}
