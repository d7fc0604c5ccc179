"""A plugin that sums up a conversation when it gets long."""

from spine.hooks import Compact, hookimpl
from spine.messages import user_message

LONG = 4


@hookimpl
async def spine_pre_step(request, context, call_next):
    """From the fifth message on, everything before the last one becomes a summary."""
    if len(request.messages) > LONG:
        summary = user_message("So far: the customer asked about mugs and plates.", kind="summary")
        return Compact(summary, context.history.seqs[-2])
    return await call_next(request)
