"""Chat Completions answers to neutral chunks and one response, sans-IO.

Layers: bytes, then event-stream events or one JSON body (told apart by the first byte that is no blank: content types
lie), then `chat.completion(.chunk)` objects, then wire events, then chunks. What each wire event may do in each state
stands in `RULES`; an absent pair is a protocol error. Only choice 0 is read. Invariants:

- The answer is complete on a `finish_reason` of choice 0; on `[DONE]` after text and without a call; or when it came
  as one whole JSON object. Anything else that ends is `stream_truncated`.
- After that, usage, `[DONE]`, the same finish_reason, empty deltas and unknown additions are taken; new content or
  another ending is a protocol error and changes nothing.
- A call is passed on when its name is known and its arguments begin, or at the end: names come late and in pieces.
- Unknown members are ignored; what the provider ran or added itself is carried in `extension` blocks.

Not done here: repairing arguments, splitting `<think>` tags out of text, guessing a vendor.
Sources: the OpenAI reference of chat completions and streaming, read 2026-11-30; quirks are pinned by recorded answers.
"""

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from spine.llm.assemble import Assembler
from spine.llm.catalogue import Traits
from spine.llm.chunks import (
    BlockAdded,
    BlockEnded,
    Chunk,
    RefusalDelta,
    ResponseStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from spine.llm.errors import Category, ProviderError, provider_error
from spine.llm.response import ModelResponse, StopReason
from spine.llm.usage import Usage
from spine.messages import ContentBlock, Origin, ProviderState
from spine.wire import EventStream, WireLimits, from_json
from spine_openai_chat.additions import Additions, parts_of
from spine_openai_chat.calls import Call, CallTable, arguments_text
from spine_openai_chat.errors import stream_error
from spine_openai_chat.usage import read_usage

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
_BLANKS = b" \t\r\n\xef\xbb\xbf"
_NORMAL = frozenset(("end_turn", "tool_use", "stop_sequence", "unknown"))


class State(enum.Enum):
    """Where an answer stands."""

    WAITING = "before the first content"
    ANSWERING = "in the answer"
    ENDED = "after its finish_reason"
    CLOSED = "after [DONE]"


class ChatDecoder:
    """Decoder of one 200 response (`spine.llm.protocols.Decoder`)."""

    def __init__(self, traits: Traits, limits: WireLimits | None = None) -> None:
        self.error: ProviderError | None = None
        self.state = State.WAITING
        self._rules = RULES[State.WAITING]
        self._traits = traits
        self._limits = limits or WireLimits()
        self._read: Callable[[bytes], None] = self._sniff
        self._events = EventStream(self._limits)
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._is_over = False
        self._out: list[Chunk] = []
        self._message = Assembler()
        self._add = self._message.add
        self._kind: type | None = None
        self._index = -1
        self._last_index = -1
        self._states: dict[int, dict[str, Any]] = {}
        self._calls = CallTable()
        self._additions = Additions()
        self._first: dict[type, int] = {}
        self._is_named = False
        self._finish_reason: str | None = None
        self._usage: Usage | None = None

    @property
    def is_done(self) -> bool:
        """Whether `[DONE]` was seen."""
        return self.state is State.CLOSED

    def feed(self, data: bytes) -> tuple[Chunk, ...]:
        """Take the next bytes of the body; `b""` ends it. See `spine.llm.protocols.Decoder`."""
        if self.error is not None:
            raise self.error
        out = self._out = []
        try:
            if data:
                self._read(data)
            else:
                self._end()
        except ProviderError as error:
            self.error = error
            if not out:
                raise
        return tuple(out)

    def finish(self) -> ModelResponse:
        """The response, or the reason why there is none."""
        if self.error is None and not self._is_over:
            self.feed(b"")
        if self.error is not None:
            raise self.error
        if self.state not in (State.ENDED, State.CLOSED):
            self.error = self._truncated()
            raise self.error
        traits, message = self._traits, self._message
        origin = Origin(
            protocol=NAME,
            route=f"{traits.provider}:{traits.model}",
            model=message.model,
            response_id=message.response_id,
        )
        return ModelResponse(
            message=message.message(origin),
            stop_reason=self._stop_reason(),
            raw_stop_reason=self._finish_reason,
            usage=self._usage or Usage(),
            model=message.model,
            response_id=message.response_id,
        )

    # ---------------------------------------------------------------------------------------------- bytes

    def _sniff(self, data: bytes) -> None:
        """Find out what kind of body this is; OpenRouter sends blanks for minutes before a JSON body."""
        data = data.lstrip(_BLANKS)
        if not data:
            return
        if data[:1] in (b"{", b"["):
            self._read = self._hold
        elif data[:1] == b"<":
            raise _not_ours("a page")
        else:
            self._read = self._stream
        self._read(data)

    def _hold(self, data: bytes) -> None:
        self._body.append(data)
        self._body_bytes += len(data)
        if self._body_bytes > self._limits.response_bytes:
            raise provider_error(
                "protocol_error", f"the JSON answer is longer than {self._limits.response_bytes} bytes"
            )

    def _stream(self, data: bytes) -> None:
        for name, text in self._events.feed(data):
            self._event(name, text)

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._body:
            self._whole(from_json(b"".join(self._body)))
        else:
            self._last_events()
        if self.state in (State.ENDED, State.CLOSED):
            self._emit_additions()

    def _last_events(self) -> None:
        """An event without its blank line is taken; half a line at the end of a cut stream is no broken JSON."""
        try:
            for name, text in self._events.finish():
                self._event(name, text)
        except ProviderError as error:
            if error.category != "protocol_error":
                raise
        if self._events.ignored and self.state is State.WAITING and not self._is_named:
            raise _not_ours("text that is neither JSON nor an event stream")

    # --------------------------------------------------------------------------------------------- objects

    def _event(self, name: str, data: bytes) -> None:
        if data == b"[DONE]":
            self._apply("done", None)
        elif data:
            payload = from_json(data)
            if type(payload) is not dict:
                raise _not_ours("an event that is no JSON object")
            self._object(payload, is_error=name == "error")

    def _object(self, payload: dict[str, Any], *, is_error: bool = False) -> None:
        """One `chat.completion.chunk`."""
        choices = payload.get("choices")
        if payload.get("error") or is_error or (choices is None and _is_error(payload)):
            self._apply("error", payload)
        if not self._is_named:
            self._name(payload)
        if choices:
            choice = choices[0] if type(choices) is list else None
            if type(choice) is not dict or choice.get("index"):
                choice = _choice_0(choices)
            if choice is not None:
                self._choice(choice, choice.get("delta") or _no_delta(choice, self.state))
        usage = payload.get("usage")
        if usage:
            self._apply("usage", usage)
        if not _ADDED.isdisjoint(payload):
            self._added(payload)

    def _whole(self, payload: Any) -> None:
        """A `chat.completion`, which is whole as soon as it parses: its ending needs no marker."""
        if type(payload) is not dict:
            payload = {"error": payload[0].get("error")} if _is_listed_error(payload) else None
        if payload is None:
            raise _not_ours("JSON that is no object")
        if payload.get("error") or (not payload.get("choices") and _is_error(payload)):
            self._apply("error", payload)
        choice = _choice_0(payload.get("choices") or ())
        if choice is None:
            raise provider_error("protocol_error", "the provider answered with an object that holds no choice")
        self._object({**payload, "choices": ()})
        message = choice.get("message") or choice.get("delta") or {}
        if type(message) is not dict:
            raise _not_ours("a message that is no object")
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            calls = [{**call, "index": place} for place, call in enumerate(calls) if isinstance(call, dict)]
        self._choice(choice, {**message, "tool_calls": calls})
        if self.state not in (State.ENDED, State.CLOSED):
            self._finished(None)

    def _choice(self, choice: dict[str, Any], delta: Any) -> None:
        if type(delta) is not dict:
            raise _not_ours("a delta that is no object")
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
        self._additions.from_delta(delta)

    def _name(self, payload: dict[str, Any]) -> None:
        """Model and id: the first values that are not empty (Azure opens with empty ones)."""
        model, response_id = payload.get("model") or None, payload.get("id") or None
        before = (self._message.model, self._message.response_id)
        started = ResponseStarted(
            before[0] or (model if isinstance(model, str) else None),
            before[1] or (response_id if isinstance(response_id, str) else None),
        )
        if before == (None, None) or (started.model, started.response_id) != before:
            self._emit(started)
        self._is_named = bool(started.model and started.response_id)

    def _added(self, payload: dict[str, Any]) -> None:
        vendor = payload.get("x_groq")
        if isinstance(vendor, dict):
            if vendor.get("error"):
                self._apply("error", {"error": vendor["error"]})
            if vendor.get("usage") and self._usage is None:
                self._apply("usage", vendor["usage"])
        self._additions.from_object(payload)

    # ------------------------------------------------------------------------------------------ wire events

    def _apply(self, event: str, value: Any) -> None:
        rule = self._rules.get(event)
        if rule is None:
            raise provider_error("protocol_error", f"the provider sent {event} {self.state.value}")
        rule(self, value)

    def _enter(self, state: State) -> None:
        self.state = state
        self._rules = RULES[state]

    def _emit(self, chunk: Chunk) -> None:
        self._out.append(chunk)
        self._add(chunk)

    def _piece(self, kind: type, text: str) -> None:
        if self._kind is not kind:
            self._index = self._next_index()
            self._kind = kind
            self._first.setdefault(kind, self._index)
            self._enter(State.ANSWERING)
        self._emit(kind(self._index, text))

    def _next_index(self) -> int:
        self._last_index += 1
        if self._last_index >= self._limits.blocks:
            raise provider_error("protocol_error", f"the answer has more than {self._limits.blocks} blocks")
        return self._last_index

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
        self._additions.add_details(details)

    def _block(self, block: ContentBlock) -> None:
        self._kind = None
        self._enter(State.ANSWERING)
        self._emit(BlockAdded(self._next_index(), block))

    def _take_calls(self, items: Any) -> None:
        if not isinstance(items, list):
            raise _not_ours("tool_calls that are no list")
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
        if call.size > self._limits.arguments_chars:
            raise provider_error(
                "protocol_error", f"the arguments of a call are longer than {self._limits.arguments_chars} characters"
            )

    def _call(self, item: dict[str, Any]) -> None:
        function = item.get("function") or item.get("custom") or {}
        name = (function.get("name") or "") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise _not_ours("a call whose name is no text")
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
        if len(self._calls.calls) >= self._limits.calls:
            raise provider_error("protocol_error", f"the answer has more than {self._limits.calls} calls")
        self._kind = None
        self._enter(State.ANSWERING)
        call = Call(self._next_index())
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
        usage = read_usage(raw) if isinstance(raw, dict) else Usage(malformed=True)
        if usage != self._usage:
            self._usage = usage
            self._emit(UsageReported(usage))

    # --------------------------------------------------------------------------------------------- endings

    def _finished(self, reason: Any) -> None:
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
        traits, first = self._traits, self._first
        states = self._additions.states(self._states, thinking=first.get(ThinkingDelta), text=first.get(TextDelta))
        for index, data in states.items():
            self._emit(
                BlockEnded(index, ProviderState(protocol=NAME, provider=traits.provider, model=traits.model, data=data))
            )

    def _finished_again(self, reason: Any) -> None:
        if str(reason) != self._finish_reason:
            raise provider_error(
                "protocol_error", f'the provider ended its answer twice: "{self._finish_reason}", then "{reason}"'
            )

    def _done_early(self, _: Any) -> None:
        """`[DONE]` without finish_reason ends text; calls only where the target is known to end like that."""
        if self._calls and self._traits.terminal != "done":
            raise self._truncated()
        if not self._calls and TextDelta not in self._first:
            raise self._truncated()
        self._finished(None)
        self._close(None)

    def _done_first(self, _: Any) -> None:
        raise self._truncated()

    def _close(self, _: Any) -> None:
        self._enter(State.CLOSED)
        self._emit_additions()

    def _emit_additions(self) -> None:
        for block in self._additions.take():
            self._emit(BlockAdded(self._next_index(), block))

    def _fail(self, payload: Any) -> None:
        usage = payload.get("usage")
        if usage:
            self._take_usage(usage)
        raise stream_error(payload)

    def _truncated(self) -> ProviderError:
        return provider_error("stream_truncated", f"the answer stopped {self.state.value}, without its end")

    def _stop_reason(self) -> StopReason:
        """Calls decide: with whole calls, any normal ending is `tool_use`; without one, `tool_use` says nothing."""
        reason = STOP_REASONS.get(self._finish_reason or "", "unknown")
        if self._calls:
            return "tool_use" if reason in _NORMAL else reason
        if reason == "tool_use":
            return "unknown"
        is_refused = RefusalDelta in self._first and TextDelta not in self._first
        return "refusal" if reason == "end_turn" and is_refused else reason


Rule = Callable[[ChatDecoder, Any], None]

_CONTENT: dict[str, Rule] = {
    "text": ChatDecoder._text,
    "thinking": ChatDecoder._thinking,
    "details": ChatDecoder._details,
    "refusal": ChatDecoder._refusal,
    "calls": ChatDecoder._take_calls,
    "block": ChatDecoder._block,
    "finish": ChatDecoder._finished,
}
_ALWAYS: dict[str, Rule] = {"usage": ChatDecoder._take_usage, "error": ChatDecoder._fail}
RULES: Mapping[State, Mapping[str, Rule]] = MappingProxyType(
    {
        State.WAITING: {**_CONTENT, **_ALWAYS, "done": ChatDecoder._done_first},
        State.ANSWERING: {**_CONTENT, **_ALWAYS, "done": ChatDecoder._done_early},
        State.ENDED: {**_ALWAYS, "finish": ChatDecoder._finished_again, "done": ChatDecoder._close},
        State.CLOSED: {**_ALWAYS, "finish": ChatDecoder._finished_again, "done": lambda decoder, value: None},
    }
)
"""What each wire event does in each state; a pair that is absent is a protocol error."""

_ADDED = frozenset(("x_groq", "citations", "search_results"))


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


def _id_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    return str(value) if type(value) is int else None


def _not_ours(what: str) -> ProviderError:
    return provider_error("protocol_error", f"the provider answered with {what}")
