"""Everything that can happen in a session: one frozen class per fact, in the past tense (floor 4).

The classes are the data of the events; `RecordedEvent` is such a fact with its number, time, place and hashes. The
table `CORE_EVENTS` gives each class its stable name and version; plugins declare theirs in the same form. The protocol
of a session can be learnt from this file alone.
"""

from typing import Any, Final, Literal

import attrs

from spine.frozen import frozen
from spine.llm.chunks import Chunk
from spine.llm.errors import Failure
from spine.llm.response import StopReason
from spine.llm.usage import Cost, Usage
from spine.messages import Message, ResultContent, ToolResultBlock
from spine.recorded import Envelope as Envelope
from spine.recorded import EventType as EventType
from spine.recorded import RecordedEvent as RecordedEvent
from spine.recorded import UnknownEvent as UnknownEvent
from spine.recorded import Upcaster as Upcaster
from spine.tools import Effect, ToolError, ToolOutcome, ToolStatus
from spine.values import (
    EMPTY_OBJECT,
    CallId,
    Digest,
    Json,
    JsonObject,
    SessionId,
    TurnId,
    freeze,
    freeze_object,
    freeze_optional_object,
)

Delivery = Literal["queue", "steer", "interrupt"]
"""When an input that arrives during a turn is taken: next turn, next step, or after cancelling this turn."""


def _json_object() -> Any:
    return attrs.field(default=EMPTY_OBJECT, converter=freeze_object)


# ------------------------------------------------------------------------------------------------------ session


@frozen(kw_only=True)
class AgentFact:
    """Which agent fills the session; `contract` covers all that it asks of model and tools."""

    name: str
    contract: Digest
    reference: str | None = None
    """`module:attribute`, when the agent was found that way."""


@frozen(kw_only=True)
class SessionCreated:
    """The session exists. `versions` maps `spine` and each plugin to its version."""

    agent: AgentFact
    scope: str | None = None
    title: str | None = None
    versions: JsonObject = _json_object()
    wording: int = 1
    """Version of the core's own texts for the model."""
    origins: bool = False
    """Frames of requests say whose their parts are: layers, owners, what hides what, the order of hooks."""
    parent: JsonObject = _json_object()
    metadata: JsonObject = _json_object()


@frozen(kw_only=True)
class SessionResumed:
    """A new owner goes on with an open turn, or with a changed contract; `changes` says what differs."""

    agent: AgentFact
    versions: JsonObject = _json_object()
    changes: tuple[str, ...] = ()


@frozen(kw_only=True)
class SessionForked:
    """This session shares events 1 to `seq` with `parent`, whose event `seq` has this hash."""

    parent: SessionId
    seq: int
    hash: str


@frozen(kw_only=True)
class SessionRenamed:
    """The session has a new title."""

    title: str


# -------------------------------------------------------------------------------------------------------- input


@frozen(kw_only=True)
class InputAccepted:
    """An input came in, exactly as the model will get it; it joins history when it is delivered."""

    message: Message
    delivery: Delivery = "queue"
    key: str | None = None
    """The sender's key against double sending."""
    surrogates_replaced: bool = False


@frozen(kw_only=True)
class InputDelivered:
    """History takes these inputs (seqs of `input.accepted`), at the start of a turn or of a step."""

    inputs: tuple[int, ...]
    place: Literal["turn", "step"] = "turn"


# --------------------------------------------------------------------------------------------------------- turn


@frozen(kw_only=True)
class Repeats:
    """An earlier turn whose inputs run again; its step messages leave history, but for kept partial text."""

    turn: TurnId
    keep_partial: bool = False


@frozen(kw_only=True)
class TurnStarted:
    """A turn begins. `overrides` are the agent's fields that the caller changed for this turn."""

    inputs: tuple[int, ...] = ()
    overrides: JsonObject = _json_object()
    repeats: Repeats | None = None


@frozen(kw_only=True)
class TurnCompleted:
    """The turn ended with an answer. `message` is the seq of the final message, None when there is none."""

    message: int | None = None
    stop_reason: StopReason = "end_turn"
    complete: bool = True
    """False when the answer was cut: max_tokens, refusal, content_filter."""


@frozen(kw_only=True)
class TurnFailed:
    """The turn ended without an answer, or a budget ran out (numbers in `failure.details`)."""

    failure: Failure


@frozen(kw_only=True)
class TurnCancelled:
    """The turn was stopped on request."""

    cause: str = "cancelled"


@frozen(kw_only=True)
class TurnSuspended:
    """The turn waits for people; `approvals` are the open ids."""

    approvals: tuple[str, ...]


# ------------------------------------------------------------------------------------------------ model request


@frozen(kw_only=True)
class ContentAdded:
    """Content that later events refer to. Small text stands inline in `text`, the rest beside the log."""

    digest: Digest
    media_type: str
    size: int
    text: str | None = None


