"""Plays a scenario (floor 14): a real runtime on a real file, with time, model and the world outside from the scenario.

A fault ends one process; the next one opens the same file with a runtime of its own and goes on. What belongs to the
world outside (clock, script, answers of tools, what people have decided) outlives every process.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import attrs

from spine.agent import Agent
from spine.config import Settings
from spine.errors import ScenarioInvalid, ScriptMismatch, SpineError, TurnFailed
from spine.events import RecordedEvent
from spine.keeping import LEASE_US
from spine.llm.retry import RetryPolicy
from spine.opening import open_store
from spine.proof.replay.run import Given
from spine.proof.verify import Verification, verify
from spine.runtime import Runtime
from spine.scope import Registries
from spine.session import Session
from spine.store import Row
from spine.testing.clock import FakeClock, FakeRandom
from spine.testing.crashes import CrashingStore, ProcessDied, crashing
from spine.testing.failpoints import Failpoint, Failpoints
from spine.testing.scenarios.agents import ScenarioPlugin, find, find_module, make_agent, make_section
from spine.testing.scenarios.scenario import CancelInput, Decision, Fault, LateInput, Moment, Scenario, UserInput
from spine.testing.scenarios.stage import Answers, Armed, HeldModel, Stage
from spine.testing.scripted import ScriptedAdapter
from spine.tools import Tool

__all__ = ["Ending", "Play", "play"]

LIMIT_S = 30.0
"""Real seconds until a scenario counts as hanging."""
LIVE_LIMIT_S = 600.0
"""The same where a real model answers."""
ALONE = Settings(installed_plugins=False)
_POLL_S = 0.001
_LOOK_S = 0.02


@attrs.frozen(kw_only=True)
class Ending:
    """What a scenario came to. `problems` are those of the play itself, the expectations are not looked at yet."""

    events: tuple[RecordedEvent, ...]
    verification: Verification | None
    ends: tuple[tuple[Fault, int], ...]
    """Each fault that struck, with the seq from which the next process went on."""
    problems: tuple[str, ...]
    borders: tuple[int, ...] = ()
    """The last seq of each batch that the first process stored."""
    points: tuple[Failpoint, ...] = ()
    """Every failpoint that the first process reached."""
    ran: Mapping[str, int] = attrs.field(factory=dict)
    """How often each place behind a tool was reached by all processes together: `tool.charge.after` to 1."""
    entry: int | None = None
    """Number of the script's entry at which the run went wrong."""
    settings: tuple[tuple[int, Given], ...] = ()
    """What each process was given, with the seq from which it went on: for a replay."""


async def play(scenario: Scenario, path: Path, *, live: Settings | None = None) -> Ending:
    """Play a scenario on an SQLite file that does not exist yet. Raises `ScenarioInvalid`.

    With `live`, the real model answers instead of the script, as these settings say, and takes its real time.
    """
    played = Play(scenario, path, live)
    with anyio.move_on_after(LIMIT_S if live is None else LIVE_LIMIT_S) as limit:
        while await played.process():
            pass
    if limit.cancelled_caught:
        played.problems.append(f"the scenario did not come to an end within {LIMIT_S:g} s; does it wait for a cancel?")
    return played.ending()


