"""A session again with one part of the world real (floor 13): its tools, or its model; the rest as recorded.

Nothing can be byte for byte the same then. Answers are found by step and attempt, outcomes by call and arguments,
people by what they reacted to; how the new session differs is told as between any two sessions.
"""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal

import anyio
import attrs

from spine import outcomes
from spine.clock import SystemClock
from spine.errors import NoVerdict
from spine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    InputAccepted,
    InputDelivered,
    MessageCommitted,
    ModelAttemptFailed,
    ModelChunks,
    RecordedEvent,
    SessionCreated,
    ToolCompleted,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from spine.execution import Executed
from spine.llm.chunks import Chunk
from spine.llm.errors import ProviderError, provider_error
from spine.llm.protocols import Adapter
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.llm.retry import RetryPolicy
from spine.loop import run_turn
from spine.proof.course import course_of
from spine.proof.diff import Comparison, compare
from spine.proof.replay.log import Recording
from spine.proof.replay.run import Given, not_loaded, recorded_session
from spine.proof.replay.text import erased_text, missing_text
from spine.proof.replay.world import response_of
from spine.run import Run
from spine.runtime import Runtime
from spine.stored import StoredLog
from spine.values import CallId, encode

__all__ = ["LivePart", "replay_live"]

LivePart = Literal["tools", "model"]
_VOLATILE = (ModelChunks, ToolProgress)
"""Events whose number depends on how fast the world is: nothing is anchored to them."""
_PEOPLE = (InputAccepted, CancelRequested)


class QuickClock(SystemClock):
    """The real time, in which a retry waits for nothing."""

    async def sleep(self, delay_s: float) -> None:
        """Go on at once."""
        await anyio.sleep(0)


async def replay_live(
    log: StoredLog, setting: Given, part: LivePart, *, model: Adapter | None = None
) -> tuple[Comparison, StoredLog]:
    """Run a session again with real tools, or a real model (`model`, else the agent's own route).

    Raises `NoVerdict` when plugins that had a part are not loaded, or data were erased.

    Returns how it differs from the recorded one, and its log, in memory. It ends early where the world did something
    that nobody answered for: a call that was not recorded fails, an approval that was not waits.
    """
    recording = Recording(log)
    if recording.erased:
        raise NoVerdict(erased_text(recording.session, recording.erased))
    past = _Past(recording)
    is_scripted = part == "tools"
    runtime = Runtime.open(
        "memory:",
        model=past if is_scripted else model,
        plugins=setting.plugins,
        settings=setting.settings,
        strict=setting.strict,
        secrets=setting.secrets,
        clock=QuickClock() if is_scripted else None,
        retry=RetryPolicy(attempts=1_000) if is_scripted else None,
    )
    async with runtime:
        if missing := not_loaded(recording, runtime):
            raise NoVerdict(missing_text(recording.session, missing))
        setting.prepare(runtime)
        session = await recorded_session(runtime, recording, setting)
        run: Run = session._run  # as in `replay`: there is no door, and nobody else needs one
        session._announced = True
        if part == "model":
            run.execute = past.execute

        async def drive() -> None:
            runtime.entered(session)
            try:
                await run_turn(run)
            except Exception:
                if run.log.status.turn is not None:  # otherwise the log says what went wrong
                    raise
            finally:
                runtime.left(session)

        await _People(recording, run, drive).live()
        await run.log.commit()
        found = compare(course_of(log), course_of(session.log))
        return found, session.log


@attrs.define
class _Past:
    """Answers and outcomes as they were; an adapter and a way to execute calls."""

    recording: Recording
    protocol: str = "recorded"
    _asked: Counter[str] = attrs.Factory(Counter)

    def check(self, request: ModelRequest) -> None:
        """Everything was taken."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | ModelResponse]:
        """The next recorded attempt of the request's step."""
        self._asked[request.step] += 1
        attempt = self._asked[request.step]
        for event in self.recording.events:
            if event.place != request.step:
                continue
            match event.data:
                case ModelChunks(attempt=number) if number == attempt:
                    for chunk in event.data.chunks:
                        yield chunk
                case ModelAttemptFailed(attempt=number) if number == attempt:
                    raise ProviderError(event.data.failure)
                case MessageCommitted() if attempt == _attempts(self.recording, request.step):
                    yield response_of(event.data)
                    return
        raise provider_error("protocol_error", f"the log has no answer {attempt} for step {request.step}")

    async def aclose(self) -> None:
        """Nothing is open."""

    async def execute(self, tool: Any, arguments: Any, context: Any, **_: Any) -> Executed:
        """What the same call gave, or else one of the same tool with the same arguments."""
        found = self._outcomes.get((context.call, _key(tool.name, arguments))) or self._outcomes.get(
            (None, _key(tool.name, arguments))
        )
        if found is None:
            return Executed(outcomes.raised(LookupError(f"the log has no result of {tool.name} for these arguments")))
        return Executed(found.data.outcome, self.recording.overflow(found))

    @property
    def _outcomes(self) -> Mapping[tuple[CallId | None, bytes], RecordedEvent]:
        started = {e.data.call: e.data for e in self.recording.events if isinstance(e.data, ToolStarted)}
        found: dict[tuple[CallId | None, bytes], RecordedEvent] = {}
        for event in self.recording.events:
            if isinstance(event.data, ToolCompleted) and event.data.call in started:
                call = started[event.data.call]
                found[event.data.call, _key(call.name, call.arguments)] = event
                found.setdefault((None, _key(call.name, call.arguments)), event)
        return found


