"""A session again, from its log (floor 13): the real loop, hooks and sections, and everything else as recorded.

The new log must be the old one, byte for byte; where it is not, the first difference is told with its cause. A log that
several processes wrote is replayed process by process: each begins with what was durable when it began.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import anyio
import attrs

from spine.agent import Agent
from spine.config import Settings
from spine.events import (
    InputDelivered,
    RecordedEvent,
    SessionCreated,
    SessionResumed,
    TurnStarted,
)
from spine.hooks import HOOK_TIMEOUT_S, Hooks, Implementation
from spine.loop import run_turn
from spine.opening import open_store
from spine.proof.replay.cause import Cause, cause_of
from spine.proof.replay.compare import Difference, compare
from spine.proof.replay.drift import Drift, drift_between, parts_in, parts_of, told
from spine.proof.replay.log import Recording
from spine.proof.replay.model import RecordedPolicy, RecordedRoutes
from spine.proof.replay.standins import stand_in
from spine.proof.replay.text import Replayed
from spine.proof.replay.world import ProcessOver, Unpassed, World
from spine.run import Run
from spine.runtime import Runtime
from spine.scope import Registries
from spine.session import Session
from spine.store import Store
from spine.stored import StoredLog
from spine.values import Secret

__all__ = ["Given", "Replayed", "replay"]

STANDSTILL: Final = 50
"""Looks without anything happening after which a replay is given up, when no hook is at work; a look lets all others
run first, so that a machine that is busy with something else does not count."""
_LOOK_S: Final = 0.02
_ALONE: Final = Settings(installed_plugins=False)
_BEGINNINGS: Final = (SessionCreated, SessionResumed, TurnStarted)
"""Facts that are taken over as they stand."""


@attrs.frozen(kw_only=True)
class Given:
    """What a process is given besides its log: what the recorded one was given, as it is today."""

    agent: Agent
    plugins: Sequence[Any] = ()
    settings: Settings | None = None
    """None for what files and environment say."""
    deps: Any = None
    variables: Mapping[str, Any] = MappingProxyType({})
    strict: bool | None = None
    secrets: Mapping[str, Secret] = MappingProxyType({})
    """What was masked then and must be masked now."""
    prepare: Callable[[Runtime], None] = lambda runtime: None
    """Called before the session is opened: puts what the application puts into scopes."""


async def replay(
    log: StoredLog,
    setting: Given | Agent,
    *,
    borders: Sequence[int] = (),
    setting_at: Callable[[int], Given] | None = None,
    recorded_hooks: bool = False,
) -> Replayed:
    """Replay a log or an export hermetically: no model, no tool, no clock, no connection.

    `setting` is what every process is given, an `Agent` for nothing else, not even installed plugins; `setting_at`
    gives that of the process whose first event has a seq, where they differ. `borders` are first seqs of processes that
    the log does not tell of. With `recorded_hooks`, what plugins did that are not loaded now is applied as the log has
    it.

    Raises `SessionUnknown`, `EventUnknown`, `LogBroken`, and what opening a session raises.
    """
    recording = Recording(log)
    if recording.erased:
        return Replayed(session=recording.session, events=0, processes=0, erased=recording.erased)
    given = Given(agent=setting, settings=_ALONE) if isinstance(setting, Agent) else setting
    replaying = _Replay(recording, setting_at or (lambda seq: given), recorded_hooks)
    start = recording.begin
    for border in (*recording.borders(tuple(borders)), recording.length + 1):
        while start < border - 1 and replaying.difference is None and not replaying.missing:
            start = await replaying.process(start, border - 1)
    return replaying.result()


class _Replay:
    """One replay, over all its processes."""

    def __init__(self, recording: Recording, setting_at: Callable[[int], Given], recorded_hooks: bool) -> None:
        self._recording = recording
        self._recorded_hooks = recorded_hooks
        self._setting_at = setting_at
        self._processes = 0
        self._events = recording.begin
        self._drift: dict[Drift, None] = {}
        self._parts = {*recording.contributors, *parts_in(recording.origins)}
        self._world: World | None = None
        self._has_turned = False
        self._versions_now: Mapping[str, str] = {}
        self._is_exact = True
        self.difference: Difference | None = None
        self.cause: Cause | None = None
        self.missing: tuple[str, ...] = ()

    def result(self) -> Replayed:
        drift, beside = told(self._drift, self._parts)
        return Replayed(
            session=self._recording.session,
            events=self._events,
            processes=self._processes,
            difference=self.difference,
            cause=self.cause,
            missing=self.missing,
            drift=drift,
            beside=beside,
            is_exact=self._is_exact and self.difference is None,
        )

    def _recorded(self, event: RecordedEvent) -> bool:
        recorded = self._recording.at(event.seq)
        if recorded is None:
            return False
        difference = compare(self._recording.reader.codec, recorded, event)
        if difference is None:
            self._events = event.seq
            self._is_exact = self._is_exact and recorded.hash == event.hash
            return True
        self._differ(difference)
        return False

    def _differ(self, difference: Difference) -> None:
        if self.difference is None:
            self.difference = difference
            run = self._world.run if self._world is not None else None
            self.cause = cause_of(self._recording, difference, run, self._versions_now)

    # ------------------------------------------------------------------------------------------------- one process

    async def process(self, start: int, end: int) -> int:
        """Replay the process that appended the events after `start`, up to `end`; where it came to."""
        setting, store = self._setting_at(start + 1), open_store("memory:", Registries.new())
        self._recording.seed(store, start)
        self._has_turned = False
        world = self._world = World(self._recording, end, self._recorded)
        runtime = _open(world, store, setting)
        self.missing = self._stand_in(runtime, world)
        if self.missing:
            return start
        _gate(runtime.hooks, world)
        self._processes += 1
        try:
            with world.scope:
                async with runtime, anyio.create_task_group() as group:
                    setting.prepare(runtime)
                    run = await self._session(runtime, world, setting)
                    group.start_soon(self._watch, world)
                    await self._live(world, run)
                    group.cancel_scope.cancel()
        except* ProcessOver:
            pass
        finally:
            self._parts |= set() if world.run is None else parts_of(world.run)
        return world.end if self.difference is not None else min(world.end, self._events)

    def _stand_in(self, runtime: Runtime, world: World) -> tuple[str, ...]:
        """Load stand-ins for plugins that are not here, if they are wanted; those that nobody can stand in for."""
        loaded, recording = _versions(runtime), self._recording
        missing = not_loaded(recording, runtime)
        if not self._recorded_hooks:
            return missing
        order = [owner.partition("@")[0] for owner in recording.chain("spine_pre_step")]
        absent = sorted((name for name in missing if name not in recording.declarers), key=(*order, *missing).index)
        for name in reversed(absent):  # who is loaded last is asked first
            runtime.load_plugin(stand_in(name, recording, world, loaded))
        return tuple(name for name in missing if name in recording.declarers)

    async def _session(self, runtime: Runtime, world: World, setting: Given) -> Run:
        session = await recorded_session(runtime, self._recording, setting)
        run = _machinery(session)
        self._note_drift(session, world)
        self._versions_now = dict(run.plugins())
        run.plugins = partial(
            self._recording.versions, run.log.seq
        )  # an approval binds to them: their drift is told apart
        run.execute = world.execute
        run.policy = RecordedPolicy(world)  # type: ignore[assignment]  # in its shape
        run.unrevised = Unpassed(world)
        world.run = run
        run.log.observe(world.observe)
        return run

    def _note_drift(self, session: Session, world: World) -> None:
        """What the session's own first event would say today, where it differs."""
        recorded = self._recording.at(session.log.seq + 1)
        if recorded is not None and isinstance(recorded.data, SessionCreated | SessionResumed):
            for today in session._announcement():
                self._drift |= dict.fromkeys(drift_between(recorded.data, today))
        session._announced = True

    async def _live(self, world: World, run: Run) -> None:
        while not world.is_over:
            event, turn = world.next, run.log.status.turn
            if event is None:
                return
            if isinstance(event.data, _BEGINNINGS) or _opens_turn(event, self._recording):
                if isinstance(event.data, TurnStarted) and self._is_new_process(event, world):
                    return
                world.append(event)
                continue
            world.deliver()
            if run.log.seq >= event.seq:
                continue
            if turn is None or turn.status != "open":
                self._differ(Difference(seq=event.seq, recorded=event, now=None))
                return
            before = run.log.seq
            try:
                await run_turn(run)
            except Exception:
                if not world.is_over and run.log.seq == before:
                    raise
            if not world.is_over and run.log.seq == before:
                self._differ(Difference(seq=event.seq, recorded=event, now=None))
                return

    def _is_new_process(self, event: RecordedEvent, world: World) -> bool:
        """Whether another process began this turn, which leaves no other trace; this one then ends before it."""
        if self._has_turned and self._recording.is_new_process(event.seq):
            world.end = event.seq - 1
            world.finish()
            return True
        self._has_turned = True
        return False

    async def _watch(self, world: World) -> None:
        """Cut a hook where one was cut; give up when nothing happens any more."""
        seen, idle = world.activity, 0
        while not world.is_over:
            await anyio.sleep(_LOOK_S)
            overdue, run = world.overdue(), world.run
            if run is not None and overdue in [(each.at.plugin, each.hook) for each in run.watch.running if each.at]:
                run.watch.cut = overdue
                if run.cancel_scope is not None:
                    run.cancel_scope.cancel()
            seen, idle = world.activity, 0 if world.activity != seen else idle + 1
            if idle > self._patience(world) and not world.is_over:
                self._differ(Difference(seq=world.length + 1, recorded=world.next, now=None, is_stuck=True))
                world.finish()

    def _patience(self, world: World) -> float:
        at_work = len(world.run.watch.running) if world.run is not None else 0
        return STANDSTILL if at_work <= world.holding else STANDSTILL + HOOK_TIMEOUT_S / _LOOK_S


