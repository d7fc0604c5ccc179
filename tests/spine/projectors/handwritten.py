"""Session logs written by hand, event by event, and the events that tests write most often."""

import hashlib
from collections.abc import Sequence
from typing import Any

from spine.events import (
    CORE_EVENTS,
    AgentFact,
    ApprovalRequested,
    ContentAdded,
    InputAccepted,
    InputDelivered,
    MessageCommitted,
    ModelRequested,
    Patch,
    RecordedEvent,
    ToolCompleted,
    ToolRevised,
    ToolStarted,
    TurnStarted,
)
from spine.llm.errors import Failure
from spine.messages import JsonBlock, Message, Origin, TextBlock, ToolCallBlock, ToolResultBlock, user_message
from spine.projectors import SessionTranscript, Transcript, fold
from spine.values import CallId, SessionId, digest, encode

NAMES = {kind.data: (kind.name, kind.version, kind.required) for kind in CORE_EVENTS}
START = 1_795_960_931_009_000
"""When the first event happens; each further one is a second later."""
ROUTE = "scripted:demo"
AGENT = AgentFact(name="refunds", contract=digest(b"contract"))
TOOLS = {"lookup_order": ["order_id"], "refund": ["order_id", "amount_cents"]}


def frame_json(route: str = ROUTE, tools: Sequence[Any] = (), system: int = 0) -> bytes:
    """The JSON of a frame's content."""
    sections = [{"name": f"section {n}", "source": "test", "text": digest(b"text")} for n in range(system)]
    request = {"route": route, "tools": list(tools), "system": sections}
    return encode({"request": request, "selection": {"provider": route.partition(":")[0]}})


class Log:
    """Writes a log event by event; each `add` returns the new event's seq."""

    def __init__(self, session: str = "refund-1017") -> None:
        self.session = SessionId(session)
        self.events: list[RecordedEvent] = []

    def add(self, data: Any, place: str | None = None, *, type: str | None = None, origin: str | None = None) -> int:
        """Append an event; `type` and `origin` are needed for a plugin's or an unknown one."""
        name, version, required = NAMES[data.__class__] if type is None else (type, 1, False)
        seq = len(self.events) + 1
        self.events.append(
            RecordedEvent(
                session=self.session,
                seq=seq,
                type=name,
                version=version,
                at=START + 1_000_000 * (seq - 1),
                place=place,
                origin=origin,
                required=required,
                data=data,
                prev_hash=_hash(seq - 1),
                hash=_hash(seq),
            )
        )
        return seq

    def content(self, data: bytes, media_type: str = "application/json") -> int:
        """Add a content inline."""
        event = ContentAdded(digest=digest(data), media_type=media_type, size=len(data), text=data.decode())
        return self.add(event)

    def frame(self, route: str = ROUTE, tools: Sequence[str] = tuple(TOOLS), system: int = 2) -> int:
        """Add tools and a frame that refers to them; the frame's seq."""
        definitions = [
            encode({"name": name, "parameters": {"required": TOOLS[name]}, "type": "function"}) for name in tools
        ]
        for definition in definitions:
            self.content(definition)
        json = frame_json(route, [digest(definition) for definition in definitions], system)
        return self.content(json, "application/vnd.spine.frame+json")

    def turn(self, text: str = "Hello.", turn: str = "t1") -> None:
        """An input and the turn that takes it."""
        seq = self.add(InputAccepted(message=user_message(text)))
        self.add(TurnStarted(inputs=(seq,)), turn)
        self.add(InputDelivered(inputs=(seq,)), turn)

    def step(self, *content: Any, step: str = "t1s1", frame: int = 0, **fields: Any) -> None:
        """A request and its whole answer."""
        self.add(ModelRequested(digest=digest(step.encode()), frame=frame), step)
        self.add(committed(*content, **fields), step)


def _hash(seq: int) -> bytes:
    return hashlib.sha256(str(seq).encode()).digest()


def committed(*content: Any, route: str | None = ROUTE, **fields: Any) -> MessageCommitted:
    """An answer of texts and blocks."""
    blocks = tuple(TextBlock(text=block) if isinstance(block, str) else block for block in content)
    origin = None if route is None else Origin(protocol="scripted", route=route)
    has_call = any(isinstance(block, ToolCallBlock) for block in blocks)
    fields.setdefault("stop_reason", "tool_use" if has_call else "end_turn")
    return MessageCommitted(message=Message(role="assistant", content=blocks, origin=origin), **fields)


def call(name: str, call_id: str = "t1s1c1", **arguments: Any) -> ToolCallBlock:
    """A call the model asks for."""
    return ToolCallBlock(id=CallId(call_id), name=name, arguments=arguments)


def result(name: str, *content: Any, call_id: str = "t1s1c1", status: str = "ok", **fields: Any) -> ToolCompleted:
    """A result of texts, blocks and JSON values, of a call that took no time worth telling."""
    fields = {"duration_s": None, **fields}
    blocks = tuple(
        TextBlock(text=item) if isinstance(item, str) else JsonBlock(value=item) if isinstance(item, dict) else item
        for item in content
    )
    block = ToolResultBlock(call_id=CallId(call_id), name=name, content=blocks, is_error=status != "ok")
    return ToolCompleted(result=block, status=status, **fields)


RATE_LIMIT = Failure(category="rate_limit", message="slow down", status=429, retryable=True, retry_after_s=2)
CUT = Failure(category="stream_truncated", message="the stream ended", retryable=True)
REFUND = {"order_id": "1017", "amount_cents": 1290}


def started(name: str, call_id: str = "t1s1c1", **fields: Any) -> ToolStarted:
    """A call that began."""
    fields.setdefault("arguments", {})
    return ToolStarted(call=CallId(call_id), name=name, **fields)


def asked(id: str = "a1", call_id: str = "t1s1c1", **fields: Any) -> ApprovalRequested:
    """A call of `refund` that waits for a person."""
    fields = {"name": "refund", "arguments": REFUND, "reason": "refunds need a person"} | fields
    return ApprovalRequested(id=id, call=CallId(call_id), hash=digest(b"bound"), **fields)


def requested(frame: int = 0, **fields: Any) -> ModelRequested:
    """A request of a step."""
    return ModelRequested(digest=digest(b"request"), frame=frame, **fields)


def revision(text: str, plugin: str) -> ToolRevised:
    """A result that a plugin changed."""
    block = ToolResultBlock(call_id=CallId("t1s1c1"), name="f", content=(TextBlock(text=text),))
    return ToolRevised(result=block, patches=(Patch(plugin=plugin),))


def transcript_of(log: Log) -> Transcript:
    """What a person reads of a log."""
    return fold(SessionTranscript(), log.events)


def message(*content: Any) -> Message:
    """What had arrived of an answer."""
    return Message(role="assistant", content=content)
