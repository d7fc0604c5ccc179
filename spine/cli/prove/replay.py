"""`replay` (floor 15): the session again, from its log; exit status 1 at the first difference, 3 without a verdict."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio
import attrs
import click

from spine.agent import Agent
from spine.cli.agents import PLAIN, choose_agent, is_named, make_importable, recorded_agent
from spine.cli.ending import FAILS, HOLDS, NO_VERDICT, error_line
from spine.cli.options import options, session_argument
from spine.cli.reading import reading_session
from spine.cli.screen import note, out, out_json
from spine.config import Settings, load_settings
from spine.errors import SpineError, UsageError
from spine.projectors.phrases import counted
from spine.proof.diff import diff_json, diff_text
from spine.proof.replay.live import LivePart, replay_live
from spine.proof.replay.log import Recording
from spine.proof.replay.run import Given, Replayed
from spine.proof.replay.run import replay as run_again
from spine.proof.replay.text import finding, replay_fact
from spine.stored import StoredLog

__all__ = ["COMMANDS", "agent_now", "count_connections", "given_now"]

_MODES: Final[Mapping[str, LivePart | None]] = {"hermetic": None, "live-tools": "tools", "live-model": "model"}
_STATUS: Final = {"equal": HOLDS, "different": FAILS, "missing": NO_VERDICT}


@click.command()
@session_argument
@click.option("--mode", type=click.Choice(list(_MODES)), default="hermetic", help="What is real: nothing, or a part.")
@click.option("--hooks", type=click.Choice(["recorded"]), help="What plugins did that are gone, as recorded.")
@options("plugin", "store", "agent", "json")
def replay(
    session: str | None,
    mode: str,
    hooks: str | None,
    plugins: tuple[str, ...],
    store: str | None,
    agent: str | None,
    as_json: bool,
) -> int:
    """Run a session again from its log: agent and plugins as installed now, everything else as recorded.

    With live-tools the tools run, with live-model the model is asked; how the session then drifts is told.
    """
    part = _MODES[mode]
    if part is not None and hooks is not None:
        raise UsageError(f"--hooks recorded fits no {mode}: what is real may differ from what hooks were shown then")
    settings = load_settings(arguments={"store": store, "agent": agent})
    connections = count_connections()
    with reading_session(store, session, check=True) as reader:
        chosen = agent_now(settings, reader)
        if chosen is None:
            return NO_VERDICT
        began = time.perf_counter()
        setting = given_now(chosen, settings, plugins)
        setting_at = plain_settings(setting, reader) if chosen.name == PLAIN else None
        if part is not None:
            return _drift(reader, setting, part, as_json=as_json)
        found: Replayed = anyio.run(
            partial(run_again, reader, setting, setting_at=setting_at, recorded_hooks=hooks is not None)
        )
        took = time.perf_counter() - began
    if as_json:
        out_json({**replay_fact(found), "connections": connections[0], "duration_s": round(took, 3)})
    else:
        out(finding(found, f", {counted(connections[0], 'connection')}, {took:.2f} s"))
    if found.missing:
        note(f"Try: spine replay {found.session} --plugin MODULE, or --hooks recorded")
    return _STATUS[found.verdict]


def _drift(reader: StoredLog, setting: Given, part: LivePart, *, as_json: bool) -> int:
    drift, _ = anyio.run(partial(replay_live, reader, setting, part))
    out_json(diff_json(drift)) if as_json else out("no drift" if drift.is_equal else diff_text(drift))
    return HOLDS if drift.is_equal else FAILS


def agent_now(settings: Settings, reader: StoredLog) -> Agent | None:
    """The session's agent as it is today; None, with a sentence on stderr, when it cannot be had.

    Raises `UsageError` when this call names an agent that cannot be had: that is wrong use, and not a verdict's lack.
    """
    recorded = recorded_agent(reader)
    unset = attrs.evolve(settings, model=None)  # the plain assistant is asked with the model of the log
    try:
        chosen = choose_agent(unset, recorded, reader)
        if chosen is None:
            name = recorded.agent.name if recorded is not None else "agent"
            text = f'session {reader.session} was recorded with agent "{name}", and nobody says where it is'
            raise UsageError(text, hint=f"spine replay {reader.session} --agent module:attribute")
    except SpineError as error:
        if is_named(settings):
            raise
        note(error_line(error))
        return None
    return chosen.agent


def given_now(agent: Agent, settings: Settings, plugins: Sequence[str]) -> Given:
    """What a process is given today: the agent, and plugins by module beside those installed."""
    make_importable(settings.folder)
    return Given(agent=agent, settings=settings, plugins=plugins)


def plain_settings(setting: Given, reader: StoredLog) -> Callable[[int], Given]:
    """The plain assistant of each process: it has the model that was asked first in it."""
    recording = Recording(reader)

    def setting_at(seq: int) -> Given:
        route = recording.route_after(seq)
        return setting if route is None else attrs.evolve(setting, agent=setting.agent.evolve(model=route))

    return setting_at


def count_connections() -> list[int]:
    """A counter of the connections that this process tries to open from now on."""
    count = [0]

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        count[0] += event == "socket.connect"

    sys.addaudithook(look)
    return count


COMMANDS: Final = {"replay": replay}
