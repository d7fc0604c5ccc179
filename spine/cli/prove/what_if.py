"""`what-if` (floor 15): exit status 0 when nothing came out differently, 1 when something did."""

import pathlib
from collections.abc import Iterable
from typing import Final

import anyio
import click

from spine.agent import Agent
from spine.cli.acting import new_session_id, now
from spine.cli.agents import choose_agent, make_importable, recorded_agent
from spine.cli.ending import FAILS, HOLDS, NO_VERDICT
from spine.cli.options import options, session_argument
from spine.cli.reading import find_session
from spine.cli.screen import note, out, out_json
from spine.cli.talk.opening import settings_of
from spine.errors import UsageError
from spine.log import LogReader
from spine.proof.diff import diff_json, diff_text
from spine.proof.what_if import Supposed, WhatIf, step_after, what_if
from spine.runtime import Runtime
from spine.testing.scenarios.agents import make_agent
from spine.testing.scenarios.file import SUFFIX, read_scenario
from spine.testing.scenarios.scenario import Scenario
from spine.testing.scenarios.shrinking import ends_attempt
from spine.testing.scenarios.writing import scenario_of
from spine.testing.scenarios.yaml_tree import dump
from spine.testing.script import Entry
from spine.testing.scripted import ScriptedAdapter
from spine.values import session_id

__all__ = ["COMMANDS"]


@click.command("what-if")
@session_argument
@click.option("--step", metavar="STEP", help="Where to begin: t1s3, say; with --result the step that follows the call.")
@click.option("-m", "--model", metavar="NAME", help="Suppose another model.")
@click.option("--section", "sections", metavar="NAME=TEXT", multiple=True, help="Suppose another section; @FILE reads.")
@click.option("--result", "results", metavar="CALL=TEXT", multiple=True, help="Suppose another result of a call.")
@click.option("--script", type=click.Path(path_type=pathlib.Path), help="A scenario whose model answers.")
@click.option("--live", is_flag=True, help="Ask the real model; by default it answers what it answered.")
@click.option("--run-tools", is_flag=True, help="Run tools; by default a call gets what it got.")
@click.option("--as", "child", metavar="ID", help="The new session's id; by default a new one.")
@options("plugin", "agent", "store", "json")
def what_if_command(
    session: str | None,
    step: str | None,
    model: str | None,
    sections: tuple[str, ...],
    results: tuple[str, ...],
    script: pathlib.Path | None,
    live: bool,
    run_tools: bool,
    child: str | None,
    plugins: tuple[str, ...],
    agent: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Fork a session at a step, put something else in, run it on, and compare what came of it."""
    if live and script is not None:
        raise UsageError("the model is real or a script, not both", hint="spine what-if --help")
    supposed = Supposed(model=model, sections=_pairs("--section", sections), results=_pairs("--result", results))
    settings = settings_of(store, None, agent)
    make_importable(settings.folder)
    id = session_id(child or new_session_id())

    async def run() -> WhatIf:
        # The script is filled once the runtime has opened the store that holds the session.
        answers = None if live else ScriptedAdapter()
        async with Runtime.open(settings=settings, model=answers, plugins=plugins) as runtime:
            reader = runtime.reader(find_session(runtime.store, session))
            at = step or (step_after(reader, list(supposed.results)) if supposed.results else "t1s1")
            written = read_scenario(pathlib.Path(f"{reader.session}{SUFFIX}"), dump(scenario_of(reader).content))
            if answers is not None:
                answers.add(*(_recorded(reader, written, at) if script is None else read_scenario(script).model))
            meant = _agent(runtime, reader, written)
            return await what_if(
                runtime, reader.session, meant, supposed, step=at, child=id, now=now(), runs_tools=run_tools
            )

    found = anyio.run(run)
    comparison = found.comparison
    if as_json:
        out_json(diff_json(comparison) | {"step": found.step, "status": found.status})
    else:
        out(diff_text(comparison))
    note(f"{found.session}: from {found.step} on, {found.status}")
    return NO_VERDICT if found.status == "suspended" else HOLDS if comparison.is_equal else FAILS


def _pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not name or not equals:
            raise UsageError(f'{option} is "{item}"; it must be NAME=TEXT, or NAME=@FILE', hint="spine what-if --help")
        pairs[name] = pathlib.Path(text[1:]).read_text("utf-8") if text.startswith("@") else text
    return pairs


def _recorded(reader: LogReader, written: Scenario, step: str) -> list[Entry]:
    """What the model answered from that step on."""
    skipped = 0
    for event in reader.read():
        if event.place == step:
            break
        skipped += ends_attempt(event)
    return [entry.evolve(expectation=None) for entry in written.model[skipped:]]


def _agent(runtime: Runtime, reader: LogReader, written: Scenario) -> Agent:
    """The agent that is meant; one that no module is known for is made from what the log says of it."""
    chosen = choose_agent(runtime.settings, recorded_agent(reader), reader)
    return make_agent(written.agent, written) if chosen is None else chosen.agent


COMMANDS: Final = {"what-if": what_if_command}
