"""The outcomes that the core itself gives a call: refused, failed, timed out, cut off, never started (floor 3).

Each function returns a finished `ToolOutcome`, worded as the model gets it. Pure; nothing here runs a tool.
"""

from collections.abc import Sequence
from typing import Final, Literal

from spine.messages import TextBlock
from spine.tools import ToolError, ToolOutcome, ToolStatus
from spine.values import clean_text
from spine.wording import WORDING_VERSION, say

__all__ = [
    "denied",
    "interrupted",
    "invalid_arguments",
    "message_of",
    "not_started",
    "raised",
    "timed_out",
    "unknown_tool",
    "unreadable_arguments",
    "unusable_result",
    "withheld",
]

MAX_MESSAGE_CHARS: Final = 2000
MAX_NAME_CHARS: Final = 80
MAX_NAMES: Final = 50

Refuser = Literal["person", "plugin", "policy"]
Reach = Literal["task", "thread", "waiting"]
Interruption = Literal["cancelled", "thread", "failed", "crashed", "unrecorded"]
NotStarted = Literal["cancelled", "failed", "max_tokens", "ending", "closed", "threads"]


def unknown_tool(name: str, available: Sequence[str], *, wording: int = WORDING_VERSION) -> ToolOutcome:
    """The model called a tool that does not exist; it is told which do (at most 50 names)."""
    name = _cut(name, MAX_NAME_CHARS)
    shown = ", ".join(available[:MAX_NAMES])
    if len(available) > MAX_NAMES:
        shown += f" and {len(available) - MAX_NAMES} more"
    text = "unknown_tool" if available else "unknown_tool_none"
    said = say(text, version=wording, name=name, available=shown)
    return _outcome("error", "unknown_tool", said, message=f'no tool "{name}"')


def invalid_arguments(problem: str, *, wording: int = WORDING_VERSION) -> ToolOutcome:
    """The arguments do not fit the tool's schema; `problem` is the sentence that says where."""
    problem = _cut(problem, MAX_MESSAGE_CHARS)
    said = say("invalid_arguments", version=wording, problem=problem)
    return _outcome("error", "invalid_arguments", said, message=problem)


def unreadable_arguments(text: str, *, wording: int = WORDING_VERSION) -> ToolOutcome:
    """The arguments were no JSON object."""
    excerpt = _cut(text, 200)
    said = say("unreadable_arguments", version=wording, excerpt=excerpt)
    return _outcome("error", "invalid_arguments", said, message="the arguments are no JSON object")


def raised(error: Exception, *, wording: int = WORDING_VERSION) -> ToolOutcome:
    """The handler raised: class name and message, bounded, without a stack trace."""
    kind = _cut(type(error).__name__, MAX_NAME_CHARS)
    message = message_of(error)
    text = "exception" if message else "exception_silent"
    said = say(text, version=wording, type=kind, message=message)
    return _outcome("error", "exception", said, message=message or kind, type_name=kind)


def unusable_result(problem: str, *, wording: int = WORDING_VERSION) -> ToolOutcome:
    """The handler returned something that no model can be shown."""
    problem = _cut(problem, MAX_MESSAGE_CHARS)
    said = say("unusable_result", version=wording, problem=problem)
    return _outcome("error", "unusable_result", said, message=problem)


def withheld(*, wording: int = WORDING_VERSION) -> ToolOutcome:
    """The plugin that checks results before the model sees them failed."""
    return _outcome("error", "withheld", say("withheld", version=wording), message="a plugin failed")


def timed_out(timeout_s: float, *, reach: Reach = "task", wording: int = WORDING_VERSION) -> ToolOutcome:
    """The handler was over its time.

    `reach`: a `task` was stopped, a `thread` cannot be, and one `waiting` for a thread never started.
    """
    name = {"task": "timeout", "thread": "timeout_thread", "waiting": "timeout_waiting"}[reach]
    said = say(name, version=wording, seconds=f"{timeout_s:g}")
    return _outcome("timeout", "timeout", said, message=f"not finished within {timeout_s:g} s")


def denied(
    reason: str | None = None, *, by: Refuser = "person", who: str = "A plugin", wording: int = WORDING_VERSION
) -> ToolOutcome:
    """The call was declined. `who` names the plugin, for `by="plugin"`."""
    because = _cut(reason or "", MAX_MESSAGE_CHARS).strip().rstrip(".")
    name = f"denied_by_{by}_because" if because else f"denied_by_{by}"
    said = say(name, version=wording, reason=because, who=who)
    return _outcome("denied", "denied", said, message=because or f"declined by {by}")


def interrupted(cause: Interruption, *, wording: int = WORDING_VERSION) -> ToolOutcome:
    """The call had started and its end is not known; effects may have happened."""
    return _outcome("interrupted", "interrupted", say(f"interrupted_{cause}", version=wording), message=cause)


def not_started(
    cause: NotStarted, *, stop_reason: str = "", count: int = 0, wording: int = WORDING_VERSION
) -> ToolOutcome:
    """The call never ran. `stop_reason` goes with `ending`, `count` (of abandoned threads) with `threads`."""
    said = say(f"not_started_{cause}", version=wording, stop_reason=stop_reason, count=count)
    return _outcome("not_started", "not_started", said, message=stop_reason or cause)


def _outcome(status: ToolStatus, kind: str, text: str, *, message: str, type_name: str | None = None) -> ToolOutcome:
    error = ToolError(kind=kind, message=message, type=type_name)
    return ToolOutcome(status=status, content=(TextBlock(text=text),), error=error)


def message_of(error: Exception) -> str:
    """An exception's text, bounded and clean; empty when it has none or cannot give it."""
    try:
        return _cut(str(error), MAX_MESSAGE_CHARS)
    except Exception:  # a foreign __str__ may do anything; its failure must not hide the first one
        return ""


def _cut(text: str, limit: int) -> str:
    text = str.__str__(text)
    return clean_text(text if len(text) <= limit else text[: limit - 1] + "…")
