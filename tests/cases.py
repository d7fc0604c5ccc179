"""The public bug cases in our words: one helper that maps their neutral terms to our classes.

The cases lie beside the repository (`../shared/bug-cases`); tests that use them are skipped where they are not there.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from spine.llm.errors import RETRYABLE, Category, Failure
from spine.llm.usage import Usage
from spine.messages import (
    ContentBlock,
    RefusalBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "bug-cases"
CATEGORIES: dict[str, Category] = {
    "quota": "billing",
    "server": "server_error",
    "network": "connection",
    "truncated": "stream_truncated",
    "protocol": "protocol_error",
}
"""Their words for a failure where ours differ."""
EQUAL = frozenset(
    ("rate_limit", "overloaded", "auth", "invalid_request", "context_overflow", "timeout", "content_filter")
)


def case(name: str) -> dict[str, Any]:
    """A case by its id; skips the test where the cases are not there."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        pytest.skip(f"the bug cases are not beside the repository: {name}")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def cases(kind: str) -> list[str]:
    """The ids of all cases of a kind, empty where they are not there."""
    found = (json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json")))
    return [each["id"] for each in found if each["kind"] == kind]


def category_of(word: str) -> Category:
    """Our category for theirs."""
    if word in EQUAL:
        return word  # type: ignore[return-value]
    return CATEGORIES[word]


def failure_of(word: str) -> Failure:
    """A failure of that category, retryable as the category is."""
    category = category_of(word)
    return Failure(category=category, message=word, retryable=category in RETRYABLE)


def block_of(block: dict[str, Any]) -> ContentBlock:
    """One of our blocks for one of theirs; ids are ours to mint and so stand as theirs in `vendor_id`."""
    match block["type"]:
        case "text":
            return TextBlock(text=block["text"])
        case "thinking":
            return ThinkingBlock(text=block["text"])
        case "redacted_thinking":
            return ThinkingBlock(redacted=True)
        case "refusal":
            return RefusalBlock(text=block["text"])
        case "tool_call":
            return ToolCallBlock(
                id="",  # type: ignore[arg-type]
                vendor_id=block.get("id"),
                name=block["name"],
                arguments=block["args"],
                arguments_text=block.get("args_raw"),
            )
        case other:
            raise ValueError(f"no block of ours for {other!r}")


def usage_of(usage: dict[str, Any] | None) -> Usage:
    """Our usage for theirs; what is null was not reported."""
    if usage is None:
        return Usage()
    return Usage(
        input_tokens=usage.get("input_all"),
        cache_read_tokens=usage.get("cache_read"),
        cache_write_tokens=usage.get("cache_write"),
        output_tokens=usage.get("output"),
        reasoning_tokens=usage.get("reasoning"),
    )
