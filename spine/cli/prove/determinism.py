"""`determinism` (floor 15): exit status 0 when all came out the same, 1 with the offender, 3 without a verdict."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio
import click

from spine.cli.ending import FAILS, HOLDS, NO_VERDICT
from spine.cli.options import options, session_argument
from spine.cli.prove.replay import agent_now, given_now
from spine.cli.reading import reading_session
from spine.cli.screen import out, out_json
from spine.config import load_settings
from spine.errors import UsageError, ValueRefused
from spine.proof.replay.determinism import Conditions, Determinism, Elsewhere, report
from spine.proof.replay.determinism import determinism as examine
from spine.values import decode

__all__ = ["COMMANDS"]

PROCESS_S: Final = 120.0
"""Seconds that a replay in another process may take."""


@click.command()
@session_argument
@options("plugin", "store", "agent", "json")
def determinism(
    session: str | None, plugins: tuple[str, ...], store: str | None, agent: str | None, as_json: bool
) -> int:
    """Replay a session in other orders, processes and times, and name the plugin that depends on any of it."""
    settings = load_settings(arguments={"store": store, "agent": agent})
    with reading_session(store, session, check=True) as reader:
        chosen = agent_now(settings, reader)
        if chosen is None:
            return NO_VERDICT
        given = [("--store", store), ("--agent", agent), *(("--plugin", plugin) for plugin in plugins)]
        name = session if session is not None and os.path.exists(session) else str(reader.session)
        words = [name, *(word for option, value in given if value is not None for word in (option, value))]
        setting = given_now(chosen, settings, plugins)
        found: Determinism = anyio.run(partial(examine, reader, setting, run_elsewhere(words)))
    if as_json:
        out_json(_fact(found))
    else:
        out(report(found))
    return FAILS if found.offenders else HOLDS if found.is_whole else NO_VERDICT


def run_elsewhere(words: Sequence[str]) -> Elsewhere:
    """`spine replay` with these words, in a process of its own."""

    def run(conditions: Conditions) -> Mapping[str, Any]:
        python = [sys.executable, "-m", "spine.cli.prove.elsewhere", str(conditions.moved_s)]
        environment = {**os.environ, **conditions.variables}
        done = subprocess.run(
            [*python, "replay", *words, "--json"],
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PROCESS_S,
            check=False,
        )
        try:
            facts: Mapping[str, Any] = decode(done.stdout)
        except ValueRefused:
            text = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise UsageError(f"the replay in another process gave no answer: {text}") from None
        return facts

    return run


def _fact(found: Determinism) -> dict[str, Any]:
    trials = [{"name": each.name, "offender": each.offender, "where": each.where or None} for each in found.trials]
    return {"session": found.session, "deterministic": not found.offenders, "whole": found.is_whole, "trials": trials}


COMMANDS: Final = {"determinism": determinism}
