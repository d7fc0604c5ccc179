"""The loop (floor 11): turns and steps, from any folded state.

There is one loop and no other way to go on: it looks at the turn's folded phase, makes the one move that the phase
asks for, and looks again. A fresh turn, a resumed one and one after a crash differ only in the state they begin with.

    STEP         deliver steering, snapshot, pre_step, route, check, model.requested, commit
    ANSWER       the request's attempts, until message.committed or step.failed
    CALLS        prepare, run and record the calls of the message, or suspend the turn
    END          turn.completed, or one more step when steering came in
    STEP_FAILED  ask spine_step_failed: another step, or turn.failed

Every move leaves the log in a state that the next move, or another process, can start from.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import anyio
from anyio.lowlevel import checkpoint

from spine.asking import ask_pre_step, base_of, record_request, take_snapshot
from spine.attempts import Flow, answer, crashed_partial
from spine.budgets import limits_of, used_up
from spine.calls import settle_calls, stop_calls
from spine.drafts import maker
from spine.errors import BudgetUnknown, HookMisused, PluginFailed, RouteUnknown, SpineError, UsageError
from spine.events import (
    CancelRequested,
    InputDelivered,
    MessageInterrupted,
    ModelAttemptStarted,
    StepFailed,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
)
from spine.hooks import STEP_FAILED, NextStep, Stop, blame
from spine.llm.errors import Failure, ProviderError
from spine.llm.request import ModelRequest, Route
from spine.llm.response import ModelResponse
from spine.messages import Message
from spine.projectors.status import INCOMPLETE, Phase, TurnState
from spine.revisions import revise_unshown, withhold_unrevised
from spine.run import Run, compact, look_up, stop_if_cancelled
from spine.runners import HookChange, observe, waterfall
from spine.values import StepId, decode

CLOSING_S = 2.0
BREATH_S = 0.001
"""How long a turn may run without an await that waits, before other tasks get their turn."""


async def run_turn(run: Run) -> None:
    """Drive the session's open turn until it ended or waits for a person.

    Returns with everything durable. When the caller's own task is cancelled, the closing facts are written first
    (shielded, at most two seconds) and the cancellation goes on; any other exception leaves a failed turn behind.
    """
    try:
        await run.commit()
        while (turn := run.log.status.turn) is not None and turn.status == "open":
            if turn.cancel is not None:
                await _cancel(run, turn)
                continue
            with anyio.CancelScope() as run.cancel_scope:
                await _move_on(run, turn)
            if run.cancel_scope.cancelled_caught and turn.cancel is None:
                await _stop_overdue(run, turn)
    except anyio.get_cancelled_exc_class():
        await _close_now(run, CancelRequested(cause="the caller was cancelled"))
        raise
    except Exception as error:
        await _close_broken(run, error)
        raise
    except BaseException:  # KeyboardInterrupt and SystemExit leave a cancelled turn behind
        await _close_now(run, CancelRequested(cause="the program was stopped"))
        raise
    finally:
        run.cancel_scope = None
        run.forget_context()


async def _move_on(run: Run, turn: TurnState) -> None:
    """Move by move until the turn ends, waits, or is to be cancelled; lets other tasks run every now and then."""
    breath = run.clock.monotonic()
    while turn.status == "open" and turn.cancel is None:
        await _MOVES[turn.phase](run, turn)
        # Only here a turn without a store that waits has nothing pending.
        if turn.phase == "answer" and run.clock.monotonic() - breath > BREATH_S and not run.log.has_pending:
            await checkpoint()
            breath = run.clock.monotonic()


# --------------------------------------------------------------------------------------------------------- STEP


async def begin_step(run: Run, turn: TurnState) -> None:
    """Everything up to a durable `model.requested`; or `step.failed`, or `turn.failed` when a limit is used up."""
    failure = used_up(limits_of(run.agent, turn.started.overrides), turn)
    if failure is not None:
        await _fail_turn(run, turn, failure)
        return
    if steering := run.log.status.steering:
        run.log.append(InputDelivered(inputs=steering, place="step"), place=turn.id)
    step = StepId(f"{turn.id}s{turn.steps + 1}")
    try:
        if run.is_resumed:
            await _revise_resumed(run, turn)
        base, request = base_of(run, turn, step)
        changes: Sequence[HookChange] = ()
        if run.chain("spine_pre_step"):
            base, request, changes = await ask_pre_step(run, turn, step, base, request)
        record_request(run, step, base, request, changes)
        await run.commit()
    except (PluginFailed, ProviderError, UsageError) as error:
        await stop_if_cancelled(turn)
        run.log.append(StepFailed(failure=_failure(error)), place=step)


async def _revise_resumed(run: Run, turn: TurnState) -> None:
    """Results that an earlier process recorded and no request has shown pass `spine_post_execute` once more."""
    await revise_unshown(run, turn)
    run.is_resumed = False


def _failure(error: SpineError) -> Failure:
    match error:
        case ProviderError():
            return error.failure
        case PluginFailed():
            return Failure(category="hook_failed", message=error.message, details={"plugin": error.plugin})
        case RouteUnknown():
            return Failure(category="not_found", message=error.message)
        case BudgetUnknown():
            return Failure(category="invalid_request", message=error.message, details={"limit": "cost"})
        case _:
            return Failure(category="invalid_request", message=error.message)


# ------------------------------------------------------------------------------------------------------- ANSWER


async def get_answer(run: Run, turn: TurnState) -> None:
    """The request's attempts; after a restart the request is rebuilt from the log and gets one more attempt."""
    run.is_resumed = False
    target, request = run.pending, run.request
    if target is None or request is None:
        take_snapshot(run)
        request = await look_up(run, turn, run.log.request, turn.requested)
        found, partial = await look_up(run, turn, crashed_partial, run.log, turn)
        target = run.pending = run.routes.resolve(request.route, run.scope)
        run.request = request
        if found:
            note = "the process ended while the answer was arriving"
            run.log.append(MessageInterrupted(message=partial, cause="crashed", note=note), place=turn.step)
        run.log.append(ModelAttemptStarted(attempt=turn.attempt + 1), place=turn.step)
        await run.commit()
    await answer(run, turn, request, target)
    chain = run.chain("spine_post_step")
    if chain and turn.answer is not None and run.pending is None and turn.phase != "step_failed":
        await _post_step(run, turn, request, chain)


