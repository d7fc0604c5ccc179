"""What commands print (floor 15): answers to stdout, everything else to stderr; colour only on a terminal.

Foreign text passes through `visible` before it reaches a terminal, so that nothing written by a model acts on it.
"""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import IO, Any, Final

import click

from spine.values import encode

__all__ = ["LOCAL", "columns", "is_terminal", "note", "out", "out_document", "out_json", "paint"]

_UTF8: Final = ("utf-8", "utf8")
_MARKS: Final[dict[str, dict[str, Any]]] = {
    ">": {"fg": "cyan"},
    "<": {"fg": "bright_black"},
    "!": {"fg": "red"},
    "?": {"fg": "yellow"},
    "~": {"fg": "magenta"},
    "+": {"fg": "green"},
}


class _Local(tzinfo):
    """This machine's time zone, with the offset that held at each moment."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        stamp = time.time() if moment is None else time.mktime(moment.replace(tzinfo=None).timetuple())
        return timedelta(seconds=time.localtime(stamp).tm_gmtoff)

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "local"

    def fromutc(self, moment: datetime) -> datetime:
        stamp = (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
        return moment + timedelta(seconds=time.localtime(stamp).tm_gmtoff)


LOCAL: Final[tzinfo] = _Local()


def out(text: str) -> None:
    """An answer, as a line or lines of its own."""
    sys.stdout.write(f"{text}\n")


def out_document(text: str) -> None:
    """An answer in a format that is UTF-8 by definition, whatever stdout's encoding is."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and sys.stdout.encoding.lower() not in _UTF8:
        reconfigure(encoding="utf-8", errors="backslashreplace")
    out(text)


def out_json(value: Any) -> None:
    """A fact as one line of JSON, keys sorted."""
    out_document(encode(value).decode())


def note(text: str) -> None:
    """Something that is not the answer."""
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)


def is_terminal(stream: IO[Any]) -> bool:
    """Whether a person looks at the stream."""
    return stream.isatty()


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a heading; the last column is not padded."""
    table = [tuple(head), *map(tuple, rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in table)


def paint(text: str) -> str:
    """A transcript's text, coloured by its marks when stdout is a terminal and `NO_COLOR` is not set."""
    if not is_terminal(sys.stdout) or os.environ.get("NO_COLOR"):
        return text
    return "\n".join(_painted(line) for line in text.split("\n"))


def _painted(line: str) -> str:
    if line and not line.startswith(" "):
        return click.style(line, bold=True)
    mark = line[2:3] if line.startswith("  ") and line[3:4] in (" ", "") else ""
    return click.style(line, **_MARKS[mark]) if mark in _MARKS else line
