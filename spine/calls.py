"""The calls of one message (floor 10): prepared in order, run in groups, every result an event.

Neighbouring parallel tools form a group. In a group all waterfalls run first; starts are recorded in call order and
durable before a handler runs; completions are recorded as they come, with no await between a handler's return and its
event. Calls that need a person let the others of their group finish, then the turn is suspended.

A call on its way is one `_Work`, which is filled as it goes: it is answered once `executed` is there, it waits for a
person once `approval` is, and else it runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import anyio

from spine import outcomes
from spine.approving import approval_hash, must_ask
from spine.drafts import maker
from spine.errors import HookMisused, SpineError, ValueTooLarge
from spine.events import (
    ApprovalRequested,
    Change,
    FieldChange,
    Patch,
    ToolCompleted,
    ToolProgress,
    ToolResolved,
    ToolStarted,
    TurnSuspended,
)
from spine.execution import Executed, ToolContext, runs_on_loop, settle, validate
from spine.hooks import PRE_EXECUTE, Ask, Deny
from spine.messages import ToolCallBlock
from spine.projectors.status import ApprovalState, CallState, TurnState
from spine.recovery import UNSURE, Resolution, resolve
from spine.revisions import find_tool, invocation_of, result_block, revise, withhold_unrevised
from spine.run import Run, look_up, patches, stop_if_cancelled
from spine.runners import HookChange, waterfall
from spine.tools import Tool, ToolInvocation, ToolOutcome
from spine.values import CallId, StepId, step_of


class _Work:
    """A call on its way to its result."""

    __slots__ = ("_invocation", "approval", "arguments", "block", "executed", "patches", "resumes", "tool")

    def __init__(self, block: ToolCallBlock, tool: Tool | None = None, executed: Executed | None = None) -> None:
        self.block, self.tool, self.executed = block, tool, executed
        self.arguments = block.arguments
        """The effective ones."""
        self.patches: tuple[Patch, ...] = ()
        self.approval: str | None = None
        """The open approval that it waits for."""
        self.resumes = False
        """`tool.started` is in the log already: recovery runs the call again."""
        self._invocation: ToolInvocation | None = None

    def invocation(self) -> ToolInvocation:
        """The call as hooks and policies see it."""
        if self._invocation is None:
            self._invocation = invocation_of(self.block, self.arguments)
        return self._invocation

    def take(self, invocation: ToolInvocation) -> None:
        """It runs with these arguments."""
        self.arguments, self._invocation = invocation.arguments, invocation

    def end(self, outcome: ToolOutcome) -> None:
        """Answer it without running."""
        self.executed = Executed(outcome)

    def refuse(self, error: ValueTooLarge) -> None:
        """Answer it: its arguments, or what a plugin made of them, fit no event."""
        self.end(outcomes.invalid_arguments(error.message))
        self.patches = ()


async def settle_calls(run: Run, turn: TurnState) -> None:
    """Give each call of the last message its result, or suspend the turn for those that wait for a person."""
    calls = _unanswered(turn)
    if turn.ending != "run":
        outcome = not_started_after(turn.answer[1].stop_reason if turn.answer else "unknown")
        await _answer(run, turn, [_Work(call.block, executed=Executed(outcome)) for call in calls])
        return
    if run.request is None:  # after a restart
        run.request = await look_up(run, turn, run.log.request, turn.requested)
    for group in [calls] if len(calls) == 1 else _groups(run, calls):
        works = [await _prepare(run, turn, call) for call in group]
        await _run_group(run, turn, works)
        if turn.cancel is not None:  # it may have come when all of the group were done, and so have stopped none
            await stop_if_cancelled(turn)
        asked = [work.approval for work in works if work.approval is not None]
        if asked:
            await _suspend(run, turn, asked)
            return


async def _suspend(run: Run, turn: TurnState, asked: Sequence[str]) -> None:
    """Let the turn wait for people; when all has been decided while the group ran, the next move runs the calls."""
    approvals = run.log.status.approvals
    waiting = tuple(id for id in asked if approvals[id].decision is None)
    if waiting:
        run.log.append(TurnSuspended(approvals=waiting), place=turn.id)
        await run.log.commit()


def not_started_after(stop_reason: str) -> ToolOutcome:
    """The outcome of a call whose message was cut by its ending."""
    if stop_reason == "max_tokens":
        return outcomes.not_started("max_tokens")
    return outcomes.not_started("ending", stop_reason=stop_reason)


def _unanswered(turn: TurnState) -> list[CallState]:
    return [call for call in turn.calls.values() if call.completed is None]


def _groups(run: Run, calls: Sequence[CallState]) -> Iterator[list[CallState]]:
    group: list[CallState] = []
    for call in calls:
        tool = find_tool(run, call.block.name)
        is_parallel = tool is not None and tool.parallel
        if group and not is_parallel:
            yield group
            group = []
        group.append(call)
        if not is_parallel:
            yield group
            group = []
    if group:
        yield group


# ---------------------------------------------------------------------------------------------------- preparing


async def _prepare(run: Run, turn: TurnState, call: CallState) -> _Work:
    block = call.block
    work = _Work(block, find_tool(run, block.name))
    if call.started is not None:
        await _recover(run, turn, work, call, call.started)
        return work
    work.executed = _refusal(run, work)
    asked = run.log.status.approvals.get(call.approval) if call.approval else None
    if work.executed is not None or (asked is not None and _is_decided(run, work, asked)):
        return work
    stale = None if asked is None else asked.request.id
    if run.chain("spine_pre_execute"):
        await _ask_hooks(run, turn, work, stale)
    elif work.tool is not None and must_ask(run, work.tool, work.invocation):
        _wait(run, work, work.tool.approval_reason, stale)
    return work


def _refusal(run: Run, work: _Work) -> Executed | None:
    """Why a call cannot run whatever anybody says; None when it can."""
    tool, block = work.tool, work.block
    if tool is None or block.name not in run.callable_names:
        return Executed(outcomes.unknown_tool(block.name, run.callable_names))
    if block.arguments is None:
        return Executed(outcomes.unreadable_arguments(block.arguments_text or ""))
    problem = validate(tool, block.arguments)
    return None if problem is None else Executed(outcomes.invalid_arguments(problem))


def _is_decided(run: Run, work: _Work, asked: ApprovalState) -> bool:
    """Whether an approval holds for a call: still open, denied, or given.

    It does not when tool, policy or plugins changed since: then all is asked again.
    """
    decision, request = asked.decision, asked.request
    if decision is None:
        work.approval = request.id
    elif decision.decision == "denied":
        work.end(outcomes.denied(decision.reason))
    elif work.tool is None or approval_hash(run, work.tool, request.arguments) != request.hash:
        return False
    else:
        work.arguments, work.patches = request.arguments, request.patches
    return True


async def _ask_hooks(run: Run, turn: TurnState, work: _Work, stale: str | None) -> None:
    tool, given, chain = work.tool, work.invocation(), run.chain("spine_pre_execute")
    assert tool is not None
    result, changes = await waterfall(chain, PRE_EXECUTE, given, run.arguments(turn, turn.step), run.watch)
    if turn.cancel is not None:
        await stop_if_cancelled(turn)
    if changes and run.secrecy.is_on:
        result, changes = run.secrecy.hooked(result), list(map(run.secrecy.change, changes))
    if changes:
        work.patches = patches(changes, _call_changes)
    if not isinstance(result, ToolInvocation):
        _follow_hooks(run, work, result, changes, stale)
        return
    problem = None if result is given else _check_invocation(tool, given, result)
    if problem is not None:
        work.end(outcomes.invalid_arguments(problem))
        return
    work.take(result)
    if must_ask(run, tool, work.invocation):
        _wait(run, work, tool.approval_reason, stale)


def _follow_hooks(
    run: Run, work: _Work, result: Deny | Ask | ToolOutcome, changes: Sequence[HookChange], stale: str | None
) -> None:
    """Do with a call what hooks decided in its handler's place."""
    assert work.tool is not None
    if isinstance(result, Deny | Ask) and not isinstance(result.reason, str):
        plugin, hook = _decider(changes, result), "spine_pre_execute"
        found = f"{type(result).__name__}({result.reason!r:.80})"
        raise HookMisused(f"plugin {plugin} returned {found} in {hook}; a reason is text", plugin=plugin, hook=hook)
    match result:
        case Deny(reason):
            work.end(outcomes.denied(reason, by="plugin", who=f"Plugin {_decider(changes, result)}"))
        case ToolOutcome():
            work.executed = settle(result, max_bytes=work.tool.max_result_bytes, secrecy=run.secrecy)
        case Ask(reason):
            for change in changes:
                if type(change.new) is ToolInvocation:
                    work.take(change.new)
            _wait(run, work, reason, stale)


