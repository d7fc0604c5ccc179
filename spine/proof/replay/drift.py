"""What is not as a log recorded it and changed no event (floor 13): versions, plugins, contracts, texts.

A plugin that had no part, then or now, is none of the session's business: such plugins are named apart.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs

from spine.capabilities import is_plugin
from spine.events import SessionCreated, SessionResumed
from spine.origins import origins_of
from spine.run import Run

__all__ = ["Drift", "drift_between", "parts_in", "parts_of", "told"]


@attrs.frozen
class Drift:
    """One thing that is not as recorded; of a plugin when it is the version or the presence of one."""

    what: str
    plugin: str | None = None

    def __str__(self) -> str:
        return self.what if self.plugin is None else f"{self.plugin} {self.what}"


def told(found: Iterable[Drift], parts: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """In words, one by one: all but that of plugins other than `parts`; and that, plugins of the same fate together."""
    drift: list[str] = []
    beside: dict[str, list[str]] = {}
    for each in found:
        if each.plugin is None or each.plugin in parts:
            drift.append(str(each))
        else:
            beside.setdefault(each.what, []).append(each.plugin)
    return tuple(drift), tuple(f"{', '.join(plugins)} {what}" for what, plugins in beside.items())


def drift_between(recorded: SessionCreated | SessionResumed, today: SessionCreated | SessionResumed) -> Iterator[Drift]:
    """What a process's own first event says otherwise today; nothing when today's is of another kind."""
    if type(recorded) is not type(today):
        return
    if recorded.agent.name != today.agent.name:
        yield Drift(f"agent {recorded.agent.name} in the log, {today.agent.name} now")
    if recorded.agent.contract != today.agent.contract:
        yield Drift("the agent's contract has changed")
    yield from _plugins(recorded.versions, today.versions)
    if isinstance(recorded, SessionCreated) and isinstance(today, SessionCreated):
        if recorded.wording != today.wording:
            yield Drift(f"texts for the model of version {recorded.wording} in the log, {today.wording} now")
        if recorded.metadata != today.metadata:
            yield Drift("metadata of the agent have changed")


def _plugins(then: Mapping[str, object], now: Mapping[str, object]) -> Iterator[Drift]:
    for name in sorted({*then, *now}):
        if name not in now:
            yield Drift("loaded then and not now", name)
        elif name not in then:
            yield Drift("loaded now and not then", name)
        elif then[name] != now[name]:
            moved = f"{then[name]} in the log, {now[name]} now"
            yield Drift(f"spine {moved}") if name == "spine" else Drift(moved, name)  # we have a part in everything


def parts_in(origins: Iterable[Any]) -> frozenset[str]:
    """Names of the plugins that origins name: for a section, a tool, the adapter, or a hook that was asked."""
    owners: set[str] = set()
    for told in origins:
        items = (*told.get("sections", ()), *told.get("tools", ()), *([told["adapter"]] if "adapter" in told else ()))
        owners.update(item["owner"] for item in items)
        owners.update(*told.get("hooks", {}).values())
    return frozenset(owner.partition("@")[0] for owner in owners if is_plugin(owner))


def parts_of(run: Run) -> frozenset[str]:
    """Names of the plugins that have a part in the step that runs, or ran last."""
    if run.capabilities is None or run.chains is None:
        return frozenset()
    return parts_in([origins_of(run.capabilities, run.chains, None, run.agent, run.scope.id)])
