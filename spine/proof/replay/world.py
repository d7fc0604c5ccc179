"""The world outside a session, as its log recorded it (floor 13): time, model, tools, people, and where processes died.

Strategy: the loop, the hooks and the sections are the real ones. Everything that once came from outside comes from the
log, at the length that the log had then. Four rules make the new log equal to the old one, whatever the event loop:

1. A stimulus is delivered when the new log has the length that the old one had.
2. Inputs, cancels and decisions are delivered inside the append that reaches that length.
3. After `cancel.requested` only recorded results still arrive.
4. Every wait ends in an event, so no wait needs a clock.

An append may be too early for two stimuli. Before a cancel, pieces of an answer that were recorded with the closing
batch must have arrived, and a result that the hooks had let through by then must have passed them. Before a steering
input that a step did not take, that step must have begun. These are delivered from where the loop waits: for the
model, for a tool, for a retry, for a hook.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from spine import outcomes
from spine.errors import RouteUnknown, UsageError
from spine.events import (
    ApprovalDecided,
    CancelRequested,
    ContentAdded,
    HistoryCompacted,
    HookFailed,
    InputAccepted,
    MessageCommitted,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelChunks,
    ModelRequested,
    RecordedEvent,
    SessionRenamed,
    StepFailed,
    ToolCompleted,
    ToolProgress,
    ToolResolved,
    ToolRevised,
    TurnCancelled,
    TurnFailed,
    WireCaptured,
)
from spine.execution import Executed
from spine.llm.chunks import Chunk
from spine.llm.errors import Failure, ProviderError, provider_error
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.proof.replay.log import Recording
from spine.run import Run
from spine.values import CallId

__all__ = ["ProcessOver", "Unpassed", "World", "recreated", "response_of"]

STIMULI: Final = (InputAccepted, ApprovalDecided, SessionRenamed, CancelRequested)
"""What people and other processes do while a turn runs, or between turns."""
POLL_S: Final = 0.001
_NOT_RETURNED: Final = ("interrupted", "not_started")
_OURS: Final = frozenset(("hook_failed", "limit", "internal"))
"""Failures that no provider gives, beside a limit that could not be checked."""


class ProcessOver(Exception):
    """The replayed process has come to its recorded end, or to the first difference."""


class World:
    """What one process is given from outside. `end` is the last seq that it appended, as far as the log knows.

    `recorded` is asked about each event that the new log gets: a false answer ends the process.
    """

    def __init__(self, recording: Recording, end: int, recorded: Callable[[RecordedEvent], bool]) -> None:
        self.recording = recording
        self.end = end
        self._recorded = recorded
        self.run: Run | None = None
        self.scope = anyio.CancelScope()
        """Cancelled when the process is over."""
        self.is_over = False
        self.activity = 0
        """Grows with everything that happens, for whoever looks for a standstill."""
        self.holding = 0
        """Hooks that have returned and are held back until it is their time."""
        self._changed = anyio.Event()
        self._monotonic = 0.0
        self._fresh: set[CallId] = set()
        """Calls whose results are being appended just now, so that their hooks are still to be asked."""
        self._entered: set[CallId] = set()
        """Calls that are running, or have run."""
        self._in_hooks: set[CallId] = set()
        """Calls about whose results hooks are asked, or have been."""

    # ------------------------------------------------------------------------------------------------- the log's side

    @property
    def length(self) -> int:
        """How long the new log is."""
        return self.run.log.seq if self.run is not None else 0

    @property
    def next(self) -> RecordedEvent | None:
        """The recorded event that stands where the next one will; None at the end of the process."""
        return self.recording.at(self.length + 1) if self.length < self.end else None

    def observe(self, event: RecordedEvent) -> None:
        """An observer of the new log: compares, ends the process at its border, and delivers what comes next."""
        self.activity += 1
        if self.is_over:
            return
        if not self._recorded(event) or event.seq >= self.end:
            self.finish()
            return
        self._wake()
        is_result = isinstance(event.data, ToolCompleted)
        if is_result:
            self._fresh.add(event.data.call)
        self.deliver()
        if is_result:
            self._fresh.discard(event.data.call)

    def finish(self) -> None:
        """End the process here: nothing is appended any more, whatever still runs."""
        self.is_over = True
        if self.run is not None:
            self.run.log.close(ProcessOver("the replay has come to its end"))
        self._wake()
        self.scope.cancel()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def append(self, event: RecordedEvent) -> None:
        """Append a fact from outside as it was recorded."""
        assert self.run is not None
        self.run.log.append(event.data, place=event.place)

    def deliver(self, *, waits: bool = False, in_hook: bool = False) -> None:
        """Deliver the stimuli that come next. `waits`: the loop is waiting for model or clock.

        `in_hook`: the inputs of the step that begins have been taken already.
        """
        while self.run is not None and not self.is_over:
            event, length = self.next, self.length
            if event is None or not isinstance(event.data, STIMULI):
                return
            if not isinstance(event.data, CancelRequested):
                if in_hook or not self._comes_too_early(event):
                    self.append(event)
            elif self._is_time_to_cancel(event, waits):
                self.append(event)
                if self.run.cancel_scope is not None:
                    self.run.cancel_scope.cancel()
            if self.length == length:
                return

    def _comes_too_early(self, event: RecordedEvent) -> bool:
        """Whether the step that is about to begin would take an input that it did not take."""
        turn = self.run.log.status.turn if self.run is not None else None
        if turn is None or turn.phase not in ("step", "step_failed") or not isinstance(event.data, InputAccepted):
            return False
        for later in self.recording.events[event.seq : self.end]:
            if isinstance(later.data, CancelRequested):
                return False
            if not isinstance(later.data, STIMULI):
                begins = isinstance(later.data, ContentAdded | ModelRequested | StepFailed)
                revises = isinstance(later.data, ToolRevised) and self.run is not None and self.run.is_resumed
                in_hooks = revises or isinstance(later.data, HistoryCompacted)
                is_asked = begins or (turn.phase == "step" and in_hooks)
                return event.data.delivery == "steer" and is_asked
        return False

    def _is_time_to_cancel(self, cancel: RecordedEvent, waits: bool) -> bool:
        run = self.run
        assert run is not None
        turn = run.log.status.turn
        if run.cancel_scope is None or turn is None or waits or cancel.seq == self.end:
            return True
        if turn.phase == "answer":
            return False
        withheld, returned = self._after_cancel(cancel.seq)
        if not run.chain("spine_post_execute"):
            return returned <= self._entered
        is_passed = run.unrevised | self._fresh <= withheld | returned
        are_in_hooks = (withheld & self._entered) - returned <= self._in_hooks
        return is_passed and are_in_hooks and returned <= self._entered

    def _after_cancel(self, seq: int) -> tuple[set[CallId], set[CallId]]:
        """Calls whose results were withheld after a cancel, and those whose handlers had returned all the same."""
        withheld: set[CallId] = set()
        returned: set[CallId] = set()
        for event in self.recording.events[seq:]:
            if isinstance(event.data, ToolRevised):
                withheld.add(event.data.call)
            elif isinstance(event.data, ToolCompleted) and event.seq <= self.end:
                returned |= {event.data.call} if event.data.status not in _NOT_RETURNED else set()
            elif isinstance(event.data, TurnCancelled | TurnFailed):
                break
        return withheld, returned

    async def reach(self, length: int) -> None:
        """Return when the new log has this length. Raises `ProcessOver` when it never will."""
        while self.length < length:
            if self.is_over:
                raise ProcessOver("the replay has come to its end")
            await self._look_again()

    async def _look_again(self) -> None:
        """Wait for an append, or a moment when a cancel is due that has to wait for hooks."""
        changed = self._changed
        self.deliver()
        event = self.next
        if event is not None and isinstance(event.data, STIMULI):
            await anyio.sleep(POLL_S)
        else:
            await changed.wait()

    async def forever(self) -> None:
        """Wait for the end of the process, or for a cancel."""
        while not self.is_over:
            await self._look_again()
        await anyio.sleep_forever()

    # ------------------------------------------------------------------------------------------------------- the clock

    def now(self) -> int:
        """The recorded time of the event that is about to be appended."""
        event = self.next or self.recording.at(max(1, min(self.length, self.end))) or self.recording.events[0]
        return event.at

    def monotonic(self) -> float:
        """Seconds that pass only between the pieces of an answer."""
        if self.run is not None and self.run.log.status.turn is not None:
            self.deliver()  # the loop asks between two moves
        return self._monotonic

    async def sleep(self, delay_s: float) -> None:
        """A wait before a retry: over when the log says that the next attempt began."""
        event = self.next
        if event is None or isinstance(event.data, CancelRequested):
            self.deliver(waits=True)
            await self.forever()
        await checkpoint()

    async def pause(self, delay_s: float) -> None:
        """Nothing happens by itself."""
        await anyio.sleep_forever()

    # ------------------------------------------------------------------------------------------------------- the model

    def check(self, request: ModelRequest) -> None:
        """Refuse the request when it was refused."""
        event = self.next
        if event is not None and isinstance(event.data, StepFailed) and not _is_ours(event.data.failure):
            raise ProviderError(event.data.failure)

    def refuse_route(self) -> None:
        """Refuse a route that no request was made with, when that is what the log says."""
        event = self.next
        if event is None or not isinstance(event.data, StepFailed) or _is_ours(event.data.failure):
            return
        failure = event.data.failure
        if failure.category == "not_found":
            raise RouteUnknown(failure.message)
        if failure.category == "invalid_request":
            raise UsageError(failure.message)

    async def answer(self) -> AsyncGenerator[Chunk | ModelResponse, None]:
        """One attempt, piece by piece; ends as the recorded one did."""
        seq = self.length + 1
        while (event := self.recording.at(seq)) is not None and seq <= self.end:
            match event.data:
                case ModelChunks():
                    for piece in self._pieces(event.data):
                        yield piece
                    if not self._ends_attempt(seq + 1):
                        self._flush(seq)
                case MessageCommitted():
                    yield response_of(event.data)
                    return
                case ContentAdded() | WireCaptured():  # what went over the wire, of a model that told it
                    self.append(event)
                case CancelRequested():
                    for late in self._late_pieces(seq):
                        yield late
                    self.deliver(waits=True)
                    await self.forever()
                case _ if not isinstance(event.data, STIMULI):
                    raise self._failure(event)
            seq += 1
        await self.forever()

    def _ends_attempt(self, seq: int) -> bool:
        event = self.recording.at(seq)
        ends = (MessageCommitted, ModelAttemptFailed, MessageInterrupted, StepFailed, TurnFailed)
        return event is not None and seq <= self.end and isinstance(event.data, ends)

    def _flush(self, seq: int) -> None:
        """Record the pieces so far, unless their number or time has done that already."""
        if self.run is not None and self.run.flow is not None and self.length < seq:
            self.run.flow.flush()

    def _pieces(self, data: ModelChunks) -> Iterator[Chunk]:
        began = self._monotonic = self._monotonic + 1.0
        for number, chunk in enumerate(data.chunks):
            offset = data.offsets[number] if data.offsets else 0
            self._monotonic = began + (offset + 0.5) / 1000 if offset else began
            yield chunk

    def _late_pieces(self, seq: int) -> Iterator[Chunk]:
        """Pieces that had arrived before a cancel and were recorded after it."""
        for event in self.recording.events[seq : self.end]:
            if isinstance(event.data, ModelChunks):
                yield from self._pieces(event.data)
            elif not isinstance(event.data, STIMULI):
                return

    def _failure(self, event: RecordedEvent) -> Exception:
        if isinstance(event.data, ModelAttemptFailed):
            return ProviderError(event.data.failure)
        if isinstance(event.data, MessageInterrupted | TurnFailed):
            for failed in self.recording.following(event.seq, self.end, TurnFailed):
                return recreated(failed.data.failure.message)
        return provider_error("protocol_error", f"the log has {event.type} where an answer was asked for")

    # ------------------------------------------------------------------------------------------------------- the tools

    async def execute(self, tool: Any, arguments: Any, context: Any, **_: Any) -> Executed:
        """A call's recorded progress and outcome, each at its recorded place; its handler does not run."""
        self._entered.add(context.call)
        for event in self.recording.of_call(context.call, self.length, self.end):
            match event.data:
                case ToolProgress(text=text, data=data):
                    await self.reach(event.seq - 1)
                    context.progress(text, data)
                case ToolResolved(decision=decision):  # this is the tool's own check after a crash
                    return self._checked(event, decision == "reconciled")
                case ToolCompleted() if event.data.status != "interrupted":
                    with anyio.CancelScope(shield=True):  # it came back, also when a cancel came before it
                        await self.reach(self.recording.before(event))
                    return Executed(event.data.outcome, self.recording.overflow(event))
        await self.forever()
        raise AssertionError("a wait for ever has ended")

    def _checked(self, resolved: RecordedEvent, is_known: bool) -> Executed:
        calls = self.recording.of_call(resolved.data.call, resolved.seq, self.end)
        completed = next((event for event in calls if isinstance(event.data, ToolCompleted)), None)
        if not is_known or completed is None:
            return Executed(outcomes.interrupted("crashed"))
        return Executed(completed.data.outcome, self.recording.overflow(completed))

    # ------------------------------------------------------------------------------------------------------- the hooks

    def gated(self, hook: Callable[..., Awaitable[Any]], *, in_step: bool) -> Callable[..., Awaitable[Any]]:
        """A hook before which is delivered what is due; `in_step`: the step's inputs have been taken by then."""

        async def asked(*arguments: Any) -> Any:
            self.deliver(in_hook=in_step)
            turn = self.run.log.status.turn if self.run is not None else None
            if (
                turn is not None
                and turn.cancel is not None
                and not isinstance(self.next and self.next.data, HookFailed)
            ):
                await checkpoint()  # however little it waits today, it was cut
            return await hook(*arguments)

        return asked

    def held(self, hook: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The outermost `spine_post_execute`, given the call first: it returns no earlier than it did."""

        async def asked(call: Any, *arguments: Any) -> Any:
            self._in_hooks.add(call.id)
            self.deliver(in_hook=self.run is not None and self.run.is_resumed)
            try:
                result = await hook(*arguments)
                await self._hold(call.id, is_silent=any(result is each for each in arguments))
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):  # results are withheld in the recorded order
                    for event in self._revisions(call.id):
                        await self.reach(event.seq - 1 if self.length < event.seq <= self.end else 0)
                raise
            return result

        return asked

    async def _hold(self, call: CallId, *, is_silent: bool) -> None:
        self.holding += 1
        try:
            await self._hold_back(call, is_silent=is_silent)
        finally:
            self.holding -= 1

    async def _hold_back(self, call: CallId, *, is_silent: bool) -> None:
        revised = next(self._revisions(call), None)
        if revised is None or revised.seq > self.end:
            if not is_silent and self._ends_in_group():
                await self.forever()  # its process died before it returned
        elif not revised.data.patches and self._cancels_before(revised.seq):
            await self.forever()  # it was cut, so that its result was withheld
        elif revised.data.patches:
            await self.reach(self.recording.before(revised))

    def _revisions(self, call: CallId) -> Iterator[RecordedEvent]:
        later = self.recording.of_call(call, self.length, self.recording.length)
        return (event for event in later if isinstance(event.data, ToolRevised))

    def _ends_in_group(self) -> bool:
        """Whether the process ended while the calls of this message were running."""
        running = (ToolProgress, ToolCompleted, ToolRevised, *STIMULI)
        return all(isinstance(event.data, running) for event in self.recording.events[self.length : self.end])

    def _cancels_before(self, seq: int) -> bool:
        return any(isinstance(event.data, CancelRequested) for event in self.recording.events[self.length : seq])

    def overdue(self) -> tuple[str, str] | None:
        """The hook that was cut at this place because it did not return."""
        event = self.next
        if event is None or self.run is None:
            return None
        match event.data:
            case StepFailed(failure=failure) if "hook" in failure.details:
                return str(failure.details["plugin"]), str(failure.details["hook"])
            case HookFailed(plugin=plugin, hook=hook, error=error) if "did not return from" in error:
                return plugin, hook
        return None


class Unpassed(set[CallId]):
    """A run's `unrevised` calls; when hooks have let one through, what was waiting for that is delivered."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def discard(self, element: CallId) -> None:  # type: ignore[override]  # of a wider type in its stub
        """The hooks are done with a call."""
        super().discard(element)
        self._world.deliver()


def _is_ours(failure: Failure) -> bool:
    """Whether a replay comes to a failure by itself."""
    return failure.category in _OURS or "limit" in failure.details


def response_of(data: MessageCommitted) -> ModelResponse:
    """The response of which a committed message was made."""
    origin = data.message.origin
    route_model = origin.route.partition(":")[2] if origin is not None and origin.route else None
    return ModelResponse(
        message=data.message,
        stop_reason=data.stop_reason,
        raw_stop_reason=data.raw_stop_reason,
        usage=data.usage,
        model=(origin.model or route_model) if origin is not None else None,
        response_id=origin.response_id if origin is not None else None,
        metadata=data.metadata,
    )


def recreated(message: str) -> Exception:
    """An error that is worded as the recorded one: `ScriptMismatch: …`."""
    name, colon, text = message.partition(": ")
    if not colon or not name.isidentifier():
        name, text = "UsageError", message
    error: Exception = type(name, (UsageError,), {})(text)
    return error
