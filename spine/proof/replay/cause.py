"""Who is responsible for the first difference of a replay (floor 13): the contribution, its owner, both versions.

What the loop made of a step follows from sections, tools, parameters, hooks and the catalogue; each kind of event says
which of them it depends on. Whatever none of them explains is the loop's own.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from spine.events import (
    ApprovalRequested,
    RecordedEvent,
    StepFailed,
    ToolCompleted,
    TurnFailed,
)
from spine.proof.replay.compare import Difference
from spine.proof.replay.log import Recording
from spine.requests import frame_of
from spine.run import Run
from spine.values import Digest, decode
from spine.wording import WORDING_VERSION

__all__ = ["Cause", "cause_of"]


@attrs.frozen(kw_only=True)
class Cause:
    """What a difference comes from, as far as log and registries tell."""

    kind: str
    """`section` `tool` `parameter` `route` `hook` `approval` `catalogue` `counter` `limit` `wording` `agent` `loop`."""
    name: str = ""
    """The contribution's own name: of the section, tool, parameter or hook."""
    owner: str = ""
    """Whose it is, without a version: a plugin, an agent, the application."""
    old: str | None = None
    """Its version in the log; None where it was not there, or has none."""
    new: str | None = None
    change: str = ""
    """What happened to it: `changed`, `is new`, `is gone`, `stands elsewhere`."""
    steps: tuple[str, ...] = ()
    """Recorded requests that it reaches."""

    def __str__(self) -> str:
        what = self.kind if self.name in ("", self.kind) else f"{self.kind} {self.name}"
        owner = f" of {self.owner}" if self.owner else ""
        reach = f". It reaches requests {', '.join(self.steps)}" if self.steps else ""
        return f"from {what}{owner}{_versions(self.old, self.new)}{f' ({self.change})' if self.change else ''}{reach}."


def _versions(old: str | None, new: str | None) -> str:
    if old is None and new is None:
        return ""
    if old == new:
        return f", {old} in the log and now"
    return f", {old or 'absent'} in the log, {new or 'absent'} now"


@attrs.frozen
class _Case:
    """A difference, with both sides at hand."""

    recording: Recording
    difference: Difference
    run: Run | None
    versions: Mapping[str, str]

    @property
    def sides(self) -> tuple[RecordedEvent, ...]:
        return tuple(event for event in (self.difference.recorded, self.difference.now) if event is not None)

    @property
    def types(self) -> frozenset[str]:
        return frozenset(event.type for event in self.sides)

    @property
    def place(self) -> str:
        return next((event.place for event in self.sides if event.place), "")


def cause_of(recording: Recording, difference: Difference, run: Run | None, versions: Mapping[str, str]) -> Cause:
    """The cause of a difference; `run` is the replayed session as it stood then, `versions` those of its plugins."""
    case = _Case(recording, difference, run, versions)
    return next(filter(None, (look(case) for look in _LOOKS)), Cause(kind="loop", name="of this version of spine"))


# ----------------------------------------------------------------------------------------------------------- a request


def _of_request(case: _Case) -> Cause | None:
    if case.run is None or case.run.request is None or not case.types & _REQUEST:
        return None
    seq = next(
        (seq for seq in case.recording.frames if seq >= case.difference.seq and _step(case, seq) == case.place), None
    )
    if seq is None:
        return None
    stored = case.recording.frames[seq]
    old, new = stored["request"], frame_of(case.run.log.codec, case.run.request).json
    for look in (_sections, _tools, _parameters):
        found = look(case, old, decode_like(new))
        if found is not None:
            return found
    return _beside(case, seq)


def decode_like(json: Any) -> Any:
    """JSON as it reads back: tuples as lists."""
    if isinstance(json, Mapping):
        return {name: decode_like(value) for name, value in json.items()}
    return [decode_like(item) for item in json] if isinstance(json, list | tuple) else json


def _step(case: _Case, seq: int) -> str | None:
    event = case.recording.at(seq)
    return None if event is None else event.place