def _decider(changes: Sequence[HookChange], result: Deny | Ask) -> str:
    return next(change.plugin for change in changes if type(change.new) is type(result))


def _check_invocation(tool: Tool, given: ToolInvocation, result: ToolInvocation) -> str | None:
    if (result.id, result.name) != (given.id, given.name):
        return f"a plugin changed the call itself, from {given.name} to {result.name}; only its arguments may change"
    return validate(tool, result.arguments)


def _call_changes(change: HookChange) -> tuple[Change, ...]:
    if type(change.new) is not ToolInvocation:
        return (FieldChange(field="decision", value=_DECISIONS[type(change.new)]),)
    if type(change.old) is ToolInvocation and change.new.arguments == change.old.arguments:
        return ()
    return (FieldChange(field="arguments", value=change.new.arguments),)


_DECISIONS: Mapping[type, str] = {Deny: "deny", Ask: "ask", ToolOutcome: "outcome"}


def _wait(run: Run, work: _Work, reason: str | None, stale: str | None) -> None:
    """Ask a person; `stale` is the approval that no longer fits."""
    assert work.tool is not None
    assert work.arguments is not None
    request = ApprovalRequested(
        id=f"a{len(run.log.status.approvals) + 1}",
        call=work.block.id,
        hash=approval_hash(run, work.tool, work.arguments),
        name=work.block.name,
        arguments=work.arguments,
        patches=work.patches,
        reason=run.secrecy.name(reason),
        replaces=stale,
    )
    try:
        run.log.append(request, place=step_of(work.block.id))
    except ValueTooLarge as error:
        work.refuse(error)
    else:
        work.approval = request.id


