"""`chat` (floor 15): turn after turn at a prompt. Between two turns nothing runs and nobody owns the session.

Ctrl-C once ends the turn, twice the program. Lines that begin with a slash are commands, shown by /help.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

import anyio
import attrs
import click

from spine.cli.acting import new_session_id, this_user
from spine.cli.ending import HOLDS, INTERRUPTED, error_line, only_error
from spine.cli.options import options
from spine.cli.reading import find_session
from spine.cli.screen import is_terminal, note, out, paint
from spine.cli.talk.opening import open_session, override_of, prepare_store, settings_of, utf8
from spine.cli.talk.turns import end_turn, interruptible, settled, shown
from spine.config import Settings
from spine.errors import SpineError, UsageError
from spine.messages import user_message
from spine.projectors import SessionTranscript, to_text
from spine.proof.request_text import diff_text
from spine.proof.request_view import find_request
from spine.runtime import Runtime
from spine.session import Session
from spine.stored import StoredLog
from spine.stores.urls import without_secrets
from spine.turn import Turn

try:
    import readline  # line editing and history, where the platform has it
except ImportError:  # pragma: no cover
    readline = None  # type: ignore[assignment]

__all__ = ["COMMANDS"]


@attrs.define
class Chat:
    """What lasts between turns."""

    settings: Settings
    session: str
    capture: str | None = None
    is_over: bool = False


@click.command()
@click.option("--session", "session_id", metavar="ID", help="Go on with this session, or begin it.")
@click.option("-c", "is_continued", is_flag=True, help="Go on with the newest session.")
@options("agent", "model", "store", "capture")
def chat(
    session_id: str | None,
    is_continued: bool,
    agent: str | None,
    model: str | None,
    store: str | None,
    capture: str | None,
) -> int:
    """Talk with an agent, turn by turn. /help lists the commands."""
    settings = settings_of(store, model, agent)
    name = anyio.run(_begin, settings, session_id, is_continued)
    state = Chat(settings, name, capture)
    note(f"session {name} in {without_secrets(settings.store or '')}   /help lists commands, /exit leaves")
    try:
        while not state.is_over:
            line = _ask_patiently()
            if line is None:
                break
            _answer(state, line.strip())
    except KeyboardInterrupt:
        return INTERRUPTED
    return HOLDS


def _ask_patiently() -> str | None:
    """The next line; one Ctrl-C at the prompt drops what was typed, the next one leaves."""
    try:
        return _ask()
    except KeyboardInterrupt:
        note("\n(Ctrl-C again leaves)")
        return _ask()


def _answer(state: Chat, line: str) -> None:
    """Do what a line asks for; what goes wrong is told and the chat goes on."""
    try:
        _handle(state, line)
    except (SpineError, BaseExceptionGroup) as error:
        if isinstance(only_error(error), KeyboardInterrupt):
            raise KeyboardInterrupt from error
        note(error_line(only_error(error)))


async def _begin(settings: Settings, session_id: str | None, is_continued: bool) -> str:
    """Find the session, and find out now whether it can be talked with."""
    await prepare_store(settings)
    async with Runtime.open(settings=settings) as runtime:
        name = find_session(runtime.store, None) if is_continued else session_id or new_session_id()
        session = await open_session(runtime, name)
        if session.turn is not None and session.turn.status == "suspended":
            await _show_waiting(session, session.turn)
    return name


async def _show_waiting(session: Session, turn: Turn) -> None:
    for approval in turn.approvals:
        note(f"{approval.name} waits for a person: /approve {approval.id}, or /deny {approval.id} REASON")


def _ask() -> str | None:
    """The next line; None at the end of input."""
    try:
        if is_terminal(sys.stdin):
            sys.stdout.flush()
            return input("> ")
        line = utf8(sys.stdin.buffer.readline())
        return line.rstrip("\n") if line else None
    except EOFError:
        return None


def _handle(state: Chat, line: str) -> None:
    if not line:
        return
    if not line.startswith("/"):
        anyio.run(_turn, state, lambda session: session.run((user_message(line),), **_options(state, session)))
        return
    word, _, rest = line[1:].partition(" ")
    command = _COMMANDS.get(word)
    if command is None:
        raise UsageError(f'there is no command "/{word}"; there are {", ".join(f"/{name}" for name in _COMMANDS)}')
    command[1](state, rest.strip())


def _options(state: Chat, session: Session) -> dict[str, Any]:
    return {"model": override_of(state.settings, session), "check": False}


async def _turn(state: Chat, work: Callable[[Session], Any]) -> None:
    async with Runtime.open(settings=state.settings, capture=state.capture) as runtime:
        session = await open_session(runtime, state.session)
        with shown(session) as screen:
            turn: Turn = await interruptible(session, lambda: work(session))
            end_turn(session, turn, screen, as_json=False)
            if turn.status == "suspended":
                await _show_waiting(session, turn)


# --------------------------------------------------------------------------------------------------------- commands


def _help(state: Chat, rest: str) -> None:
    for name, (does, _) in _COMMANDS.items():
        note(f"/{name.ljust(12)}{does}")


def _exit(state: Chat, rest: str) -> None:
    state.is_over = True


def _read(state: Chat, show: Callable[[StoredLog], str]) -> None:
    async def look() -> None:
        async with Runtime.open(settings=state.settings) as runtime:
            out(paint(show(runtime.reader(state.session))))

    anyio.run(look)


def _request(state: Chat, rest: str) -> None:
    _read(state, lambda reader: diff_text(*find_request(reader, rest or None)))


def _transcript(state: Chat, rest: str) -> None:
    _read(state, lambda reader: to_text(reader.project(SessionTranscript())))


def _model(state: Chat, rest: str) -> None:
    if not rest:
        out(state.settings.model or "the agent's own")
        return
    state.settings = attrs.evolve(state.settings, model=rest, origins={**state.settings.origins, "model": "--model"})
    note(f"the next turns ask {rest}")


def _approve(state: Chat, rest: str) -> None:
    def allow(session: Session) -> Any:
        return settled(session.approve(_approval(session, rest), by=this_user(), channel="chat"))

    anyio.run(_turn, state, allow)


def _deny(state: Chat, rest: str) -> None:
    word, _, reason = rest.partition(" ")

    def decline(session: Session) -> Any:
        is_id = any(approval.id == word for approval in _waiting(session))
        why = reason if is_id else rest
        return session.deny(
            _approval(session, word if is_id else ""), by=this_user(), reason=why or None, channel="chat"
        )

    anyio.run(_turn, state, decline)


def _fork(state: Chat, rest: str) -> None:
    """Go on in a fork; what was said so far stays in the session before."""
    if rest and not rest.isdecimal():
        raise UsageError(f'"{rest}" is no seq; spine log {state.session} lists them', hint="/fork, or /fork SEQ")

    async def fork() -> None:
        async with Runtime.open(settings=state.settings) as runtime:
            made = await runtime.fork(state.session, new_session_id(), seq=int(rest) if rest else None)
        note(f"session {made.session} goes on from seq {made.shared} of {state.session}")
        state.session = made.session

    anyio.run(fork)


def _waiting(session: Session) -> tuple[Any, ...]:
    return () if session.turn is None else session.turn.approvals


def _approval(session: Session, given: str) -> str:
    """The approval that is meant: the named one, or the only one."""
    there = [approval.id for approval in _waiting(session)]
    if given or len(there) == 1:
        return given or str(there[0])
    raise UsageError(f"which approval? open: {', '.join(there) or 'none'}", hint="/approve ID")


_COMMANDS: Final[dict[str, tuple[str, Callable[[Chat, str], None]]]] = {
    "approve": ("[ID]  allow the waiting call", _approve),
    "deny": ("[ID] [REASON]  decline the waiting call", _deny),
    "request": ("[STEP]  what the model saw, and what was new", _request),
    "transcript": ("what happened so far", _transcript),
    "fork": ("[SEQ]  go on in another session, from here or from an event", _fork),
    "model": ("[NAME]  ask another model from now on", _model),
    "help": ("this list", _help),
    "exit": ("leave; so does the end of input", _exit),
}

COMMANDS: Final = {"chat": chat}
