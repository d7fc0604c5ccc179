"""T17, T21: what a person waits for: the import in a cold process, and two commands."""

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence

import anyio

from benchmarks.figures import Figure, Missing
from benchmarks.timing import child, wall_of
from benchmarks.workload import Sizes, open_runtime, open_session, script
from spine.late import LATE

__all__ = ["measure_commands", "measure_import"]

_LIBRARIES = "import attrs, cattrs, pluggy, anyio"
_CLICK = "import click\n@click.command()\ndef main(): ...\nmain(['--help'])"
_NEVER = ("httpx", "sqlite3", "jsonschema_rs", "yaml", "pytest")
"""What `import spine` must not bring."""


def measure_import(sizes: Sizes) -> list[Figure]:
    """T17: CPU time and memory of a process that imports the package, next to the libraries under it.

    Names come from their homes when they are first asked for, so the import alone says little: what a program pays
    that names an agent, a tool and a runtime stands beside it, under the same bounds.
    """
    never = ", ".join(repr(name) for name in (*_NEVER, *LATE) if not name.startswith("spine"))
    check = f"import sys\nassert not {{{never}}} & set(sys.modules), {{{never}}} & set(sys.modules)\n"
    bare = child("import spine\n" + check, sizes.processes)
    used = child("from spine import Agent, Runtime, tool\n" + check, sizes.processes)
    floor = child(_LIBRARIES, sizes.processes)
    return [
        Figure("T17", bare.cpu_s * 1e3, floor.cpu_s * 1e3),
        Figure("T17 use", used.cpu_s * 1e3, floor.cpu_s * 1e3),
        Figure("T17 memory", used.memory / 2**20, floor.memory / 2**20),
    ]


def measure_commands(sizes: Sizes) -> list[Figure | Missing]:
    """T21: wall time of two commands over that of a bare Python, taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:{os.path.join(folder, 'spine.db')}"
        anyio.run(_store_session, store)
        transcript = ("transcript", "--store", store, "s")
        return [
            _command("T21", ("--help",), folder, sizes.processes),
            _command("T21 transcript", transcript, folder, sizes.processes),
        ]


async def _store_session(store: str) -> None:
    async with open_runtime(store, script(3)) as runtime:
        await (await open_session(runtime, 3)).run("go")


def _command(key: str, arguments: Sequence[str], folder: str, processes: int) -> Figure | Missing:
    spine = os.path.join(os.path.dirname(sys.executable), "spine")
    if not os.path.exists(spine):
        return Missing(key, "the console script is not installed beside this Python")
    costs, floors = [], []
    try:
        for _ in range(processes + 1):
            bare = wall_of((sys.executable, "-c", "pass"), cwd=folder)
            costs.append(wall_of((spine, *arguments), cwd=folder) - bare)
            floors.append(wall_of((sys.executable, "-c", _CLICK), cwd=folder) - bare)
    except OSError as error:
        return Missing(key, str(error))
    return Figure(key, statistics.median(costs[1:]) * 1e3, statistics.median(floors[1:]) * 1e3)
