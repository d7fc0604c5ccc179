"""A plugin that hides card numbers in what the model sees; the log keeps what really came back."""

import re

import attrs

from spine.hooks import hookimpl
from spine.messages import TextBlock

CARD = re.compile(r"\b\d{4}(?: \d{4}){3}\b")


@hookimpl
async def spine_post_execute(call, outcome, context, call_next):
    """Replace each card number in the texts of an outcome."""
    outcome = await call_next(outcome)
    content = tuple(_hidden(block) for block in outcome.content)
    return outcome if content == outcome.content else outcome.evolve(content=content)


def _hidden(block):
    return attrs.evolve(block, text=CARD.sub("[card]", block.text)) if isinstance(block, TextBlock) else block
