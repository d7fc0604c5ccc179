"""Chat Completions answers to neutral chunks and one response, sans-IO: the outer layers.

Layers: bytes, then event-stream events or one JSON body (`spine.wire.BodyDecoder`), then `chat.completion(.chunk)`
objects, then wire events, which `answer.Answer` turns into chunks. Only choice 0 is read. Unknown members are ignored;
what the provider ran or added itself is carried in `extension` blocks.

Not done here: repairing arguments, splitting `<think>` tags out of text, guessing a vendor.
Sources: the OpenAI reference of chat completions and streaming, read 2026-11-30; quirks are pinned by recorded answers.
"""

from typing import Any

from spine.llm.catalogue import Traits
from spine.llm.errors import provider_error
from spine.wire import BodyDecoder, WireLimits, from_json, not_ours
from spine_openai_chat.additions import parts_of
from spine_openai_chat.answer import Answer, State

_ADDED = frozenset(("x_groq", "citations", "search_results"))


def chat_decoder(traits: Traits, limits: WireLimits | None = None) -> BodyDecoder:
    """A fresh decoder of one 200 response."""
    limits = limits or WireLimits()
    return BodyDecoder(ChatReading(traits, limits), limits)


class ChatReading:
    """Reads `chat.completion(.chunk)` objects (`spine.wire.Reading`)."""

    def __init__(self, traits: Traits, limits: WireLimits) -> None:
        self._answer = Answer(traits, limits)
        self._apply = self._answer.apply
        self.draft = self._answer.draft
        self.response = self._answer.response

    @property
    def is_done(self) -> bool:
        """Whether `[DONE]` was seen."""
        return self._answer.state is State.CLOSED

    def ended(self) -> None:
        """The body is over: what was collected becomes blocks."""
        if self._answer.is_complete:
            self._answer.emit_additions()

    def event(self, name: str, data: bytes) -> None:
        """Take one event of the stream."""
        if data == b"[DONE]":
            self._apply("done", None)
        elif data:
            payload = from_json(data)
            if type(payload) is not dict:
                raise not_ours("an event that is no JSON object")
            self._object(payload, is_error=name == "error")

    def _object(self, payload: dict[str, Any], *, is_error: bool = False) -> None:
        """One `chat.completion.chunk`."""
        choices = payload.get("choices")
        if payload.get("error") or is_error or (choices is None and _is_error(payload)):
            self._apply("error", payload)
        if not self.draft.is_named:
            self._apply("named", (_text(payload.get("model")), _text(payload.get("id"))))
        if choices:
            choice = choices[0] if type(choices) is list else None
            if type(choice) is not dict or choice.get("index"):
                choice = _choice_0(choices)
            if choice is not None:
                self._choice(choice, choice.get("delta") or _no_delta(choice, self._answer.state))
        elif choices is None and "usage" not in payload:
            self._apply("unknown", payload)
        usage = payload.get("usage")
        if usage:
            self._apply("usage", usage)
        if not _ADDED.isdisjoint(payload):
            self._added(payload)

    def whole(self, payload: Any) -> None:
        """A `chat.completion`, which is whole as soon as it parses: its ending needs no marker."""
        if type(payload) is not dict:
            payload = {"error": payload[0].get("error")} if _is_listed_error(payload) else None
        if payload is None:
            raise not_ours("JSON that is no object")
        if payload.get("error") or (not payload.get("choices") and _is_error(payload)):
            self._apply("error", payload)
        choice = _choice_0(payload.get("choices") or ())
        if choice is None:
            raise provider_error("protocol_error", "the provider answered with an object that holds no choice")
        self._object({**payload, "choices": ()})
        message = choice.get("message") or choice.get("delta") or {}
        if type(message) is not dict:
            raise not_ours("a message that is no object")
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            calls = [{**call, "index": place} for place, call in enumerate(calls) if isinstance(call, dict)]
        self._choice(choice, {**message, "tool_calls": calls})
        if not self._answer.is_complete:
            self._answer.finished(None)

    def _choice(self, choice: dict[str, Any], delta: Any) -> None:
        if type(delta) is not dict:
            raise not_ours("a delta that is no object")
        content = delta.get("content")
        if type(content) is str and len(delta) < 3 and ("role" in delta or len(delta) == 1):
            if content:  # text alone: nearly every event
                self._apply("text", content)
        elif delta:
            self._delta(delta, content)
        error = choice.get("error")
        if error:
            self._apply("error", {"error": error})
        finish = choice.get("finish_reason")
        if finish:
            self._apply("finish", finish)
        usage = choice.get("usage")
        if usage:
            self._apply("usage", usage)  # Moonshot

    def _delta(self, delta: dict[str, Any], content: Any) -> None:
        """Everything a delta or a message may hold, in the order in which it is read by people."""
        thinking = delta.get("reasoning_content") or delta.get("reasoning")
        if thinking and type(thinking) is str:  # two names of one thing: never added up
            self._apply("thinking", thinking)
        details = delta.get("reasoning_details")
        if details:
            self._apply("details", details)
        if content:
            if type(content) is str:
                self._apply("text", content)
            else:
                for kind, value in parts_of(content):
                    if kind != "thinking" or not thinking:
                        self._apply(kind, value)
        refusal = delta.get("refusal")
        if refusal:
            self._apply("refusal", refusal)
        calls = delta.get("tool_calls")
        if calls:
            self._apply("calls", calls)
        legacy = delta.get("function_call")
        if isinstance(legacy, dict) and (legacy.get("name") or legacy.get("arguments")):
            self._apply("calls", [{"index": -1, "function": legacy}])
        self._answer.additions.from_delta(delta)

    def _added(self, payload: dict[str, Any]) -> None:
        vendor = payload.get("x_groq")
        if isinstance(vendor, dict):
            if vendor.get("error"):
                self._apply("error", {"error": vendor["error"]})
            if vendor.get("usage") and self.draft.usage is None:
                self._apply("usage", vendor["usage"])
        self._answer.additions.from_object(payload)


def _choice_0(choices: Any) -> dict[str, Any] | None:
    """The choice that is read; a missing or null index counts as 0."""
    if not isinstance(choices, list):
        return None
    return next((choice for choice in choices if isinstance(choice, dict) and not choice.get("index")), None)


def _no_delta(choice: dict[str, Any], state: State) -> dict[str, Any]:
    """Some servers stream one whole message; later copies of it beside deltas are not added again (Perplexity)."""
    message = choice.get("message")
    return message if isinstance(message, dict) and state is State.WAITING else {}


def _is_error(payload: dict[str, Any]) -> bool:
    return payload.get("object") == "error" or not payload.keys().isdisjoint(("message", "detail", "error_code"))


def _is_listed_error(payload: Any) -> bool:
    """Gemini wraps its error bodies in a list."""
    return (
        isinstance(payload, list) and bool(payload) and isinstance(payload[0], dict) and bool(payload[0].get("error"))
    )


def _text(value: Any) -> str | None:
    return value if value and isinstance(value, str) else None