def _attempts(recording: Recording, step: str) -> int:
    """Which attempt of a step was answered: crashes make the last one another than the number of failures says."""
    numbers = [e.data.attempt for e in recording.events if e.place == step and isinstance(e.data, ModelChunks)]
    failed = [
        e.data.attempt + 1 for e in recording.events if e.place == step and isinstance(e.data, ModelAttemptFailed)
    ]
    return max([1, *numbers, *failed])


def _key(name: str, arguments: Any) -> bytes:
    return encode([name, arguments])


class _People:
    """Everybody outside: inputs, cancels and decisions, each after the event that it came after."""

    def __init__(self, recording: Recording, run: Run, drive: Callable[[], Awaitable[None]]) -> None:
        self._recording = recording
        self._run = run
        self._drive = drive
        self._seen: Counter[tuple[str, str | None]] = Counter()
        self._seqs: dict[int, int] = {}
        """Old seq of an input to its new one."""
        self._due = self._anchored()
        self._decisions = self._decided()

    def _anchored(self) -> Mapping[tuple[str, str | None, int], list[RecordedEvent]]:
        """What people did while a turn ran, by the event that it came after."""
        due: dict[tuple[str, str | None, int], list[RecordedEvent]] = defaultdict(list)
        counts: Counter[tuple[str, str | None]] = Counter()
        anchor: tuple[str, str | None, int] = ("", None, 0)
        is_running = False
        for event in self._recording.events:
            if isinstance(event.data, _PEOPLE):
                if is_running:
                    due[anchor].append(event)
                continue
            is_running = event.type not in _ENDINGS and (is_running or isinstance(event.data, TurnStarted))
            if not isinstance(event.data, _VOLATILE):
                counts[event.type, event.place] += 1
                anchor = (event.type, event.place, counts[event.type, event.place])
        return due

    def _decided(self) -> Mapping[tuple[CallId, bytes], ApprovalDecided]:
        asked = {e.data.id: e.data for e in self._recording.events if isinstance(e.data, ApprovalRequested)}
        return {
            (asked[e.data.id].call, _key(asked[e.data.id].name, asked[e.data.id].arguments)): e.data
            for e in self._recording.events
            if isinstance(e.data, ApprovalDecided) and e.data.id in asked
        }

    async def live(self) -> None:
        """Do what was done, turn after turn."""
        log = self._run.log
        stop = log.observe(self._watch)
        late = {event.seq for events in self._due.values() for event in events}
        for event in self._recording.events:
            match event.data:
                case SessionCreated():
                    log.append(event.data)
                case InputAccepted() if event.seq not in late:
                    self._accept(event)
                case TurnStarted():
                    await self._turn(event)
            if log.status.turn is not None:
                break  # it waits for somebody who was not asked, or is stuck
        stop()

    async def _turn(self, event: RecordedEvent) -> None:
        log = self._run.log
        missing = [seq for seq in event.data.inputs if seq not in self._seqs]
        for seq in missing:  # an input that came during a turn which went otherwise
            self._accept(self._recording.events[seq - 1])
        inputs = tuple(self._seqs[seq] for seq in event.data.inputs)
        log.append(attrs.evolve(event.data, inputs=inputs), place=f"t{log.status.turns + 1}")
        if event.data.repeats is None:
            log.append(InputDelivered(inputs=inputs), place=log.status.turn.id if log.status.turn else None)
        while (turn := log.status.turn) is not None:
            await self._drive()
            if turn.status != "suspended" or not self._decide(turn.suspended):
                return

    def _accept(self, event: RecordedEvent) -> None:
        self._seqs[event.seq] = self._run.log.append(event.data)

    def _decide(self, waiting: tuple[str, ...]) -> bool:
        """Decide as was decided about the same call with the same arguments; False when nobody did."""
        log = self._run.log
        for id in waiting:
            request = log.status.approvals[id].request
            decision = self._decisions.get((request.call, _key(request.name, request.arguments)))
            if decision is None:
                return False
            log.append(attrs.evolve(decision, id=id), place=request.call.partition("c")[0])
        return True

    def _watch(self, event: RecordedEvent) -> None:
        if isinstance(event.data, (*_VOLATILE, *_PEOPLE)):
            return
        self._seen[event.type, event.place] += 1
        for late in self._due.get((event.type, event.place, self._seen[event.type, event.place]), ()):
            if isinstance(late.data, InputAccepted):
                self._accept(late)
            elif self._run.log.status.turn is not None and self._run.log.status.turn.cancel is None:
                self._run.log.append(late.data, place=self._run.log.status.turn.id)
                if self._run.cancel_scope is not None:
                    self._run.cancel_scope.cancel()


_ENDINGS = ("turn.completed", "turn.failed", "turn.cancelled")