async def _post_step(run: Run, turn: TurnState, request: ModelRequest, chain: Any) -> None:
    assert turn.answer is not None
    _, data = turn.answer
    response = _make_response(
        data.message, data.stop_reason, data.raw_stop_reason, data.usage, None, None, data.metadata
    )
    step, known = turn.step, run.arguments(turn, turn.step)
    arguments, failed = lambda: {"response": response, **known()}, lambda error: run.append_failed(error, step)
    answers = await observe(chain, "spine_post_step", response, arguments, run.watch, failed)
    await stop_if_cancelled(turn)
    for plugin, events in answers:
        try:
            declared = tuple(events or ())
        except Exception as exc:
            run.append_failed(blame(exc, plugin, "spine_post_step"), turn.step)
            continue
        for event in declared:
            try:
                _check_declared(run, plugin, event)
                run.log.append(event, place=turn.step)
            except SpineError as error:
                run.append_failed(PluginFailed(error.message, plugin=plugin, hook="spine_post_step"), turn.step)
            except Exception as exc:  # fields that cannot be written, or that nobody could read again
                run.append_failed(blame(exc, plugin, "spine_post_step"), turn.step)


_make_response: Callable[..., ModelResponse] = maker(ModelResponse)
"""What was recorded needs no checks; the last two but one are the adapter's."""


def _check_declared(run: Run, plugin: str, event: Any) -> None:
    form = run.log.codec.encode_event(event)
    if form.origin != plugin:
        raise UsageError(f"{form.type} was not declared by {plugin}; an observer may return events of its own plugin")
    run.log.codec.from_json(decode(form.data), type(event))


# ------------------------------------------------------------------------------------------------- CALLS and END


async def run_calls(run: Run, turn: TurnState) -> None:
    """Results for all calls of the last message, or a suspended turn."""
    if run.capabilities is None:  # after a restart: today's registries stand in for the step's snapshot
        take_snapshot(run)
    try:
        if run.is_resumed:
            await _revise_resumed(run, turn)
        await settle_calls(run, turn)
    except PluginFailed as error:
        await stop_if_cancelled(turn)
        stop_calls(run, turn, "failed")
        run.log.append(StepFailed(failure=_failure(error)), place=turn.step)


async def end_turn(run: Run, turn: TurnState) -> None:
    """`turn.completed`, unless steering came in (one more step) or the ending is a failure."""
    assert turn.answer is not None
    seq, data = turn.answer
    if run.log.status.steering:
        await begin_step(run, turn)
        return
    if data.stop_reason == "context_window":
        overflow = Failure(category="context_overflow", message="the context window was full before the answer ended")
        run.log.append(StepFailed(failure=overflow), place=turn.step)
        return
    complete = data.stop_reason not in INCOMPLETE
    run.log.append(TurnCompleted(message=seq, stop_reason=data.stop_reason, complete=complete), place=turn.id)
    await run.log.commit()


# -------------------------------------------------------------------------------------------------- STEP_FAILED


