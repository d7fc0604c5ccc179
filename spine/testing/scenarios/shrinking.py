"""Makes a session that fails small (floor 14): the first events that fail, then the fewest inputs and answers that do.

A session is written down as a scenario; turns, answers and faults are taken out as long as what is left, played from
the start, still fails. What decides is a function of the caller's over the events; a play that goes wrong by itself
(an answer too few, a decision nobody asked for) never counts as failing.
"""

import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import attrs

from spine.codec import Codec
from spine.errors import ScenarioInvalid, UsageError
from spine.events import RecordedEvent
from spine.projectors import SessionTranscript, fold, to_text
from spine.stored import StoredLog
from spine.stores.opening import open_store
from spine.testing.scenarios.file import SUFFIX, read_scenario
from spine.testing.scenarios.play import play
from spine.testing.scenarios.writing import WrittenScenario, scenario_of
from spine.testing.scenarios.yaml_tree import dump
from spine.values import Secret, SessionId

__all__ = ["Fails", "Shrunk", "ends_attempt", "shows", "shrink"]

T = TypeVar("T")
Fails = Callable[[tuple[RecordedEvent, ...]], bool]
"""Whether events, from the first one of a session on, show what is looked for."""
TRY_S: Final = 5.0
"""Real seconds after which a try counts as one that does not fail."""


@attrs.frozen(kw_only=True)
class Shrunk:
    """What was found. `written` is the smallest scenario that fails; `prefix` the first seq by which the log does."""

    prefix: int
    written: WrittenScenario
    inputs: tuple[int, int]
    """How many there were, and how many are left."""
    answers: tuple[int, int]
    tries: int


def shows(text: str) -> Fails:
    """Fails where the transcript holds `text`."""
    return lambda events: text in to_text(fold(SessionTranscript(), events))


async def shrink(
    reader: StoredLog,
    fails: Fails,
    *,
    agent: str | None = None,
    plugins: Sequence[str] = (),
    secrets: Iterable[Secret] = (),
) -> Shrunk:
    """The smallest scenario of a stored session that fails; options as `scenario_of`.

    Raises `UsageError` when the session does not fail, or not again when it is played.
    """
    events = tuple(reader.read())
    prefix = next((n for n in range(1, len(events) + 1) if fails(events[:n])), None)
    if prefix is None:
        raise UsageError(f"{reader.session} does not fail: none of its {len(events)} events shows what is looked for")
    whole = scenario_of(reader, agent=agent, plugins=plugins, secrets=secrets)
    parts = _Parts(events, whole.content)
    tries = _Tries(fails)
    everything = _Kept(tuple(range(len(parts.groups))), tuple(range(len(parts.entries))), tuple(range(parts.faults)))
    problems = await tries.problems(parts.content(everything))
    if problems:
        notes = "; ".join([*problems, *whole.notes])
        raise UsageError(f"{reader.session} does not fail again when it is played as a scenario: {notes}")
    kept = await _smallest(parts, everything, tries, events[prefix - 1].turn)
    written = await _written_anew(tries, parts.content(kept), agent, plugins, whole)
    return Shrunk(
        prefix=prefix,
        written=written,
        inputs=(len(parts.groups), len(kept.groups)),
        answers=(len(parts.entries), len(parts.kept_entries(kept))),
        tries=tries.count,
    )


@attrs.frozen
class _Kept:
    """Which inputs (with what comes in while they run), which entries of the script and which faults are kept."""

    groups: tuple[int, ...]
    entries: tuple[int, ...]
    faults: tuple[int, ...]


async def _smallest(parts: "_Parts", kept: _Kept, tries: "_Tries", last: str | None) -> _Kept:
    async def still(candidate: _Kept) -> bool:
        return not await tries.problems(parts.content(candidate))

    until = next((i for i, turns in enumerate(parts.groups) if last in turns), len(parts.groups) - 1)
    candidate = attrs.evolve(kept, groups=kept.groups[: until + 1])
    kept = candidate if await still(candidate) else kept
    faults = await _fewest(kept.faults, lambda some: still(attrs.evolve(kept, faults=some)))
    kept = attrs.evolve(kept, faults=faults)
    groups = await _fewest(kept.groups, lambda some: still(attrs.evolve(kept, groups=some)))
    kept = attrs.evolve(kept, groups=groups)
    mine = parts.kept_entries(kept)
    entries = await _fewest(mine, lambda some: still(attrs.evolve(kept, entries=some)))
    return attrs.evolve(kept, entries=entries)


