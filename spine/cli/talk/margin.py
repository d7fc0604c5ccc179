"""Streamed text set off from the margin (floor 15), so that on a terminal no answer can imitate the runtime's lines.

The rule it guards: no piece of a model's text begins in the first columns of a line, not even where the terminal
itself would begin a new one.
"""

import shutil
import unicodedata
from typing import Final

__all__ = ["Margin"]

INDENT: Final = "    "
NARROWEST: Final = 20
"""Columns below which lines are left to the terminal."""
TAB: Final = 8


class Margin:
    """Indents pieces of text as they arrive; remembers the column that the last one ended in."""

    def __init__(self, columns: int | None = None) -> None:
        self._given = columns
        self._column = 0

    def indent(self, text: str) -> str:
        """`text` as it goes on from the piece before it."""
        columns = self._given or shutil.get_terminal_size().columns
        done: list[str] = []
        for character in text:
            if character == "\n":
                done.append(character)
                self._column = 0
                continue
            width = _width(character)
            if columns >= NARROWEST and self._column and self._column + width > columns:
                done.append("\n")
                self._column = 0
            if not self._column:
                done.append(INDENT)
                self._column = len(INDENT)
            done.append(character)
            self._column += width
        return "".join(done)

    def end_line(self) -> None:
        """What comes next begins a line."""
        self._column = 0


def _width(character: str) -> int:
    """Columns that a character takes; rather one too many than one too few."""
    if character == "\t":
        return TAB
    if character.isascii():
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F", "A") else 1
