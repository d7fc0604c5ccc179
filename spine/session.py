"""A session as its user holds it (floor 12): run, stream, submit, steer, cancel, decide, and look."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import anyio
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint_if_cancelled

from spine import projectors
from spine.agent import Agent, Limits
from spine.approving import Decision, decided
from spine.budgets import Time, as_overrides, check_price, limits_of
from spine.errors import SessionBusy, TurnFailed, UsageError
from spine.events import (
    AgentFact,
    CancelRequested,
    Delivery,
    InputAccepted,
    InputDelivered,
    RecordedEvent,
    Repeats,
    SessionCreated,
    SessionRenamed,
    SessionResumed,
    TurnStarted,
)
from spine.host import Host
from spine.inbox import Inbox
from spine.inputs import InboxEvent, Input, checked_optional_text, checked_text, clean_message, input_messages
from spine.llm.chunks import Chunk
from spine.llm.errors import Failure
from spine.llm.request import Route
from spine.log import SessionLog, Synchronised
from spine.loop import run_turn
from spine.messages import Message
from spine.outputs import output_schema
from spine.portability import Portability, portability
from spine.projectors.model_history import History
from spine.projectors.status import TurnState
from spine.run import Run
from spine.scope import Scope
from spine.store import Claim
from spine.stream import TurnStream, watched
from spine.turn import Turn, make_turn, with_output
from spine.values import EMPTY_OBJECT, Digest, JsonObject, SessionId, freeze_object
from spine.wording import WORDING_VERSION

if TYPE_CHECKING:  # most sessions run and are never shown
    from spine.projectors import Transcript, UsageReport


class Session:
    """One conversation. At most one turn runs at a time; every method that appends belongs to the runtime's loop."""

    def __init__(self, run: Run, host: Host, contract: Digest, reference: str | None, parent: str | None) -> None:
        self._run = run
        self._host = host
        self._contract = contract
        self._reference = reference
        self._parent = parent
        self._is_running = False
        self._announced = False
        self._output: Any = None
        """The type that the turn begun last was asked for."""
        self._time: Time | None = None
        """The running turn's limit on time."""
        self._inbox = Inbox(run.log, self._append)

    # ------------------------------------------------------------------------------------------------- looking

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._run.log.session

    @property
    def agent(self) -> Agent:
        """The agent that it was opened with."""
        return self._run.agent

    @property
    def log(self) -> SessionLog:
        """The session's log."""
        return self._run.log

    @property
    def scope(self) -> Scope:
        """The scope of its own, which holds the agent's tools and instructions while it is open."""
        return self._run.scope

    @property
    def turn(self) -> Turn | None:
        """The open turn, or else the last one; None before the first."""
        state = self._status.turn or self._status.last
        return None if state is None else self._make_turn(state)

    @property
    def is_running(self) -> bool:
        """Whether a turn runs in this process now."""
        return self._is_running

    @property
    def _status(self) -> Any:
        return self._run.log.status

    def history(self) -> History:
        """The messages a model would be shown now."""
        return self._run.log.history

    def transcript(self) -> "Transcript":
        """What a person saw, committed events only."""
        return self._run.log.project(projectors.SessionTranscript())

    def usage(self) -> "UsageReport":
        """Tokens and cost by model and step."""
        return self._run.log.project(projectors.SessionUsage())

    def portability(self, route: str | Route) -> Portability:
        """Whether the session could go on with another model, and what would be lost; nothing is sent or recorded.

        `route` is `provider:name`, an alias, or a route. Raises `RouteUnknown` or `KeyMissing`, as `run` would.
        """
        return portability(self._run, self._host.resolve_model(route) if isinstance(route, str) else route)

    def follow(self, after: int = 0) -> AsyncIterator[RecordedEvent | Synchronised]:
        """Committed events after `after`, then each as it comes; see `LogReader.follow`."""
        return self._run.log.follow(after)

    def watch(self, watcher: Callable[[Chunk], None]) -> Callable[[], None]:
        """Call `watcher` with each piece of an answer until the returned function is called, or until it raises."""
        self._run.on_chunk.append(watcher)
        return partial(self._unwatch, watcher)

    def _unwatch(self, watcher: Callable[[Chunk], None]) -> None:
        self._run.on_chunk = [other for other in self._run.on_chunk if other != watcher]

    def offer(self, agent: Agent, deps: Any, scope: Any) -> None:
        """The open session is asked for again: new `deps` are taken, another agent or scope is refused."""
        name = scope if isinstance(scope, str) else getattr(getattr(scope, "scope", None), "id", None)
        if agent != self.agent:
            raise UsageError(f'session "{self.id}" is open with another agent, "{self.agent.name}"; close it first')
        if name is not None and name != self._parent:
            raise UsageError(f'session "{self.id}" is open in scope {self._parent}, not {name}')
        if deps is not None:
            self._run.deps = deps

    def tick(self) -> None:
        """Called by the runtime now and then while a turn runs: records late chunks, stops late hooks and turns."""
        if self._run.flow is not None:
            self._run.flow.flush_if_due()
        if self._time is not None and (failure := self._time.used_up(self._status.turn)) is not None:
            self._ask_to_stop("limit", failure=failure)
        overdue = self._run.watch.overdue()
        if overdue is not None and self._run.cancel_scope is not None:
            self._run.watch.cut = overdue
            self._run.cancel_scope.cancel()

    # ------------------------------------------------------------------------------------------------- running

    async def run(
        self,
        input: Input,
        *,
        model: str | None = None,
        output: Any = None,
        limits: Limits | None = None,
        check: bool = True,
    ) -> Turn:
        """Run a turn to its end, or until it waits for people.

        Raises `TurnFailed` with `.turn` when it failed, unless `check` is False. `session.cancel()` makes it return a
        cancelled turn; a cancellation of the caller's own task goes on after the closing facts are written. Route, key
        and the price that a limit on cost needs are looked for first: what is missing raises with nothing written.
        Inputs that were accepted earlier have their turns before it.
        """
        messages = input_messages(input)
        await self._work()
        overrides = self._overrides(model, output, limits)
        return await self._drive(lambda: self._start_turn(messages, overrides), check)

    async def _drive(self, begin: Callable[[], None] | None = None, check: bool = True) -> Turn:
        """Run the turn that `begin` starts, or else the open one. Nobody else runs one in this session meanwhile."""
        await checkpoint_if_cancelled()
        self._run.log.check_open()
        if begin is not None:
            self.check_idle()
        self._host.entered(self)
        self._is_running = True
        try:
            if begin is not None:
                begin()
            state: TurnState = self._status.turn
            self._time = Time.of(limits_of(self.agent, state.started.overrides), self._run.clock)
            await run_turn(self._run)
        finally:
            self._is_running = False
            self._host.left(self)
            if self._queued() and self._status.turn is None and not self._run.log.is_closed:
                self._host.spawn(self._work)  # also when this turn's caller was cancelled
        turn = self._make_turn(state)
        if "output" in state.started.overrides and turn.status == "completed":
            types = (self._output, self._run.agent.output)  # the one asked for here; after a restart the agent's
            turn = with_output(turn, types, state.started.overrides["output"])
        if check:
            self._check_turn(turn)
        return turn

    def _check_turn(self, turn: Turn) -> None:
        if turn.status == "failed":
            text = turn.error.message if turn.error is not None else ""
            raise TurnFailed(f"turn {turn.id} failed: {text}", turn=turn, hint=f"spine log {self.id}")

    def _make_turn(self, state: TurnState) -> Turn:
        return make_turn(self._status, state, self._run.log.head, self._run.clock.now(), self.agent)

    def _overrides(self, model: str | None = None, output: Any = None, limits: Limits | None = None) -> JsonObject:
        overrides: dict[str, Any] = {}
        if model is not None:
            overrides["model"] = str(self._host.resolve_model(model))
        if limits is not None:
            overrides |= as_overrides(limits)
        self._output = output = self._run.agent.output if output is None else output
        if output is not None:
            overrides["output"] = output_schema(output)
        return freeze_object(overrides)

    def _start_turn(
        self,
        messages: Sequence[Message] = (),
        overrides: JsonObject = EMPTY_OBJECT,
        *,
        queued: tuple[int, ...] = (),
        repeats: Repeats | None = None,
    ) -> None:
        self._resolve(overrides)
        if overrides:  # too large to be recorded? then nothing is
            self._run.log.codec.encode_event(TurnStarted(overrides=overrides))
        inputs = (*queued, *self._accept(messages))
        place = f"t{self._status.turns + 1}"
        if repeats is not None:
            inputs = self._status.last.started.inputs
        delivered = () if repeats is not None else (InputDelivered(inputs=inputs),)
        self._append(TurnStarted(inputs=inputs, overrides=overrides, repeats=repeats), *delivered, place=place)

    def _resolve(self, overrides: Mapping[str, Any]) -> None:
        """Raise `RouteUnknown`, `KeyMissing` or `BudgetUnknown` now rather than in the middle of a turn."""
        route = Route.parse(overrides["model"]) if "model" in overrides else self._run.route
        target = self._run.routes.resolve(route, self._run.scope)
        check_price(limits_of(self.agent, overrides), route, target.prices)

    def check_idle(self) -> None:
        """Raise `SessionBusy` while a turn is open."""
        turn = self._status.turn
        if self._is_running:
            runs = f'session "{self.id}" runs turn {turn.id if turn else ""}'
            raise SessionBusy(runs, hint="session.submit or steer")
        if turn is None:
            return
        known = f'turn {turn.id} of session "{self.id}"'
        if turn.status == "suspended":
            waiting = ", ".join(turn.suspended)
            raise SessionBusy(f"{known} waits for {waiting}", hint=f"spine approve {turn.suspended[0]}")
        raise SessionBusy(f"{known} was not finished", hint=f"spine resume {self.id}")

    def _accept(
        self, messages: Sequence[Message], delivery: Delivery = "queue", key: str | None = None
    ) -> tuple[int, ...]:
        """Append all messages as inputs, or none when one is refused; their seqs."""
        events = []
        for message in messages:
            clean, is_changed = clean_message(self._run.log.codec, message)
            events.append(InputAccepted(message=clean, delivery=delivery, key=key, surrogates_replaced=is_changed))
        last = self._append(*events) if events else 0
        return tuple(range(last - len(events) + 1, last + 1))

    def _append(self, *events: Any, place: str | None = None, consumed: Sequence[int] = ()) -> int:
        """Append; the session's own first event goes before whatever comes first."""
        first = () if self._announced else self._announcement()
        if self._run.secrecy.is_on:
            events = tuple(map(self._run.secrecy.event, events))
        seq = self._run.log.append(*first, *events, place=place, consumed=consumed)
        self._announced = True
        return seq

    def _announcement(self) -> tuple[Any, ...]:
        run, fact = self._run, AgentFact(name=self.agent.name, contract=self._contract, reference=self._reference)
        if self._status.created is None:
            form: dict[str, Any] = {"wording": WORDING_VERSION, "origins": True, "metadata": run.metadata}
            return (SessionCreated(agent=fact, scope=self._parent, versions=self._host.versions, **form),)
        changes = () if self._status.contract == self._contract else ("contract",)
        if changes or self._status.turn is not None:
            return (SessionResumed(agent=fact, versions=self._host.versions, changes=changes),)
        return ()

    @asynccontextmanager
    async def stream(self, input: Input, **options: Any) -> AsyncIterator[TurnStream]:
        """Run a turn and watch it: iterate over events, or over `.text()`. Leaving the block early cancels the turn."""
        messages = input_messages(input)
        await self._work()
        overrides = self._overrides(options.get("model"), options.get("output"), options.get("limits"))

        async def drive(task_status: TaskStatus[None]) -> Turn:
            def begin() -> None:
                self._start_turn(messages, overrides)
                task_status.started()

            return await self._drive(begin, check=False)

        stream = TurnStream(self._run.log)
        stop_watching = self.watch(stream.take)
        try:
            async with watched(stream, drive, partial(self.cancel, "the stream was left")):
                yield stream
        finally:
            stop_watching()
        if options.get("check", True) and stream.turn is not None:
            self._check_turn(stream.turn)

    # -------------------------------------------------------------------------------------- input while running

    async def submit(self, input: Input, *, delivery: Delivery = "queue", key: str | None = None) -> int:
        """Accept an input durably and return its seq at once; the turn runs in the background.

        While a turn runs, `queue` waits for the next one, `steer` joins at the next step, `interrupt` cancels first. An
        input whose `key` was accepted before changes nothing, and its seq is returned again.
        """
        if delivery not in get_args(Delivery):
            raise UsageError(f"delivery is {delivery!r:.80}; it must be one of {', '.join(get_args(Delivery))}")
        key = checked_optional_text("key", key)
        if key is not None and key in self._status.keys:
            return int(self._status.keys[key])
        self._resolve({})
        seq = self._accept(input_messages(input), delivery, key)[-1]
        await self._attend(delivery)
        return seq

    async def _attend(self, delivery: Delivery) -> None:
        """Make an accepted input durable and let it be taken: by the running turn, the next one, or after a cancel."""
        # In one batch with the input: a process that dies between the two would leave a turn that nobody stops.
        is_stopped = delivery == "interrupt" and self._ask_to_stop("interrupted by a new input")
        await self._run.log.commit()
        if is_stopped and not self._is_running:
            await self._drive(check=False)
        if not self._is_running:
            self._host.spawn(self._work)

    async def steer(self, input: Input) -> int:
        """Give the running turn an input, which it takes at its next step."""
        return await self.submit(input, delivery="steer")

    def _queued(self) -> tuple[int, ...]:
        return tuple(self._status.waiting)

    async def _work(self) -> None:
        """Run turns for queued inputs until none is left, or the session waits for a person."""
        while (queued := self._queued()[:1]) and not self._is_running and self._status.turn is None:
            await self._drive(partial(self._start_turn, overrides=self._overrides(), queued=queued), check=False)

    # ------------------------------------------------------------------------------------------------- stopping

    async def cancel(self, cause: str = "cancelled", *, by: str | None = None) -> None:
        """Ask the open turn to stop; nothing happens without one. Returns when the request is durable."""
        if not self._ask_to_stop(cause, by):
            return
        if self._is_running:
            await self._run.log.commit()
        else:
            await self._drive(check=False)

    def _ask_to_stop(self, cause: str, by: str | None = None, failure: Failure | None = None) -> bool:
        """Record that the open turn must stop, and stop what runs; False when there is none, or it was asked before."""
        cause, by = checked_text("cause", cause), checked_optional_text("by", by)
        turn = self._status.turn
        if turn is None or turn.cancel is not None:
            return False
        self._append(CancelRequested(cause=cause, by=by, failure=failure), place=turn.id)
        if self._run.cancel_scope is not None:
            self._run.cancel_scope.cancel()
        return True

    async def resume(self, *, check: bool = True) -> Turn | None:
        """Go on with a turn that was not finished, or else with an accepted input that no turn took yet.

        None when there is neither. A suspended turn stays suspended.
        """
        state: TurnState | None = self._status.turn
        if self._is_running:
            raise SessionBusy(f'turn {state.id if state else ""} of session "{self.id}" runs already')
        if state is None:
            queued = self._queued()[:1]
            begin = partial(self._start_turn, overrides=self._overrides(), queued=queued)
            return await self._drive(begin, check) if queued else None
        self._resolve(state.started.overrides)
        self._run.is_resumed = True
        if not self._announced:
            self._append(place=None)
        return await self._drive(check=check)

    async def retry(self, *, keep_partial: bool = False, check: bool = True) -> Turn:
        """Run the input of the last turn again, when that failed or was cancelled, as a new turn.

        The earlier one leaves history and stays in the transcript; with `keep_partial` its text so far is gone on from.
        """
        self.check_idle()
        last = self._status.last
        if last is None or last.status not in ("failed", "cancelled"):
            state = "there is no turn yet" if last is None else f"turn {last.id} {last.status}"
            raise UsageError(f'nothing to retry in session "{self.id}": {state}')
        repeats = Repeats(turn=last.id, keep_partial=bool(keep_partial))
        begin = partial(self._start_turn, overrides=last.started.overrides, repeats=repeats)
        return await self._drive(begin, check=check)

    # ------------------------------------------------------------------------------------------------- approvals

    async def approve(self, id: str, *, by: str, reason: str | None = None, channel: str = "session.approve") -> Turn:
        """Allow a waiting call and go on with the turn; returns the turn when it completed or waits again."""
        return await self._decide(id, "approved", by, reason, channel)

    async def deny(self, id: str, *, by: str, reason: str | None = None, channel: str = "session.deny") -> Turn:
        """Decline a waiting call and go on with the turn; the model is told."""
        return await self._decide(id, "denied", by, reason, channel)

    async def _decide(self, id: str, decision: Decision, by: str, reason: str | None, channel: str) -> Turn:
        self._run.routes.resolve(self._run.route, self._run.scope)  # what follows the decision needs its model
        event, place = decided(self._status, self.id, id, decision, by=by, reason=reason, channel=channel)
        self._append(event, place=place)
        turn = self._status.turn
        await self._run.log.commit()
        if turn.status != "open" or self._is_running:
            return self._make_turn(turn)
        return await self._drive()

    # ------------------------------------------------------------------------------------------------- inbox

    async def take_inbox(self) -> None:
        """Turn requests from other processes into events, each exactly once, and act on them."""
        await self._inbox.take(self._act_on)

    async def _act_on(self, event: InboxEvent) -> None:
        if isinstance(event, CancelRequested) and self._run.cancel_scope is not None:
            self._run.cancel_scope.cancel()
        if isinstance(event, InputAccepted):
            await self._attend(event.delivery)
            return
        await self._run.log.commit()
        if not self._is_running and (turn := self._status.turn) is not None and turn.status == "open":
            self._host.spawn(self._resume_quietly)

    async def _resume_quietly(self) -> None:
        if not self._is_running:
            await self.resume(check=False)

    async def close(self) -> None:
        """Give the session up: what is pending is committed, and another process may own it at once; idempotent.

        A running turn is cancelled first; a suspended one stays suspended.
        """
        if self._is_running:
            await self.cancel("the session was closed")
            while self._is_running:
                await anyio.sleep(0.002)
        await self._host.give_up(self)

    async def fork(self, id: str, *, seq: int | None = None) -> "Session":
        """The session `id` that shares this one's events up to `seq`, by default all, and goes on with the same agent.

        What is open there is closed in it as by a cancel. Raises `SessionExists`, and `UsageError` without such a seq.
        """
        await self._run.log.commit()
        await self._host.fork(self.id, id, seq=seq)
        run, reference = self._run, self._reference
        return await self._host.session(  # type: ignore[no-any-return]
            id, run.agent, deps=run.deps, variables=run.variables, reference=reference
        )

    async def reload(self, claim: Claim) -> None:
        """Go on from the log as it is stored now."""
        await self._run.reload(claim)
        if self._queued():
            self._host.spawn(self._work)

    async def rename(self, title: str) -> None:
        """Give the session a title."""
        self._append(SessionRenamed(title=checked_text("title", title)))
        await self._run.log.commit()
