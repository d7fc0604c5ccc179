"""A scenario's second run (floor 14): from its own log, without script, answers and people."""

from functools import partial
from pathlib import Path

import anyio

from spine.opening import open_store
from spine.proof.replay.run import Given, Replayed, replay
from spine.runtime import Runtime
from spine.scope import Registries
from spine.stored import StoredLog
from spine.testing.scenarios.play import Ending
from spine.testing.scenarios.scenario import Scenario
from spine.values import SessionId

__all__ = ["replay_scenario"]


def replay_scenario(scenario: Scenario, ending: Ending, database: Path, *, backend: str = "asyncio") -> Replayed | None:
    """Replay what a scenario left in `database`, each process with what it was given; None when it left nothing."""
    if not ending.events or not ending.settings:
        return None

    def setting_at(seq: int) -> Given:
        return next((each for first, each in reversed(ending.settings) if first <= seq), ending.settings[0][1])

    last = ending.settings[-1][1]
    codec = Runtime.open("memory:", plugins=last.plugins, settings=last.settings).codec
    store = open_store(f"sqlite:{database}", Registries.new())
    try:
        log = StoredLog(store, codec, SessionId(scenario.session))
        borders = [first for first, _ in ending.settings[1:]]
        again = partial(replay, log, last, borders=borders, setting_at=setting_at)
        found: Replayed = anyio.run(again, backend=backend)
        return found
    finally:
        store.close()
