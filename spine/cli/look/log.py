"""`log` (floor 15): every event in one line, also of logs that cannot be projected."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click

from spine.cli.options import options, session_argument
from spine.cli.reading import reading_session
from spine.cli.screen import LOCAL, out, out_json
from spine.errors import LogBroken, UsageError
from spine.events import CORE_EVENTS, RecordedEvent, UnknownEvent
from spine.projectors import LogLine, log_lines
from spine.projectors.json import plain, utc
from spine.projectors.phrases import clock
from spine.store import Row
from spine.stored import StoredLog
from spine.values import freeze_object

__all__ = ["COMMANDS"]

POLL_S: Final = 0.2
_WIDTHS: Final = (5, 12, 7, 22)


@click.command()
@session_argument
@options("store", "json")
@click.option("--types", metavar="LIST", help="Only these, as turn,model.requested.")
@click.option("--chunks", is_flag=True, help="Show each flush of chunks on a line of its own.")
@click.option("--follow", is_flag=True, help="Go on with events as they are committed.")
def log(session: str | None, store: str | None, as_json: bool, types: str | None, chunks: bool, follow: bool) -> None:
    """Print every event in one line. Works for every log that can be opened, unknown types included."""
    wanted = _types(types)
    with reading_session(store, session) as reader:
        if as_json:
            for row in _rows(reader, follow):
                if _is_wanted(row.type, wanted):
                    out_json(_fact(reader, row))
            return
        out(_line(("  seq", "at", "step", "event"), "what"))
        for line in log_lines(_events(reader, follow), chunks=chunks or follow):
            if _is_wanted(line.type, wanted):
                out(_log_line(line))


def _types(text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    known = {kind.name for kind in CORE_EVENTS}
    groups = sorted({name.partition(".")[0] for name in known})
    for name in names:
        if "." not in name and name not in groups:
            raise UsageError(f'no event type begins with "{name}"; groups are {", ".join(groups)}', hint="spine log")
    return names


def _is_wanted(kind: str, wanted: tuple[str, ...]) -> bool:
    return not wanted or kind in wanted or kind.partition(".")[0] in wanted


def _rows(reader: StoredLog, follow: bool) -> Iterator[Row]:
    """Stored rows; with `follow` for ever, flushing stdout before each wait."""
    position = 0
    while True:
        for row in reader.rows(after=position):
            position = row.seq
            yield row
        if not follow:
            return
        sys.stdout.flush()
        while reader.head[0] <= position:
            time.sleep(POLL_S)


def _events(reader: StoredLog, follow: bool) -> Iterable[RecordedEvent]:
    prev = reader.genesis
    for row in _rows(reader, follow):
        yield _event(reader, row, prev)
        prev = row.hash


def _event(reader: StoredLog, row: Row, prev: bytes) -> RecordedEvent:
    """The event of a row; one that cannot be read stands in the list with what is wrong with it."""
    try:
        return reader.codec.decode_row(reader.session, row, prev, reader.content)
    except LogBroken as error:
        data = UnknownEvent(freeze_object({"damaged": error.message}))
        return RecordedEvent(**{**row._asdict(), "data": data}, session=reader.session, prev_hash=prev)


def _log_line(line: LogLine) -> str:
    cells = (f"{line.seq:>5}", clock(line.at, LOCAL, day=False), line.step, line.type)
    return _line(cells, line.what)


def _line(cells: tuple[str, ...], what: str) -> str:
    return f"{' '.join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))} {what}".rstrip()


def _fact(reader: StoredLog, row: Row) -> Mapping[str, Any]:
    data = _event(reader, row, b"").data
    return {
        "session": reader.session,
        "seq": row.seq,
        "type": row.type,
        "version": row.version,
        "at": utc(row.at),
        "place": row.place,
        "origin": row.origin,
        "required": row.required,
        "data": data.data if isinstance(data, UnknownEvent) else plain(data, left_out=()),
        "hash": row.hash.hex(),
    }


COMMANDS: Final = {"log": log}
