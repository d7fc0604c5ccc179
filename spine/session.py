"""A session as its user holds it (floor 12): run, stream, submit, steer, cancel, decide, and look."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

import anyio
import attrs

from spine.agent import Agent, Limits
from spine.errors import ApprovalUnknown, SessionBusy, TurnFailed, UsageError, ValueRefused
from spine.events import (
    AgentFact,
    ApprovalDecided,
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
from spine.inputs import Input, clean_message, input_messages
from spine.llm.chunks import Chunk
from spine.llm.request import Route
from spine.log import SessionLog, Synchronised
from spine.loop import run_turn
from spine.messages import Message
from spine.outputs import output_schema, parse_output
from spine.projectors.model_history import History
from spine.projectors.projector import fold
from spine.projectors.status import TurnState
from spine.projectors.transcript import SessionTranscript, Transcript
from spine.projectors.usage import SessionUsage, UsageReport
from spine.run import Run
from spine.store import InboxEntry
from spine.stream import TurnStream
from spine.turn import Turn, make_turn
from spine.values import EMPTY_OBJECT, Digest, JsonObject, SessionId, clean_text, decode, freeze_object
from spine.wording import WORDING_VERSION


class Host(Protocol):
    """What a session needs of its runtime."""

    @property
    def versions(self) -> JsonObject:
        """Version of the runtime and of each loaded plugin."""

    def resolve_model(self, model: str) -> Route:
        """A route from `provider:name` or an alias."""

    def spawn(self, work: Callable[[], Any]) -> None:
        """Run an async function in the runtime's task group."""

    def entered(self, session: "Session") -> None:
        """A turn begins to run."""

    def left(self, session: "Session") -> None:
        """It stopped running."""


