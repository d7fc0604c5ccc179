"""`scenario from` and `scenario record` (floor 15): a stored session, or a live run, as a scenario file.

What is written is read back and, where it goes to a file, played once before the command calls it done.
"""

import pathlib
from typing import Final

import anyio
import click

from spine.cli.acting import new_session_id
from spine.cli.ending import FAILS, HOLDS
from spine.cli.options import options, session_argument
from spine.cli.reading import reading_session
from spine.cli.screen import note, out
from spine.cli.talk.opening import open_session, prepare_store, settings_of
from spine.cli.talk.turns import end_turn, interruptible, shown
from spine.config import Settings, find_key, load_settings
from spine.errors import KeyMissing, UsageError
from spine.llm.providers import CATALOGUE
from spine.runtime import Runtime
from spine.testing import run_scenario
from spine.testing.scenarios.file import SUFFIX, read_scenario
from spine.testing.scenarios.writing import WrittenScenario, scenario_of
from spine.testing.scenarios.yaml_tree import dump
from spine.values import Secret

__all__ = ["from_session", "record", "secrets_of", "write_down"]

_SCHEMA: Final = "# yaml-language-server: $schema=scenario.schema.json\n"


@click.command("from")
@session_argument
@click.option("-o", "--output", type=click.Path(path_type=pathlib.Path), help="The file; by default stdout.")
@options("plugin", "agent", "store")
def from_session(
    session: str | None, output: pathlib.Path | None, plugins: tuple[str, ...], agent: str | None, store: str | None
) -> int:
    """Write a stored session, or an export, as a scenario; keys are masked."""
    with reading_session(store, session) as reader:
        written = scenario_of(reader, agent=agent, plugins=plugins, secrets=secrets_of(load_settings()))
    return write_down(written, output)


@click.command()
@click.argument("output", type=click.Path(path_type=pathlib.Path))
@click.argument("inputs", nargs=-1, required=True)
@options("plugin", "agent", "model", "store")
def record(
    output: pathlib.Path,
    inputs: tuple[str, ...],
    plugins: tuple[str, ...],
    agent: str | None,
    model: str | None,
    store: str | None,
) -> int:
    """Run one turn for each of INPUTS with the real model, and write the session as the scenario OUTPUT."""
    _check_new(output)
    settings = settings_of(store, model, agent)

    async def talk() -> WrittenScenario:
        await prepare_store(settings)
        async with Runtime.open(settings=settings) as runtime:
            session = await open_session(runtime, new_session_id())
            for text in inputs:
                with shown(session) as screen:
                    turn = await interruptible(session, lambda text=text: session.run(text, check=False))  # type: ignore[misc]
                    end_turn(session, turn, screen, as_json=False)
            return scenario_of(session.log, agent=settings.agent, plugins=plugins, secrets=secrets_of(settings))

    return write_down(anyio.run(talk), output)


def _check_new(output: pathlib.Path) -> None:
    if not output.name.endswith(SUFFIX):
        raise UsageError(f"{output}: scenarios are called NAME{SUFFIX}")
    if output.exists():
        raise UsageError(f"{output} is there already; nothing was changed", hint="another name")


def write_down(written: WrittenScenario, output: pathlib.Path | None) -> int:
    """Print a scenario, or write it to a file and play it once; the exit status says how that went."""
    for text in written.notes:
        note(f"note: {text}")
    if output is None:
        out(_text(written))
        return HOLDS
    _check_new(output)
    content = {**written.content, "expect": {**written.content["expect"], "transcript": "snapshot"}}
    output.write_text(_text(WrittenScenario(content, ())) + "\n", "utf-8")
    result = run_scenario(output, update=True)
    out(str(result))
    return HOLDS if result.is_ok else FAILS


def _text(written: WrittenScenario) -> str:
    """The file's text, which the reader has accepted."""
    text = _SCHEMA + dump(written.content).rstrip("\n")
    read_scenario(pathlib.Path(f"written{SUFFIX}"), text.encode())
    return text


def secrets_of(settings: Settings) -> list[Secret]:
    """Every key that lies in the environment or a file; no program is run for one that nobody asked for."""
    found: list[Secret] = []
    for provider in settings.extend(CATALOGUE).providers.values():
        if "command" in settings.keys.get(provider.id, {}):
            continue
        try:
            key = find_key(settings, provider)
        except KeyMissing:
            continue
        found += [] if key is None else [key]
    return found
