"""A plugin with one implementation of each of the four hooks of a step; each passes on what it was given."""

from typing import Any

from spine.hooks import hookimpl

__version__ = "1"


@hookimpl
async def spine_pre_step(request: Any, call_next: Any) -> Any:
    """Pass the request on."""
    return await call_next(request)


@hookimpl
async def spine_post_step(response: Any) -> None:
    """Look at the answer."""


@hookimpl
async def spine_pre_execute(call: Any, call_next: Any) -> Any:
    """Pass the call on."""
    return await call_next(call)


@hookimpl
async def spine_post_execute(outcome: Any, call_next: Any) -> Any:
    """Pass the outcome on."""
    return await call_next(outcome)
