"""What the model sees of a call's outcome (floor 9, above `run`): `spine_post_execute`, and results withheld from it.

The rule it guards: with such a hook loaded, no result reaches a request that the hooks have not let through, whether
they broke, were cut, or never came to their turn.
"""

from collections.abc import Callable

from spine import outcomes
from spine.drafts import maker
from spine.errors import HookMisused
from spine.events import Change, FieldChange, ToolRevised
from spine.execution import settle
from spine.hooks import POST_EXECUTE
from spine.messages import ToolCallBlock, ToolResultBlock
from spine.projectors.status import CallState, TurnState
from spine.results import checked_outcome
from spine.run import Run, patches, stop_if_cancelled
from spine.runners import HookChange, waterfall
from spine.tools import DEFAULT_RESULT_BYTES, Tool, ToolInvocation, ToolOutcome
from spine.values import EMPTY_OBJECT, CallId, JsonObject, StepId, step_of


async def revise(run: Run, turn: TurnState, step: StepId, call: ToolInvocation, outcome: ToolOutcome) -> None:
    """Ask `spine_post_execute` what the model sees; however that is stopped, the result is withheld."""
    if turn.cancel is not None:
        await stop_if_cancelled(turn)
    chain, hook = run.chain("spine_post_execute"), "spine_post_execute"
    if not chain:
        return
    run.unrevised.add(call.id)
    known = run.arguments(turn, step)
    try:
        revised, changes = await waterfall(chain, POST_EXECUTE, outcome, lambda: {"call": call, **known()}, run.watch)
        for change in changes:
            _check_outcome(change, hook)
    except BaseException:  # a cancellation, too: what no hook has let through must never reach the model
        if not run.log.is_closed:
            _withhold(run, step, call.id, call.name)
        raise
    if turn.cancel is not None:
        await stop_if_cancelled(turn)
    applied = patches(changes, lambda change: _outcome_changes(run, change))
    if applied:
        tool = find_tool(run, call.name)
        limit = tool.max_result_bytes if tool is not None else DEFAULT_RESULT_BYTES
        shown = settle(revised, max_bytes=limit, secrecy=run.secrecy)
        if shown.overflow is not None:
            run.log.put(shown.overflow, place=step)
        run.log.append(ToolRevised(result=result_block(call.id, call.name, shown.outcome), patches=applied), place=step)
    run.unrevised.discard(call.id)


def _withhold(run: Run, step: StepId, call: CallId, name: str) -> None:
    run.log.append(ToolRevised(result=result_block(call, name, outcomes.withheld())), place=step)
    run.unrevised.discard(call)


def withhold_unrevised(run: Run, turn: TurnState) -> None:
    """Before a turn or step is closed: withhold every result that `spine_post_execute` has not let through yet."""
    for call in unshown(turn):
        is_open = call.block.id in run.unrevised or (run.is_resumed and bool(run.chain("spine_post_execute")))
        if is_open and not call.revised:
            _withhold(run, step_of(call.block.id), call.block.id, call.block.name)
    run.unrevised.clear()


def unshown(turn: TurnState) -> list[CallState]:
    """Calls with a result that no request has shown."""
    if turn.answer is None or turn.requested > turn.answer[0]:
        return []
    return [call for call in turn.calls.values() if call.completed is not None]


def _check_outcome(change: HookChange, hook: str) -> None:
    try:
        checked_outcome(change.new)
    except Exception as exc:
        raise HookMisused(
            f"plugin {change.plugin} returned an outcome of which {exc} in {hook}", plugin=change.plugin, hook=hook
        ) from exc


def _outcome_changes(run: Run, change: HookChange) -> tuple[Change, ...]:
    old, new = run.log.codec.to_json(change.old), run.log.codec.to_json(change.new)
    return tuple(
        FieldChange(field=name, value=new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and name != "content"
    ) + ((FieldChange(field="content"),) if change.old.content != change.new.content else ())


async def revise_unshown(run: Run, turn: TurnState) -> None:
    """After a restart: ask `spine_post_execute` again for outcomes that no request has shown yet."""
    for call in unshown(turn):
        if call.outcome is not None and not call.revised:
            await revise(run, turn, turn.step, invocation_of(call.block), call.outcome)


def result_block(call: CallId, name: str, outcome: ToolOutcome) -> ToolResultBlock:
    """An outcome as the model reads it."""
    return _make_result(call, name, outcome.content, outcome.status != "ok", None)


_make_result: Callable[..., ToolResultBlock] = maker(ToolResultBlock)


def find_tool(run: Run, name: str) -> Tool | None:
    """The tool of that name in the step's snapshot; None for a provider's own and for none."""
    entry = run.capabilities.tools.get(name) if run.capabilities else None
    return entry.value if entry is not None and isinstance(entry.value, Tool) else None


def invocation_of(block: ToolCallBlock, arguments: JsonObject | None = None) -> ToolInvocation:
    """A call with its effective arguments, or else as the model wrote it."""
    if arguments is None:
        arguments = block.arguments or EMPTY_OBJECT
    return _make_invocation(block.id, block.name, arguments, block)


_make_invocation: Callable[..., ToolInvocation] = maker(ToolInvocation)
