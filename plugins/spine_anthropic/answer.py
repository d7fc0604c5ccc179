"""The state machine of one answer: events of the Messages stream in, neutral chunks out, one response at the end.

What each event may do in each state stands in `RULES`; an absent pair is a protocol error. Invariants:

- `message_stop` is the only proof that an answer is whole, or that it came as one JSON object. A stop reason alone is
  `stream_truncated`.
- Blocks follow each other; a delta or a stop belongs to the block that is open. The index a block has on the wire may
  be any, also one that was used before: gateways count in their own ways.
- `message_start` may come again with the same id before the first block (gateways try again); later it would splice
  two answers.
- Pings and events that no rule knows are taken anywhere; the former say nothing, the latter are told to whoever debugs.
- The response's message is the fold of the chunks that were handed out.
"""

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from spine.llm.catalogue import Traits
from spine.llm.chunks import BlockAdded, ProviderEvent
from spine.llm.errors import provider_error
from spine.llm.response import ModelResponse, StopReason
from spine.llm.usage import Usage
from spine.messages import ExtensionBlock
from spine.wire import Draft, WireLimits, freeze_object, not_ours, out_of_place, settled, stream_failure, truncated
from spine_anthropic.blocks import OpenBlock, add_delta, end_block, open_block
from spine_anthropic.errors import RULES as ERRORS
from spine_anthropic.usage import merged, read_usage

NAME = "anthropic_messages"
STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",  # the server stopped to compact, as it was asked to
    "model_context_window_exceeded": "context_window",
}
CONTAINER = "container"
"""The kind of the extension block that names the container in which the provider runs code."""
_TOLD = ("stop_sequence", "stop_details", "context_management")
"""Members of an answer that go into the response's metadata."""


class State(enum.Enum):
    """Where an answer stands."""

    WAITING = "before message_start"
    BETWEEN = "between blocks"
    BLOCK = "inside a block"
    ENDED = "after its stop reason"
    CLOSED = "after message_stop"


