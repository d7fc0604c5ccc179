"""Sessions made at random replay byte for byte, whatever event loop recorded them and whichever replays them."""

import os
from typing import Any

import anyio
import pytest
import sessions_made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spine.proof.replay.run import Replayed, replay

COUNT = int(os.environ.get("SPINE_SESSIONS", "12"))
"""How many sessions each direction makes."""


def replayed(seed: int, backend: str, other: str) -> Replayed | None:
    """A session recorded on one event loop and replayed on the other; None when nothing was recorded."""
    made = anyio.run(sessions_made.record, seed, backend=backend)

    async def again() -> Replayed:
        return await replay(made.log, made.setting, borders=made.borders)

    return None if not made.log.head[0] else anyio.run(again, backend=other)


@pytest.mark.parametrize(("backend", "other"), [("asyncio", "trio"), ("trio", "asyncio")])
@settings(max_examples=COUNT, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(seed=st.integers(0, 2**32))
def test_a_session_is_made_again(backend: str, other: str, seed: int) -> None:
    found = replayed(seed, backend, other)
    if found is not None:
        assert found.is_equal, f"{found.difference}\n{found.cause}"
        assert found.is_exact


def test_what_is_made_covers_what_can_happen() -> None:
    seen: set[str] = set()
    for seed in range(60):
        made: Any = anyio.run(sessions_made.record, seed)
        seen |= {row.type for row in made.log.rows()} if made.log.head[0] else set()
    assert seen >= {
        "session.resumed",
        "session.forked",
        "wire.captured",
        "tool.started",
        "tool.progress",
        "tool.revised",
        "tool.completed",
        "approval.decided",
        "cancel.requested",
        "model.attempt_started",
        "message.interrupted",
        "step.failed",
        "hook.failed",
        "turn.suspended",
    }
