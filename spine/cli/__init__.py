"""The command line (floor 15): which command lies in which module; a module is imported when its command is called.

`spine --help` imports click and this file. A command returns its exit status, None for 0; what it raises is told on
stderr in one line by `spine.cli.ending`.

A heading of the help is a folder here, and so are the two commands that have commands of their own, `scenario` and
`plugins`; files beside the folders serve all of them.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any, Final

import click

from spine import late
from spine.cli.ending import ReaderGone, guarded
from spine.cli.foreign_names import foreign_names

__all__ = ["cli"]

FOREIGN: Final = "spine.cli.foreign"

TABLE: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Begin": {
        "demo": ("spine.cli.begin.demo", "A session from start to end, without a key and without a network."),
        "init": ("spine.cli.begin.init", "Start a project: spine.toml, an agent, a scenario, a test."),
    },
    "Talk": {
        "run": ("spine.cli.talk.run", "Run one turn and print the answer."),
        "chat": ("spine.cli.talk.chat", "Talk with an agent, turn by turn."),
        "resume": ("spine.cli.talk.run", "Go on with a turn that was not finished."),
        "retry": ("spine.cli.talk.run", "Run the input of a failed or cancelled turn again."),
        "approvals": ("spine.cli.talk.approvals", "List the calls that wait for a person."),
        "approve": ("spine.cli.talk.approvals", "Allow a waiting call, and go on."),
        "deny": ("spine.cli.talk.approvals", "Decline a waiting call, and go on."),
        "fork": ("spine.cli.talk.fork", "Make a session that goes on from an event of another."),
    },
    "Look": {
        "sessions": ("spine.cli.look.sessions", "List the sessions of the store."),
        "transcript": ("spine.cli.look.transcript", "Print what a person saw."),
        "log": ("spine.cli.look.log", "Print every event in one line."),
        "request": ("spine.cli.look.request", "Print what the model saw in a step, and what was new."),
        "explain": ("spine.cli.look.request", "Tell whose the parts of a step are, or why a call ran."),
    },
    "Prove": {
        "diff": ("spine.cli.prove.diff", "Compare two sessions: prompts, answers, calls, results, cost."),
        "prefix": ("spine.cli.prove.prefix", "Tell how much of each request the next one begins with."),
        "report": ("spine.cli.prove.report", "Write a session as one HTML page that proves itself."),
        "replay": ("spine.cli.prove.replay", "Run a session again from its log, and tell the first difference."),
        "determinism": ("spine.cli.prove.determinism", "Replay a session elsewhere, and name who depends on where."),
        "what-if": ("spine.cli.prove.what_if", "Run a session on from a step with something else in it, and compare."),
        "verify": ("spine.cli.prove.verify", "Check chain, contents, requests and calls of a session or an export."),
        "export": ("spine.cli.prove.exchange", "Write a session to a file that verifies on its own."),
        "import": ("spine.cli.prove.exchange", "Bring an exported session into the store."),
        "scenario": ("spine.cli.scenarios.run", "Run scenario files, and write sessions down as such."),
    },
    "Keep": {
        "check": ("spine.cli.keep.storage", "Check the storage, and every session in it."),
        "erase": ("spine.cli.keep.erasing", "Erase private data; the log still verifies."),
        "delete": ("spine.cli.keep.erasing", "Delete a session for good."),
        "migrate": ("spine.cli.keep.storage", "Write every session anew into another store, and prove it."),
    },
    "Set up": {
        "models": ("spine.cli.setup.models", "List providers, models, keys and prices."),
        "config": ("spine.cli.setup.models", "Print each effective setting and where it comes from."),
        "plugins": ("spine.cli.plugins.listing", "List plugins and what they offer."),
        "tools": ("spine.cli.plugins.listing", "List tools, and call one without a model."),
        "decode": ("spine.cli.setup.decode", "Read a captured answer of a provider."),
    },
}
"""Heading to command to the module that has it in its `COMMANDS`, and what it does."""

_HOMES: Final[Mapping[str, tuple[str, str]]] = {
    name: entry for commands in TABLE.values() for name, entry in commands.items()
}


class CommandTable(click.Group):
    """A group whose commands are imported when they are called, and whose errors end in one line and a status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Our commands in the order of the table, then those of plugins."""
        return [*_HOMES, *foreign_names()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        home = _HOMES.get(cmd_name)
        if home is None:
            found: click.Command | None = _foreign().command(cmd_name)
            return found
        command: click.Command = late.load(home[0]).COMMANDS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name for one that does not exist."""
        command = self.get_command(ctx, args[0])
        if command is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            nearest = f'; nearest is "{near[0]}"' if near else ""
            raise click.UsageError(f'there is no command "{args[0]}"{nearest}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing a command."""
        sections: dict[str, Iterable[tuple[str, str]]] = {
            heading: [(name, does) for name, (_, does) in commands.items()] for heading, commands in TABLE.items()
        }
        foreign = foreign_names()
        if foreign:
            sections["From plugins"] = [(name, "") for name in foreign]
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(list(rows))

    def invoke(self, ctx: click.Context) -> Any:
        """As click does; a broken pipe is told apart from what went wrong."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as exc:
            raise ReaderGone from exc

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> Any:
        """Run, and exit with the command's status."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra |= {"prog_name": "spine", "standalone_mode": False}
        store = _store_of(arguments)
        run = partial(super().main, arguments, **extra)
        sys.exit(guarded(run, debug="--debug" in arguments, store=store))


def _store_of(arguments: Sequence[str]) -> str | None:
    """What stands after the last `--store`."""
    found = [given for option, given in pairwise(arguments) if option == "--store"]
    found += [given.removeprefix("--store=") for given in arguments if given.startswith("--store=")]
    return found[-1] if found else None


def _foreign() -> ModuleType:
    return late.load(FOREIGN)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"spine {_foreign().own_version()}")
        ctx.exit()


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, help="Print the version.", callback=_print_version
)
def cli() -> None:
    """Agents whose session is an append-only log.

    Answers go to stdout, everything else to stderr. Exit status: 0 it holds, 1 it does not hold or the turn failed,
    2 wrong use or configuration, 3 no verdict (a person or a plugin is missing), 130 interrupted, 141
    whoever read stdout left.
    """
