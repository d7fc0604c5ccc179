"""Why a call ran (floor 13): who asked for it, knowing what, with whose arguments, allowed by whom, with which end.

Everything is from the log alone.
"""

from collections.abc import Iterator
from datetime import UTC, tzinfo
from typing import Any

import attrs

from spine.errors import UsageError
from spine.events import (
    CORE_EVENTS,
    ApprovalDecided,
    ApprovalRequested,
    MessageCommitted,
    MessageInterrupted,
    Patch,
    RecordedEvent,
    ToolCompleted,
    ToolResolved,
    ToolRevised,
    ToolStarted,
)
from spine.messages import ToolCallBlock, ToolResultBlock
from spine.projectors import refuse_unknown
from spine.projectors.json import plain, utc
from spine.projectors.lines import result_lines
from spine.projectors.phrases import (
    call_text,
    clock,
    counted,
    deeds,
    duration,
    json_text,
    listed,
    name_text,
    with_reason,
)
from spine.projectors.visible import one_line
from spine.proof.differences import result_phrase
from spine.proof.request_text import required_parameters
from spine.proof.request_view import RequestView, find_request
from spine.stored import StoredLog
from spine.values import Digest, JsonObject, short, step_of

__all__ = ["CallStory", "call_story", "story_json", "story_text"]

MAX_SEEN = 8
_TIMES = ("did not run", "ran once", "ran twice")


@attrs.frozen(kw_only=True)
class CallStory:
    """Everything the log says about one call, in order of the log."""

    block: ToolCallBlock
    view: RequestView
    """The request that asked for it."""
    message: RecordedEvent
    """What asks for it: a `message.committed`, or a `message.interrupted` that was cut before anything could run."""
    facts: tuple[RecordedEvent, ...]

    def of(self, kind: type) -> tuple[RecordedEvent, ...]:
        """The facts of one kind."""
        return tuple(fact for fact in self.facts if isinstance(fact.data, kind))

    @property
    def arguments(self) -> JsonObject | None:
        """Those that its handler got last, or else those that the model wrote; None when that was no object."""
        started = self.of(ToolStarted)
        return started[-1].data.arguments if started else self.block.arguments

    @property
    def patches(self) -> tuple[Patch, ...]:
        """What plugins changed of the call."""
        given = [f.data for f in self.facts if isinstance(f.data, ToolStarted | ApprovalRequested) and f.data.patches]
        return given[-1].patches if given else ()

    @property
    def changers(self) -> tuple[str, ...]:
        """The plugins that changed its arguments: one that only had a person asked is none of them."""
        return deeds(self.patches).get("changed", ())

    @property
    def completed(self) -> ToolCompleted | None:
        """What came back; None as long as nothing did."""
        found = self.of(ToolCompleted)
        return found[-1].data if found else None


def call_story(reader: StoredLog, call: str, until: int | None = None) -> CallStory:
    """Collect what became of a call, up to seq `until` when given. Raises `UsageError` naming the calls there are."""
    block: ToolCallBlock | None = None
    message: RecordedEvent | None = None
    facts: list[RecordedEvent] = []
    approvals: set[str] = set()
    known: list[str] = []
    for event in reader.select(_OF_STORY, until):
        refuse_unknown(event)
        data = event.data
        if isinstance(data, MessageCommitted | MessageInterrupted):
            for each in () if data.message is None else data.message.tool_calls:
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
    view, _ = find_request(reader, step_of(block.id), until)
    return CallStory(block=block, view=view, message=message, facts=tuple(facts))


_OF_CALL = (ApprovalRequested, ToolStarted, ToolResolved, ToolCompleted, ToolRevised)
_OF_STORY = frozenset(
    kind.name for kind in CORE_EVENTS if kind.data in (*_OF_CALL, MessageCommitted, MessageInterrupted, ApprovalDecided)
)


