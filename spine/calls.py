"""The calls of one message (floor 10): prepared in order, run in groups, every result an event.

Neighbouring parallel tools form a group. In a group all waterfalls run first; starts are recorded in call order and
durable before a handler runs; completions are recorded as they come, with no await between a handler's return and its
event. Calls that need a person let the others of their group finish, then the turn is suspended.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, Literal

import anyio
import attrs

from spine import outcomes
from spine.errors import HookMisused, PluginFailed, SpineError, ValueTooLarge
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
from spine.run import Run, patches, stop_if_cancelled
from spine.runners import HookChange, waterfall
from spine.tools import Approval, Tool, ToolInvocation, ToolOutcome
from spine.values import Digest, Json, JsonObject, StepId, digest, encode, step_of


@attrs.frozen
class _Ready:
    """A call that may run."""

    tool: Tool
    invocation: ToolInvocation
    patches: tuple[Patch, ...] = ()
    resumes: bool = False
    """`tool.started` is in the log already: recovery runs the call again."""


@attrs.frozen
class _Done:
    """A call that has its outcome without running."""

    call: ToolCallBlock
    executed: Executed
    patches: tuple[Patch, ...] = ()


@attrs.frozen
class _Waits:
    """A call that a person must allow. `request` None: it was asked before and is still open."""

    request: ApprovalRequested | None
    id: str


_Prepared = _Ready | _Done | _Waits


async def settle_calls(run: Run, turn: TurnState) -> None:
    """Give each call of the last message its result, or suspend the turn for those that wait for a person."""
    step = turn.step
    if turn.ending != "run":
        stop_reason = turn.answer[1].stop_reason if turn.answer else "unknown"
        outcome = not_started_after(stop_reason)
        dropped = _unanswered(turn)
        for call in dropped:
            _complete(run, step, call.block, Executed(outcome))
        for call in dropped:
            await revise(run, turn, step, invocation_of(call.block), outcome)
        return
    if run.request is None:  # after a restart
        run.request = run.log.request(turn.requested)
    for group in _groups(run, _unanswered(turn)):
        prepared = [await _prepare(run, turn, call) for call in group]
        await _run_group(run, turn, step, prepared)
        if turn.cancel is not None:  # it may have come when all of the group were done, and so have stopped none
            await stop_if_cancelled(turn)
        asked = [item.id for item in prepared if type(item) is _Waits]
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


async def _prepare(run: Run, turn: TurnState, call: CallState) -> _Prepared:
    block = call.block
    tool = find_tool(run, block.name)
    if call.started is not None:
        return await _recover(run, turn, call, call.started, tool)
    if tool is None or block.name not in run.callable_names:
        return _Done(block, Executed(outcomes.unknown_tool(block.name, run.callable_names)))
    if block.arguments is None:
        return _Done(block, Executed(outcomes.unreadable_arguments(block.arguments_text or "")))
    problem = validate(tool, block.arguments)
    if problem is not None:
        return _Done(block, Executed(outcomes.invalid_arguments(problem)))
    asked = run.log.status.approvals.get(call.approval) if call.approval else None
    if asked is not None and asked.decision is None:
        return _Waits(None, asked.request.id)
    if asked is not None:
        decided = _decided(run, tool, block, asked)
        if decided is not None:
            return decided
    return await _ask_hooks(run, turn, tool, block, asked)


def _decided(run: Run, tool: Tool, block: ToolCallBlock, asked: ApprovalState) -> _Prepared | None:
    """What an approval's decision gives; None when tool, policy or plugins changed since, so that it no longer fits."""
    decision, request = asked.decision, asked.request
    if decision is not None and decision.decision == "denied":
        return _Done(block, Executed(outcomes.denied(decision.reason)))
    if approval_hash(run, tool, request.arguments) != request.hash:
        return None
    invocation = ToolInvocation(id=block.id, name=block.name, arguments=request.arguments, requested=block)
    return _Ready(tool, invocation, request.patches)


async def _ask_hooks(
    run: Run, turn: TurnState, tool: Tool, block: ToolCallBlock, stale: ApprovalState | None
) -> _Prepared:
    given = invocation_of(block)
    result: ToolInvocation | Deny | Ask | ToolOutcome = given
    changes: list[HookChange] = []
    chain = run.chain("spine_pre_execute")
    if chain:
        result, changes = await waterfall(chain, PRE_EXECUTE, given, run.arguments(turn, turn.step), run.watch)
        await stop_if_cancelled(turn)
    applied = patches(changes, _call_changes)
    if not isinstance(result, ToolInvocation):
        return _decided_by_hooks(run, tool, given, result, changes, applied, stale)
    problem = None if result is given else _check_invocation(tool, given, result)
    if problem is not None:
        return _Done(block, Executed(outcomes.invalid_arguments(problem)), applied)
    if _must_ask(run, tool, result):
        return _wait(run, tool, block, result.arguments, applied, tool.approval_reason, stale)
    return _Ready(tool, result, applied)


