"""Writes the answers of a log down as entries of a script (floor 14): one for each attempt that ended."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from spine.errors import ValueRefused
from spine.events import RecordedEvent
from spine.llm.chunks import (
    BlockAdded,
    BlockEnded,
    RefusalDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from spine.llm.errors import RETRYABLE, Failure
from spine.llm.request import ModelRequest
from spine.llm.usage import Usage
from spine.messages import Message
from spine.testing.script import words
from spine.values import load, thaw

__all__ = ["FOREVER_S", "entries_of"]

FOREVER_S: Final = 86_400
"""How long that takes in a scenario which never came to its end: longer than anybody waits."""
_COUNTS: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


def entries_of(
    events: Iterable[RecordedEvent], requests: Mapping[int, ModelRequest], note: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The script as plain JSON; an attempt that died with its process has none, because it is asked again.

    `requests` are those of the log by seq: an entry expects what its request was like. What a script cannot hold goes
    to `note`, in a sentence.
    """
    entries: list[dict[str, Any]] = []
    chunks: list[Any] = []
    expected: dict[str, Any] = {}
    silence: float | str = "forever"
    for event in events:
        match event.type:
            case "cancel.requested":  # a silence that is to use up a limit must take its time
                silence = "forever" if event.data.failure is None else FOREVER_S
            case "model.requested":
                chunks, expected = [], _expected(requests.get(event.seq))
            case "model.attempt_started":
                chunks = []
            case "model.chunks":
                chunks.extend(event.data.chunks)
            case "message.committed":
                parts = _parts(chunks, event.data.usage, note)
                entries.append(expected | parts | _stop(event.data.stop_reason, event.data.message))
            case "model.attempt_failed":
                entries.append(expected | _parts(chunks, event.data.usage, note) | _failed(event.data.failure))
            case "message.interrupted" if event.data.cause == "cancelled":
                entries.append(expected | _parts(chunks, Usage(), note) | {"stall": silence})
    return entries


def _expected(request: ModelRequest | None) -> dict[str, Any]:
    if request is None or not request.messages:
        return {}
    return {"expect": {"last_role": request.messages[-1].role, "messages": len(request.messages)}}


def _parts(chunks: Iterable[Any], usage: Usage, note: Callable[[str], None]) -> dict[str, Any]:
    """The parts of an answer in the order in which they began; what arrived apart and is of a kind is joined."""
    texts: dict[str, list[str]] = {}
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        match chunk:
            case TextDelta() | ThinkingDelta() | RefusalDelta():
                texts.setdefault(_KINDS[type(chunk)], []).append(chunk.text)
            case ToolCallStarted():
                texts.setdefault("call", [])
                calls[chunk.index] = [chunk.name]
            case ToolCallDelta():
                calls[chunk.index].append(chunk.arguments)
            case BlockAdded():
                note(f"an answer held {type(chunk.block).__name__}; answers of scenarios do not")
            case BlockEnded() if chunk.provider_state is not None:
                note("an answer held a provider's own state (a signature, say); it is left out")
            case UsageReported() if usage == Usage():
                usage = chunk.usage
    entry: dict[str, Any] = {}
    for kind, pieces in texts.items():
        entry |= {"call": _calls(calls)} if kind == "call" else _said(kind, pieces)
    counts = {name: count for name in _COUNTS if (count := getattr(usage, name)) is not None}
    return entry | ({"usage": counts} if counts else {})


_KINDS: Final[Mapping[type, str]] = {TextDelta: "say", ThinkingDelta: "think", RefusalDelta: "refuse"}


def _said(kind: str, pieces: list[str]) -> dict[str, Any]:
    """A text; in its pieces where they are others than a script would make."""
    text = "".join(pieces)
    if kind == "say" and tuple(pieces) != words(text):
        return {"say": text, "chunks": pieces}
    return {kind: text}


def _calls(calls: Mapping[int, list[str]]) -> Any:
    """Each call's name to its arguments, or to their text where that is no JSON as a script would write it."""
    found = []
    for name, *pieces in calls.values():
        text = "".join(pieces)
        found.append({name: _arguments(text)})
    return found[0] if len(found) == 1 else found


def _arguments(text: str) -> Any:
    try:
        value = load(text or "{}")
    except ValueRefused:
        return text
    return thaw(value) if isinstance(value, Mapping) else text


def _failed(failure: Failure) -> dict[str, Any]:
    fields = {
        "category": failure.category,
        "status": failure.status,
        "retry_after_s": failure.retry_after_s,
        "message": failure.message,
        "code": failure.code,
        "retryable": None if failure.retryable == (failure.category in RETRYABLE) else failure.retryable,
    }
    return {"fail": {name: value for name, value in fields.items() if value is not None}}


def _stop(reason: str, message: Message) -> dict[str, Any]:
    kinds = {type(block).__name__ for block in message.content}
    natural = "tool_use" if "ToolCallBlock" in kinds else "refusal" if "RefusalBlock" in kinds else "end_turn"
    return {} if reason == natural else {"stop": reason}
