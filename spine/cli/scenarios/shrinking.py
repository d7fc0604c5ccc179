"""`scenario shrink` (floor 15): the smallest scenario in which a stored session still fails."""

import pathlib

import anyio
import click

from spine.cli.agents import load_function
from spine.cli.options import options, session_argument
from spine.cli.reading import reading_session
from spine.cli.scenarios.recording import secrets_of, write_down
from spine.cli.screen import note
from spine.config import load_settings
from spine.errors import UsageError
from spine.projectors.phrases import counted
from spine.testing.scenarios.shrinking import Fails, Shrunk, shows
from spine.testing.scenarios.shrinking import shrink as shrink_session

__all__ = ["shrink"]


@click.command()
@session_argument
@click.option("--fails", "function", metavar="MODULE:FUNCTION", help="Whether a tuple of events fails, as a function.")
@click.option("--shows", "text", metavar="TEXT", help="It fails when its transcript holds this text.")
@click.option("-o", "--output", type=click.Path(path_type=pathlib.Path), help="The file; by default stdout.")
@options("plugin", "agent", "store")
def shrink(
    session: str | None,
    function: str | None,
    text: str | None,
    output: pathlib.Path | None,
    plugins: tuple[str, ...],
    agent: str | None,
    store: str | None,
) -> int:
    """Take inputs, answers and faults out of a session as long as it still fails, and write the rest as a scenario."""
    fails = _fails(function, text)

    async def search() -> Shrunk:
        with reading_session(store, session) as reader:
            return await shrink_session(
                reader, fails, agent=agent, plugins=plugins, secrets=secrets_of(load_settings())
            )

    found = anyio.run(search)
    inputs, answers = (f"{left} of {counted(all, noun)}" for (all, left), noun in _counts(found))
    note(f"fails from seq {found.prefix} on; {inputs} and {answers} are left after {counted(found.tries, 'play')}")
    return write_down(found.written, output)


def _counts(found: Shrunk) -> tuple[tuple[tuple[int, int], str], ...]:
    return (found.inputs, "input"), (found.answers, "answer")


def _fails(function: str | None, text: str | None) -> Fails:
    if (function is None) == (text is None):
        raise UsageError("what is a failure? one of --fails and --shows must say it", hint="--shows TEXT")
    return shows(text) if text is not None else load_function(function or "", load_settings().folder)