def _opens_turn(event: RecordedEvent, recording: Recording) -> bool:
    """Whether these inputs were delivered by whoever began the turn."""
    before = recording.at(event.seq - 1)
    is_first = before is not None and isinstance(before.data, TurnStarted)
    return isinstance(event.data, InputDelivered) and event.data.place == "turn" and is_first


# ------------------------------------------------------------------------------------------------- behind the doors
# The only place that reaches into a runtime and a session: they have no doors for a replay, and need none else.


def _open(world: World, store: Store, setting: Given) -> Runtime:
    runtime = Runtime.open(
        store,
        plugins=setting.plugins,
        settings=setting.settings,
        strict=setting.strict,
        secrets=setting.secrets,
        clock=world,
        random=lambda: 1.0,
    )
    runtime._routes = RecordedRoutes(world, runtime._routes)
    return runtime


async def recorded_session(runtime: Runtime, recording: Recording, setting: Given) -> Session:
    """The session of a log, opened anew in a runtime with what a process is given today."""
    created = recording.created
    return await runtime.session(
        recording.session,
        setting.agent,
        deps=setting.deps,
        scope=created.scope,
        metadata=created.metadata,
        variables=setting.variables,
        reference=created.agent.reference,
    )


def not_loaded(recording: Recording, runtime: Runtime) -> tuple[str, ...]:
    """The plugins that had a part and are not loaded."""
    return tuple(name for name in recording.contributors if name not in _versions(runtime))


def _versions(runtime: Runtime) -> Mapping[str, str]:
    return runtime._plugins.versions


def _machinery(session: Session) -> Run:
    return session._run


def _gate(hooks: Hooks, world: World) -> None:
    """Let the world in before and after the hooks; nobody is told of events, because that was done once already."""

    def first(hook: str, chain: tuple[Implementation, ...]) -> tuple[Implementation, ...]:
        if hook == "spine_event_recorded":
            return ()
        if not chain or not hook.startswith(_STEP_HOOKS):
            return chain
        outermost, *others = chain
        if hook == "spine_post_execute":
            arguments = ("call", *outermost.arguments)
            outermost = attrs.evolve(
                outermost, function=world.held(outermost.function), arguments=arguments, is_short=False
            )
        else:
            function = world.gated(outermost.function, in_step=hook == "spine_pre_step")
            outermost = attrs.evolve(outermost, function=function)
        return (outermost, *others)

    hooks.chains = MappingProxyType({hook: first(hook, chain) for hook, chain in hooks.chains.items()})


_STEP_HOOKS: Final = ("spine_pre_step", "spine_post_step", "spine_pre_execute", "spine_post_execute", "spine_step")
