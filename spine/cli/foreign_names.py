"""The names of commands that plugins bring (floor 15), read from the metadata of what is installed.

`spine --help` needs the names alone, and `importlib.metadata` takes longer to import than everything else it does.
"""

import os
import sys
from collections.abc import Iterator
from typing import Final

__all__ = ["foreign_names"]

_SECTION: Final = "[spine.commands]"


def foreign_names() -> list[str]:
    """The names in the entry-point group `spine.commands`, sorted; of packages installed in folders."""
    return sorted({name for path in sys.path for text in _entry_points(path or ".") for name in _names(text)})


def _entry_points(folder: str) -> Iterator[str]:
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return
    for entry in entries:
        try:
            with open(os.path.join(entry.path, "entry_points.txt"), encoding="utf-8") as file:
                yield file.read()
        except (OSError, UnicodeDecodeError):
            continue


def _names(text: str) -> Iterator[str]:
    if _SECTION not in text:
        return
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == _SECTION
        elif inside and "=" in line and not line.startswith(("#", ";")):
            yield line.partition("=")[0].strip()