class Play:
    """A scenario that is being played: everything that outlives a process."""

    def __init__(self, scenario: Scenario, path: Path, live: Settings | None = None) -> None:
        self.scenario = scenario
        self._real = live
        self.problems: list[str] = []
        self._path = path
        self._clock = FakeClock()
        self._model = ScriptedAdapter(*scenario.model, clock=self._clock)
        self._answers = Answers(scenario.tools, self._clock)
        self._agent = scenario.agent
        self._plugins = scenario.plugins
        self._deps = self._make_deps()
        self._position = 0
        self._armed: list[Armed] = []
        self._ends: list[tuple[Fault, int]] = []
        self._borders: tuple[int, ...] = ()
        self._points: tuple[Failpoint, ...] = ()
        self._ran: Counter[str] = Counter()
        self._events: tuple[RecordedEvent, ...] = ()
        self._settings: list[tuple[int, Given]] = []
        self._verification: Verification | None = None

    def _make_deps(self) -> Any:
        if self.scenario.deps is None:
            return None
        deps = find(self.scenario.deps, self.scenario, "deps")
        return deps() if callable(deps) else deps

    # -------------------------------------------------------------------------------------------- one process

    async def process(self) -> bool:
        """Be one process, to the scenario's end or to the next fault; True when another one must go on."""
        faults = self.scenario.faults[len(self._ends) :]
        fault = faults[0] if faults else None
        inner = open_store(f"sqlite:{self._path}?durability=relaxed", Registries.new())
        store, crash = crashing(inner, _is_moment(fault), kills=fault is None or fault.do == "crash")
        leave = anyio.Event()
        stage = Stage(lambda: crash.is_over, leave.set)
        points = self._points_of(fault, crash)
        opened = self._open(store, stage, points)
        try:
            async with anyio.create_task_group() as group, opened as runtime:
                group.start_soon(self._live, runtime, stage, group, leave, points)
                await _until(leave, lambda: crash.is_dead)
                if not crash.is_over:
                    self._look(runtime)
                if fault is None or not crash.is_over or fault.do == "crash":
                    group.cancel_scope.cancel()
        except* ProcessDied:
            pass
        self._borders = self._borders or tuple(crash.borders)
        self._points = self._points or tuple(points.hits)
        self._ran.update(hit.name for hit in points.hits if hit.name.endswith(".after"))
        if fault is None or not crash.is_over:
            return False
        self._prepare_next(fault)
        return True

    def _points_of(self, fault: Fault | None, crash: CrashingStore) -> "_Places":
        at = Failpoint(fault.at.event, fault.at.nth) if fault is not None and fault.is_point else None
        return _Places(at, crash.kill, hangs=True)

    def _open(self, store: Any, stage: Stage, points: "_Places") -> Runtime:
        model = None if self._real is not None else HeldModel(self._model, stage, self._find_place)
        return Runtime.open(
            store,
            model=None if model is None else points.model(model),
            plugins=[points.plugin(each) if inspect.ismodule(each) else each for each in self._given_plugins()],
            clock=points.clock(self._clock) if self._real is None else None,
            random=FakeRandom(),
            retry=RetryPolicy(attempts=self.scenario.attempts),
            settings=self._real or ALONE,
        )

    def _find_place(self, session: Session) -> None:
        """Go to the entry for the next attempt: a crash may have swallowed the answer of an earlier one."""
        if self._ends:
            self._model.seek(_attempts_ended(session))

    async def _session(self, runtime: Runtime, stage: Stage, points: "_Places") -> Session:
        scenario = self.scenario
        self._prepare(runtime)
        agent = self._answering(make_agent(self._agent, scenario), runtime, stage)
        session = await runtime.session(
            scenario.session,
            points.agent(agent),
            deps=self._deps,
            scope=scenario.scope,
            metadata=scenario.metadata,
            variables=scenario.variables,
            reference=self._agent if isinstance(self._agent, str) else None,
        )
        if self._ends:
            self._ends[-1] = (self._ends[-1][0], session.log.seq + 1)
        self._settings.append((session.log.seq + 1, self._setting(agent)))
        return session

    def _prepare(self, runtime: Runtime) -> None:
        for section in self.scenario.sections:
            if section.scope is not None:
                runtime.scope(section.scope).add(make_section(section))

    def _setting(self, agent: Agent) -> Given:
        return Given(
            agent=agent,
            plugins=self._given_plugins(),
            settings=ALONE,
            deps=self._deps,
            variables=self.scenario.variables,
            prepare=self._prepare,
        )

    def _given_plugins(self) -> list[Any]:
        plugins = [find_module(name, self.scenario, "plugin") for name in self._plugins]
        return [ScenarioPlugin(self.scenario), *plugins]

    def _answering(self, agent: Agent, runtime: Runtime, stage: Stage) -> Agent:
        """The agent with the scenario's answers in its tools, and in those of plugins that the scenario names."""
        own = {tool.name: tool for tool in agent.own_tools}
        offered = runtime.registries.tools.resolve(None)
        for name in self.scenario.tools:
            if name not in own:
                tool = offered.get(name)
                if not isinstance(tool, Tool):
                    known = ", ".join([*own, *offered.entries]) or "none"
                    raise ScenarioInvalid(
                        f'{self.scenario.path.name}: no tool "{name}" to answer for; there are: {known}'
                    )
                own[name] = tool
        tools = [self._answers.tool(tool, stage.settle) for tool in own.values()]
        return agent.evolve(tools=(*tools, *agent.selected))

    def _prepare_next(self, fault: Fault) -> None:
        self._ends.append((fault, 0))
        self._agent = self._agent if fault.agent is None else fault.agent
        self._plugins = self._plugins if fault.plugins is None else fault.plugins
        for armed in self._armed:
            armed.is_begun = armed.is_sent
        self._clock.advance(LEASE_US / 1_000_000 + 1)  # the dead process keeps its lease until it runs out

    def _look(self, runtime: Runtime) -> None:
        reader = runtime.reader(self.scenario.session)
        if reader.head[0]:
            self._events = tuple(reader.read())
            self._verification = verify(reader)

    # ------------------------------------------------------------------------------------------- the world outside

    async def _live(
        self, runtime: Runtime, stage: Stage, group: anyio.abc.TaskGroup, leave: anyio.Event, points: "_Places"
    ) -> None:
        try:
            session = await self._session(runtime, stage, points)
            stage.enter(session, group)
            await self._drive(session, stage)
        except ProcessDied:
            pass
        except SpineError as error:
            self.problems.append(error.message)
        except Exception as error:
            self.problems.append(f"the run raised {type(error).__name__}: {error}")
        finally:
            leave.set()

    async def _drive(self, session: Session, stage: Stage) -> None:
        if self._position:
            stage.arm(self._armed)
            await stage.calm()
            if not session.is_running:
                await session.resume(check=False)
        while not stage.is_over():
            await _idle(session)
            turn = session.turn
            try:
                went_on = await (
                    self._decide(session) if turn and turn.status == "suspended" else self._next_input(session, stage)
                )
            except TurnFailed:
                continue
            if not went_on:
                return

    async def _next_input(self, session: Session, stage: Stage) -> bool:
        inputs = self.scenario.inputs
        if self._position == len(inputs):
            return False
        self._check_sent()
        opening = inputs[self._position]
        self._position += 1
        self._armed = []
        while self._position < len(inputs) and isinstance(late := inputs[self._position], LateInput | CancelInput):
            self._armed.append(Armed(self._position, late))
            self._position += 1
        session.log.observe(_once("turn.started", lambda: stage.arm(self._armed)))
        if isinstance(opening, UserInput):
            await session.run(opening.text, check=False)
        else:
            await session.retry(keep_partial=getattr(opening, "keep_partial", False), check=False)
        return True

    async def _decide(self, session: Session) -> bool:
        """Give the next decision to the approval that is open for its tool; False when there is none left."""
        approvals = session.log.status.approvals.values()
        given = sum(approval.decision is not None for approval in approvals)
        waiting = [approval.request for approval in approvals if approval.decision is None and not approval.used]
        names = ", ".join(request.name for request in waiting)
        if given == len(self.scenario.approvals):
            if self._position < len(self.scenario.inputs):
                self.problems.append(f"input {self._position + 1} came too early: a person is asked about {names}")
            return False
        decision: Decision = self.scenario.approvals[given]
        wanted = next((request for request in waiting if request.name == decision.call), None)
        if wanted is None:
            self.problems.append(f"approval {given + 1} is about {decision.call}; a person is asked about {names}")
            return False
        decide = session.approve if decision.decide == "approve" else session.deny
        await decide(wanted.id, by=decision.by, reason=decision.reason)
        return True

    # ---------------------------------------------------------------------------------------------------- the end

    def _check_sent(self) -> None:
        for armed in self._armed:
            if not armed.is_sent:
                moment = armed.input.at
                nth = "" if moment.nth == 1 else f" number {moment.nth}"
                self.problems.append(f"input {armed.number + 1} never came in: the turn had no {moment.event}{nth}")

    def ending(self) -> Ending:
        """What it came to."""
        self._check_sent()
        self.problems.extend(self._answers.problems())
        self.problems.extend(self._unused() if self._real is None else ())
        mismatch = self._model.mismatch
        return Ending(
            events=self._events,
            verification=self._verification,
            ends=tuple(self._ends),
            problems=tuple(dict.fromkeys(self.problems)),
            borders=self._borders,
            points=self._points,
            ran=self._ran,
            entry=None if mismatch is None else mismatch[0],
            settings=tuple(self._settings),
        )

    def _unused(self) -> list[str]:
        found = []
        try:
            self._model.check_used()
        except ScriptMismatch as error:
            found.append(error.message)
        decided = sum(event.type == "approval.decided" for event in self._events)
        if decided < len(self.scenario.approvals):
            found.append(f"{decided} of {len(self.scenario.approvals)} approvals were asked for")
        left = self.scenario.faults[len(self._ends) :]
        found.extend(f"the fault at {fault.at.event} never struck" for fault in left)
        return found