def _decided_by_hooks(
    run: Run,
    tool: Tool,
    given: ToolInvocation,
    result: Deny | Ask | ToolOutcome,
    changes: Sequence[HookChange],
    applied: tuple[Patch, ...],
    stale: ApprovalState | None,
) -> _Prepared:
    block = given.requested
    if isinstance(result, Deny | Ask) and not isinstance(result.reason, str):
        plugin, hook = _decider(changes, result), "spine_pre_execute"
        found = f"{type(result).__name__}({result.reason!r:.80})"
        raise HookMisused(f"plugin {plugin} returned {found} in {hook}; a reason is text", plugin=plugin, hook=hook)
    match result:
        case Deny(reason):
            who = f"Plugin {_decider(changes, result)}"
            return _Done(block, Executed(outcomes.denied(reason, by="plugin", who=who)), applied)
        case ToolOutcome():
            return _Done(block, settle(result, max_bytes=tool.max_result_bytes), applied)
        case Ask(reason):
            effective = next((c.new for c in reversed(changes) if type(c.new) is ToolInvocation), given)
            return _wait(run, tool, block, effective.arguments, applied, reason, stale)


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


def _policy(run: Run, tool: Tool) -> tuple[Approval, str]:
    """The policy that holds for a tool, and whose it is: the agent's, else a registered one, else the tool's own."""
    if run.agent.approval is not None:
        return run.agent.approval, f"agent {run.agent.name}"
    entry = run.capabilities.policies.get(tool.name) if run.capabilities else None
    return (tool.approval, tool.owner) if entry is None else (entry.value, entry.owner)


def _must_ask(run: Run, tool: Tool, invocation: ToolInvocation) -> bool:
    """Whether a person must allow a call. A policy that breaks lets nothing run: `PluginFailed`."""
    policy, owner = _policy(run, tool)
    if policy == "never":
        return False
    name = f'the approval policy of tool "{tool.name}" from {owner}'
    try:
        verdict = policy(invocation) if callable(policy) else policy
    except Exception as exc:
        raise PluginFailed(f"{name} raised {type(exc).__name__}: {exc}", plugin=owner, hook="policy") from exc
    if verdict not in ("never", "ask"):
        raise HookMisused(f'{name} returned {verdict!r:.80}; wanted "never" or "ask"', plugin=owner, hook="policy")
    return verdict == "ask"


def _wait(
    run: Run,
    tool: Tool,
    block: ToolCallBlock,
    arguments: JsonObject,
    applied: tuple[Patch, ...],
    reason: str | None,
    stale: ApprovalState | None,
) -> _Waits | _Done:
    request = ApprovalRequested(
        id=f"a{len(run.log.status.approvals) + 1}",
        call=block.id,
        hash=approval_hash(run, tool, arguments),
        name=block.name,
        arguments=arguments,
        patches=applied,
        reason=reason,
        replaces=stale.request.id if stale is not None else None,
    )
    try:
        run.log.append(request, place=step_of(block.id))
    except ValueTooLarge as error:
        return _Done(block, Executed(outcomes.invalid_arguments(error.message)))
    return _Waits(request, request.id)


def approval_hash(run: Run, tool: Tool, arguments: JsonObject) -> Digest:
    """What an approval is bound to: the tool, its schema, effective arguments, policy, and plugin versions."""
    policy, _ = _policy(run, tool)
    bound = {
        "tool": run.log.codec.to_json(tool.definition),
        "effect": tool.effect,
        "owner": tool.owner,
        "arguments": arguments,
        "policy": policy if isinstance(policy, str) else _named(policy),
        "plugins": dict(run.plugins()),
    }
    return digest(encode(bound))


def _named(policy: Callable[..., Any]) -> Json:
    """Name and code of a callable policy; one that is no function is known by the name of its class."""
    name = f"{policy.__module__}:{getattr(policy, '__qualname__', type(policy).__qualname__)}"
    code = getattr(policy, "__code__", None)
    return name if code is None else (name, _parts_of(code))


def _parts_of(code: CodeType) -> Json:
    """What a function does, in any process: no lines, no addresses, sets in order."""
    constants = (_parts_of(part) if isinstance(part, CodeType) else _shown(part) for part in code.co_consts)
    return (code.co_code.hex(), code.co_names, tuple(constants))


def _shown(constant: Any) -> str:
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


# ------------------------------------------------------------------------------------------------------ running


async def _run_group(run: Run, turn: TurnState, step: StepId, prepared: Sequence[_Prepared]) -> None:
    ready: list[_Ready] = []
    done: list[_Done] = []
    for item in prepared:
        begun = _start(run, step, item) if type(item) is _Ready else item
        if type(begun) is _Ready:
            ready.append(begun)
        elif type(begun) is _Done:
            done.append(begun)
    for answered in done:
        _complete(run, step, answered.call, answered.executed, answered.patches)
    for answered in done:
        await revise(run, turn, step, invocation_of(answered.call), answered.executed.outcome)
    if not ready:
        return
    await run.commit()
    if len(ready) == 1:
        await _run_one(run, turn, step, ready[0])
        return
    failures: list[SpineError] = []
    async with anyio.create_task_group() as group:
        for each in ready:
            group.start_soon(_run_contained, run, turn, step, each, failures)
    if failures:
        raise failures[0]


