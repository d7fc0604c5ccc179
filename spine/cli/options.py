"""The options that commands share (floor 15): one table, so that a name means the same everywhere."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

__all__ = ["options", "session_argument"]

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

_OPTIONS: Final[Mapping[str, Decorator]] = {
    "store": click.option("--store", metavar="URL", help="The store: sqlite:PATH, postgresql://…, or a path."),
    "model": click.option("-m", "--model", metavar="NAME", help="provider:name, or an alias."),
    "agent": click.option("--agent", metavar="MODULE:ATTR", help="The agent."),
    "plugin": click.option(
        "--plugin", "plugins", multiple=True, metavar="MODULE", help="A plugin that had a part; repeatable."
    ),
    "capture": click.option(
        "--capture-wire", "capture", flag_value="wire", help="Keep what goes over the wire beside the log."
    ),
    "until": click.option("--until", metavar="SEQ", type=click.IntRange(1), help="Read no further than this event."),
    "json": click.option("--json", "as_json", is_flag=True, help="Print facts as JSON."),
    "debug": click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."),
}


def options(*names: str) -> Callable[[F], F]:
    """Add shared options to a command; `--debug` always."""

    def add(function: F) -> F:
        for name in reversed((*names, "debug")):
            function = _OPTIONS[name](function)
        return function

    return add


def session_argument(function: F) -> F:
    """The optional session: an id, a unique beginning of one, or an export (a path, - for stdin); else the newest."""
    add: Decorator = click.argument("session", required=False)
    decorated: F = add(function)
    return decorated
