"""Whose each part of a step is (floor 13): sections, tools, adapter and hooks with layer, owner and what they hide.

A log made before frames said whose their parts are is explained as far as it goes: layers and what is hidden there are
then None, and of hooks only those are known that changed something.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import attrs

from spine.events import ApprovalRequested, RecordedEvent, SessionCreated, SessionResumed, ToolStarted
from spine.projectors.json import plain
from spine.projectors.phrases import listed, name_text
from spine.projectors.visible import one_line
from spine.proof.request_text import patch_phrases
from spine.proof.request_view import RequestView, find_request, frame_origins, frame_selection, patch_views
from spine.stored import StoredLog
from spine.values import Digest, short

__all__ = ["HookFact", "Origin", "PartFact", "StepFacts", "facts_of", "step_facts", "step_json", "step_text"]


@attrs.frozen(kw_only=True)
class Origin:
    """Who contributed something, and where: `global`, `session` or `scope NAME`; None when the log does not say it."""

    owner: str | None = None
    layer: str | None = None


@attrs.frozen(kw_only=True)
class PartFact(Origin):
    """A section or a tool of a step. `hides` is what it stands in front of, nearest first."""

    name: str
    order: int | str = ""
    """A section's place; empty where it has none, or where the log does not say it."""
    notes: tuple[str, ...] = ()
    """How it is treated, and why it did not reach the model when it did not."""
    hides: tuple[Origin, ...] = ()


@attrs.frozen(kw_only=True)
class HookFact:
    """A plugin that was asked, and what it changed, one phrase for each change."""

    plugin: str
    changes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class StepFacts:
    """What a step could use, and whose it was."""

    step: str
    seq: int
    digest: Digest
    recorded: Digest
    verdict: Literal["equal", "different", "erased"]
    """Whether the request is the one that was sent; `erased`: it rests on erased data, and nobody can tell."""
    sections: tuple[PartFact, ...]
    tools: tuple[PartFact, ...]
    adapter: PartFact
    pre_step: tuple[HookFact, ...]
    """In the order in which they were asked."""
    hooks: Mapping[str, tuple[str, ...]]
    """The other hooks of the step: the plugins in the order in which they would be asked."""
    versions: Mapping[str, str]
    contract_changed_at: int | None = None
    """The last `session.resumed` before the step that found another contract; None when there was none."""
    contract_changes: tuple[str, ...] = ()
    erased: tuple[str, ...] = ()
    """What of it, where `verdict` says so."""
    is_whole: bool = True
    """Whether the log says whose the parts are; False for one that was made before logs did."""


def step_facts(reader: StoredLog, step: str | None = None, until: int | None = None) -> StepFacts:
    """The facts of a step, by default the last one up to seq `until`.

    Raises `UsageError` naming the steps there are.
    """
    return facts_of(reader, find_request(reader, step, until)[0])


def facts_of(reader: StoredLog, view: RequestView) -> StepFacts:
    """The facts of the step of a request."""
    facts = [fact for fact in reader.read(types=_READ) if fact.seq < view.seq or fact.type in _OF_TOOLS]
    origins = frame_origins(reader, view)
    owners = [f.data for f in facts if isinstance(f.data, SessionCreated | SessionResumed)]
    changed = [f for f in facts if isinstance(f.data, SessionResumed) and f.data.changes]
    known = origins or {}
    asked = {hook.removeprefix("spine_"): tuple(plugins) for hook, plugins in known.get("hooks", {}).items()}
    return StepFacts(
        step=view.step,
        seq=view.seq,
        digest=view.digest,
        recorded=view.recorded,
        verdict=view.verdict,
        sections=tuple(sections_of(view, known.get("sections", ()))),
        tools=tuple(_tools(view, known.get("tools", ()), facts)),
        adapter=_adapter(frame_selection(reader, view), known),
        pre_step=tuple(_pre_step(reader, view, asked.pop("pre_step", ()))),
        hooks=asked,
        versions={name: str(version) for name, version in owners[-1].versions.items()} if owners else {},
        contract_changed_at=changed[-1].seq if changed else None,
        contract_changes=changed[-1].data.changes if changed else (),
        erased=view.erased,
        is_whole=origins is not None,
    )


_OF_TOOLS = ("tool.started", "approval.requested")
_READ = ("session.created", "session.resumed", *_OF_TOOLS)


def _origin(item: Mapping[str, Any]) -> dict[str, Any]:
    hides = tuple(Origin(owner=below["owner"], layer=below["layer"]) for below in item.get("hides", ()))
    return {"name": item["name"], "owner": item["owner"], "layer": item["layer"], "hides": hides}


def sections_of(view: RequestView, origins: Iterable[Mapping[str, Any]]) -> Iterator[PartFact]:
    """The sections that reached the model, in order, and then those that did not."""
    items = {item["name"]: _origin(item) for item in origins}
    for block in view.request.system:
        notes = ("dynamic",) if block.dynamic else ()
        known = items.pop(block.name, {"name": block.name, "owner": block.source or None})
        yield PartFact(order=block.order, notes=notes, **known)
    built = {block.name for block in view.before.system}
    for name in view.data.trimmed:
        yield PartFact(notes=("left out to fit the window",), **items.pop(name, {"name": name}))
    for name, known in items.items():
        yield PartFact(notes=("taken out by a plugin" if name in built else "its text was empty",), **known)


