"""Whatever blocks the event loop is named while it does."""

import logging
import time
from typing import Any

import anyio
import pytest

from spine.hooks import Hooks, hookimpl
from spine.watchdog import watch_loop

pytestmark = pytest.mark.anyio
LIMIT_S = 0.05


class Sleepy:
    @hookimpl
    async def spine_post_step(self, response: Any) -> None:
        hold_up()


def hold_up() -> None:
    time.sleep(LIMIT_S * 20)


async def watched(caplog: pytest.LogCaptureFixture, block: Any, *, hooks: Hooks | None = None) -> list[str]:
    """What the watchdog says while `block` runs on the loop."""
    if hooks is None:
        hooks = Hooks()
        hooks.register(Sleepy(), "sleepy@1")
    with caplog.at_level(logging.WARNING, "spine"):
        async with anyio.create_task_group() as group:
            group.start_soon(watch_loop, hooks, LIMIT_S)
            await anyio.sleep(0.01)  # which task is first is the scheduler's to choose
            await block(hooks)
            await anyio.sleep(0.01)
            group.cancel_scope.cancel()
    said = [record.getMessage() for record in caplog.records if record.name == "spine"]
    return [line for line in said if "test_watchdog.py" in line]  # a busy machine may hold the loop up elsewhere


async def test_a_hook_that_blocks_is_named_with_plugin_hook_and_place(caplog: pytest.LogCaptureFixture) -> None:
    """Once, however long it lasts; the place is where the thread stands."""

    async def block(hooks: Hooks) -> None:
        await hooks.chain("spine_post_step")[0].function(None)

    said = await watched(caplog, block)
    assert len(said) == 1
    assert said[0].startswith("plugin sleepy@1 in spine_post_step blocks the event loop")
    assert "in hold_up" in said[0]


async def test_other_code_is_named_by_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async def block(hooks: Hooks) -> None:
        hold_up()

    (said,) = await watched(caplog, block)
    assert said.startswith("something blocks the event loop")
    assert "in hold_up" in said


async def test_a_loop_that_waits_is_alive(caplog: pytest.LogCaptureFixture) -> None:
    async def wait(hooks: Hooks) -> None:
        await anyio.sleep(LIMIT_S * 3)

    assert await watched(caplog, wait) == []


async def test_nobody_watches_where_no_plugin_has_a_hook_on_the_loop() -> None:
    with anyio.fail_after(1):
        await watch_loop(Hooks())
