"""What would have happened if (floor 13): a session forked at a step with something else in it, run on, and compared.

The child goes on with the same turn, so its steps and calls have the names of the original ones. Its model is whatever
the caller gives: a script, what was recorded, or the real one. Tools run only when asked for; otherwise a call gets
what the same call got in the original, or is told that there is nothing.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from spine.agent import Agent
from spine.errors import UsageError
from spine.events import FieldChange, Patch, ToolCompleted, ToolRevised, ToolStarted
from spine.forking import fork
from spine.hooks import hookimpl
from spine.messages import TextBlock
from spine.owning import this_process
from spine.proof.course import course_of
from spine.proof.diff import Comparison, compare
from spine.proof.request_view import find_request
from spine.revisions import result_block
from spine.runtime import Runtime
from spine.scope import Scope
from spine.sections import Section
from spine.stored import StoredLog
from spine.tools import ToolError, ToolInvocation, ToolOutcome
from spine.values import CallId, ScopeId, SessionId, encode, step_of

__all__ = ["Supposed", "WhatIf", "step_after", "what_if"]

INSTRUCTIONS = "instructions"
NAME = "what_if"


@attrs.frozen(kw_only=True)
class Supposed:
    """What is another: the model (`provider:name`), sections by name, results by call. Texts are what a model sees."""

    model: str | None = None
    sections: Mapping[str, str] = attrs.field(factory=dict)
    results: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class WhatIf:
    """The other future: `session` is stored beside the original, `status` is how its turn ended."""

    session: SessionId
    step: str
    status: str
    comparison: Comparison


async def what_if(
    runtime: Runtime,
    session: str,
    agent: Agent,
    supposed: Supposed,
    *,
    step: str,
    child: SessionId,
    now: int,
    runs_tools: bool = False,
    deps: Any = None,
) -> WhatIf:
    """Fork a session before `step`, run its turn on, and compare with what had followed up to the end of that turn.

    The runtime's own model answers, or its adapters. `now` in microseconds since 1970 UTC. Raises `UsageError` for a
    step or a call that the session does not have, and what opening the session raises.
    """
    source = runtime.reader(session)
    view, _ = find_request(source, step)
    revised = [(_revised(source, CallId(call), text), step_of(CallId(call))) for call, text in supposed.results.items()]
    changes: dict[str, Any] = {} if supposed.model is None else {"model": supposed.model}
    if INSTRUCTIONS in supposed.sections:
        changes["instructions"] = supposed.sections[INSTRUCTIONS]
    agent = agent.evolve(**changes)
    runtime.routes.resolve(runtime.resolve_model(agent.model), Scope(ScopeId(child)))  # before anything is stored
    at = _border(source, step, has_results=bool(revised))
    fork(source, child, at, owner=this_process(now, 0), now=now, opening=revised)
    orders = {block.name: block.order for block in view.request.system}
    info = runtime.load_plugin(_Supposing(supposed, orders, None if runs_tools else _recorded(source)))
    try:
        opened = await runtime.open_session(child, agent, deps=deps)
        turn = await opened.resume(check=False)
        await opened.close()
    finally:
        runtime.unload_plugin(info.name)
    if turn is None:
        raise UsageError(f'step "{step}" of {session} is not in an open turn', hint=f"spine log {session}")
    found = _compared(source, runtime.reader(child), turn.id, runs_tools=runs_tools)
    return WhatIf(session=child, step=step, status=turn.status, comparison=found)


def step_after(source: StoredLog, calls: Sequence[str]) -> str:
    """The step whose request is the first to show the results of `calls`. Raises `UsageError`."""
    steps = {step_of(CallId(call)) for call in calls}
    if len(steps) != 1:
        raise UsageError(f"results of several steps cannot be others at once: {', '.join(sorted(steps))}")
    (step,) = steps
    turn, _, number = step.partition("s")
    return f"{turn}s{int(number) + 1}" if number.isdecimal() else step


def _border(source: StoredLog, step: str, *, has_results: bool) -> int:
    """The seq before a step's first event; with results to revise, that of the last event of the step before it."""
    before = last = 0
    for row in source.rows():
        if row.place == step:
            break
        before = row.seq
        last = row.seq if row.place is not None and "s" in row.place else last
    return last if has_results else before


def _revised(source: StoredLog, call: CallId, text: str) -> ToolRevised:
    name = next((e.data.result.name for e in source.read(types=["tool.completed"]) if e.data.call == call), None)
    if name is None:
        raise UsageError(f'no result of call "{call}" in {source.session}', hint=f"spine transcript {source.session}")
    outcome = ToolOutcome(content=(TextBlock(text=text),))
    patch = Patch(plugin=f"{NAME}@{_Supposing.__version__}", phase="after", changes=(FieldChange(field="content"),))
    return ToolRevised(result=result_block(call, name, outcome), patches=(patch,))


Recorded = dict[tuple[str, bytes], list[ToolOutcome]]


def _recorded(source: StoredLog) -> Recorded:
    """By tool and arguments, what calls came to, in order."""
    started: dict[str, tuple[str, bytes]] = {}
    found: Recorded = defaultdict(list)
    for event in source.read(types=["tool.started", "tool.completed"]):
        data = event.data
        if isinstance(data, ToolStarted):
            started[data.call] = (data.name, encode(data.arguments))
        elif isinstance(data, ToolCompleted) and data.call in started:
            found[started[data.call]].append(data.outcome)
    return found


class _Supposing:
    """The plugin that puts the other things in: sections of the session's scope, and recorded results."""

    __name__ = NAME
    __version__ = "1"

    def __init__(self, supposed: Supposed, orders: Mapping[str, int], recorded: Recorded | None) -> None:
        self._sections = {name: text for name, text in supposed.sections.items() if name != INSTRUCTIONS}
        self._orders = orders
        self._recorded = recorded

    @hookimpl
    def spine_session_opened(self, registrar: Any) -> None:
        """Put the sections in front of those that they stand for."""
        for name, text in self._sections.items():
            registrar.add(Section(name, order=self._orders.get(name, 0), render=text))

    @hookimpl(trylast=True)
    async def spine_pre_execute(self, call: ToolInvocation, context: Any, call_next: Any) -> Any:
        """Answer from the log, after every other plugin had its say."""
        if self._recorded is None:
            return await call_next(call)
        outcomes = self._recorded.get((call.name, encode(call.arguments)), [])
        if not outcomes:
            text = f"error: {call.name} was not called with these arguments before, and tools do not run here."
            error = ToolError(kind="not_recorded", message=text)
            return ToolOutcome(status="error", content=(TextBlock(text=text),), error=error)
        return outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]


def _compared(source: StoredLog, child: StoredLog, turn: str, *, runs_tools: bool) -> Comparison:
    """Up to the end of the turn; plugins that had no part and approvals of calls that did not run are left out."""
    ends = (e.seq for e in source.read() if e.turn == turn and e.type in _ENDS)
    left, right = course_of(source, max(ends, default=None)), course_of(child)
    own = {name: version for name, version in right.versions.items() if name in left.versions}
    found = compare(left, attrs.evolve(right, versions=own))
    unasked = () if runs_tools else ("approval",)
    return attrs.evolve(found, differences=tuple(each for each in found.differences if each.what not in unasked))


_ENDS = ("turn.completed", "turn.failed", "turn.cancelled", "turn.suspended")
