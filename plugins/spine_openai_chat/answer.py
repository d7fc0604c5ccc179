"""The state machine of one answer: wire events in, neutral chunks out, one response at the end.

What each wire event may do in each state stands in `RULES`; an absent pair is a protocol error. Invariants:

- The answer is complete on a `finish_reason` of choice 0; on `[DONE]` after text and without a call; or when it came
  as one whole JSON object. Anything else that ends is `stream_truncated`.
- After that, usage, `[DONE]`, the same finish_reason, empty deltas and unknown additions are taken; new content or
  another ending is a protocol error and changes nothing.
- A call is passed on when its name is known and its arguments begin, or at the end: names come late and in pieces.
- The response's message is the fold of the chunks that were handed out.
"""

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from spine.llm.catalogue import Traits
from spine.llm.chunks import (
    BlockAdded,
    BlockEnded,
    ProviderEvent,
    RefusalDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from spine.llm.errors import Category, provider_error
from spine.llm.response import ModelResponse, StopReason
from spine.llm.usage import Usage
from spine.messages import ContentBlock
from spine.wire import Draft, WireLimits, not_ours, out_of_place, read_counts, settled, stream_failure, truncated
from spine_openai_chat.additions import Additions
from spine_openai_chat.calls import Call, CallTable, arguments_text
from spine_openai_chat.errors import RULES as ERRORS
from spine_openai_chat.usage import PLACES

NAME = "openai_chat"
STOP_REASONS: Mapping[str, StopReason] = {
    "stop": "end_turn",
    "eos": "end_turn",  # Together
    "end_turn": "end_turn",
    "tool_calls": "tool_use",
    "tool_use": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "context_window",  # Mistral: the window is full
    "model_context_window_exceeded": "context_window",  # Z.ai
    "stop_sequence": "stop_sequence",
    "content_filter": "content_filter",
    "sensitive": "content_filter",  # Z.ai
    "refusal": "refusal",
}
FAILED_FINISHES: Mapping[str, Category] = {
    "error": "server_error",  # OpenRouter
    "insufficient_system_resource": "overloaded",  # DeepSeek
    "network_error": "server_error",  # Z.ai
}


class State(enum.Enum):
    """Where an answer stands."""

    WAITING = "before the first content"
    ANSWERING = "in the answer"
    ENDED = "after its finish_reason"
    CLOSED = "after [DONE]"


class Answer:
    """One answer in the making. `draft` takes the chunks; `additions` collects what is no delta of a block."""

    def __init__(self, traits: Traits, limits: WireLimits) -> None:
        self.state = State.WAITING
        self.draft = Draft(NAME, traits, limits)
        self.additions = Additions()
        self._rules = RULES[State.WAITING]
        self._traits = traits
        self._emit = self.draft.emit
        self._kind: type | None = None
        self._index = -1
        self._first: dict[type, int] = {}
        self._states: dict[int, dict[str, Any]] = {}
        self._calls = CallTable()
        self._finish_reason: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether an ending was seen."""
        return self.state in (State.ENDED, State.CLOSED)

    def apply(self, event: str, value: Any) -> None:
        """Take one wire event. Raises `protocol_error` for one that has no place in the present state."""
        rule = self._rules.get(event)
        if rule is None:
            raise out_of_place(event, self.state.value)
        rule(self, value)

    def response(self) -> ModelResponse:
        """The response. Raises `stream_truncated` when no ending was seen."""
        if not self.is_complete:
            raise truncated(self.state.value)
        return self.draft.response(self._stop_reason(), self._finish_reason)

    # ------------------------------------------------------------------------------------------- content

    def _named(self, names: tuple[str | None, str | None]) -> None:
        self.draft.name(*names)

    def _unknown(self, payload: dict[str, Any]) -> None:
        """Something additive that no rule knows: told to whoever debugs, part of nothing."""
        self._emit(ProviderEvent(str(payload.get("type") or payload.get("object") or "object"), payload))

    def _enter(self, state: State) -> None:
        self.state = state
        self._rules = RULES[state]

    def _piece(self, kind: type, text: str) -> None:
        if self._kind is not kind:
            self._index = self.draft.next_index()
            self._kind = kind
            self._first.setdefault(kind, self._index)
            self._enter(State.ANSWERING)
        self._emit(kind(self._index, text))

    def _text(self, text: str) -> None:
        self._piece(TextDelta, text)

    def _thinking(self, text: str) -> None:
        self._piece(ThinkingDelta, text)

    def _refusal(self, text: Any) -> None:
        if isinstance(text, str):
            self._piece(RefusalDelta, text)

    def _details(self, details: Any) -> None:
        """Opaque reasoning, kept for the way back; the block's place is where it first appears."""
        if ThinkingDelta not in self._first:
            self._piece(ThinkingDelta, "")
        self.additions.add_details(details)

    def _block(self, block: ContentBlock) -> None:
        self._kind = None
        self._enter(State.ANSWERING)
        self._emit(BlockAdded(self.draft.next_index(), block))

    def _take_calls(self, items: Any) -> None:
        if not isinstance(items, list):
            raise not_ours("tool_calls that are no list")
        for item in items:
            if isinstance(item, dict) and not self._more_arguments(item):
                self._call(item)

    def _more_arguments(self, item: dict[str, Any]) -> bool:
        """The usual delta: a further piece for a call that has begun, known by its index."""
        call = self._calls.started(item.get("index"))
        function = item.get("function")
        if call is None or type(function) is not dict or len(function) != 1 or item.get("id"):
            return False
        piece = function.get("arguments")
        if type(piece) is not str:
            return False
        if piece:
            self._grow(call, piece)
            self._emit(ToolCallDelta(call.index, piece))
        return True

    def _grow(self, call: Call, piece: str) -> None:
        call.size += len(piece)
        self.draft.check_arguments(call.size)

    def _call(self, item: dict[str, Any]) -> None:
        function = item.get("function") or item.get("custom") or {}
        name = (function.get("name") or "") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise not_ours("a call whose name is no text")
        vendor_id = _id_text(item.get("id"))
        call = self._calls.find(item, name, vendor_id)
        if call is None:
            call = self._open_call(item)
        has_changed = self._identify(call, name, vendor_id)
        self._collect(call, item, function)
        if (call.started and has_changed) or (not call.started and call.name and call.size):
            self._start(call)
        if call.started:
            self._pass_on(call)

    def _open_call(self, item: dict[str, Any]) -> Call:
        self.draft.count_call()
        self._kind = None
        self._enter(State.ANSWERING)
        call = Call(self.draft.next_index())
        self._calls.open(item, call)
        return call

    def _identify(self, call: Call, name: str, vendor_id: str | None) -> bool:
        """A name that repeats what is known restates it; any other is a further piece of it. Says what changed."""
        before = (call.name, call.vendor_id)
        if name and name != call.name:
            call.name += name
        if vendor_id is not None and call.vendor_id is None:
            self._calls.named(call, vendor_id)
        return (call.name, call.vendor_id) != before

    def _collect(self, call: Call, item: dict[str, Any], function: dict[str, Any]) -> None:
        text = arguments_text(function.get("arguments", function.get("input")))
        if text:
            call.pieces.append(text)
            self._grow(call, text)
        if item.get("extra_content"):
            call.extra["extra_content"] = item["extra_content"]  # Gemini's signature, wanted back with the call

    def _start(self, call: Call) -> None:
        call.started = True
        self._emit(ToolCallStarted(call.index, call.name, call.vendor_id))

    def _pass_on(self, call: Call) -> None:
        for piece in call.pieces[call.sent :]:
            self._emit(ToolCallDelta(call.index, piece))
        call.sent = len(call.pieces)

    def _take_usage(self, raw: Any) -> None:
        self.draft.report(read_counts(raw, PLACES) if isinstance(raw, dict) else Usage(malformed=True))

    # --------------------------------------------------------------------------------------------- endings

    def finished(self, reason: Any) -> None:
        reason = None if reason is None else str(reason)
        if reason in FAILED_FINISHES:
            raise provider_error(FAILED_FINISHES[reason], f'the provider ended its answer with "{reason}"', code=reason)
        self._finish_reason = reason
        for call in self._calls.calls:
            if not call.started:
                self._start(call)
                self._pass_on(call)
            if call.extra:
                self._states[call.index] = call.extra
        self._end_blocks()
        self._enter(State.ENDED)

    def _end_blocks(self) -> None:
        first = self._first
        states = self.additions.states(self._states, thinking=first.get(ThinkingDelta), text=first.get(TextDelta))
        for index, data in states.items():
            self._emit(BlockEnded(index, self.draft.state(data)))

    def _finished_again(self, reason: Any) -> None:
        if str(reason) != self._finish_reason:
            raise provider_error(
                "protocol_error", f'the provider ended its answer twice: "{self._finish_reason}", then "{reason}"'
            )

    def _done_early(self, _: Any) -> None:
        """`[DONE]` without finish_reason ends text; calls only where the target is known to end like that."""
        if self._calls and self._traits.terminal != "done":
            raise truncated(self.state.value)
        if not self._calls and TextDelta not in self._first:
            raise truncated(self.state.value)
        self.finished(None)
        self._close(None)

    def _done_first(self, _: Any) -> None:
        raise truncated(self.state.value)

    def _close(self, _: Any) -> None:
        self._enter(State.CLOSED)
        self.emit_additions()

    def emit_additions(self) -> None:
        for block in self.additions.take():
            self._emit(BlockAdded(self.draft.next_index(), block))

    def _fail(self, payload: Any) -> None:
        usage = payload.get("usage")
        if usage:
            self._take_usage(usage)
        raise stream_failure(ERRORS, payload)

    def _stop_reason(self) -> StopReason:
        reason = settled(STOP_REASONS.get(self._finish_reason or "", "unknown"), has_calls=bool(self._calls))
        is_refused = RefusalDelta in self._first and TextDelta not in self._first
        return "refusal" if reason == "end_turn" and is_refused else reason


Rule = Callable[[Answer, Any], None]

_CONTENT: dict[str, Rule] = {
    "text": Answer._text,
    "thinking": Answer._thinking,
    "details": Answer._details,
    "refusal": Answer._refusal,
    "calls": Answer._take_calls,
    "block": Answer._block,
    "finish": Answer.finished,
}
_ALWAYS: dict[str, Rule] = {
    "named": Answer._named,
    "usage": Answer._take_usage,
    "error": Answer._fail,
    "unknown": Answer._unknown,
}
RULES: Mapping[State, Mapping[str, Rule]] = MappingProxyType(
    {
        State.WAITING: {**_CONTENT, **_ALWAYS, "done": Answer._done_first},
        State.ANSWERING: {**_CONTENT, **_ALWAYS, "done": Answer._done_early},
        State.ENDED: {**_ALWAYS, "finish": Answer._finished_again, "done": Answer._close},
        State.CLOSED: {**_ALWAYS, "finish": Answer._finished_again, "done": lambda decoder, value: None},
    }
)
"""What each wire event does in each state; a pair that is absent is a protocol error."""


def _id_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    return str(value) if type(value) is int else None