async def after_failure(run: Run, turn: TurnState) -> None:
    """Ask the plugins what follows a failed step; the core's own answer is that the turn failed."""
    failure = turn.failure or Failure(category="internal", message="the step failed")
    verdict: Stop | NextStep = Stop()
    try:
        verdict = await _ask_what_follows(run, turn, failure)
    except PluginFailed as error:
        run.append_failed(error, turn.step)
    await stop_if_cancelled(turn)
    if isinstance(verdict, Stop):
        await _fail_turn(run, turn, failure)
        return
    run.next_route = verdict.route
    await begin_step(run, turn)


async def _ask_what_follows(run: Run, turn: TurnState, failure: Failure) -> Stop | NextStep:
    chain, hook = run.chain("spine_step_failed"), "spine_step_failed"
    if not chain:
        return Stop()
    verdict: Stop | NextStep
    verdict, changes = await waterfall(chain, STEP_FAILED, failure, run.arguments(turn, turn.step), run.watch)
    if isinstance(verdict, NextStep):
        plugin = changes[-1].plugin
        if not isinstance(verdict.route, Route | None):
            raise HookMisused(f"plugin {plugin} gave a route that is none in {hook}", plugin=plugin, hook=hook)
        if verdict.compaction is not None:
            compact(run, turn, verdict.compaction, plugin, hook)
    return verdict


async def _fail_turn(run: Run, turn: TurnState, failure: Failure) -> None:
    withhold_unrevised(run, turn)
    run.log.append(TurnFailed(failure=failure), place=turn.id)
    await run.log.commit()


async def _stop_overdue(run: Run, turn: TurnState) -> None:
    """After a hook was cut: an observer is reported and the turn goes on, a waterfall fails its step."""
    plugin, hook = run.watch.cut or ("unknown", "hook")
    run.watch.cut = None
    message = f"plugin {plugin} did not return from {hook} within {run.watch.timeout_s:g} s"
    if hook in ("spine_post_step", "spine_step_failed"):
        run.append_failed(PluginFailed(message, plugin=plugin, hook=hook), turn.step)
        if turn.failure is not None and turn.phase == "step_failed":
            await _fail_turn(run, turn, turn.failure)
        return
    _close_stream(run, turn, "failed")
    stop_calls(run, turn, "failed")
    failure = Failure(category="hook_failed", message=message, details={"plugin": plugin, "hook": hook})
    run.log.append(StepFailed(failure=failure), place=turn.step)


# ------------------------------------------------------------------------------------------------------ closing


_CUT_BY = {"cancelled": "the answer was cancelled", "failed": "the turn failed before the answer was complete"}


def _close_stream(run: Run, turn: TurnState, cause: Literal["cancelled", "failed"]) -> None:
    flow: Flow | None = run.flow
    if turn.phase == "answer":
        partial: Message | None = None
        if flow is not None and run.pending is not None:
            flow.flush()
            partial = flow.partial(run.pending)
        elif flow is None:  # what had arrived, arrived in an earlier process; the person saw it all the same
            _, partial = crashed_partial(run.log, turn)
        run.log.append(MessageInterrupted(message=partial, cause=cause, note=_CUT_BY[cause]), place=turn.step)
    run.flow = run.pending = None


async def _cancel(run: Run, turn: TurnState) -> None:
    """The closing batch of a turn that was stopped: stream, calls, turn; then nothing of it comes any more."""
    _close_stream(run, turn, "cancelled")
    stop_calls(run, turn, "cancelled")
    asked = turn.cancel or CancelRequested()
    end = TurnCancelled(cause=asked.cause) if asked.failure is None else TurnFailed(failure=asked.failure)
    run.log.append(end, place=turn.id)
    with anyio.move_on_after(CLOSING_S, shield=True):
        await run.log.commit()


async def _close_now(run: Run, request: CancelRequested) -> None:
    turn = run.log.status.turn
    if turn is None or run.log.is_closed:
        return
    if turn.cancel is None:
        run.log.append(request, place=turn.id)
    await _cancel(run, turn)


async def _close_broken(run: Run, error: Exception) -> None:
    turn = run.log.status.turn
    if turn is None or run.log.is_closed:
        return
    _close_stream(run, turn, "failed")
    stop_calls(run, turn, "failed")
    failure = Failure(category="internal", message=f"{type(error).__name__}: {error}"[:1000])
    run.log.append(TurnFailed(failure=failure), place=turn.id)
    with anyio.move_on_after(CLOSING_S, shield=True):
        await run.log.commit()


_MOVES: Mapping[Phase, Callable[[Run, TurnState], Awaitable[None]]] = {
    "step": begin_step,
    "answer": get_answer,
    "calls": run_calls,
    "end": end_turn,
    "step_failed": after_failure,
}
