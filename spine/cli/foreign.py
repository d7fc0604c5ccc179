"""A command that a plugin brings (floor 15): an entry point of the group `spine.commands`, imported when called."""

from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Final

import click

from spine.errors import PluginFailed

__all__ = ["command", "own_version"]

GROUP: Final = "spine.commands"


def command(name: str) -> click.Command | None:
    """A plugin's command, None when nobody brings it. Raises `PluginFailed` when its module does not load."""
    entry = next((entry for entry in entry_points(group=GROUP) if entry.name == name), None)
    if entry is None:
        return None
    try:
        found = entry.load()
    except Exception as exc:
        message = f'command "{name}" of {_package(entry)} does not load: {type(exc).__name__}: {exc}'
        raise PluginFailed(message, plugin=_package(entry)) from exc
    if not isinstance(found, click.Command):
        message = f'command "{name}" of {_package(entry)} is {type(found).__name__}; it must be a click.Command'
        raise PluginFailed(message, plugin=_package(entry))
    return found


def own_version() -> str:
    """The version of the installed package."""
    try:
        return version("agent-spine")
    except PackageNotFoundError:
        return "unknown"


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value
