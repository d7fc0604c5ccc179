"""A model in the process: it calls `acme.shout` with the last thing a person said, then repeats the result."""

from collections.abc import AsyncIterator
from typing import Any

from spine.llm.chunks import Chunk, TextDelta, ToolCallDelta, ToolCallStarted
from spine.llm.protocols import ProviderSettings
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.messages import Message, TextBlock, ToolCallBlock

__all__ = ["EchoModel"]

_TOOL = "acme.shout"


class EchoModel:
    """An adapter (`spine.llm.protocols.Adapter`)."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.provider = settings.provider

    def check(self, request: ModelRequest) -> None:
        """It can do everything it is asked."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | ModelResponse]:
        """Call the tool first, then say what it said."""
        last = request.messages[-1]
        if last.role == "user":
            yield ToolCallStarted(0, _TOOL)
            yield ToolCallDelta(0, '{"text":"hello"}')
            call = ToolCallBlock(id="", name=_TOOL, arguments={"text": "hello"})
            yield _response(call, "tool_use")
        else:
            said = last.content[0].content[0].text
            yield TextDelta(0, said)
            yield _response(TextBlock(text=said), "end_turn")

    async def aclose(self) -> None:
        """There is nothing to close."""


def _response(block: Any, stop_reason: Any) -> ModelResponse:
    return ModelResponse(message=Message(role="assistant", content=(block,)), stop_reason=stop_reason)
