"""`sessions`, `transcript`, `log` (floor 15): reading what happened; nothing is imported that could act."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click

from spine.cli.options import options, session_argument
from spine.cli.reading import Reading, checked, reading, reading_session
from spine.cli.screen import LOCAL, columns, is_terminal, out, out_json, paint
from spine.errors import UsageError
from spine.events import CORE_EVENTS, RecordedEvent
from spine.log import LogReader
from spine.projectors import LogLine, SessionTranscript, fold, log_lines, to_html, to_json, to_markdown, to_text
from spine.projectors.json import utc
from spine.projectors.phrases import clock, json_text
from spine.projectors.text import SCREEN_OUTCOME_BYTES, SCREEN_OUTCOME_LINES
from spine.store import Row, SessionInfo
from spine.values import decode

__all__ = ["COMMANDS"]

POLL_S: Final = 0.2
_WIDTHS: Final = (5, 12, 7, 22)


# --------------------------------------------------------------------------------------------------------- sessions


@click.command()
@options("store", "json")
def sessions(store: str | None, as_json: bool) -> None:
    """List the sessions of the store, the newest last."""
    with reading(store) as opened:
        infos = opened.store.sessions()
        if as_json:
            for info in infos:
                out_json(_session_fact(opened, info))
            return
        rows = [_session_row(opened, info) for info in infos]
        out(columns(("session", "events", "last event", "state", "title"), rows))


_OF_STATE: Final = ("session.created", "session.renamed", "turn.started", "turn.suspended", "turn.completed")
_ENDINGS: Final = ("turn.failed", "turn.cancelled", "approval.requested", "approval.decided")


def _state(opened: Reading, info: SessionInfo) -> tuple[str, str | None]:
    """How the last turn stands, and the session's title."""
    state, title, last = "new", None, None
    for row in opened.store.read(info.id, types=(*_OF_STATE, *_ENDINGS)):
        if row.type in ("session.created", "session.renamed"):
            title = decode(row.data).get("title") or title
        elif row.type.startswith("turn."):
            last = row
    if last is not None:
        turn, word = last.place or "", last.type.partition(".")[2]
        state = f"{turn} {'open' if word == 'started' else word}"
    return state, title


def _session_row(opened: Reading, info: SessionInfo) -> tuple[str, ...]:
    state, title = _state(opened, info)
    at = clock(info.updated, LOCAL)[:16]
    return info.id, f"{info.seq:,}", at, state, "" if title is None else json_text(title)


def _session_fact(opened: Reading, info: SessionInfo) -> dict[str, Any]:
    state, title = _state(opened, info)
    return {
        "session": info.id,
        "events": info.seq,
        "hash": info.hash.hex(),
        "created": utc(info.created),
        "updated": utc(info.updated),
        "state": state,
        "title": title,
    }


# ------------------------------------------------------------------------------------------------------- transcript


@click.command()
@session_argument
@options("store", "json")
@click.option("--times", is_flag=True, help="Show when each part happened.")
@click.option("--full", is_flag=True, help="Show long outcomes whole on a terminal too.")
@click.option("--format", "form", type=click.Choice(["text", "markdown", "html"]), default="text")
def transcript(session: str | None, store: str | None, as_json: bool, times: bool, full: bool, form: str) -> None:
    """Print what a person saw, as text, Markdown, HTML or JSON."""
    with reading_session(store, session) as reader:
        checked(reader)
        told = fold(SessionTranscript(), reader.read())
        if as_json:
            out_json(to_json(told))
        elif form == "text":
            is_cut = is_terminal(sys.stdout) and not full
            text = to_text(
                told,
                times=times,
                zone=LOCAL,
                source=reader.store.url,
                max_outcome_lines=SCREEN_OUTCOME_LINES if is_cut else None,
                max_outcome_bytes=SCREEN_OUTCOME_BYTES if is_cut else None,
            )
            out(paint(text))
        else:
            out(to_markdown(told) if form == "markdown" else to_html(told))


# -------------------------------------------------------------------------------------------------------------- log


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
                    out_json(_row_fact(reader, row))
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


def _rows(reader: LogReader, follow: bool) -> Iterator[Row]:
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


def _events(reader: LogReader, follow: bool) -> Iterable[RecordedEvent]:
    prev = reader.genesis
    for row in _rows(reader, follow):
        yield reader.codec.decode_row(reader.session, row, prev, reader.content)
        prev = row.hash


def _log_line(line: LogLine) -> str:
    cells = (f"{line.seq:>5}", clock(line.at, LOCAL, day=False), line.step, line.type)
    return _line(cells, line.what)


def _line(cells: tuple[str, ...], what: str) -> str:
    return f"{' '.join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))} {what}".rstrip()


def _row_fact(reader: LogReader, row: Row) -> Mapping[str, Any]:
    return {
        "session": reader.session,
        "seq": row.seq,
        "type": row.type,
        "version": row.version,
        "at": utc(row.at),
        "place": row.place,
        "origin": row.origin,
        "required": row.required,
        "data": decode(row.data),
        "hash": row.hash.hex(),
    }


COMMANDS: Final = {"sessions": sessions, "transcript": transcript, "log": log}