async def _fewest(items: tuple[T, ...], still: Callable[[tuple[T, ...]], Awaitable[bool]]) -> tuple[T, ...]:
    """Items that cannot do without any single one of them; halves are tried to be left out first, then less."""
    size = max(len(items) // 2, 1)
    while items:
        before, at = items, 0
        while at < len(items):
            candidate = (*items[:at], *items[at + size :])
            if await still(candidate):
                items = candidate
            else:
                at += size
        if size == 1 and items == before:
            break
        size = max(size // 2, 1)
    return items


class _Tries:
    """Plays candidates, each on a file of its own."""

    def __init__(self, fails: Fails) -> None:
        self._fails = fails
        self.count = 0

    async def problems(self, content: Mapping[str, Any]) -> tuple[str, ...]:
        """Why a scenario does not fail as it should; empty when it does."""
        with tempfile.TemporaryDirectory(prefix="spine-shrink-") as folder:
            return await self.play(content, Path(folder, "try.db"))

    async def play(self, content: Mapping[str, Any], path: Path) -> tuple[str, ...]:
        """The same, on a file that the caller keeps."""
        self.count += 1
        with anyio.move_on_after(TRY_S):
            try:
                ending = await play(read_scenario(Path(f"shrunk{SUFFIX}"), dump(content)), path)
            except ScenarioInvalid as error:  # nothing is left of it, say
                return (error.message,)
            if ending.problems:
                return ending.problems
            return () if self._fails(ending.events) else ("it does not show what is looked for",)
        return (f"it did not come to an end within {TRY_S:g} s",)


class _Parts:
    """A scenario taken apart: what belongs to which input and to which entry of the script."""

    def __init__(self, events: Sequence[RecordedEvent], content: Mapping[str, Any]) -> None:
        self._content = content
        self.faults = len(content.get("faults", ()))
        self.groups = _groups_of(events)
        self.entries = tuple(event.place for event in events if ends_attempt(event))
        """The step of each entry of the script."""
        calls = {e.data.id: e.place for e in events if e.type == "approval.requested"}
        self._decisions = [calls.get(event.data.id) for event in events if event.type == "approval.decided"]
        self._runs: dict[str, list[str | None]] = {}
        for event in events:
            if event.type == "tool.started":
                self._runs.setdefault(event.data.name, []).append(event.place)
        self._openings: list[list[Any]] = []
        for item in content["inputs"]:
            if "user" in item or "retry" in item or not self._openings:
                self._openings.append([])
            self._openings[-1].append(item)

    def kept_entries(self, kept: _Kept) -> tuple[int, ...]:
        """The entries that are kept, of inputs that are."""
        turns = {turn for group in kept.groups for turn in self.groups[group]}
        return tuple(i for i in kept.entries if (self.entries[i] or "").partition("s")[0] in turns)

    def content(self, kept: _Kept) -> dict[str, Any]:
        """The scenario of what is kept, without expectations."""
        entries = self.kept_entries(kept)
        last = {place: i for i, place in enumerate(self.entries)}
        steps = {place for place, i in last.items() if i in entries}
        content = {key: value for key, value in self._content.items() if key != "expect"}
        script = content.get("model", ())
        content["inputs"] = [item for group in kept.groups for item in self._openings[group]]
        content["model"] = [{k: v for k, v in script[i].items() if k != "expect"} for i in entries]
        decided = zip(content.get("approvals", ()), self._decisions, strict=False)
        content["approvals"] = [decision for decision, place in decided if place in steps]
        content["tools"] = {name: self._answers(name, a, steps) for name, a in content.get("tools", {}).items()}
        faults = content.get("faults", ())
        content["faults"] = [faults[i] for i in kept.faults]
        return {key: value for key, value in content.items() if value}

    def _answers(self, name: str, answers: Any, steps: set[str | None]) -> Any:
        places = self._runs.get(name, [])
        if not isinstance(answers, list) or len(answers) != len(places):
            return answers
        left = [answer for answer, place in zip(answers, places, strict=True) if place in steps]
        return left or {"returns": None}


def _groups_of(events: Sequence[RecordedEvent]) -> tuple[tuple[str, ...], ...]:
    """The turns that each opening input of a scenario brings: its own, and those of inputs that came in meanwhile."""
    groups: list[list[str]] = []
    late: set[int] = set()
    is_open = False
    for event in events:
        if event.type == "turn.started":
            is_opening = event.data.repeats is not None or not set(event.data.inputs) <= late
            groups.extend([[]] if is_opening or not groups else [])
            groups[-1].append(event.place or "")
            is_open = True
        elif event.type in ("turn.completed", "turn.failed", "turn.cancelled"):
            is_open = False
        elif event.type == "input.accepted" and is_open:
            late.add(event.seq)
    return tuple(map(tuple, groups))


def ends_attempt(event: RecordedEvent) -> bool:
    """Whether the script of a written scenario has an entry for it."""
    is_cut = event.type == "message.interrupted" and event.data.cause == "cancelled"
    return is_cut or event.type in ("message.committed", "model.attempt_failed")


async def _written_anew(
    tries: _Tries, content: dict[str, Any], agent: str | None, plugins: Sequence[str], whole: WrittenScenario
) -> WrittenScenario:
    """The smallest scenario with what it expects: written from the log that it makes."""
    with tempfile.TemporaryDirectory(prefix="spine-shrink-") as folder:
        path = Path(folder, "smallest.db")
        await tries.play(content, path)
        store = open_store(f"sqlite:{path}", {})
        try:
            reader = StoredLog(store, Codec(), SessionId(content["session"]))
            again = scenario_of(reader, agent=agent, plugins=plugins)
        finally:
            store.close()
    title = f"{whole.content['scenario'].partition(',')[0]}, made as small as it can be"
    return WrittenScenario({**again.content, "scenario": title}, tuple(dict.fromkeys([*whole.notes, *again.notes])))
