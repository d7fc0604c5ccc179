"""Renders the command line from click's own tree."""

from collections.abc import Iterator
from typing import Any

import click
from docs_source import one_line, one_sentence_a_line, table

from spine.cli import cli


def tree() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command with its full name, groups first."""
    yield from _below(cli, "spine", None)


def _below(command: Any, name: str, parent: click.Context | None) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    yield name, command, context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from _below(found, f"{name} {each}", context)


def command_regions() -> Iterator[tuple[str, str]]:
    """A command: how it is called, its help, its options; and the list of all."""
    rows = []
    for name, command, context in tree():
        yield f"command {name}", _command(name, command, context)
        if name != "spine":
            rows.append((f"`{name}`", command.get_short_help_str(200)))
    yield "commands", table(("command", "what it does"), rows)


def _command(name: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    help_text = one_sentence_a_line(command.help or "")
    rows = [record for each in command.get_params(context) if (record := each.get_help_record(context)) is not None]
    options = table(
        ("option", "meaning"),
        [(f"`{names}`", one_line(text)) for names, text in rows if text and "--help" not in names],
    )
    return f"```text\n{usage}\n```\n\n{help_text}\n" + (f"\n{options}" if len(rows) > 1 else "")
