"""The state machine of one answer: wire events in, neutral chunks out, one response at the end.

What each event may do in each state stands in `RULES`; a known event that is absent there is a protocol error, an
unknown one is an addition of a later day. Invariants:

- The answer is complete on `completed`, `incomplete` or a body that is one object; `failed` and `error` end it as a
  failure. Anything else that ends is `stream_truncated`.
- After that, the same ending again, `[DONE]` and unknown additions are taken; content or another ending is a protocol
  error and changes nothing; a failure that is told late is a failure.
- Sequence numbers are information only: servers leave them out, repeat them and begin anywhere.
- The response's message is the fold of the chunks that were handed out.
"""

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from spine.llm.catalogue import Traits
from spine.llm.chunks import ProviderEvent
from spine.llm.errors import provider_error
from spine.llm.response import ModelResponse, StopReason
from spine.llm.usage import Usage
from spine.wire import Draft, WireLimits, not_ours, out_of_place, read_counts, settled, truncated
from spine_openai_responses.errors import event_failure
from spine_openai_responses.items import CALLS, KINDS, PARTS, Items, Kind, arguments_text, text_of, type_of
from spine_openai_responses.usage import PLACES
from spine_openai_responses.wholes import Wholes

NAME = "openai_responses"
STOP_REASONS: Mapping[str, StopReason] = {
    "completed": "end_turn",
    "incomplete:max_output_tokens": "max_tokens",
    "incomplete:content_filter": "content_filter",
}
"""Queued, cancelled and unfinished answers, and reasons of a later day, say nothing of how the answer ended."""
UNFINISHED = frozenset(("queued", "in_progress", "cancelled"))
"""Answers of which more was to come; none of their calls may run."""
DONE = "[DONE]"


class State(enum.Enum):
    """Where an answer stands."""

    WAITING = "before the first content"
    ANSWERING = "in the answer"
    ENDED = "after its end"


class Answer:
    """One answer in the making. `draft` takes the chunks."""

    def __init__(self, traits: Traits, limits: WireLimits) -> None:
        self.state = State.WAITING
        self.draft = Draft(NAME, traits, limits)
        self.items = Items(self.draft)
        self._wholes = Wholes(self.draft, self.items)
        self._rules = RULES[State.WAITING]
        self._ending: str | None = None
        self._last_id: str | None = None

    def apply(self, event: str, payload: dict[str, Any]) -> None:
        """Take one event. Raises `protocol_error` for one that has no place in the present state."""
        rule = self._rules.get(event)
        if rule is not None:
            rule(self, payload)
        elif event in EVENTS:
            raise out_of_place(event, self.state.value)
        else:
            self.draft.emit(ProviderEvent(event, payload))

    def whole(self, response: dict[str, Any]) -> None:
        """Take an answer that is one object."""
        self._end(response, text_of(response.get("status")))

    def response(self) -> ModelResponse:
        """The response. Raises `stream_truncated` when no ending was seen."""
        if self.state is not State.ENDED:
            raise truncated(self.state.value)
        if self._ending in UNFINISHED and self.items.has_calls:
            raise truncated(f"as {self._ending}")
        response = self.draft.response(self._stop_reason(), self._ending)
        return _renamed(response, self._last_id)

    def _stop_reason(self) -> StopReason:
        reason = settled(STOP_REASONS.get(self._ending or "", "unknown"), has_calls=self.items.has_calls)
        return "refusal" if reason == "end_turn" and self.items.is_refusal else reason

    def _enter(self, state: State) -> None:
        self.state = state
        self._rules = RULES[state]

    # ------------------------------------------------------------------------------------------- the response

    def _name(self, payload: dict[str, Any]) -> None:
        """`created`, `queued`, `in_progress`: who answers, and what it has cost so far."""
        response = payload.get("response")
        if type(response) is dict:
            self._read_head(response)

    def _read_head(self, response: dict[str, Any]) -> None:
        self.draft.name(text_of(response.get("model")), text_of(response.get("id")))
        usage = response.get("usage")
        if usage:
            self.draft.report(read_counts(usage, PLACES) if type(usage) is dict else Usage(malformed=True))

    def _complete(self, payload: dict[str, Any]) -> None:
        response = payload.get("response")
        if type(response) is not dict:
            raise not_ours(f"{payload['type']} without a response")
        self._end(response, text_of(response.get("status")) or payload["type"].removeprefix("response."))

    def _end(self, response: dict[str, Any], status: str | None) -> None:
        self._read_head(response)
        if status == "failed" or response.get("error"):
            raise event_failure({"error": response.get("error") or {}})
        output = response.get("output")
        self._wholes.take_last(output if type(output) is list else [])
        self._ending = _ending(response, status)
        self._last_id = text_of(response.get("id"))
        self._enter(State.ENDED)

    def _end_again(self, payload: dict[str, Any]) -> None:
        response = payload.get("response")
        again = response if type(response) is dict else {}
        status = text_of(again.get("status")) or payload["type"].removeprefix("response.")
        if _ending(again, status) != self._ending:
            raise provider_error(
                "protocol_error", f'the provider ended its answer twice: "{self._ending}", then "{status}"'
            )

    def _fail(self, payload: dict[str, Any]) -> None:
        self._name(payload)
        response = payload.get("response")
        raise event_failure({"error": response.get("error") or {}} if type(response) is dict else payload)

    def _cut(self, payload: dict[str, Any]) -> None:
        raise truncated(self.state.value)

    # ------------------------------------------------------------------------------------------------ content

    def _content(self, rule: "Rule", payload: dict[str, Any]) -> None:
        """The first content; from then on content goes to its rule at once."""
        if not self.draft.has_begun:
            self.draft.name(None, None)
        self._enter(State.ANSWERING)
        rule(self, payload)

    def _add_item(self, payload: dict[str, Any]) -> None:
        item = payload.get("item")
        if type(item) is not dict:
            raise not_ours("an item that is no object")
        added = self.items.added(payload, item)
        if added.type in CALLS:
            self.items.start(added)

    def _end_item(self, payload: dict[str, Any]) -> None:
        whole = payload.get("item")
        if type(whole) is not dict:
            raise not_ours("an item that is no object")
        self._wholes.take(self.items.item(payload, type_of(whole), whole), whole)

    def _end_part(self, payload: dict[str, Any]) -> None:
        part = payload.get("part")
        if type(part) is dict:
            kind = PARTS.get(text_of(part.get("type")) or "")
            if kind is not None and part.get(kind.value):
                self._wholes.part(self.items.run(kind, payload), part)

    def _end_text(self, kind: Kind, payload: dict[str, Any]) -> None:
        whole = arguments_text(payload.get(kind.value))
        if whole and kind.item in CALLS:
            self.items.fill_arguments(self.items.run(kind, payload), whole)
        elif whole:
            self.items.fill(self.items.run(kind, payload), whole)


