"""Why the model was asked this, and why that call ran (floor 13): attribution, from the log alone.

What a step could use is in its request; who put it there is in the sections' sources and the patches. What was offered
and not chosen (shadowed sections, tools that no agent named) is not in a log and not told here.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, tzinfo
from typing import Any

import attrs

from spine.errors import UsageError
from spine.events import (
    CORE_EVENTS,
    ApprovalDecided,
    ApprovalRequested,
    MessageCommitted,
    RecordedEvent,
    SessionCreated,
    SessionResumed,
    ToolCompleted,
    ToolResolved,
    ToolRevised,
    ToolStarted,
)
from spine.messages import ToolCallBlock, ToolResultBlock
from spine.projectors.phrases import call_text, clock, counted, duration, json_text, listed, name_text, with_reason
from spine.projectors.visible import one_line
from spine.proof.request_text import patch_phrases, required_parameters
from spine.proof.request_view import RequestView, find_request, frame_selection, patch_views
from spine.stored import StoredLog
from spine.values import CallId, Digest, short, step_of

__all__ = ["CallStory", "call_story", "explain_call", "explain_step"]

MAX_SEEN = 8
_READ = ("session.created", "session.resumed", "tool.started", "approval.requested")
_TIMES = ("did not run", "ran once", "ran twice")


# ------------------------------------------------------------------------------------------------------------ a step


def explain_step(reader: StoredLog, step: str | None = None) -> str:
    """Sections, tools, adapter and changes of a step's request, each with whose it is. Raises `UsageError`."""
    view, _ = find_request(reader, step)
    facts = list(reader.read(types=_READ))
    same = "equal to the one sent" if view.is_equal else "NOT the one sent"
    lines = [f"{view.step} · request seq {view.seq} · digest {short(view.digest)} {same}"]
    for head, rows in (
        ("sections", list(_sections(view))),
        ("tools", list(_tools(view, facts))),
        ("adapter", [_adapter(reader, view)]),
        ("pre_step", list(_pre_step(reader, view))),
        ("plugins", list(_plugins(facts, view.seq))),
        ("contract", [_contract(facts, view.seq)]),
    ):
        for number, row in enumerate(_columns(rows) or ["none"]):
            lines.append(f"{head if number == 0 else '':<10}{row}")
    return "\n".join(lines)