def _start(run: Run, step: StepId, item: _Ready) -> _Ready | _Done:
    """Record the start of a call, unless it is recorded already; one that does not fit an event does not run."""
    try:
        if not item.resumes:
            run.log.append(_started(item), place=step)
    except ValueTooLarge as error:
        return _Done(item.invocation.requested, Executed(outcomes.invalid_arguments(error.message)))
    return item


def _started(item: _Ready) -> ToolStarted:
    call = item.invocation
    written = call.requested.arguments
    return ToolStarted(
        call=call.id,
        name=call.name,
        arguments=call.arguments,
        requested=None if written == call.arguments else written,
        patches=item.patches,
        effect=item.tool.effect,
    )


async def _run_contained(run: Run, turn: TurnState, step: StepId, item: _Ready, failures: list[SpineError]) -> None:
    # A hook that fails for one call must not cancel its siblings' handlers, and the store's failure is no group.
    try:
        await _run_one(run, turn, step, item)
    except SpineError as error:
        failures.append(error)


async def _run_one(run: Run, turn: TurnState, step: StepId, item: _Ready) -> None:
    call = item.invocation
    executed = await run.execute(
        item.tool, call.arguments, tool_context(run, turn, call), workers=run.workers, clock=run.clock.monotonic
    )
    _complete(run, step, call.requested, executed)
    await revise(run, turn, step, call, executed.outcome)


def tool_context(run: Run, turn: TurnState, call: ToolInvocation) -> ToolContext[Any]:
    """What a handler is given besides its arguments; progress that comes after a cancel is not recorded."""
    step = turn.step

    def progress(text: str | None = None, data: Any = None) -> None:
        if turn.cancel is None and turn.status == "open" and turn.step == step:
            run.log.append(ToolProgress(call=call.id, text=text, data=data), place=step)

    return ToolContext(
        deps=run.deps,
        session=run.log.session,
        call=call.id,
        metadata=run.metadata,
        report=progress,
        secrets=run.secrets,
    )


def _complete(run: Run, step: StepId, call: ToolCallBlock, executed: Executed, applied: tuple[Patch, ...] = ()) -> None:
    """Record a call's outcome; no await stands between a handler's return and this."""
    if executed.overflow is not None:
        run.log.put(executed.overflow, place=step)
    outcome = executed.outcome
    event = ToolCompleted(
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


# ----------------------------------------------------------------------------------------------------- recovery


async def _recover(run: Run, turn: TurnState, call: CallState, started: ToolStarted, tool: Tool | None) -> _Prepared:
    """A call that an earlier process started: run it again, ask the tool, or tell the model the truth."""
    step, block = turn.step, call.block
    if tool is None:  # gone since: nobody can say any more what running it again would do
        run.log.append(ToolResolved(call=block.id, decision="interrupted", reason=started.effect), place=step)
        return _Done(block, Executed(outcomes.interrupted("crashed")))
    invocation = ToolInvocation(id=block.id, name=block.name, arguments=started.arguments, requested=block)
    decision = resolve(started.effect, can_reconcile=tool.reconcile is not None, after_crash=tool.after_crash)
    if decision == "reconcile" and tool.reconcile is not None:
        check = tool.evolve(handler=tool.reconcile)
        executed = await run.execute(
            check,
            started.arguments,
            tool_context(run, turn, invocation),
            workers=run.workers,
            clock=run.clock.monotonic,
        )
        if executed.outcome.status == "ok":
            run.log.append(ToolResolved(call=block.id, decision="reconciled"), place=step)
            return _Done(block, executed)
        decision = UNSURE[tool.after_crash]
    reason: str = started.effect
    if decision == "ask":
        asked = run.log.status.approvals.get(call.approval) if call.approval and call.resolved == "asked" else None
        if asked is not None and asked.decision is None:
            return _Waits(None, asked.request.id)
        decision = _answer_after_crash(run, tool, started, asked)
        if decision == "ask":
            run.log.append(ToolResolved(call=block.id, decision="asked", reason=reason), place=step)
            return _wait(run, tool, block, started.arguments, started.patches, _MAY_HAVE_ACTED, asked)
        if asked is not None and asked.decision is not None:
            reason = f"{asked.decision.decision} by {asked.decision.by}"
    if decision == "rerun":
        run.log.append(ToolResolved(call=block.id, decision="rerun", reason=reason), place=step)
        return _Ready(tool, invocation, started.patches, resumes=True)
    run.log.append(ToolResolved(call=block.id, decision="interrupted", reason=reason), place=step)
    return _Done(block, Executed(outcomes.interrupted("crashed")))


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
