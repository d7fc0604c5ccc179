"""How large a request is, in estimated tokens (floor 7): kept apart from what providers report.

The default counts one token for four characters; a plugin may register a better counter for its provider. History is
counted once: each step adds what is new.
"""

from collections.abc import Callable, Iterable
from typing import Any

from spine.messages import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    JsonBlock,
    Message,
    RefusalBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from spine.projectors.model_history import History
from spine.values import encode

TokenCounter = Callable[[str], int]
MEDIA_TOKENS = 1000
"""What an image, a sound or a document is counted as."""


def estimate_tokens(text: str) -> int:
    """The documented default: one token for each four characters, rounded up."""
    return (len(text) + 3) // 4


def message_tokens(message: Message, count: TokenCounter) -> int:
    """The estimate for one message."""
    return sum(_block_tokens(block, count) for block in message.content)


def _block_tokens(block: Any, count: TokenCounter) -> int:
    match block:
        case TextBlock() | ThinkingBlock() | RefusalBlock():
            return count(block.text)
        case ToolCallBlock():
            return count(block.name) + count(block.arguments_text or encode(block.arguments).decode())
        case ToolResultBlock():
            return sum(_block_tokens(part, count) for part in block.content)
        case JsonBlock():
            return count(encode(block.value).decode())
        case ImageBlock() | AudioBlock() | DocumentBlock():
            return MEDIA_TOKENS
        case _:
            return 0


class HistoryEstimate:
    """The estimate of a growing history; only what is new since the last question is counted."""

    def __init__(self) -> None:
        self._counter: TokenCounter | None = None
        self._counted: History | None = None
        self._total = 0

    def of(self, history: History, count: TokenCounter) -> int:
        """The estimate of `history`; counted anew when it does not continue the one before."""
        before = self._counted
        continues = before is not None and self._counter is count and before.same_start(history) == len(before)
        new: Iterable[Message] = history[len(before) :] if continues and before is not None else history
        self._total = (self._total if continues else 0) + sum(message_tokens(message, count) for message in new)
        self._counted, self._counter = history, count
        return self._total