class _Places(Failpoints):
    """Failpoints of a process that dies without dying: what does not await learns it from an error."""

    def passed(self, name: str) -> None:
        """Pass a place in code that does not await."""
        if self.reach(name):
            raise ProcessDied("the process died here (a fault of the test)")


def _attempts_ended(session: Session) -> int:
    """How many attempts of the model are over; one that a crash swallowed is made again."""

    def ends(event: RecordedEvent) -> bool:
        is_cancelled = event.type == "message.interrupted" and event.data.cause == "cancelled"
        return is_cancelled or event.type in ("message.committed", "model.attempt_failed")

    return sum(map(ends, session.log.read()))


def _is_moment(fault: Fault | None) -> Callable[[Row], bool]:
    """Whether a row is the fault's moment; counts the rows it is asked about."""
    if fault is None or fault.is_point:
        return lambda row: False
    moment: Moment = fault.at
    seen = 0

    def is_moment(row: Row) -> bool:
        nonlocal seen
        is_such = moment.event in ("*", row.type)
        seen += is_such
        return is_such and seen == moment.nth

    return is_moment


def _once(kind: str, act: Callable[[], None]) -> Callable[[RecordedEvent], None]:
    """An observer that acts at the first event of one type."""
    done = False

    def observe(event: RecordedEvent) -> None:
        nonlocal done
        if not done and event.type == kind:
            done = True
            act()

    return observe


async def _until(leave: anyio.Event, is_dead: Callable[[], bool]) -> None:
    """Wait for the process's end; nobody tells of a death that only a commit in the background met."""
    while not leave.is_set() and not is_dead():
        with anyio.move_on_after(_LOOK_S):
            await leave.wait()


async def _idle(session: Session) -> None:
    """Wait until no turn runs and none is about to."""
    while session.is_running or (session.log.status.waiting and session.log.status.turn is None):
        await anyio.sleep(_POLL_S)
