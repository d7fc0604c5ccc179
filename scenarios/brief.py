"""A plugin that rewrites every request: short answers, and a reminder in place of the user's last words."""

from spine.hooks import hookimpl
from spine.messages import user_message


@hookimpl
async def spine_pre_step(request, context, call_next):
    """Cap the output and add a reminder at the end; both changes are recorded as this plugin's."""
    reminder = user_message("Answer in one sentence.", kind="brief")
    return await call_next(request.evolve(max_output_tokens=64, messages=(*request.messages, reminder)))
