"""The four hooks of a step again, each of which lets the event loop run before it passes on."""

from typing import Any

from anyio.lowlevel import checkpoint

from spine.hooks import hookimpl

__version__ = "1"


@hookimpl
async def spine_pre_step(request: Any, call_next: Any) -> Any:
    """Wait a tick and pass the request on."""
    await checkpoint()
    return await call_next(request)


@hookimpl
async def spine_post_step(response: Any) -> None:
    """Wait a tick."""
    await checkpoint()


@hookimpl
async def spine_pre_execute(call: Any, call_next: Any) -> Any:
    """Wait a tick and pass the call on."""
    await checkpoint()
    return await call_next(call)


@hookimpl
async def spine_post_execute(outcome: Any, call_next: Any) -> Any:
    """Wait a tick and pass the outcome on."""
    await checkpoint()
    return await call_next(outcome)