@frozen(kw_only=True)
class FieldChange:
    """A field that a plugin replaced: its new value, or the seq of the content that holds it as JSON."""

    field: str
    value: Json = attrs.field(default=None, converter=freeze)
    content: int | None = None


@frozen(kw_only=True)
class Splice:
    """Messages `start` to `end` (exclusive) replaced by those whose content has these seqs."""

    start: int
    end: int
    messages: tuple[int, ...] = ()


Change = FieldChange | Splice


@frozen(kw_only=True)
class Patch:
    """What one plugin changed in a waterfall, on the way in (`before`) or out (`after`)."""

    plugin: str
    phase: Literal["before", "after"] = "before"
    changes: tuple[Change, ...] = ()


@frozen(kw_only=True)
class ModelRequested:
    """The request of a step, by reference: its frame by the seq of a content, its messages by history.

    Rebuilding takes the frame and the history of everything before this event, applies the patches in order, and must
    give `digest`.
    """

    digest: Digest
    frame: int
    """Seq of the content with everything but the messages, and with the selection."""
    selection: int | None = None
    """Seq of the content with another selection, when a plugin chose another route."""
    patches: tuple[Patch, ...] = ()
    estimate: int | None = None
    """Estimated input tokens; None when the window is unknown, so nothing was weighed."""
    trimmed: tuple[str, ...] = ()
    """Dynamic sections that were left out to fit the window."""


@frozen(kw_only=True)
class ModelAttemptStarted:
    """Attempt `attempt` (from 2) begins; attempt 1 begins with `model.requested`."""

    attempt: int


@frozen(kw_only=True)
class ModelAttemptFailed:
    """An attempt failed. `delay_s` until the next one; None when there is none."""

    attempt: int
    failure: Failure
    delay_s: float | None = None
    discarded: bool = False
    """Visible output of this attempt was withdrawn before the next one."""
    usage: Usage = Usage()


@frozen(kw_only=True)
class ModelChunks:
    """Raw pieces of an answer, in order of arrival. `offsets`: milliseconds since the first piece of the flush."""

    chunks: tuple[Chunk, ...]
    attempt: int = 1
    offsets: tuple[int, ...] = ()


@frozen(kw_only=True)
class MessageCommitted:
    """The model's answer, whole."""

    message: Message
    stop_reason: StopReason
    raw_stop_reason: str | None = None
    usage: Usage = Usage()
    cost: Cost | None = None
    metadata: JsonObject = _json_object()


@frozen(kw_only=True)
class MessageInterrupted:
    """An answer that was cut; `message` holds what had arrived, None when that was nothing."""

    message: Message | None = None
    cause: Literal["cancelled", "failed", "crashed"] = "cancelled"
    failure: Failure | None = None
    note: str = ""
    """One sentence for people."""


# --------------------------------------------------------------------------------------------------------- tools


@frozen(kw_only=True)
class ToolStarted:
    """A handler is about to run with these arguments. `requested` stands only where a plugin changed them.

    Its idempotency key is `<session>/<call>`: the same whenever this call runs.
    """

    call: CallId
    name: str
    arguments: JsonObject = attrs.field(converter=freeze_object)
    requested: JsonObject | None = attrs.field(default=None, converter=freeze_optional_object)
    patches: tuple[Patch, ...] = ()
    effect: Effect = "irreversible"


@frozen(kw_only=True)
class ToolProgress:
    """A handler reported how far it is."""

    call: CallId
    text: str | None = None
    data: Json = attrs.field(default=None, converter=freeze)


@frozen(kw_only=True)
class ToolCompleted:
    """What came back from a call, and the result block exactly as the model gets it."""

    result: ToolResultBlock
    status: ToolStatus = "ok"
    error: ToolError | None = None
    truncated: bool = False
    duration_s: float | None = 0.0
    """Seconds, to the millisecond, so 0.0 for what took next to nothing; None when nothing ran."""
    usage: JsonObject = _json_object()
    patches: tuple[Patch, ...] = ()
    """What plugins did to a call that never started: changed arguments, and who decided in its handler's place."""

    @property
    def call(self) -> CallId:
        """The call that was answered."""
        return self.result.call_id

    @property
    def outcome(self) -> ToolOutcome:
        """The same facts as a `ToolOutcome`."""
        content: tuple[ResultContent, ...] = self.result.content
        return ToolOutcome(
            status=self.status,
            content=content,
            error=self.error,
            truncated=self.truncated,
            duration_s=self.duration_s,
            usage=self.usage,
        )