Rule = Callable[[Answer, dict[str, Any]], None]


def _first(rule: Rule) -> Rule:
    return lambda answer, payload: answer._content(rule, payload)


def _content_rules() -> dict[str, Rule]:
    def add(kind: Kind) -> Rule:
        if kind.item in CALLS:
            return lambda answer, payload: answer.items.arguments(kind, payload)
        return lambda answer, payload: answer.items.text(kind, payload)

    def end(kind: Kind) -> Rule:
        return lambda answer, payload: answer._end_text(kind, payload)

    return {
        "response.output_item.added": Answer._add_item,
        "response.output_item.done": Answer._end_item,
        "response.content_part.added": lambda answer, payload: None,
        "response.content_part.done": Answer._end_part,
        "response.reasoning_summary_part.added": lambda answer, payload: None,
        "response.reasoning_summary_part.done": Answer._end_part,
        "response.output_text.annotation.added": lambda answer, payload: None,
        **{f"{name}.delta": add(kind) for name, kind in KINDS.items()},
        **{f"{name}.done": end(kind) for name, kind in KINDS.items()},
    }


_CONTENT = _content_rules()
_FIRST: dict[str, Rule] = {event: _first(rule) for event, rule in _CONTENT.items()}
_FAILURES: dict[str, Rule] = {"response.failed": Answer._fail, "error": Answer._fail}
_UNFINISHED: dict[str, Rule] = {
    **_FAILURES,
    "response.created": Answer._name,
    "response.queued": Answer._name,
    "response.in_progress": Answer._name,
    "response.completed": Answer._complete,
    "response.incomplete": Answer._complete,
    "response.cancelled": Answer._complete,
    DONE: Answer._cut,
}
RULES: Mapping[State, Mapping[str, Rule]] = MappingProxyType(
    {
        State.WAITING: {**_FIRST, **_UNFINISHED},
        State.ANSWERING: {**_CONTENT, **_UNFINISHED},
        State.ENDED: {
            **_FAILURES,
            "response.completed": Answer._end_again,
            "response.incomplete": Answer._end_again,
            "response.cancelled": Answer._end_again,
            DONE: lambda answer, payload: None,
        },
    }
)
"""What each event does in each state; a pair that is absent is a protocol error."""
EVENTS = frozenset(event for rules in RULES.values() for event in rules)
"""The events of the grammar; the steps of built-in tools are none of them, their items tell all in the end."""


def _ending(response: Mapping[str, Any], status: str | None) -> str | None:
    details = response.get("incomplete_details")
    reason = text_of(details.get("reason")) if type(details) is dict else None
    return f"{status}:{reason}" if reason else status


def _renamed(response: ModelResponse, last_id: str | None) -> ModelResponse:
    """The id in the end is the one the answer is known by; GitHub Copilot has another in every event."""
    origin = response.message.origin
    if last_id is None or last_id == response.response_id or origin is None:
        return response
    message = response.message.evolve(origin=attrs.evolve(origin, response_id=last_id))
    return attrs.evolve(response, message=message, response_id=last_id)
