"""`run`, `resume`, `retry` (floor 15): one turn in this process, its answer on stdout as it arrives."""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import click

from spine.cli.acting import new_session_id
from spine.cli.ending import HOLDS
from spine.cli.options import options, session_argument
from spine.cli.reading import check_there, find_session
from spine.cli.screen import is_terminal, note
from spine.cli.talk.opening import open_session, override_of, prepare_store, settings_of, utf8
from spine.cli.talk.turns import end_turn, interruptible, shown
from spine.config import Settings
from spine.errors import UsageError
from spine.messages import Message, user_message
from spine.runtime import Runtime
from spine.session import Session
from spine.turn import Turn

__all__ = ["COMMANDS"]

POLL_S: Final = 0.01


@click.command()
@click.argument("text", nargs=-1)
@click.option("--session", "session_id", metavar="ID", help="Go on with this session, or begin it.")
@click.option("-c", "is_continued", is_flag=True, help="Go on with the newest session.")
@options("agent", "model", "store", "capture", "json")
def run(
    text: tuple[str, ...],
    session_id: str | None,
    is_continued: bool,
    agent: str | None,
    model: str | None,
    store: str | None,
    capture: str | None,
    as_json: bool,
) -> int:
    """Run one turn and print the answer. Text that is piped in is the input's attachment."""
    if is_continued and session_id is not None:
        raise UsageError(
            f"-c and --session {session_id} name two sessions", hint=f'spine run --session {session_id} "…"'
        )
    messages = read_input(text)
    settings = settings_of(store, model, agent)

    async def talk() -> int:
        await prepare_store(settings)
        async with Runtime.open(settings=settings, capture=capture) as runtime:
            name = find_session(runtime.store, None) if is_continued else session_id or new_session_id()
            session = await open_session(runtime, name)
            return await _shown(
                session, lambda: session.run(messages, model=override_of(settings, session), check=False), as_json
            )

    return anyio.run(talk)


@click.command()
@session_argument
@options("agent", "model", "store", "capture", "json")
def resume(
    session: str | None, agent: str | None, model: str | None, store: str | None, capture: str | None, as_json: bool
) -> int:
    """Go on with a turn that was not finished: after a crash, a kill, or a decision."""
    return _go_on(settings_of(store, model, agent), session, _resume, capture, as_json)


@click.command()
@session_argument
@click.option("--keep-partial", is_flag=True, help="Go on from the text that had arrived.")
@options("agent", "model", "store", "capture", "json")
def retry(
    session: str | None,
    keep_partial: bool,
    agent: str | None,
    model: str | None,
    store: str | None,
    capture: str | None,
    as_json: bool,
) -> int:
    """Run the input of the last turn again, when that failed or was cancelled."""

    async def again(opened: Session) -> Turn:
        return await opened.retry(keep_partial=keep_partial, check=False)

    return _go_on(settings_of(store, model, agent), session, again, capture, as_json)


async def _resume(session: Session) -> Turn | None:
    """Go on; a decision that was queued may have set the turn going when the session was opened."""
    if not session.is_running:
        return await session.resume(check=False)
    while session.is_running:
        await anyio.sleep(POLL_S)
    return session.turn


def _go_on(
    settings: Settings,
    wanted: str | None,
    work: Callable[[Session], Awaitable[Turn | None]],
    capture: str | None,
    as_json: bool,
) -> int:
    async def go_on() -> int:
        check_there(settings)
        async with Runtime.open(settings=settings, capture=capture) as runtime:
            session = await open_session(runtime, find_session(runtime.store, wanted))
            return await _shown(session, lambda: work(session), as_json)

    return anyio.run(go_on)


async def _shown(session: Session, work: Callable[[], Awaitable[Turn | None]], as_json: bool) -> int:
    with shown(session, is_silent=as_json) as screen:
        turn = await interruptible(session, work)
        if turn is None:
            note(f"nothing to go on with: session {session.id} has no open turn")
            return HOLDS
        return end_turn(session, turn, screen, as_json=as_json)


def read_input(words: tuple[str, ...]) -> tuple[Message, ...]:
    """The words of the command line; piped text is their attachment, or the input when there are none."""
    text = utf8(os.fsencode(" ".join(words)))
    piped = "" if is_terminal(sys.stdin) else utf8(sys.stdin.buffer.read())
    if text.strip() and piped.strip():
        return user_message(piped, kind="context"), user_message(text)
    given = text if text.strip() else piped
    if not given.strip():
        raise UsageError("there is no input: no words were given and nothing was piped in", hint='spine run "…"')
    return (user_message(given),)


COMMANDS: Final = {"run": run, "resume": resume, "retry": retry}