class Session:
    """One conversation. At most one turn runs at a time; every method that appends belongs to the runtime's loop."""

    def __init__(self, run: Run, host: Host, contract: Digest, reference: str | None, scope: str | None) -> None:
        self._run = run
        self._host = host
        self._contract = contract
        self._reference = reference
        self._scope = scope
        self._is_running = False
        self._announced = False

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

    def transcript(self) -> Transcript:
        """What a person saw, committed events only."""
        return fold(SessionTranscript(), self._run.log.read())

    def usage(self) -> UsageReport:
        """Tokens and cost by model and step."""
        return fold(SessionUsage(), self._run.log.read())

    def follow(self, after: int = 0) -> AsyncIterator[RecordedEvent | Synchronised]:
        """Committed events after `after`, then each as it comes; see `LogReader.follow`."""
        return self._run.log.follow(after)

    def watch(self, watcher: Callable[[Chunk], None]) -> Callable[[], None]:
        """Call `watcher` with each piece of an answer as it arrives; the returned function ends that."""
        self._run.on_chunk.append(watcher)
        return lambda: self._run.on_chunk.remove(watcher)

    def tick(self) -> None:
        """Called by the runtime now and then while a turn runs: late chunks are recorded, late hooks stopped."""
        if self._run.flow is not None:
            self._run.flow.flush_if_due()
        if self._run.watch.overdue() is not None and self._run.cancel_scope is not None:
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
        cancelled turn; a cancellation of the caller's own task goes on after the closing facts are written. Route and
        key are checked first: an unknown model or a missing key raises with nothing written.
        """
        await self._start_turn(input_messages(input), self._overrides(model, output, limits))
        return await self._drive(output, check)

    async def _drive(self, output: Any = None, check: bool = True) -> Turn:
        state: TurnState = self._status.turn
        self._is_running = True
        self._host.entered(self)
        try:
            await run_turn(self._run)
        finally:
            self._is_running = False
            self._host.left(self)
        turn = self._make_turn(state)
        if output is not None and turn.status == "completed":
            turn = self._with_output(turn, output)
        if turn.status == "failed" and check:
            assert turn.error is not None
            raise TurnFailed(f"turn {turn.id} failed: {turn.error.message}", turn=turn, hint=f"spine log {self.id}")
        if self._queued() and turn.status != "suspended":
            self._host.spawn(self._work)
        return turn

    def _with_output(self, turn: Turn, output: Any) -> Turn:
        try:
            return attrs.evolve(turn, output=parse_output(output, turn.text))
        except ValueRefused as error:
            return attrs.evolve(turn, warnings=(*turn.warnings, f"the answer is no {output}: {error.message}"))

    def _make_turn(self, state: TurnState) -> Turn:
        return make_turn(self._status, state, self._run.log.head, self._run.clock.now())

    def _overrides(self, model: str | None, output: Any, limits: Limits | None) -> JsonObject:
        overrides: dict[str, Any] = {}
        if model is not None:
            overrides["model"] = str(self._host.resolve_model(model))
        if limits is not None:
            overrides["steps"] = limits.steps
        if output is None:
            output = self._run.agent.output
        if output is not None:
            overrides["output"] = output_schema(output)
        return freeze_object(overrides)

    async def _start_turn(
        self,
        messages: Sequence[Message] = (),
        overrides: JsonObject = EMPTY_OBJECT,
        *,
        queued: tuple[int, ...] = (),
        repeats: Repeats | None = None,
    ) -> None:
        self._check_idle()
        route = Route.parse(overrides["model"]) if "model" in overrides else self._run.route
        self._run.routes.resolve(route, self._run.scope)
        accepted = tuple(self._accept(message) for message in messages)
        place = f"t{self._status.turns + 1}"
        inputs = (*queued, *accepted)
        if repeats is not None:
            inputs = self._status.last.started.inputs
        self._append(TurnStarted(inputs=inputs, overrides=overrides, repeats=repeats), place=place)
        if repeats is None:
            self._append(InputDelivered(inputs=inputs), place=place)
        await self._run.log.commit()

    def _check_idle(self) -> None:
        turn = self._status.turn
        if self._is_running:
            raise SessionBusy(
                f'session "{self.id}" runs turn {turn.id if turn else ""}', hint="session.submit or steer"
            )
        if turn is None:
            return
        if turn.status == "suspended":
            waiting = ", ".join(turn.suspended)
            raise SessionBusy(
                f'turn {turn.id} of session "{self.id}" waits for {waiting}', hint=f"spine approve {turn.suspended[0]}"
            )
        raise SessionBusy(f'turn {turn.id} of session "{self.id}" was not finished', hint=f"spine resume {self.id}")

    def _accept(self, message: Message, delivery: Delivery = "queue", key: str | None = None) -> int:
        clean, replaced = clean_message(self._run.log.codec, message)
        event = InputAccepted(message=clean, delivery=delivery, key=key, surrogates_replaced=replaced)
        return self._append(event)

    def _append(self, *events: Any, place: str | None = None, consumed: Sequence[int] = ()) -> int:
        """Append; the session's own first event goes before whatever comes first."""
        first = self._announcement()
        return self._run.log.append(*first, *events, place=place, consumed=consumed)

    def _announcement(self) -> tuple[Any, ...]:
        if self._announced:
            return ()
        self._announced = True
        run, fact = self._run, AgentFact(name=self.agent.name, contract=self._contract, reference=self._reference)
        if self._status.created is None:
            created = SessionCreated(
                agent=fact,
                scope=self._scope,
                versions=self._host.versions,
                wording=WORDING_VERSION,
                metadata=run.metadata,
            )
            return (created,)
        changes = () if self._status.contract == self._contract else ("contract",)
        if changes or self._status.turn is not None:
            return (SessionResumed(agent=fact, versions=self._host.versions, changes=changes),)
        return ()

    @asynccontextmanager
    async def stream(self, input: Input, **options: Any) -> AsyncIterator[TurnStream]:
        """Run a turn and watch it: iterate over events, or over `.text()`. Leaving the block early cancels the turn."""
        await self._start_turn(
            input_messages(input),
            self._overrides(options.pop("model", None), options.get("output"), options.pop("limits", None)),
        )
        stream = TurnStream(self._run.log)
        self._run.on_chunk.append(stream.take)

        async def drive() -> None:
            try:
                stream.turn = await self._drive(options.get("output"), check=False)
            finally:
                stream.finish()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(drive)
                try:
                    yield stream
                finally:
                    if stream.turn is None:
                        await self.cancel("the stream was left")
        finally:
            self._run.on_chunk.remove(stream.take)
        if options.get("check", True) and stream.turn is not None and stream.turn.status == "failed":
            turn = stream.turn
            raise TurnFailed(f"turn {turn.id} failed: {turn.error.message if turn.error else ''}", turn=turn)

    # -------------------------------------------------------------------------------------- input while running

    async def submit(self, input: Input, *, delivery: Delivery = "queue", key: str | None = None) -> int:
        """Accept an input durably and return its seq at once; the turn runs in the background.

        While a turn runs, `queue` waits for the next one, `steer` joins at the next step, `interrupt` cancels first. An
        input whose `key` was accepted before changes nothing.
        """
        if key is not None and key in self._status.keys:
            return self._run.log.seq
        self._run.routes.resolve(self._run.route, self._run.scope)
        seq = [self._accept(message, delivery, key) for message in input_messages(input)][-1]
        await self._run.log.commit()
        if delivery == "interrupt" and self._status.turn is not None:
            await self.cancel("interrupted by a new input")
        if not self._is_running:
            self._host.spawn(self._work)
        return seq

    async def steer(self, input: Input) -> int:
        """Give the running turn an input, which it takes at its next step."""
        return await self.submit(input, delivery="steer")

    def _queued(self) -> tuple[int, ...]:
        return tuple(self._status.waiting)

    async def _work(self) -> None:
        """Run turns for queued inputs until none is left, or the session waits for a person."""
        while (queued := self._queued()) and not self._is_running and self._status.turn is None:
            await self._start_turn(queued=queued[:1])
            await self._drive(check=False)

    # ------------------------------------------------------------------------------------------------- stopping

    async def cancel(self, cause: str = "cancelled", *, by: str | None = None) -> None:
        """Ask the open turn to stop; nothing happens without one. Returns when the request is durable."""
        turn = self._status.turn
        if turn is None or turn.cancel is not None:
            return
        self._append(CancelRequested(cause=cause, by=by), place=turn.id)
        if self._run.cancel_scope is not None:
            self._run.cancel_scope.cancel()
        if self._is_running:
            await self._run.log.commit()
        else:
            await self._drive(check=False)

    async def resume(self, *, check: bool = True) -> Turn | None:
        """Go on with a turn that was not finished; None when there is none. A suspended one stays suspended."""
        state = self._status.turn
        if state is None:
            return None
        if self._is_running:
            raise SessionBusy(f'turn {state.id} of session "{self.id}" runs already')
        self._run.routes.resolve(self._run.route, self._run.scope)
        self._run.is_resumed = True
        if not self._announced:
            self._append(place=None)
        return await self._drive(check=check)

    async def retry(self, *, keep_partial: bool = False, check: bool = True) -> Turn:
        """Run the input of the last turn again, when that failed or was cancelled, as a new turn.

        The earlier one leaves history and stays in the transcript; with `keep_partial` its text so far is gone on from.
        """
        last = self._status.last
        if last is None or last.status not in ("failed", "cancelled"):
            state = "there is no turn yet" if last is None else f"turn {last.id} {last.status}"
            raise UsageError(f'nothing to retry in session "{self.id}": {state}')
        await self._start_turn(
            overrides=last.started.overrides, repeats=Repeats(turn=last.id, keep_partial=keep_partial)
        )
        return await self._drive(check=check)

    # ------------------------------------------------------------------------------------------------- approvals

    async def approve(self, id: str, *, by: str, reason: str | None = None, channel: str = "session.approve") -> Turn:
        """Allow a waiting call and go on with the turn; returns the turn when it completed or waits again."""
        return await self._decide(id, "approved", by, reason, channel)

    async def deny(self, id: str, *, by: str, reason: str | None = None, channel: str = "session.deny") -> Turn:
        """Decline a waiting call and go on with the turn; the model is told."""
        return await self._decide(id, "denied", by, reason, channel)

    async def _decide(
        self, id: str, decision: Literal["approved", "denied"], by: str, reason: str | None, channel: str
    ) -> Turn:
        self._record_decision(id, decision, by, reason, channel)
        await self._run.log.commit()
        turn = self._status.turn
        if turn.status == "suspended" or self._is_running:
            return self._make_turn(turn)
        return await self._drive()

    def _record_decision(
        self, id: str, decision: Literal["approved", "denied"], by: str, reason: str | None, channel: str
    ) -> None:
        approval = self._status.approvals.get(id)
        if approval is None or approval.used:
            open_ids = ", ".join(a.request.id for a in self._status.open_approvals) or "none"
            raise ApprovalUnknown(
                f'no open approval "{id}" in session "{self.id}"; open: {open_ids}', hint="spine approvals"
            )
        if approval.decision is not None:
            raise ApprovalUnknown(f'approval "{id}" was {approval.decision.decision} by {approval.decision.by} already')
        event = ApprovalDecided(id=id, decision=decision, by=by, channel=channel, reason=reason)
        self._append(event, place=approval.request.call.partition("c")[0])

    # ------------------------------------------------------------------------------------------------- inbox

    async def take_inbox(self) -> None:
        """Turn requests from other processes into events, each exactly once, and act on them."""
        for entry in self._run.log.inbox():
            await self._take(entry)

    async def _take(self, entry: InboxEntry) -> None:
        data, turn = decode(entry.data), self._status.turn
        consumed = (entry.number,)
        match entry.kind:
            case "input":
                message = self._run.log.codec.from_json(data["message"], Message)
                event = InputAccepted(message=message, delivery=data["delivery"], key=entry.key)
                self._append(event, consumed=consumed)
            case "cancel":
                cancel = CancelRequested(cause=data.get("cause", "cancelled"), by=data.get("by"))
                self._append(cancel, place=turn.id if turn is not None else None, consumed=consumed)
                if self._run.cancel_scope is not None:
                    self._run.cancel_scope.cancel()
            case "decision":  # one that came too late is recorded and changes nothing
                decided = ApprovalDecided(**data, channel="inbox")
                self._append(decided, place=turn.id if turn is not None else None, consumed=consumed)
            case other:
                raise UsageError(f'inbox entry {entry.number} of session "{self.id}" is of the unknown kind "{other}"')
        await self._run.log.commit()
        turn = self._status.turn
        if not self._is_running and (turn is None or turn.status == "open"):
            self._host.spawn(self._work if turn is None else self._resume_quietly)

    async def _resume_quietly(self) -> None:
        if not self._is_running:
            await self.resume(check=False)

    async def rename(self, title: str) -> None:
        """Give the session a title."""
        self._append(SessionRenamed(title=clean_text(title)))
        await self._run.log.commit()