def _sections(case: _Case, old: Any, new: Any) -> Cause | None:
    before, after = _named(old.get("system", ())), _named(new.get("system", ()))
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            changed = _change(before.get(name), after.get(name))
            owners = _owner(case, "sections", name, before.get(name)), _owner_now(case, "sections", name)
            text = (before.get(name) or {}).get("text")
            steps = _reached(case, partial(_has_text, name=name, text=text))
            return _contribution("section", name, owners, changed, steps)
    if list(before) != list(after):
        moved = next(name for name, other in zip(before, after, strict=True) if name != other)
        return _contribution("section", moved, ("", ""), "stands elsewhere", ())
    return None


def _tools(case: _Case, old: Any, new: Any) -> Cause | None:
    before = {_tool_name(case, digest): digest for digest in old.get("tools", ())}
    request = case.run.request if case.run is not None else None
    names = [tool.name for tool in request.tools] if request is not None else []
    after = dict(zip(names, new.get("tools", ()), strict=False))
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            owners = _owner(case, "tools", name, None), _owner_now(case, "tools", name)
            steps = _reached(case, partial(_has_tool, digest=before.get(name)))
            return _contribution("tool", name, owners, _change(before.get(name), after.get(name)), steps)
    return None


def _parameters(case: _Case, old: Any, new: Any) -> Cause | None:
    for name in sorted({*old, *new} - {"system", "tools"}):
        if old.get(name) != new.get(name):
            owner = f"agent {case.run.agent.name}" if case.run is not None else ""
            kind = "route" if name == "route" else "parameter"
            change = f"{_short(old.get(name))} in the log, {_short(new.get(name))} now"
            return Cause(kind=kind, name=name, owner=owner, change=change)
    return None


def _beside(case: _Case, seq: int) -> Cause | None:
    """Same request, so something beside it: patches, what the catalogue says, whose the parts are, the estimate."""
    path = case.difference.path
    if ".origins." in path:
        return _of_origins(case, path)
    if ".selection" in path:
        return Cause(kind="catalogue", name=path.rpartition(".")[2], change=_both(case))
    patches = _of_patches(case)
    if patches is not None:
        return patches
    if path.startswith("$.estimate"):
        return Cause(kind="counter", name="of tokens")
    chain = case.run.chain("spine_pre_step") if case.run is not None else ()
    if "content.added" in case.types and chain:  # a text that a hook put into the request
        return _of_plugins("spine_pre_step", [each.plugin for each in chain], case)
    return None


def _of_origins(case: _Case, path: str) -> Cause:
    kind, _, rest = path.partition(".origins.")[2].partition("[")
    if kind.startswith("hooks"):
        return _of_chain(case, kind.partition(".")[2])
    entries = getattr(case.run.capabilities, kind, ()) if case.run is not None and case.run.capabilities else ()
    items = list(entries.values() if isinstance(entries, Mapping) else entries)
    number = int(rest.partition("]")[0] or 0) if rest else 0
    entry = items[number] if number < len(items) else None
    name, owner = (entry.name, entry.owner) if entry is not None else ("", "")
    field = path.rpartition(".")[2]
    change = f"{field} {_both(case)}"
    return Cause(kind=_KINDS.get(kind, kind), name=name, owner=_plain(owner), change=change)


def _of_chain(case: _Case, hook: str) -> Cause:
    """Which plugins are asked in a hook, and in which order, has changed."""
    texts = [event.data.text or "{}" for event in case.sides]
    chains = [decode(text.encode()).get("origins", {}).get("hooks", {}).get(hook, []) for text in texts]
    names = [[_plain(plugin) for plugin in chain] for chain in chains]
    gone = [plugin for plugin in names[0] if plugin not in names[-1]]
    new = [plugin for plugin in names[-1] if plugin not in names[0]]
    moved = [a for a, b in zip(*names, strict=False) if a != b] or names[-1]
    plugin = (gone or new or moved)[0]
    same = names[0] == names[-1]
    change = "is gone" if gone else "is new" if new else "" if same else f"asked in another order: {_both(case)}"
    old, now = _recorded_version(case, plugin), _version_now(case, plugin)
    return Cause(kind="hook", name=hook, owner=plugin, old=old, new=now, change=change)


_KINDS: Final[Mapping[str, str]] = {"sections": "section", "tools": "tool"}
_REQUEST: Final = frozenset(("content.added", "model.requested"))


# --------------------------------------------------------------------------------------------------- hooks and patches