@frozen(kw_only=True)
class ToolRevised:
    """What the model sees of a result was changed by plugins; the fact in `tool.completed` stays."""

    result: ToolResultBlock
    patches: tuple[Patch, ...] = ()

    @property
    def call(self) -> CallId:
        """The call whose result was revised."""
        return self.result.call_id


@frozen(kw_only=True)
class ToolResolved:
    """What recovery decided about a call that had started and never ended."""

    call: CallId
    decision: Literal["rerun", "reconciled", "interrupted", "asked"]
    reason: str = ""


# ----------------------------------------------------------------------------------------------- trouble, people


@frozen(kw_only=True)
class StepFailed:
    """The step gave no answer."""

    failure: Failure


@frozen(kw_only=True)
class HookFailed:
    """A plugin's observer raised; the turn goes on."""

    hook: str
    plugin: str
    error: str


@frozen(kw_only=True)
class CancelRequested:
    """Somebody asked the running turn to stop, or its time is up."""

    cause: str = "cancelled"
    by: str | None = None
    failure: Failure | None = None
    """What the turn fails with, when a limit stops it; None: it ends as cancelled."""


@frozen(kw_only=True)
class ApprovalRequested:
    """A call waits for a person. `hash` binds tool, arguments, schema, policy and plugin versions."""

    id: str
    call: CallId
    hash: Digest
    name: str
    arguments: JsonObject = attrs.field(converter=freeze_object)
    patches: tuple[Patch, ...] = ()
    reason: str | None = None
    replaces: str | None = None
    """The approval that no longer fitted, when it was asked again."""


@frozen(kw_only=True)
class ApprovalDecided:
    """A person decided. `channel` says how the decision came in."""

    id: str
    decision: Literal["approved", "denied"]
    by: str
    channel: str = "session"
    reason: str | None = None


@frozen(kw_only=True)
class HistoryCompacted:
    """`summary` stands for everything in history before and including seq `until`."""

    summary: Message
    until: int


WIRE_MEDIA_TYPE: Final = "application/vnd.spine.wire+json"
"""Contents with what went over the wire: `path headers body`, and `status headers body`."""


@frozen(kw_only=True)
class WireCaptured:
    """Both sides of one attempt, by digest (only with wire capture on). `response` None: no answer began."""

    attempt: int
    request: Digest | None = None
    response: Digest | None = None


@frozen(kw_only=True)
class ContentErased:
    """Private data was erased. `events` maps seqs (as text) and `contents` digests to the digest of what is left there.

    The hashes of the events and the digests of the contents stay as they were.
    """

    reason: str
    by: str | None = None
    events: JsonObject = _json_object()
    contents: JsonObject = _json_object()


# ----------------------------------------------------------------------------------------------------- the table

CORE_EVENTS: tuple[EventType, ...] = (
    EventType(name="session.created", data=SessionCreated, required=True),
    EventType(name="session.resumed", data=SessionResumed, required=True),
    EventType(name="session.forked", data=SessionForked, required=True),
    EventType(name="session.renamed", data=SessionRenamed, required=True),
    EventType(name="input.accepted", data=InputAccepted, required=True),
    EventType(name="input.delivered", data=InputDelivered, required=True),
    EventType(name="turn.started", data=TurnStarted, required=True),
    EventType(name="turn.completed", data=TurnCompleted, required=True),
    EventType(name="turn.failed", data=TurnFailed, required=True),
    EventType(name="turn.cancelled", data=TurnCancelled, required=True),
    EventType(name="turn.suspended", data=TurnSuspended, required=True),
    EventType(name="content.added", data=ContentAdded, required=True),
    EventType(name="model.requested", data=ModelRequested, required=True),
    EventType(name="model.attempt_started", data=ModelAttemptStarted, required=True),
    EventType(name="model.attempt_failed", data=ModelAttemptFailed, required=True),
    EventType(name="model.chunks", data=ModelChunks, required=True),
    EventType(name="message.committed", data=MessageCommitted, required=True),
    EventType(name="message.interrupted", data=MessageInterrupted, required=True),
    EventType(name="tool.started", data=ToolStarted, required=True),
    EventType(name="tool.progress", data=ToolProgress),
    EventType(name="tool.completed", data=ToolCompleted, required=True),
    EventType(name="tool.revised", data=ToolRevised, required=True),
    EventType(name="tool.resolved", data=ToolResolved, required=True),
    EventType(name="step.failed", data=StepFailed, required=True),
    EventType(name="hook.failed", data=HookFailed, required=True),
    EventType(name="cancel.requested", data=CancelRequested, required=True),
    EventType(name="approval.requested", data=ApprovalRequested, required=True),
    EventType(name="approval.decided", data=ApprovalDecided, required=True),
    EventType(name="history.compacted", data=HistoryCompacted, required=True),
    EventType(name="wire.captured", data=WireCaptured),
    EventType(name="content.erased", data=ContentErased),
)
