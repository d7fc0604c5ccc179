"""The core's own texts for the model, in one versioned table (floor 2).

Rule: whatever the core tells a model about a call stands here and is recorded as it was worded; a text that changes
gets a new version of the table, so that an old log replays with the words it was written with. Values are filled in
once and never read as templates.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from spine.errors import UsageError

__all__ = ["WORDING", "WORDING_VERSION", "say"]

WORDING_VERSION: Final = 1

_VERSION_1: Final[Mapping[str, str]] = MappingProxyType(
    {
        # A call that was declined.
        "denied_by_person": "denied: A person declined this call. Nothing was executed.",
        "denied_by_person_because": "denied: A person declined this call: {reason}. Nothing was executed.",
        "denied_by_plugin": "denied: {who} declined this call. Nothing was executed.",
        "denied_by_plugin_because": "denied: {who} declined this call: {reason}. Nothing was executed.",
        "denied_by_policy": "denied: A rule of this application declined this call. Nothing was executed.",
        "denied_by_policy_because": (
            "denied: A rule of this application declined this call: {reason}. Nothing was executed."
        ),
        # A call that could not be made.
        "unknown_tool": 'error: There is no tool "{name}". Available: {available}.',
        "unknown_tool_none": 'error: There is no tool "{name}", and no other tool is available.',
        "invalid_arguments": "error: {problem}",
        "unreadable_arguments": (
            "error: The arguments are no JSON object: {excerpt}. Nothing was executed; send one JSON object."
        ),
        # A call that went wrong.
        "exception": "error: {type}: {message}",
        "exception_silent": "error: {type}",
        "failed": "error: {message}",
        "unusable_result": "error: The tool ran to its end, but its result cannot be shown: {problem}.",
        "withheld": "error: The result of this call is withheld: a plugin that checks results failed.",
        "timeout": (
            "timeout: The tool did not finish within {seconds} s and was stopped. "
            "Some of its effects may have happened."
        ),
        "timeout_thread": (
            "timeout: The tool did not finish within {seconds} s. It could not be stopped and may still take effect."
        ),
        "timeout_waiting": (
            "timeout: The tool could not start within {seconds} s because all threads were busy. Nothing was executed."
        ),
        # A call that was cut off after it had started.
        "interrupted_cancelled": (
            "interrupted: The turn was cancelled while this call was running. Some of its effects may have happened."
        ),
        "interrupted_thread": (
            "interrupted: The turn was cancelled while this call was running. "
            "It could not be stopped and may still take effect."
        ),
        "interrupted_crashed": (
            "interrupted: The process ended while this call was running. "
            "Its effects may have happened; check before calling it again."
        ),
        "interrupted_failed": (
            "interrupted: The step failed while this call was running. Some of its effects may have happened."
        ),
        "interrupted_unrecorded": (
            "interrupted: The result of this call was not recorded. "
            "Its effects may have happened; check before calling it again."
        ),
        # A call that never started.
        "not_started_cancelled": "not started: The turn was cancelled before this call ran. Nothing was executed.",
        "not_started_failed": "not started: The step failed before this call ran. Nothing was executed.",
        "not_started_max_tokens": (
            "not started: Your answer was cut at its output limit (max_tokens), so this call may be incomplete. "
            "Nothing was executed."
        ),
        "not_started_ending": "not started: The answer ended early ({stop_reason}). Nothing was executed.",
        "not_started_closed": (
            "not started: The conversation went on from an earlier point before this call ran. Nothing was executed."
        ),
        "not_started_threads": (
            "not started: {count} earlier calls that could not be stopped still occupy all threads. "
            "Nothing was executed."
        ),
        # Results that are not shown whole.
        "truncated": "\n[cut here: {shown} of {total} bytes are shown]",
        "truncated_store": "\n[cut here: {shown} of {total} bytes are shown, the first {kept} are kept]",
        "artifact": "[{media_type}, {size} bytes, kept beside the conversation as {digest}]",
    }
)

WORDING: Final[Mapping[int, Mapping[str, str]]] = MappingProxyType({1: _VERSION_1})
"""Each version's texts by name; a released version never changes."""


def say(name: str, /, *, version: int = WORDING_VERSION, **values: object) -> str:
    """The text `name` of a version with its values filled in.

    Raises `UsageError` for a version or name that is not in the table, and for a value that is missing.
    """
    texts = WORDING.get(version)
    if texts is None:
        known = ", ".join(map(str, WORDING))
        raise UsageError(f"texts for the model are wanted in version {version}; this installation has {known}")
    try:
        return texts[name].format_map(values)
    except KeyError as exc:
        raise UsageError(f'text "{name}" of version {version}: {exc} is missing') from exc