def _tools(view: RequestView, origins: Iterable[Mapping[str, Any]], facts: list[RecordedEvent]) -> Iterator[PartFact]:
    items = {item["name"]: item for item in origins}
    ran = {fact.data.name: fact.data.effect for fact in facts if isinstance(fact.data, ToolStarted)}
    asked = {fact.data.name for fact in facts if isinstance(fact.data, ApprovalRequested)}
    for tool in view.request.tools:
        item = items.pop(tool.name, None)
        if item is not None:
            yield PartFact(notes=_treatment(item), **_origin(item))
            continue
        effect = ran.get(tool.name, "not run in this session")
        yield PartFact(name=tool.name, notes=(effect, *(["approval asked"] if tool.name in asked else [])))
    for item in items.values():
        yield PartFact(notes=(*_treatment(item), "taken out by a plugin"), **_origin(item))


def _treatment(item: Mapping[str, Any]) -> tuple[str, ...]:
    approval = item.get("approval", "never")
    return item["effect"], *([] if approval == "never" else [f"approval {approval}"])


def _adapter(selection: Mapping[str, Any], known: Mapping[str, Any]) -> PartFact:
    prices = selection.get("prices")
    notes = (
        f"protocol {selection.get('protocol')}",
        f"model {selection.get('model')}",
        f"prices {prices}" if prices else "no price known",
    )
    name = str(selection.get("provider"))
    item = known.get("adapter")
    if item is not None:
        return PartFact(notes=notes, **_origin(item) | {"name": name})
    return PartFact(name=name, owner="given to the runtime" if known else None, notes=notes)


def _pre_step(reader: StoredLog, view: RequestView, asked: Iterable[str]) -> Iterator[HookFact]:
    changes: dict[str, list[str]] = {plugin: [] for plugin in asked}
    for patch in patch_views(reader, view):
        changes.setdefault(patch.patch.plugin, []).extend(patch_phrases(patch))
    for plugin, phrases in changes.items():
        yield HookFact(plugin=plugin, changes=tuple(phrases))


# -------------------------------------------------------------------------------------------------------- in words


def step_text(facts: StepFacts) -> str:
    """The facts in lines for people, without a newline at the end."""
    same = {"equal": "equal to the one sent", "different": "NOT the one sent"}.get(facts.verdict)
    same = same or f"of the one sent, which rests on erased data ({listed(facts.erased)})"
    versions = ", ".join(f"{one_line(name)} {one_line(version)}" for name, version in facts.versions.items())
    table: list[tuple[str, list[tuple[str, ...]]]] = [
        ("sections", [(str(part.order), *_cells(part)) for part in facts.sections]),
        ("tools", [_cells(part) for part in facts.tools]),
        ("adapter", [_cells(facts.adapter)]),
        ("pre_step", list(_changes(facts))),
        *((hook, [_order(plugins)]) for hook, plugins in facts.hooks.items()),
        ("plugins", [(versions,)]),
        ("contract", [(_contract(facts),)]),
    ]
    width = max(len(head) for head, _ in table) + 2
    shown = facts.recorded if facts.verdict == "erased" else facts.digest
    lines = [f"{facts.step} · request seq {facts.seq} · digest {short(shown)} {same}"]
    for head, rows in table:
        for number, row in enumerate(_columns(rows) or ["none"]):
            lines.append(f"{head if number == 0 else '':<{width}}{row}".rstrip())
    if not facts.is_whole:
        lines.append("this log does not say from which layer a part came, what it hid there, nor who else was asked")
    return "\n".join(lines)


def _cells(part: PartFact) -> tuple[str, ...]:
    hidden = [f"{one_line(below.owner or '')} ({one_line(below.layer or '')})" for below in part.hides]
    notes = [*map(one_line, part.notes), *([f"hides {name_text(part.name)} of {listed(hidden)}"] if hidden else [])]
    return name_text(part.name), one_line(part.owner or ""), one_line(part.layer or ""), ", ".join(notes)


def _changes(facts: StepFacts) -> Iterator[tuple[str, ...]]:
    for number, hook in enumerate(facts.pre_step, 1):
        yield f"{number} {one_line(hook.plugin)}", "; ".join(hook.changes) or "no change"
    if not facts.pre_step:
        yield ("no plugin was asked" if facts.is_whole else "no plugin changed the request",)


def _order(plugins: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{number} {one_line(plugin)}" for number, plugin in enumerate(plugins, 1))


def _contract(facts: StepFacts) -> str:
    if facts.contract_changed_at is None:
        return "as when the session was created"
    return f"changed at seq {facts.contract_changed_at}: {listed(facts.contract_changes)}"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines; a column in which nothing stands is left out."""
    length = max(map(len, rows), default=0)
    filled = [(*row, *[""] * (length - len(row))) for row in rows]
    widths = [max(len(row[i]) for row in filled) for i in range(length)]
    return ["  ".join(row[i].ljust(w) for i, w in enumerate(widths) if w).rstrip() for row in filled]


def step_json(facts: StepFacts) -> dict[str, Any]:
    """The facts for programs; what is None or empty is left out."""
    shown: dict[str, Any] = plain(facts)
    return shown | {"equal": facts.verdict == "equal", "is_whole": facts.is_whole}
