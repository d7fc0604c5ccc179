"""A plugin that looks at every call before it runs: large refunds are refused, middling ones wait for a person."""

from spine.hooks import Ask, Deny, hookimpl


@hookimpl
async def spine_pre_execute(call, context, call_next):
    """Refuse, ask, or go on."""
    cents = call.arguments.get("amount_cents", 0)
    if cents > 50_000:
        return Deny("refunds over 500 EUR go through the bank")
    if cents > 10_000:
        return Ask("over 100 EUR")
    return await call_next(call)
