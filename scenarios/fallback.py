"""A plugin that goes on with another model when the first one is down."""

from spine import Route
from spine.hooks import NextStep, hookimpl

OTHER = Route("demo", "backup")


@hookimpl
async def spine_step_failed(error, context, call_next):
    """One more step on the other model, unless that is the one that failed."""
    if error.category in ("overloaded", "server_error") and context.route != OTHER:
        return NextStep(route=OTHER)
    return await call_next(error)
