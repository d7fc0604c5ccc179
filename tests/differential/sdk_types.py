"""The official SDKs' types of a request, by protocol; tests that need them are skipped where an SDK is missing."""

from typing import Any

import pytest
from typed_values import misfit

from spine.llm.catalogue import Traits

_REASON = "the official SDK is not installed"
ECHOED = frozenset(("reasoning_content", "reasoning", "reasoning_details", "extra_content"))
"""What compatible servers take back in an answer and OpenAI's own types do not have."""

OF_OUR_VERSION = frozenset(("temperature", "top_p"))
"""Messages: the SDK speaks a later version of the API than the one we ask for, which still has these."""


def request_type(protocol: str) -> Any:
    """The `TypedDict` of a streaming request."""
    if protocol == "anthropic_messages":
        found = pytest.importorskip("anthropic.types.message_create_params", reason=_REASON)
        return found.MessageCreateParamsStreaming
    if protocol == "openai_responses":
        found = pytest.importorskip("openai.types.responses.response_create_params", reason=_REASON)
        return found.ResponseCreateParamsStreaming
    found = pytest.importorskip("openai.types.chat.completion_create_params", reason=_REASON)
    return found.CompletionCreateParamsStreaming


def check_type(data: dict[str, Any], traits: Traits) -> None:
    """The request is one that the SDK's types allow."""
    if traits.reasoning_field is not None:
        messages = [{key: value for key, value in m.items() if key not in ECHOED} for m in data["messages"]]
        data = {**data, "messages": messages}
    if traits.protocol == "anthropic_messages":
        data = {key: value for key, value in data.items() if key not in OF_OUR_VERSION}
    problem = misfit(data, request_type(traits.protocol))
    assert problem is None, problem