class Answer:
    """One answer in the making. `draft` takes the chunks."""

    def __init__(self, traits: Traits, limits: WireLimits) -> None:
        self.state = State.WAITING
        self.draft = Draft(NAME, traits, limits)
        self._rules = RULES[State.WAITING]
        self._block: OpenBlock | None = None
        self._has_blocks = False
        self._has_calls = False
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._container: dict[str, Any] | None = None
        self._told: dict[str, Any] = {}

    def apply(self, event: str, payload: dict[str, Any]) -> None:
        """Take one event. Raises `protocol_error` for one that has no place in the present state."""
        rule = self._rules.get(event)
        if rule is None:
            if event in EVENTS:
                raise out_of_place(event, self.state.value)
            self.draft.emit(ProviderEvent(event, payload))
            return
        rule(self, payload)

    def whole(self, message: dict[str, Any]) -> None:
        """Take an answer that is one object."""
        self._start({"message": message})
        self._close({})

    def response(self) -> ModelResponse:
        """The response. Raises `stream_truncated` when no ending was seen."""
        if self.state is not State.CLOSED:
            raise truncated(self.state.value)
        reason = settled(STOP_REASONS.get(self._stop_reason or "", "unknown"), has_calls=self._has_calls)
        return self.draft.response(reason, self._stop_reason, self._told)

    def _enter(self, state: State) -> None:
        self.state = state
        self._rules = RULES[state]

    # ------------------------------------------------------------------------------------------- the message

    def _start(self, payload: dict[str, Any]) -> None:
        message = payload.get("message")
        if type(message) is not dict:
            raise not_ours("a message_start without a message")
        self.draft.name(_text(message.get("model")), _text(message.get("id")))
        self._enter(State.BETWEEN)
        content = message.get("content")
        for block in content if type(content) is list else ():
            self._open({"content_block": block})
            self._end({})
        self._report(message.get("usage"))
        self._notice(message)

    def _start_again(self, payload: dict[str, Any]) -> None:
        message = payload.get("message")
        known = self.draft.response_id
        again = _text(message.get("id")) if type(message) is dict else None
        if self._has_blocks or (again is not None and known is not None and again != known):
            raise out_of_place("another message_start", self.state.value)
        self._start(payload)

    def _change(self, payload: dict[str, Any]) -> None:
        """`message_delta`: usage so far, and the stop reason as soon as there is one."""
        self._report(payload.get("usage"))
        delta = payload.get("delta")
        self._notice({**payload, **delta} if type(delta) is dict else payload)

    def _notice(self, members: dict[str, Any]) -> None:
        """What stands in a message or a `message_delta` beside content and usage."""
        self._told.update(freeze_object({key: members[key] for key in _TOLD if members.get(key) is not None}))
        if type(members.get(CONTAINER)) is dict:
            self._container = members[CONTAINER]
        reason = members.get("stop_reason")
        if reason is None:
            return
        if self._stop_reason not in (None, str(reason)):
            raise provider_error(
                "protocol_error", f'the provider ended its answer twice: "{self._stop_reason}", then "{reason}"'
            )
        self._stop_reason = str(reason)
        self._enter(State.ENDED)

    def _report(self, usage: Any) -> None:
        if usage is None:
            return
        if type(usage) is not dict:
            self.draft.report(Usage(malformed=True))
            return
        self._usage = merged(self._usage, usage)
        self.draft.report(read_usage(self._usage))

    def _close(self, payload: dict[str, Any]) -> None:
        if self._container is not None:
            block = ExtensionBlock(kind=CONTAINER, data=self._container)
            self.draft.emit(BlockAdded(self.draft.next_index(), block))
        self._enter(State.CLOSED)

    def _fail(self, payload: dict[str, Any]) -> None:
        raise stream_failure(ERRORS, payload)

    # ------------------------------------------------------------------------------------------------ blocks

    def _open(self, payload: dict[str, Any]) -> None:
        block = self._block = open_block(self.draft, payload.get("index"), payload.get("content_block"))
        self._has_blocks = True
        self._has_calls = self._has_calls or block.kind == "tool_use"
        self._enter(State.BLOCK)

    def _add(self, payload: dict[str, Any]) -> None:
        if not add_delta(self.draft, self._own("content_block_delta", payload), payload.get("delta")):
            self.draft.emit(ProviderEvent("content_block_delta", payload))

    def _end(self, payload: dict[str, Any]) -> None:
        end_block(self.draft, self._own("content_block_stop", payload))
        self._block = None
        self._enter(State.BETWEEN)

    def _own(self, event: str, payload: dict[str, Any]) -> OpenBlock:
        """The open block, if `payload` speaks of it."""
        block, place = self._block, payload.get("index")
        if block is None or place != block.place:
            raise out_of_place(f"{event} for block {str(place)[:20]}", self.state.value)
        return block


def _text(value: Any) -> str | None:
    return value if value and type(value) is str else None


Rule = Callable[[Answer, dict[str, Any]], None]

_ALWAYS: dict[str, Rule] = {"error": Answer._fail, "ping": lambda answer, payload: None}
RULES: Mapping[State, Mapping[str, Rule]] = MappingProxyType(
    {
        State.WAITING: {**_ALWAYS, "message_start": Answer._start},
        State.BETWEEN: {
            **_ALWAYS,
            "message_start": Answer._start_again,
            "content_block_start": Answer._open,
            "message_delta": Answer._change,
            "message_stop": Answer._close,
        },
        State.BLOCK: {**_ALWAYS, "content_block_delta": Answer._add, "content_block_stop": Answer._end},
        State.ENDED: {**_ALWAYS, "message_delta": Answer._change, "message_stop": Answer._close},
        State.CLOSED: _ALWAYS,
    }
)
"""What each event does in each state; a pair that is absent is a protocol error."""
EVENTS = frozenset(event for rules in RULES.values() for event in rules)
"""The events of the grammar; any other is an addition of a later day."""
