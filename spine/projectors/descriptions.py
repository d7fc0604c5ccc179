"""One line for every event, as `spine log` prints it (floor 6): the table says how each type reads.

Listing always works: unknown types, newer versions and logs read from their middle get a line too, with less in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from spine.events import (
    AgentFact,
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    ContentAdded,
    ContentErased,
    HistoryCompacted,
    HookFailed,
    InputAccepted,
    InputDelivered,
    MessageCommitted,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelChunks,
    ModelRequested,
    Patch,
    RecordedEvent,
    SessionCreated,
    SessionForked,
    SessionRenamed,
    SessionResumed,
    StepFailed,
    ToolCompleted,
    ToolProgress,
    ToolResolved,
    ToolRevised,
    ToolStarted,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    TurnSuspended,
    UnknownEvent,
    WireCaptured,
)
from spine.llm.chunks import RefusalDelta, TextDelta, ThinkingDelta, ToolCallDelta
from spine.llm.errors import Failure
from spine.messages import Message, TextBlock
from spine.projectors.json import plain
from spine.projectors.log_context import LogContext
from spine.projectors.phrases import (
    call_text,
    counted,
    deeds,
    duration,
    excerpt,
    json_text,
    listed,
    money,
    name_text,
    tokens,
)
from spine.projectors.visible import one_line
from spine.values import EMPTY_OBJECT, Digest, encode, short

_SEPARATOR = " · "
_DATA_LIMIT = 100
_MESSAGE_LIMIT = 120


def describe(event: RecordedEvent, context: LogContext | None = None) -> str:
    """What an event says, in one line. `context` has followed the events before it; None: nothing is known of them."""
    log = LogContext() if context is None else context
    rule = _LINES.get(type(event.data))
    parts = _plugin_event(event) if rule is None else rule(event.data, event, log)
    return _SEPARATOR.join(part for part in parts if part)


# ---------------------------------------------------------------------------------------------------------- pieces


def _digest(digest: str) -> str:
    return one_line(short(Digest(digest)))


def _failure(failure: Failure) -> str:
    return failure.category if failure.status is None else f"{failure.category} {failure.status}"


def _message_size(message: Message) -> int:
    return _content_size(message.content)


def _content_size(content: Iterable[Any]) -> int:
    """Bytes of content: text as UTF-8, everything else as canonical JSON."""
    return sum(
        len(block.text.encode(errors="replace") if type(block) is TextBlock else _block_bytes(block))
        for block in content
    )


def _block_bytes(block: Any) -> bytes:
    value = getattr(block, "value", None)
    return encode(plain(block) if value is None else value)


def _changed_by(patches: Iterable[Patch]) -> str:
    return ", ".join(f"{verb} by {listed(plugins)}" for verb, plugins in deeds(patches).items())


def _agent(agent: AgentFact) -> str:
    return f"agent {name_text(agent.name)}"


def _figures(event: RecordedEvent, log: LogContext) -> Iterator[str]:
    figures = log.figures(event)
    if figures is None:
        return
    yield counted(figures.steps, "step")
    if figures.cost is not None:
        yield money(figures.cost)
    elif figures.unreported < figures.answers:
        yield "cost unknown"


def _reason(reason: str | None) -> str:
    return (
        "" if not reason else one_line(reason if len(reason) <= _MESSAGE_LIMIT else reason[: _MESSAGE_LIMIT - 1] + "…")
    )


# ----------------------------------------------------------------------------------------------------------- lines

Parts = Iterable[str]


def _session_created(data: SessionCreated, event: RecordedEvent, log: LogContext) -> Parts:
    yield _agent(data.agent)
    yield f"contract {_digest(data.agent.contract)}"
    yield f"scope {one_line(data.scope)}" if data.scope else ""
    yield excerpt(data.title) if data.title else ""
    yield ", ".join(f"{one_line(name)} {one_line(str(version))}" for name, version in sorted(data.versions.items()))


def _session_resumed(data: SessionResumed, event: RecordedEvent, log: LogContext) -> Parts:
    yield _agent(data.agent)
    yield "; ".join(map(one_line, data.changes)) or "nothing changed"


def _session_forked(data: SessionForked, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"from {one_line(data.parent)} at seq {data.seq}"
    yield one_line(data.hash[:8])


def _session_renamed(data: SessionRenamed, event: RecordedEvent, log: LogContext) -> Parts:
    yield excerpt(data.title)


def _content_erased(data: ContentErased, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"seq {', '.join(data.events)}" if data.events else ""
    yield f"content {', '.join(digest[:14] for digest in data.contents)}" if data.contents else ""
    yield excerpt(data.reason)
    yield f"by {one_line(data.by)}" if data.by else ""


def _input_accepted(data: InputAccepted, event: RecordedEvent, log: LogContext) -> Parts:
    yield one_line(data.message.kind or data.message.role)
    yield data.delivery
    yield counted(_message_size(data.message), "byte")
    yield excerpt(data.message.text) if data.message.text else ""
    yield "lone surrogates replaced" if data.surrogates_replaced else ""


def _input_delivered(data: InputDelivered, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"input {', '.join(map(str, data.inputs))}"
    yield f"at the start of a {data.place}"


def _turn_started(data: TurnStarted, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"input {', '.join(map(str, data.inputs))}" if data.inputs else "no input"
    if data.repeats is not None:
        yield f"repeats {one_line(data.repeats.turn)}" + (", keeping partial text" if data.repeats.keep_partial else "")
    yield f"with {', '.join(map(name_text, sorted(data.overrides)))}" if data.overrides else ""


def _turn_completed(data: TurnCompleted, event: RecordedEvent, log: LogContext) -> Parts:
    yield from _figures(event, log)
    yield "" if data.stop_reason in ("end_turn", "stop_sequence") and data.complete else data.stop_reason
    yield "" if data.complete else "incomplete"


def _turn_failed(data: TurnFailed, event: RecordedEvent, log: LogContext) -> Parts:
    yield _failure(data.failure)
    yield _reason(data.failure.message)
    yield from _figures(event, log)


def _turn_cancelled(data: TurnCancelled, event: RecordedEvent, log: LogContext) -> Parts:
    yield one_line(data.cause)
    yield from _figures(event, log)


def _turn_suspended(data: TurnSuspended, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"waits for {listed(data.approvals)}"


def _content_added(data: ContentAdded, event: RecordedEvent, log: LogContext) -> Parts:
    yield one_line(data.media_type)
    yield counted(data.size, "byte")
    yield _digest(data.digest)
    yield "beside the log" if data.text is None else ""


def _model_requested(data: ModelRequested, event: RecordedEvent, log: LogContext) -> Parts:
    fields = log.request(data)
    if fields:
        messages = log.messages(event)
        counts = [counted(len(fields.get("system", ())), "section"), counted(len(fields.get("tools", ())), "tool")]
        counts += [] if messages is None else [counted(messages, "message")]
        yield one_line(str(fields.get("route")))
        yield ", ".join(counts)
    else:
        yield f"frame at seq {data.frame}"
    yield _digest(data.digest)
    yield _changed_by(data.patches)
    yield f"left out {listed(data.trimmed)}" if data.trimmed else ""


def _attempt_started(data: ModelAttemptStarted, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"attempt {data.attempt}"


def _attempt_failed(data: ModelAttemptFailed, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"attempt {data.attempt}"
    yield _failure(data.failure)
    if data.delay_s is None:
        yield "no retry"
    else:
        yield f"retry after {duration(data.delay_s)}" + (
            " (server's)" if data.delay_s == data.failure.retry_after_s else ""
        )
    yield "output withdrawn" if data.discarded else ""
    yield tokens(data.usage)


_DELTAS: Mapping[type, str] = {
    TextDelta: "text",
    ThinkingDelta: "thinking",
    RefusalDelta: "refusal",
    ToolCallDelta: "arguments",
}


def _model_chunks(data: ModelChunks, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"attempt {data.attempt}"
    yield counted(len(data.chunks), "chunk")
    sizes: dict[str, int] = {}
    for chunk in data.chunks:
        what = _DELTAS.get(type(chunk))
        if what is not None:
            piece: str = chunk.arguments if isinstance(chunk, ToolCallDelta) else getattr(chunk, "text", "")
            sizes[what] = sizes.get(what, 0) + len(piece)
    yield ", ".join(f"{counted(size, 'character')} of {what}" for what, size in sizes.items())


def _message_committed(data: MessageCommitted, event: RecordedEvent, log: LogContext) -> Parts:
    yield data.stop_reason
    yield tokens(data.usage) or "usage unknown"
    yield "" if data.cost is None else money(data.cost)


def _message_interrupted(data: MessageInterrupted, event: RecordedEvent, log: LogContext) -> Parts:
    yield data.cause
    yield "" if data.failure is None else _failure(data.failure)
    yield "nothing had arrived" if data.message is None else f"{counted(_message_size(data.message), 'byte')} kept"
    yield _reason(data.note)


def _tool_started(data: ToolStarted, event: RecordedEvent, log: LogContext) -> Parts:
    yield call_text(data.name, data.arguments, None, log.parameter_order(event, data.name))
    yield data.effect
    yield f"key {event.session}/{one_line(data.call)}" if data.effect in ("idempotent", "reconcilable") else ""
    yield _changed_by(data.patches)


def _tool_progress(data: ToolProgress, event: RecordedEvent, log: LogContext) -> Parts:
    yield excerpt(data.text) if data.text else ""
    yield "" if data.data is None else _short_json(data.data)


def _tool_completed(data: ToolCompleted, event: RecordedEvent, log: LogContext) -> Parts:
    yield data.status
    yield "" if data.error is None else one_line(data.error.kind)
    yield counted(_content_size(data.result.content), "byte")
    yield "cut" if data.truncated else ""
    yield "" if data.duration_s is None else duration(data.duration_s)


def _tool_revised(data: ToolRevised, event: RecordedEvent, log: LogContext) -> Parts:
    yield counted(_content_size(data.result.content), "byte")
    yield _changed_by(data.patches)


def _tool_resolved(data: ToolResolved, event: RecordedEvent, log: LogContext) -> Parts:
    yield data.decision
    yield _reason(data.reason)


def _step_failed(data: StepFailed, event: RecordedEvent, log: LogContext) -> Parts:
    yield _failure(data.failure)
    yield _reason(data.failure.message)


def _hook_failed(data: HookFailed, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"{one_line(data.hook)} of {one_line(data.plugin)}"
    yield _reason(data.error)


def _cancel_requested(data: CancelRequested, event: RecordedEvent, log: LogContext) -> Parts:
    yield one_line(data.cause)
    yield "" if data.failure is None else _reason(data.failure.message)
    yield "" if data.by is None else f"by {one_line(data.by)}"


def _approval_requested(data: ApprovalRequested, event: RecordedEvent, log: LogContext) -> Parts:
    yield one_line(data.id)
    yield call_text(data.name, data.arguments, None, log.parameter_order(event, data.name))
    yield _reason(data.reason)
    yield f"in place of {one_line(data.replaces)}" if data.replaces else ""
    yield _changed_by(data.patches)


def _approval_decided(data: ApprovalDecided, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"{data.decision} by {one_line(data.by)} ({one_line(data.channel)})"
    yield _reason(data.reason)


def _history_compacted(data: HistoryCompacted, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"up to seq {data.until}"
    yield f"summary of {counted(_message_size(data.summary), 'byte')}"


def _wire_captured(data: WireCaptured, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"attempt {data.attempt}"
    yield "" if data.request is None else f"request {_digest(data.request)}"
    yield "" if data.response is None else f"response {_digest(data.response)}"


def _unknown(data: UnknownEvent, event: RecordedEvent, log: LogContext) -> Parts:
    yield f"not known here: version {event.version} of {one_line(event.origin or 'the core')}"
    yield _short_json(data.data)


def _plugin_event(event: RecordedEvent) -> Parts:
    yield one_line(event.origin or "")
    yield _short_json(plain(event.data)) if attrs.has(type(event.data)) else excerpt(repr(event.data), _DATA_LIMIT)


def _short_json(value: Any) -> str:
    text = json_text(value)
    return "" if value == EMPTY_OBJECT else text if len(text) <= _DATA_LIMIT else text[: _DATA_LIMIT - 1] + "…"


_LINES: Mapping[type, Callable[[Any, RecordedEvent, LogContext], Parts]] = {
    ContentErased: _content_erased,
    SessionCreated: _session_created,
    SessionResumed: _session_resumed,
    SessionForked: _session_forked,
    SessionRenamed: _session_renamed,
    InputAccepted: _input_accepted,
    InputDelivered: _input_delivered,
    TurnStarted: _turn_started,
    TurnCompleted: _turn_completed,
    TurnFailed: _turn_failed,
    TurnCancelled: _turn_cancelled,
    TurnSuspended: _turn_suspended,
    ContentAdded: _content_added,
    ModelRequested: _model_requested,
    ModelAttemptStarted: _attempt_started,
    ModelAttemptFailed: _attempt_failed,
    ModelChunks: _model_chunks,
    MessageCommitted: _message_committed,
    MessageInterrupted: _message_interrupted,
    ToolStarted: _tool_started,
    ToolProgress: _tool_progress,
    ToolCompleted: _tool_completed,
    ToolRevised: _tool_revised,
    ToolResolved: _tool_resolved,
    StepFailed: _step_failed,
    HookFailed: _hook_failed,
    CancelRequested: _cancel_requested,
    ApprovalRequested: _approval_requested,
    ApprovalDecided: _approval_decided,
    HistoryCompacted: _history_compacted,
    WireCaptured: _wire_captured,
    UnknownEvent: _unknown,
}
"""By class of the data: the parts of a line; empty parts are left out."""
