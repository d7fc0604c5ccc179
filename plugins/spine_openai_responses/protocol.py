"""The value that is registered as `openai_responses`: pure, but for a memory of wire bytes that changes no result."""

from collections.abc import Mapping

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.protocols import Body
from spine.llm.request import ModelRequest
from spine.wire import BodyDecoder, WireLimits, http_failure
from spine_openai_responses.answer import NAME
from spine_openai_responses.decode import responses_decoder
from spine_openai_responses.encode import ResponsesEncoder
from spine_openai_responses.errors import RULES


class OpenAIResponses:
    """A `spine.llm.protocols.WireProtocol`."""

    name = NAME

    def __init__(self, limits: WireLimits | None = None) -> None:
        self._limits = limits or WireLimits()
        self._encoder = ResponsesEncoder()

    def check(self, request: ModelRequest, traits: Traits) -> None:
        """Raise for what the target cannot do, and for options that do not exist."""
        self._encoder.check(request, traits)

    def encode(self, request: ModelRequest, traits: Traits) -> Body:
        """The body of a POST to `/responses`."""
        return self._encoder.encode(request, traits)

    def decoder(self, traits: Traits, headers: Mapping[str, str]) -> BodyDecoder:
        """A fresh decoder; headers tell it nothing, content types lie."""
        return responses_decoder(traits, self._limits)

    def classify(self, status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> ProviderError:
        """Read an error answer."""
        return http_failure(RULES, status, headers, body, now=now)
