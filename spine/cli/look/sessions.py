"""`sessions` (floor 15): the list of what a store holds."""

from typing import Any, Final

import click

from spine.cli.options import options
from spine.cli.reading import Reading, reading
from spine.cli.screen import LOCAL, columns, out, out_json
from spine.projectors.json import utc
from spine.projectors.phrases import clock, json_text
from spine.store import SessionInfo
from spine.values import decode

__all__ = ["COMMANDS"]


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
        "shares_with": info.base,
        "state": state,
        "title": title,
    }


COMMANDS: Final = {"sessions": sessions}
