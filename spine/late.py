"""Modules that are imported when they are first needed, not when `spine` is (floor 0): heavy libraries, and side rooms.

Rule: such a module stands in this table beside the one module of ours that may load it, and is loaded by nobody else.
"""

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final

from spine.errors import UsageError

__all__ = ["LATE", "load", "offered"]

LATE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "jsonschema_rs": "spine.schema",  # 70 ms in a cold process
        "spine.wire.http": "spine.wire.adapter",  # brings httpx: 55 ms
        "spine.stores.memory": "spine.stores.opening",
        "spine.stores.sqlite": "spine.stores.opening",
        "spine.wire.adapter": "spine.opening",  # httpx
        "cattrs": "spine.codec",  # 2 MiB, and what only declares agents writes no event
        "importlib.metadata": "spine.plugins",  # brings email and zipfile: 3 MiB
        "tomllib": "spine.project_file",  # for projects with a spine.toml
        "lzma": "spine.snapshots",  # for long sessions only, and not in every Python
        "spine.project_models": "spine.project_file",
        "spine.holding": "spine.runtime",
        "spine.keys": "spine.config",
        "yaml": "spine.testing.scenarios.yaml_tree",
        "spine.testing.stores.machine": "spine.testing.stores.contract",  # hypothesis
        "spine.testing.scenarios.run": "spine.testing.pytest_plugin",
        "spine.testing.scenarios.recording": "spine.testing.pytest_plugin",
        "spine.testing.scenarios.sweep": "spine.testing.pytest_plugin",
        "spine.testing.adapters.conformance": "spine.testing.pytest_plugin",
        "spine.testing.fixtures": "spine.testing.pytest_plugin",
        "spine.testing.network": "spine.testing.pytest_plugin",
        "spine.testing.snapshots": "spine.testing.pytest_plugin",  # syrupy
        "spine.cli.begin.demo": "spine.cli",
        "spine.cli.begin.init": "spine.cli",
        "spine.cli.foreign": "spine.cli",
        "spine.cli.keep.erasing": "spine.cli",
        "spine.cli.keep.storage": "spine.cli",
        "spine.cli.look.log": "spine.cli",
        "spine.cli.look.request": "spine.cli",
        "spine.cli.look.sessions": "spine.cli",
        "spine.cli.look.transcript": "spine.cli",
        "spine.cli.plugins.listing": "spine.cli",
        "spine.cli.prove.determinism": "spine.cli",
        "spine.cli.prove.diff": "spine.cli",
        "spine.cli.prove.exchange": "spine.cli",
        "spine.cli.prove.prefix": "spine.cli",
        "spine.cli.prove.replay": "spine.cli",
        "spine.cli.prove.report": "spine.cli",
        "spine.cli.prove.verify": "spine.cli",
        "spine.cli.prove.what_if": "spine.cli",
        "spine.cli.scenarios.run": "spine.cli",
        "spine.cli.setup.decode": "spine.cli",
        "spine.cli.setup.models": "spine.cli",
        "spine.cli.talk.approvals": "spine.cli",
        "spine.cli.talk.chat": "spine.cli",
        "spine.cli.talk.fork": "spine.cli",
        "spine.cli.talk.run": "spine.cli",
        "spine.cli.installed": "spine.cli.reading",
        "spine.cli.exported": "spine.cli.reading",
        "spine.cli.look.wire_view": "spine.cli.look.request",
        "spine.cli.setup.captured": "spine.cli.setup.decode",
        "spine.cli.talk.missing_model": "spine.cli.talk.turns",
    }
)
"""Module to the one of ours that loads it."""


def load(name: str) -> ModuleType:
    """The module `name`, imported now if it was not before.

    Raises `UsageError` for a name outside the table, and `ImportError` when it is not installed.
    """
    if name not in LATE:
        raise UsageError(f'"{name}" is not loaded late; the table in spine/late.py has {", ".join(LATE)}')
    return importlib.import_module(name)


def offered(names: dict[str, Any], homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a room whose names are imported from their homes when they are asked for.

    `names` are the room's own globals: what was asked for once stands there from then on.
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            known = ", ".join(names["__all__"])
            raise AttributeError(f'module "{names["__name__"]}" has no name "{name}"; it has {known}')
        value = names[name] = getattr(importlib.import_module(home), name)
        return value

    return find, lambda: sorted({*names, *names["__all__"]})