def _columns(rows: Iterable[str | tuple[str, ...]]) -> list[str]:
    """Rows of several cells, set in columns."""
    rows = list(rows)
    tuples = [row for row in rows if isinstance(row, tuple)]
    widths = [max(len(cell) for cell in column) for column in zip(*tuples, strict=False)]
    return [
        row if isinstance(row, str) else "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]


def _sections(view: RequestView) -> Iterator[tuple[str, ...]]:
    for block in view.request.system:
        kind = "dynamic" if block.dynamic else "static"
        yield str(block.order), name_text(block.name), one_line(block.source) or "unknown", kind
    for name in view.data.trimmed:
        yield "", name_text(name), "", "left out to fit the window"


def _tools(view: RequestView, facts: list[RecordedEvent]) -> Iterator[tuple[str, ...]]:
    effects = {fact.data.name: fact.data.effect for fact in facts if isinstance(fact.data, ToolStarted)}
    asked = {fact.data.name for fact in facts if isinstance(fact.data, ApprovalRequested)}
    for tool in view.request.tools:
        effect = effects.get(tool.name, "not run in this session")
        yield name_text(tool.name), f"{effect}, approval asked" if tool.name in asked else effect


def _adapter(reader: StoredLog, view: RequestView) -> str:
    selection = frame_selection(reader, view)
    prices = selection.get("prices")
    said = f"prices {one_line(str(prices))}" if prices else "no price known"
    parts = (
        selection.get("provider"),
        f"protocol {selection.get('protocol')}",
        f"model {selection.get('model')}",
        said,
    )
    return " · ".join(one_line(str(part)) for part in parts)


def _pre_step(reader: StoredLog, view: RequestView) -> Iterator[tuple[str, ...]]:
    for number, patch in enumerate(patch_views(reader, view), 1):
        yield str(number), one_line(patch.patch.plugin), "; ".join(patch_phrases(patch)) or "no change"
    if not view.data.patches:
        yield ("no plugin changed the request",)


def _plugins(facts: list[RecordedEvent], seq: int) -> Iterator[str]:
    owners = [f.data for f in facts if f.seq < seq and isinstance(f.data, SessionCreated | SessionResumed)]
    if owners:
        versions = owners[-1].versions
        yield ", ".join(f"{one_line(name)} {one_line(str(versions[name]))}" for name in sorted(versions))


def _contract(facts: list[RecordedEvent], seq: int) -> str:
    changed = [f for f in facts if f.seq < seq and isinstance(f.data, SessionResumed) and f.data.changes]
    if not changed:
        return "as when the session was created"
    return f"changed at seq {changed[-1].seq}: {listed(changed[-1].data.changes)}"


# ------------------------------------------------------------------------------------------------------------ a call


@attrs.frozen(kw_only=True)
class CallStory:
    """Everything the log says about one call, in order of the log."""

    block: ToolCallBlock
    message: RecordedEvent
    """The `message.committed` that asks for it."""
    facts: tuple[RecordedEvent, ...]

    def of(self, kind: type) -> tuple[RecordedEvent, ...]:
        """The facts of one kind."""
        return tuple(fact for fact in self.facts if isinstance(fact.data, kind))


def call_story(reader: StoredLog, call: str) -> CallStory:
    """Collect what became of a call. Raises `UsageError` naming the calls there are."""
    block: ToolCallBlock | None = None
    message: RecordedEvent | None = None
    facts: list[RecordedEvent] = []
    approvals: set[str] = set()
    known: list[str] = []
    for event in reader.select(_OF_STORY):
        data = event.data
        if isinstance(data, MessageCommitted):
            for each in data.message.tool_calls:
                known.append(each.id)
                block, message = (each, event) if each.id == call else (block, message)
        elif isinstance(data, ApprovalDecided):
            facts.extend([event] if data.id in approvals else [])
        elif getattr(data, "call", None) == call and isinstance(data, _OF_CALL):
            facts.append(event)
            approvals.update([data.id] if isinstance(data, ApprovalRequested) else [])
    if block is None or message is None:
        there = f"calls are {', '.join(known[:12])}" if known else "the model called no tool"
        raise UsageError(f'no call "{call}" in {reader.session}; {there}', hint=f"spine transcript {reader.session}")
    return CallStory(block=block, message=message, facts=tuple(facts))


_OF_CALL = (ApprovalRequested, ToolStarted, ToolResolved, ToolCompleted, ToolRevised)
_OF_STORY = frozenset(kind.name for kind in CORE_EVENTS if kind.data in (*_OF_CALL, MessageCommitted, ApprovalDecided))


def explain_call(reader: StoredLog, call: str, *, zone: tzinfo = UTC) -> str:
    """The chain behind one call: who asked for it, knowing what, with which arguments, and who allowed it."""
    story = call_story(reader, call)
    view, _ = find_request(reader, step_of(CallId(call)))
    order = next((required_parameters(t) for t in view.request.tools if t.name == story.block.name), ())
    started = story.of(ToolStarted)
    arguments = started[-1].data.arguments if started else story.block.arguments
    shown = call_text(story.block.name, arguments, story.block.arguments_text, order)
    rows = [
        ("asked by the model in", _asked(story, view)),
        ("which had seen", " · ".join(_seen(view)) or "nothing"),
        ("arguments", _arguments(story)),
        *(("allowed by", line) for line in _allowed(story, zone)),
        *(("recovery decided", with_reason(f.data.decision, f.data.reason)) for f in story.of(ToolResolved)),
        *(("shown to the model", _revised(f)) for f in story.of(ToolRevised)),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join([_headline(shown, story), *(f"  {name.ljust(width)}  {text}" for name, text in rows)])


def _headline(shown: str, story: CallStory) -> str:
    runs, completed = len(story.of(ToolStarted)), story.of(ToolCompleted)
    times = _TIMES[runs] if runs < len(_TIMES) else f"ran {runs} times"
    if completed:
        data: ToolCompleted = completed[-1].data
        took = "" if data.duration_s is None or not runs else f" in {duration(data.duration_s)}"
        outcome = f"outcome {data.status}{took}"
    else:
        outcome = "no outcome yet"
    seqs = [fact.seq for fact in story.facts if isinstance(fact.data, ToolStarted | ToolCompleted)]
    where = "" if not seqs else f"   seq {seqs[0]}" if len(seqs) == 1 else f"   seq {seqs[0]}-{seqs[-1]}"
    return f"{shown} {times}, {outcome}{where}"


def _asked(story: CallStory, view: RequestView) -> str:
    messages = counted(len(view.request.messages), "message")
    return f"message seq {story.message.seq}, request seq {view.seq} (digest {short(view.digest)}, {messages})"


def _seen(view: RequestView) -> Iterator[str]:
    seen = []
    for message, seq in zip(view.request.messages, view.seqs, strict=True):
        where = "written by a plugin" if seq is None else f"seq {seq}"
        if message.role == "user":
            seen.append(f"{one_line(message.kind or 'user')} input {where}")
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                seen.append(f"{name_text(block.name)} result {where}")
    if len(seen) > MAX_SEEN:
        yield f"{len(seen) - MAX_SEEN} earlier ones"
    yield from seen[-MAX_SEEN:]
    for section in view.request.system:
        if not section.source.startswith("agent "):
            yield f"{name_text(section.name)} ({one_line(section.source)})"


def _arguments(story: CallStory) -> str:
    given = [f.data for f in story.facts if isinstance(f.data, ToolStarted | ApprovalRequested) and f.data.patches]
    if not given:
        return "as the model wrote them; no plugin changed them"
    plugins = listed(patch.plugin for patch in given[-1].patches)
    wrote = json_text(story.block.arguments) if story.block.arguments is not None else "no object"
    return f"changed by {plugins}; the model wrote {wrote}"


def _allowed(story: CallStory, zone: tzinfo) -> Iterator[str]:
    asked: dict[str, Any] = {fact.data.id: fact.data for fact in story.of(ApprovalRequested)}
    again = {data.replaces: one_line(id) for id, data in asked.items() if data.replaces is not None}
    decided = story.of(ApprovalDecided)
    for fact in decided:
        data: ApprovalDecided = fact.data
        if data.id in again:
            yield f"no longer fitted: {data.decision} by {one_line(data.by)}, asked again as {again[data.id]}"
            continue
        bound = f"for exactly this tool, arguments, schema, policy and plugin versions ({_short(asked[data.id].hash)})"
        verb = "" if data.decision == "approved" else "nobody: denied by "
        yield with_reason(f"{verb}{one_line(data.by)} at {clock(fact.at, zone, day=False)[:8]}, {bound}", data.reason)
    for id in [id for id in asked if id not in again and id not in {fact.data.id for fact in decided}]:
        yield f"nobody yet: approval {one_line(id)} waits"
    if not asked and story.of(ToolStarted):
        yield "its tool's policy; no approval was asked"


def _short(hash: str) -> str:
    return short(Digest(hash))


def _revised(fact: RecordedEvent) -> str:
    plugins = listed(patch.plugin for patch in fact.data.patches)
    return f"as revised by {plugins or 'a plugin'} (seq {fact.seq}); what the tool returned is in the log"