# ------------------------------------------------------------------------------------------------------ running


async def _run_group(run: Run, turn: TurnState, works: Sequence[_Work]) -> None:
    ready = [work for work in works if work.executed is None and work.approval is None and _start(run, turn.step, work)]
    if len(ready) < len(works):
        await _answer(run, turn, works)
        if not ready:
            return
    await run.commit()
    if len(ready) == 1:
        await _run_one(run, turn, ready[0])
        return
    failures: list[SpineError] = []
    async with anyio.create_task_group() as group:
        for work in ready:
            group.start_soon(_run_contained, run, turn, work, failures)
    if failures:
        raise failures[0]


async def _answer(run: Run, turn: TurnState, works: Sequence[_Work]) -> None:
    """Record the outcomes of those that have one without running; only then are hooks asked about them."""
    answered = [(work, work.executed) for work in works if work.executed is not None]
    for work, executed in answered:
        _complete(run, turn.step, work.block, executed, work.patches)
    for work, executed in answered:
        await revise(run, turn, turn.step, invocation_of(work.block), executed.outcome)


def _start(run: Run, step: StepId, work: _Work) -> bool:
    """Record the start of a call, unless it is recorded already; one that does not fit an event does not run."""
    block, tool = work.block, work.tool
    if work.resumes:
        return True
    assert tool is not None
    assert work.arguments is not None
    started = _make_started(
        call=block.id,
        name=block.name,
        arguments=work.arguments,
        requested=None if block.arguments == work.arguments else block.arguments,
        patches=work.patches,
        effect=tool.effect,
    )
    try:
        run.log.append(started, place=step)
    except ValueTooLarge as error:
        work.refuse(error)
        return False
    return True


async def _run_contained(run: Run, turn: TurnState, work: _Work, failures: list[SpineError]) -> None:
    # A hook that fails for one call must not cancel its siblings' handlers, and the store's failure is no group.
    try:
        await _run_one(run, turn, work)
    except SpineError as error:
        failures.append(error)


async def _run_one(run: Run, turn: TurnState, work: _Work) -> None:
    block, step = work.block, turn.step
    context = tool_context(run, turn, block)
    executed = await run.execute(
        work.tool, work.arguments, context, workers=run.workers, clock=run.clock.monotonic, secrecy=run.secrecy
    )
    _complete(run, step, block, executed)
    if turn.cancel is not None or run.chain("spine_post_execute"):
        await revise(run, turn, step, work.invocation(), executed.outcome)


def tool_context(run: Run, turn: TurnState, call: ToolCallBlock) -> ToolContext[Any]:
    """What a handler is given besides its arguments."""
    report = partial(_report, run, turn, turn.step, call.id)
    return _make_context(run.deps, run.log.session, call.id, run.metadata, report, run.secrets)


_make_context: Callable[..., ToolContext[Any]] = maker(ToolContext)


def _report(run: Run, turn: TurnState, step: StepId, call: CallId, text: str | None = None, data: Any = None) -> None:
    """Record progress; what comes after a cancel or after the step is not recorded."""
    if turn.cancel is None and turn.status == "open" and turn.step == step:
        shown = run.secrecy.text(text) if isinstance(text, str) else text
        run.log.append(ToolProgress(call=call, text=shown, data=run.secrecy.json(data)), place=step)


