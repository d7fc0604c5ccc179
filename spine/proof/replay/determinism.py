"""Does a session come out the same whatever it should not depend on? (floor 13): the offender is named.

The session is replayed again in this process, with contributions registered in another order, and in other processes:
with other hash seeds, and with clock, zone and locale moved. Everything is compared with the first replay. Projections
are folded twice, and step by step. A hook or section that depends on any of it gives another log, and the first
difference tells whose it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from spine.errors import NoVerdict
from spine.projectors import SessionTranscript, SessionUsage
from spine.projectors.json import plain
from spine.projectors.model_history import ModelHistory
from spine.projectors.projector import Projector
from spine.projectors.status import Status
from spine.proof.replay.run import Given, Replayed, replay
from spine.proof.replay.text import erased_text, missing_text, replay_fact
from spine.runtime import Runtime
from spine.scope import LayeredRegistry
from spine.stored import StoredLog
from spine.values import decode, encode

__all__ = ["Conditions", "Determinism", "Elsewhere", "Trial", "determinism"]


@attrs.frozen(kw_only=True)
class Conditions:
    """What is different in another process: variables of its environment, and how far its clock is moved."""

    variables: Mapping[str, str]
    moved_s: float = 0.0


ELSEWHERE: Final[Mapping[str, Conditions]] = {
    "hash seed 1": Conditions(variables={"PYTHONHASHSEED": "1"}),
    "hash seed 2": Conditions(variables={"PYTHONHASHSEED": "2"}),
    "clock, zone and locale moved": Conditions(
        variables={"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"}, moved_s=400 * 86_400.5
    ),
}
"""Other processes, by name."""
_WIDTH: Final = 42
Elsewhere = Callable[[Conditions], Mapping[str, Any]]
"""Replays the same session in a process under these conditions; the facts of `replay_fact`."""


@attrs.frozen(kw_only=True)
class Trial:
    """One way to run it. `offender` says who made it come out otherwise; None when it came out the same."""

    name: str
    offender: str | None = None
    where: str = ""
    """`seq 5 content.added t1s1, path $.text`."""


@attrs.frozen(kw_only=True)
class Determinism:
    """What was found; deterministic when no trial has an offender."""

    session: str
    first: Mapping[str, Any]
    """The first replay, as facts; the others are compared with it."""
    trials: tuple[Trial, ...]

    @property
    def offenders(self) -> tuple[Trial, ...]:
        """Trials that came out otherwise."""
        return tuple(trial for trial in self.trials if trial.offender is not None)

    @property
    def is_whole(self) -> bool:
        """Whether all of the session was replayed: it still is what was recorded."""
        return bool(self.first["verdict"] == "equal")


async def determinism(log: StoredLog, setting: Given, elsewhere: Elsewhere | None = None) -> Determinism:
    """Try a session in every way there is; without `elsewhere`, only in this process.

    Raises what `replay` raises, and `NoVerdict` when plugins that took part are not loaded, or data were erased.
    """
    first = await _facts(log, setting)
    if first["verdict"] == "missing":
        missing, erased = first["missing"], first["erased"]
        raise NoVerdict(missing_text(log.session, missing) if missing else erased_text(log.session, erased))
    trials = [_compared("a second time", first, await _facts(log, setting))]
    shuffled = attrs.evolve(setting, prepare=lambda runtime: _shuffle(runtime, setting))
    trials.append(_compared("contributions in another order", first, await _facts(log, shuffled)))
    trials.extend(_compared(name, first, elsewhere(where)) for name, where in ELSEWHERE.items() if elsewhere)
    return Determinism(session=str(log.session), first=first, trials=(*trials, *_projections(log)))


async def _facts(log: StoredLog, setting: Given) -> Mapping[str, Any]:
    found: Replayed = await replay(log, setting)
    facts: Mapping[str, Any] = decode(encode(replay_fact(found)))
    return facts


def _shuffle(runtime: Runtime, setting: Given) -> None:
    """Register everything that is global again, last first."""
    setting.prepare(runtime)
    kinds = runtime.registries
    registries: Sequence[LayeredRegistry[Any]] = (kinds.sections, kinds.tools, kinds.policies, kinds.counters)
    for registry in registries:
        entries = [entry for entry in registry.contributions() if entry.layer is None]
        for entry in entries:
            registry.remove(entry)
        for entry in reversed(entries):
            registry.add(entry.name, entry.value, owner=entry.owner, where=entry.where)


def _compared(name: str, first: Mapping[str, Any], other: Mapping[str, Any]) -> Trial:
    if first["difference"] == other["difference"]:
        return Trial(name=name)
    found = min(
        (each for each in (other, first) if each["difference"] is not None), key=lambda each: each["difference"]["seq"]
    )
    difference, cause = found["difference"], found["cause"] or {}
    event = difference["now"] or difference["recorded"]
    where = f"seq {difference['seq']} {event}" + (f", path {difference['path']}" if difference["path"] else "")
    owner = f" of {cause['owner']}" if cause.get("owner") else ""
    return Trial(name=name, offender=f"{cause.get('kind', 'loop')} {cause.get('name', '')}{owner}", where=where)


# ---------------------------------------------------------------------------------------------------------- projections


def _projections(log: StoredLog) -> Iterator[Trial]:
    events = list(log.read())
    makers: Sequence[Callable[[], Projector[Any]]] = (ModelHistory, SessionTranscript, SessionUsage, Status)
    for make in makers:
        seq = _first_unequal(make, events)
        name = f"projection {make().name}, step by step"
        yield Trial(name=name) if seq is None else Trial(name=name, offender=make().name, where=f"seq {seq}")


def _first_unequal(make: Callable[[], Projector[Any]], events: Sequence[Any]) -> int | None:
    """Where a fold that goes on, and one that begins anew, come apart; looked at where the log is a power of two."""
    projector = make()
    state = projector.initial()
    for event in events:
        if event.type in projector.types:
            state = projector.apply(state, event)
        if event.seq & (event.seq - 1) == 0 or event.seq == len(events):
            again = make()
            fresh = again.initial()
            for earlier in events[: event.seq]:
                if earlier.type in again.types:
                    fresh = again.apply(fresh, earlier)
            if _told(fresh) != _told(state):
                return int(event.seq)
    return None


def report(found: Determinism) -> str:
    """The finding in lines, without a newline at the end."""
    lines = [f"{trial.name:<{_WIDTH}}{_ending(trial)}" for trial in found.trials]
    if not found.is_whole:
        difference = found.first["difference"]
        told = f"seq {difference['seq']}: what follows was not replayed, because something has changed since"
        lines.append(f"looked at up to {told}. Try: spine replay {found.session}")
    return "\n".join([f"{found.session}  {'ok' if not found.offenders else 'NOT DETERMINISTIC'}", *lines])


def _ending(trial: Trial) -> str:
    return "the same" if trial.offender is None else f"differs at {trial.where}: from {trial.offender}"


def _told(state: Any) -> str:
    return str(plain(state)) if attrs.has(type(state)) else repr(state)