def story_text(story: CallStory, *, zone: tzinfo = UTC) -> str:
    """The chain behind one call: who asked for it, knowing what, with which arguments, who allowed it, what came."""
    view = story.view
    order = next((required_parameters(t) for t in view.request.tools if t.name == story.block.name), ())
    shown = call_text(story.block.name, story.arguments, story.block.arguments_text, order)
    rows = [
        ("asked by the model in", _asked(story)),
        ("which had seen", " · ".join(_seen(view)) or "nothing"),
        ("arguments", _arguments(story)),
        *((verb, f"by {listed(who)}") for verb, who in deeds(story.patches).items() if verb != "changed"),
        *(("allowed by", line) for line in _allowed(story, zone)),
        *(("recovery decided", with_reason(f.data.decision, f.data.reason)) for f in story.of(ToolResolved)),
        *(("what came back", _came_back(data)) for data in (story.completed,) if data is not None),
        *(("shown to the model", _revised(f)) for f in story.of(ToolRevised)),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join([_headline(shown, story), *(f"  {name.ljust(width)}  {text}" for name, text in rows)])


def _headline(shown: str, story: CallStory) -> str:
    runs, data = len(story.of(ToolStarted)), story.completed
    times = _TIMES[runs] if runs < len(_TIMES) else f"ran {runs} times"
    if data is not None:
        took = "" if data.duration_s is None or not runs else f" in {duration(data.duration_s)}"
        outcome = f"outcome {data.status}{took}"
    else:
        outcome = "its answer was cut" if isinstance(story.message.data, MessageInterrupted) else "no outcome yet"
    seqs = [fact.seq for fact in story.facts if isinstance(fact.data, ToolStarted | ToolCompleted)]
    where = "" if not seqs else f"   seq {seqs[0]}" if len(seqs) == 1 else f"   seq {seqs[0]}-{seqs[-1]}"
    return f"{shown} {times}, {outcome}{where}"


def _asked(story: CallStory) -> str:
    view = story.view
    messages = counted(len(view.request.messages), "message")
    request = f"request seq {view.seq} (digest {short(view.recorded)}, {messages}{_PROOFS[view.verdict]})"
    return f"message seq {story.message.seq}, {request}"


_PROOFS = {"equal": "", "different": "; the log gives ANOTHER", "erased": "; rests on erased data"}


def _seen(view: RequestView) -> Iterator[str]:
    seen = [f"{what} {'written by a plugin' if seq is None else f'seq {seq}'}" for seq, what in _sources(view)]
    if len(seen) > MAX_SEEN:
        yield f"{len(seen) - MAX_SEEN} earlier ones"
    yield from seen[-MAX_SEEN:]
    for section in view.request.system:
        if not section.source.startswith("agent "):
            yield f"{name_text(section.name)} ({one_line(section.source)})"


def _sources(view: RequestView) -> Iterator[tuple[int | None, str]]:
    """The inputs and results of a request: the event of each, and what it is."""
    for message, seq in zip(view.request.messages, view.seqs, strict=True):
        if message.role == "user":
            yield seq, f"{one_line(message.kind or 'user')} input"
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                yield seq, f"{name_text(block.name)} result"


def _arguments(story: CallStory) -> str:
    changers = story.changers
    if not changers:
        return "as the model wrote them; no plugin changed them"
    plugins = listed(changers)
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


def _came_back(data: ToolCompleted) -> str:
    lines = list(result_lines(data.result, data.status))
    size = counted(sum(len(line.text.encode(errors="replace")) for line in lines), "byte")
    return f"{result_phrase(data.result, data.status)}, {size}"


def story_json(story: CallStory) -> dict[str, Any]:
    """The same chain for programs."""
    view, completed = story.view, story.completed
    decided = {fact.data.id: {**plain(fact.data), "at": utc(fact.at)} for fact in story.of(ApprovalDecided)}
    asked = [plain(fact.data) | {"decided": decided.get(fact.data.id)} for fact in story.of(ApprovalRequested)]
    return {
        "call": story.block.id,
        "name": story.block.name,
        "arguments": plain(story.arguments),
        "written": plain(story.block.arguments),
        "written_text": story.block.arguments_text,
        "changed_by": list(story.changers),
        "asked_by": {
            "message": story.message.seq,
            "request": view.seq,
            "digest": view.recorded,
            "equal": view.is_equal,
            "erased": list(view.erased),
        },
        "seen": [{"seq": seq, "what": what} for seq, what in _sources(view)],
        "sections": [{"name": block.name, "source": block.source} for block in view.request.system],
        "approvals": asked,
        "recovery": [{"seq": fact.seq, **plain(fact.data)} for fact in story.of(ToolResolved)],
        "started": [fact.seq for fact in story.of(ToolStarted)],
        "completed": [fact.seq for fact in story.of(ToolCompleted)],
        "status": None if completed is None else completed.status,
        "duration_s": None if completed is None else completed.duration_s,
        "result": None if completed is None else plain(completed.result.content),
        "revised_by": [patch.plugin for fact in story.of(ToolRevised) for patch in fact.data.patches],
    }