def _of_patches(case: _Case) -> Cause | None:
    if case.difference.is_stuck:
        return None
    before, after = (_patches(event) for event in (case.difference.recorded, case.difference.now))
    for old, new in _paired(before, after):
        if old == new:
            continue
        patch = old if new is None or (old is not None and old.plugin not in {each.plugin for each in after}) else new
        assert patch is not None
        change = _patch_change(old, new, before, after)
        hook = _HOOK_OF.get(case.sides[-1].type, "spine_pre_execute")
        old, new = (_version_in(each, _plain(patch.plugin)) for each in (before, after))
        return Cause(
            kind="hook",
            name=hook,
            owner=_plain(patch.plugin),
            change=change,
            old=old or _recorded_version(case, patch.plugin),
            new=new or _version_now(case, patch.plugin),
        )
    return None


def _patch_change(old: Any, new: Any, before: Sequence[Any], after: Sequence[Any]) -> str:
    """What happened to the patch at one place; `old` and `new` are of two plugins where one is gone, new or moved."""
    if old is None or new is None or _plain(old.plugin) == _plain(new.plugin):
        return _change(old, new)
    if _plain(old.plugin) not in map(_plain, (each.plugin for each in after)):
        return _change(old, None)
    is_new = _plain(new.plugin) not in map(_plain, (each.plugin for each in before))
    return _change(None, new) if is_new else "in another order"


def _patches(event: RecordedEvent | None) -> Sequence[Any]:
    return getattr(event.data, "patches", ()) if event is not None else ()