def _complete(run: Run, step: StepId, call: ToolCallBlock, executed: Executed, applied: tuple[Patch, ...] = ()) -> None:
    """Record a call's outcome; no await stands between a handler's return and this."""
    if executed.overflow is not None:
        run.log.put(executed.overflow, place=step)
    outcome = executed.outcome
    event = _make_completed(
        result=result_block(call.id, call.name, outcome),
        status=outcome.status,
        error=outcome.error,
        truncated=outcome.truncated,
        duration_s=outcome.duration_s,
        usage=outcome.usage,
        patches=applied,
    )
    run.log.append(event, place=step)
    if run.chain("spine_post_execute"):
        run.unrevised.add(call.id)


_make_started: Callable[..., ToolStarted] = maker(ToolStarted)
_make_completed: Callable[..., ToolCompleted] = maker(ToolCompleted)


# ----------------------------------------------------------------------------------------------------- recovery


async def _recover(run: Run, turn: TurnState, work: _Work, call: CallState, started: ToolStarted) -> None:
    """A call that an earlier process started: run it again, ask the tool or a person, or tell the model the truth."""
    tool, reason = work.tool, str(started.effect)
    work.arguments = started.arguments

    def resolved(decision: Literal["rerun", "reconciled", "interrupted", "asked"], reason: str = "") -> None:
        run.log.append(ToolResolved(call=call.block.id, decision=decision, reason=reason), place=turn.step)

    if tool is None:  # gone since: nobody can say any more what running it again would do
        resolved("interrupted", reason)
        work.end(outcomes.interrupted("crashed"))
        return
    decision = resolve(started.effect, can_reconcile=tool.reconcile is not None, after_crash=tool.after_crash)
    if decision == "reconcile":
        work.executed = await _reconciled(run, turn, work)
        if work.executed is not None:
            resolved("reconciled")
            return
        decision = UNSURE[tool.after_crash]
    if decision == "ask":
        asked = run.log.status.approvals.get(call.approval) if call.approval and call.resolved == "asked" else None
        if asked is not None and asked.decision is None:
            work.approval = asked.request.id
            return
        decision = _answer_after_crash(run, tool, started, asked)
        if decision == "ask":
            resolved("asked", reason)
            work.patches = started.patches
            _wait(run, work, _MAY_HAVE_ACTED, None if asked is None else asked.request.id)
            return
        if asked is not None and asked.decision is not None:
            reason = f"{asked.decision.decision} by {asked.decision.by}"
    if decision == "rerun":
        resolved("rerun", reason)
        work.patches, work.resumes = started.patches, True
        return
    resolved("interrupted", reason)
    work.end(outcomes.interrupted("crashed"))


async def _reconciled(run: Run, turn: TurnState, work: _Work) -> Executed | None:
    """What the tool's own check says came of a call; None when it cannot say."""
    assert work.tool is not None
    assert work.tool.reconcile is not None
    check = work.tool.evolve(handler=work.tool.reconcile)
    context = tool_context(run, turn, work.block)
    executed = await run.execute(
        check, work.arguments, context, workers=run.workers, clock=run.clock.monotonic, secrecy=run.secrecy
    )
    return executed if executed.outcome.status == "ok" else None


_MAY_HAVE_ACTED = "the process ended while this call ran, so that it may have taken effect; shall it run again?"


def _answer_after_crash(run: Run, tool: Tool, started: ToolStarted, asked: ApprovalState | None) -> Resolution:
    """What a person said about a call that was cut off; `ask` when nobody was asked, or it would be another call."""
    if asked is None or asked.decision is None:
        return "ask"
    if asked.decision.decision == "denied":
        return "interrupt"
    return "rerun" if approval_hash(run, tool, started.arguments) == asked.request.hash else "ask"


Stopped = Literal["cancelled", "failed"]


def stop_calls(run: Run, turn: TurnState, cause: Stopped) -> None:
    """Close every open call: started ones as interrupted, the others as not started; unrevised results are withheld."""
    withhold_unrevised(run, turn)
    for call in _unanswered(turn):
        _complete(run, turn.step, call.block, Executed(_stopped(run, call, cause)))
    run.unrevised.clear()  # what stands there now are our own words


def _stopped(run: Run, call: CallState, cause: Stopped) -> ToolOutcome:
    if call.started is None:
        return outcomes.not_started(cause)
    tool = find_tool(run, call.block.name)
    if cause == "cancelled" and tool is not None and not runs_on_loop(tool.handler):
        return outcomes.interrupted("thread")
    return outcomes.interrupted(cause)
