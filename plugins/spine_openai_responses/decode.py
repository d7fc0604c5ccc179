"""Responses answers to neutral chunks and one response, sans-IO: the outer layers.

Layers: bytes, then event-stream events or one JSON body (`spine.wire.BodyDecoder`), then events by the `type` in their
data (servers leave out the event lines), which `answer.Answer` turns into chunks. Unknown members are ignored; what the
provider ran itself is carried in `extension` blocks.

Not done here: repairing arguments, asking again for an answer that was queued, guessing a vendor.
Sources: the OpenAI reference of the response object and its streaming events, read 2026-11-30; quirks are pinned by
recorded answers.
"""

from typing import Any

from spine.llm.catalogue import Traits
from spine.wire import BodyDecoder, WireLimits, from_json, not_ours
from spine_openai_responses.answer import DONE, Answer, State
from spine_openai_responses.items import text_of

_DONE = DONE.encode()


def responses_decoder(traits: Traits, limits: WireLimits | None = None) -> BodyDecoder:
    """A fresh decoder of one 200 response."""
    limits = limits or WireLimits()
    return BodyDecoder(ResponsesReading(traits, limits), limits)


class ResponsesReading:
    """Reads events and response objects (`spine.wire.Reading`)."""

    def __init__(self, traits: Traits, limits: WireLimits) -> None:
        self._answer = Answer(traits, limits)
        self._apply = self._answer.apply
        self.draft = self._answer.draft
        self.response = self._answer.response

    @property
    def is_done(self) -> bool:
        """Whether the last response was seen."""
        return self._answer.state is State.ENDED

    def ended(self) -> None:
        """The body is over."""

    def event(self, name: str, data: bytes) -> None:
        """Take one event of the stream."""
        if not data:
            return
        if data == _DONE:
            self._apply(DONE, {})
            return
        payload = from_json(data)
        if type(payload) is not dict:
            raise not_ours("an event that is no JSON object")
        event = payload.get("type")
        if type(event) is not str:
            event = "error" if payload.get("error") else name
            payload = {**payload, "type": event}
        self._apply(event, payload)

    def whole(self, payload: Any) -> None:
        """A response object, which is whole as soon as it parses: its ending needs no marker."""
        if type(payload) is not dict:
            raise not_ours("JSON that is no object")
        if payload.get("error") and type(payload.get("output")) is not list:
            self._apply("error", payload)
        if type(payload.get("output")) is not list and not text_of(payload.get("status")):
            if _is_error(payload):
                self._apply("error", payload)
            raise not_ours("an object that holds no output")
        self._answer.whole(payload)


def _is_error(payload: dict[str, Any]) -> bool:
    return payload.get("object") == "error" or not payload.keys().isdisjoint(("message", "detail", "error_code"))
