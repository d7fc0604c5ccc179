"""What an error of a Responses server means: what its vendors say beside the shared codes and phrases.

Sources: OpenAI's pages on error codes and streaming events, xAI's on errors, read 2026-11-30, and answers on record.
"""

from collections.abc import Mapping
from typing import Any

from spine.llm.errors import ProviderError
from spine.wire import extended, phrase_table, stream_failure

RULES = extended(
    {},
    phrases=phrase_table(
        ("auth", (r"must be a member of an organization",)),
        # the server holds nothing under that id: neither a wrong path nor a wrong model
        ("invalid_request", (r"^(?:previous response|item) with id '[^']{1,128}' not found",)),
    ),
)
_OF_THE_EVENT = frozenset(("type", "sequence_number"))


def event_failure(payload: Mapping[str, Any]) -> ProviderError:
    """The error of an `error` event, flat or with an `error` object, or of a failed response (`{"error": …}`)."""
    return stream_failure(RULES, {key: value for key, value in payload.items() if key not in _OF_THE_EVENT})