def _paired(left: Sequence[Any], right: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    for number in range(max(len(left), len(right))):
        yield (left[number] if number < len(left) else None), (right[number] if number < len(right) else None)


def _version_in(patches: Iterable[Any], plugin: str) -> str | None:
    return next((each.plugin.partition("@")[2] for each in patches if _plain(each.plugin) == plugin), None)


def _of_failure(case: _Case) -> Cause | None:
    for event in reversed(case.sides):
        if event.type == "hook.failed":
            return _of_plugins(event.data.hook, [event.data.plugin], case)
        if isinstance(event.data, StepFailed) and "plugin" in event.data.failure.details:
            named = re.search(r"\bspine_\w+", event.data.failure.message)
            plugin = str(event.data.failure.details["plugin"])
            return _of_plugins(named[0] if named else "", [plugin], case)
        if isinstance(event.data, TurnFailed | StepFailed) and "limit" in event.data.failure.details:
            agent = case.run.agent.name if case.run is not None else ""
            return Cause(kind="limit", name=str(event.data.failure.details["limit"]), owner=f"agent {agent}")
        if event.origin is not None:
            return _of_plugins("spine_post_step", [event.origin], case)
    return None


def _of_hooks(case: _Case) -> Cause | None:
    """Events that only hooks bring about, or keep from happening."""
    for kind, hook in _ONLY_HOOKS.items():
        if kind in case.types and case.run is not None:
            plugins = [each.plugin for each in case.run.chain(hook)]
            plugins = plugins or _gone(case)
            if plugins:
                return _of_plugins(hook, plugins, case)
    return None


def _gone(case: _Case) -> list[str]:
    """Plugins of the log that are not loaded now."""
    recorded = case.recording.versions(case.difference.seq)
    return [f"{name}@{version}" for name, version in recorded.items() if name not in case.versions]


_ONLY_HOOKS: Final[Mapping[str, str]] = {
    "tool.revised": "spine_post_execute",
    "history.compacted": "spine_pre_step",
    "turn.failed": "spine_step_failed",
}
_HOOK_OF: Final[Mapping[str, str]] = {
    "model.requested": "spine_pre_step",
    "content.added": "spine_pre_step",
    "tool.revised": "spine_post_execute",
}


def _of_plugins(hook: str, plugins: Sequence[str], case: _Case) -> Cause:
    first = plugins[0]
    others = f"one of {', '.join(map(_plain, plugins))}" if len(plugins) > 1 else _plain(first)
    return Cause(
        kind="hook", name=hook, owner=others, old=_recorded_version(case, first), new=_version_now(case, first)
    )


# ----------------------------------------------------------------------------------------------------- calls, the rest


def _of_wording(case: _Case) -> Cause | None:
    recorded = case.recording.created.wording
    if recorded == WORDING_VERSION or not case.types & {"tool.completed", "tool.revised"}:
        return None
    return Cause(kind="wording", name="of the core", old=str(recorded), new=str(WORDING_VERSION))


def _of_call(case: _Case) -> Cause | None:
    if not case.types & {"tool.started", "tool.completed", "approval.requested", "tool.resolved"}:
        return None
    name = next((n for event in case.sides if (n := _called(event))), "")
    owners = _owner(case, "tools", name, None), _owner_now(case, "tools", name)
    if "approval.requested" in case.types:
        gone = "" if all(isinstance(event.data, ApprovalRequested) for event in case.sides) else "is not asked alike"
        cause = _contribution("approval", name, owners, gone or "binds to something else", ())
    else:
        kinds = [event.data.error.kind for event in case.sides
                 if isinstance(event.data, ToolCompleted) and event.data.error is not None]  # fmt: skip
        change = "is treated otherwise" + (f": {kinds[-1]}" if kinds else "")
        cause = _contribution("tool", name, owners, change, ())
    return cause


def _called(event: RecordedEvent) -> str:
    data = event.data
    result = getattr(data, "result", None)
    return str(getattr(data, "name", "") or getattr(result, "name", ""))


def _of_prices(case: _Case) -> Cause | None:
    if case.types == {"message.committed"} and case.difference.path.startswith("$.cost"):
        return Cause(
            kind="catalogue", name="prices", change=f"{_short(case.difference.old)} → {_short(case.difference.new)}"
        )
    return None


_LOOKS: Final[tuple[Callable[[_Case], Cause | None], ...]] = (
    _of_failure,
    _of_request,
    _of_patches,
    _of_hooks,
    _of_wording,
    _of_call,
    _of_prices,
)
"""Asked in this order; the first that knows answers."""


# ----------------------------------------------------------------------------------------------------- whose, and since


def _contribution(kind: str, name: str, owners: tuple[str, str], change: str, steps: Sequence[str]) -> Cause:
    old, new = owners
    return Cause(
        kind=kind, name=name, owner=_plain(new or old), change=change, steps=tuple(steps),
        old=old.partition("@")[2] or None, new=new.partition("@")[2] or None,
    )  # fmt: skip


def _plain(owner: Any) -> str:
    return str(owner or "").partition("@")[0]


def _named(blocks: Iterable[Any]) -> dict[str, Any]:
    return {block["name"]: block for block in blocks}


def _change(old: Any, new: Any) -> str:
    return "is new" if old is None else "is gone" if new is None else "changed"


def _owner(case: _Case, kind: str, name: str, block: Any) -> str:
    """`plugin@version` in the log: from its origins, else the section's own word."""
    for frame in case.recording.frames.values():
        origins = frame.get("origins")
        for item in origins.get(kind, ()) if isinstance(origins, dict) else ():
            if item["name"] == name:
                return str(item["owner"])
    return str((block or {}).get("source", ""))


def _owner_now(case: _Case, kind: str, name: str) -> str:
    capabilities = case.run.capabilities if case.run is not None else None
    if capabilities is None:
        return ""
    entries = capabilities.sections if kind == "sections" else capabilities.tools.values()
    return next((entry.owner for entry in entries if entry.name == name), "")


def _recorded_version(case: _Case, plugin: str) -> str | None:
    return case.recording.versions(case.difference.seq).get(_plain(plugin))


def _version_now(case: _Case, plugin: str) -> str | None:
    return case.versions.get(_plain(plugin))


def _tool_name(case: _Case, digest: str) -> str:
    return str(decode(case.recording.content(Digest(digest)))["name"])


def _has_text(frame: Any, name: str, text: str | None) -> bool:
    return text is not None and any(b["name"] == name and b["text"] == text for b in frame.get("system", ()))


def _has_tool(frame: Any, digest: str | None) -> bool:
    return digest is not None and digest in frame.get("tools", ())


def _reached(case: _Case, has: Callable[[Any], bool]) -> list[str]:
    return [
        step
        for seq, frame in case.recording.frames.items()
        if seq > case.difference.seq and has(frame["request"]) and (step := _step(case, seq))
    ]


def _both(case: _Case) -> str:
    return f"{_short(case.difference.old)} in the log, {_short(case.difference.new)} now"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
