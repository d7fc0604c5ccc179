"""Names whatever blocks the event loop (floor 10): a thread that asks the loop for a sign of life, again and again.

A hook that blocks cannot be stopped, and everything else waits for it; but it can be named while it happens. The
finding goes to the logger "spine" and never into a log of events: it is about time, which no replay has.
"""

import inspect
import logging
import sys
import threading
from types import CodeType, FrameType
from typing import Final

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from spine.commits import call_soon
from spine.hooks import HOOKS, Hooks

__all__ = ["BLOCKED_S", "watch_loop"]

BLOCKED_S: Final = 1.0
"""Seconds without a sign of life after which the loop counts as blocked."""
_AWAITED: Final = tuple(hook for hook, specification in HOOKS.items() if inspect.iscoroutinefunction(specification))
_logger = logging.getLogger("spine")


async def watch_loop(hooks: Hooks, limit_s: float = BLOCKED_S) -> None:
    """Watch the running loop until cancelled, if some plugin has a hook that runs on it.

    Code that does not let go of the loop for `limit_s` seconds is named once: plugin and hook, file, line and function.
    """
    if not any(hooks.chain(hook) for hook in _AWAITED):
        return
    over = threading.Event()
    arguments = (hooks, limit_s, over, current_token(), threading.get_ident())
    threading.Thread(target=_watch, args=arguments, name="spine-watchdog", daemon=True).start()
    try:
        await anyio.sleep_forever()
    finally:
        over.set()


def _watch(hooks: Hooks, limit_s: float, over: threading.Event, loop: EventLoopToken, thread: int) -> None:
    while not over.wait(limit_s / 2):
        alive = threading.Event()
        try:
            call_soon(loop, alive.set)
        except RuntimeError:  # the loop has ended; trio's own error is one, too
            return
        if not alive.wait(limit_s):
            frame = sys._current_frames().get(thread)
            if frame is not None and not over.is_set():
                _logger.warning("%s for more than %g s", _describe(frame, hooks), limit_s)
            while not (alive.wait(limit_s) or over.is_set()):
                pass


def _describe(frame: FrameType, hooks: Hooks) -> str:
    where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} in {frame.f_code.co_name}"
    owners: dict[CodeType | None, str] = {
        getattr(inspect.unwrap(each.function), "__code__", None): f"plugin {each.plugin} in {hook}"
        for hook in _AWAITED
        for each in hooks.chain(hook)
    }
    below: FrameType | None = frame
    while below is not None and below.f_code not in owners:
        below = below.f_back
    who = "something" if below is None else owners[below.f_code]
    return f"{who} blocks the event loop and everything on it, at {where},"
