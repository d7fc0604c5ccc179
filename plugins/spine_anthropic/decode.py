"""Messages answers to neutral chunks and one response, sans-IO: the layer between bytes and the state machine.

Layers: bytes, then event-stream events or one JSON body (`spine.wire.BodyDecoder`), then their payloads, of which
`answer.Answer` makes chunks; `blocks` knows the kinds of content. An event is named by its payload's `type`: the
stream's own `event:` lines say the same or are missing.

Not done here: repairing arguments, dating a container's end, reading what server tools found.
Sources: Anthropic's pages on the Messages API, streaming, extended thinking and citations, read 2026-11-30; quirks are
pinned by recorded answers.
"""

from typing import Any

from spine.llm.catalogue import Traits
from spine.wire import BodyDecoder, WireLimits, from_json, not_ours
from spine_anthropic.answer import Answer, State


def messages_decoder(traits: Traits, limits: WireLimits | None = None) -> BodyDecoder:
    """A fresh decoder of one 200 response."""
    limits = limits or WireLimits()
    return BodyDecoder(MessagesReading(traits, limits), limits)


class MessagesReading:
    """Reads events of a Messages stream, or one message (`spine.wire.Reading`)."""

    def __init__(self, traits: Traits, limits: WireLimits) -> None:
        self._answer = Answer(traits, limits)
        self._apply = self._answer.apply
        self.draft = self._answer.draft
        self.response = self._answer.response

    @property
    def is_done(self) -> bool:
        """Whether `message_stop` was seen."""
        return self._answer.state is State.CLOSED

    def event(self, name: str, data: bytes) -> None:
        """Take one event of the stream; the `[DONE]` that gateways add proves nothing."""
        if not data or data == b"[DONE]":
            return
        payload = from_json(data)
        if type(payload) is not dict:
            raise not_ours("an event that is no JSON object")
        kind = payload.get("type")
        if type(kind) is not str:
            kind = "error" if payload.get("error") else name
        self._apply(kind, payload)

    def whole(self, value: Any) -> None:
        """Take a message, which is whole as soon as it parses: its ending needs no marker."""
        if type(value) is not dict:
            raise not_ours("JSON that is no object")
        if value.get("type") == "error" or value.get("error"):
            self._apply("error", value)
        if type(value.get("content")) is not list:
            raise not_ours("an object that is no message")
        self._answer.whole(value)

    def ended(self) -> None:
        """The body is over, which proves nothing."""
