"""The value a turn gives its caller (floor 8): frozen, made from the folded state."""

from collections.abc import Callable
from typing import Any, Literal

import attrs

from spine.agent import Agent
from spine.budgets import limits_of, unreported
from spine.drafts import maker
from spine.events import ApprovalRequested, ToolCompleted
from spine.frozen import frozen
from spine.llm.errors import Failure
from spine.llm.response import StopReason
from spine.llm.usage import Cost, Usage
from spine.messages import Message
from spine.outputs import parse_asked
from spine.projectors.status import SessionStatus, TurnState
from spine.projectors.visible import html_text
from spine.tools import ToolOutcome
from spine.values import CallId, JsonObject, TurnId

TurnStatus = Literal["open", "completed", "failed", "cancelled", "suspended"]


@frozen(kw_only=True)
class ToolCall:
    """One call of a turn. `arguments` are those it ran with, or would have."""

    id: CallId
    name: str
    arguments: JsonObject | None
    _completed: ToolCompleted | None

    @property
    def outcome(self) -> ToolOutcome | None:
        """What came back; None while the call waits."""
        return None if self._completed is None else self._completed.outcome


@frozen(kw_only=True)
class Turn:
    """A turn as far as it got. `head` is (seq, hash) of the log when it ended, to note elsewhere."""

    id: TurnId
    status: TurnStatus
    text: str
    """Text of the final message; of the last one so far when the turn did not complete."""
    output: Any = None
    """The parsed answer, when `output` was asked for."""
    message: Message | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    approvals: tuple[ApprovalRequested, ...] = ()
    """Open ones; not empty exactly when suspended."""
    usage: Usage = Usage()
    cost: Cost | None = None
    """None when some answer has no price."""
    steps: int = 0
    retries: int = 0
    stop_reason: StopReason | None = None
    warnings: tuple[str, ...] = ()
    error: Failure | None = None
    duration_s: float | None = None
    head: tuple[int, bytes] = (0, b"")

    def _repr_html_(self) -> str:
        """A notebook's cell: how it ended, and its text."""
        error = f": {self.error.message}" if self.error is not None else ""
        figures = f"{self.steps} step{'' if self.steps == 1 else 's'}, {self.usage}, cost {self.cost or 'unknown'}"
        # The classes keep notebooks from setting dollar signs as mathematics.
        return (
            '<div class="spine-turn tex2jax_ignore mathjax_ignore">'
            f"<pre>{html_text(self.text)}</pre>"
            f"<p>{html_text(f'turn {self.id} {self.status}{error} ({figures})')}</p></div>"
        )


def make_turn(
    status: SessionStatus, turn: TurnState, head: tuple[int, bytes], now: int, agent: Agent | None = None
) -> Turn:
    """The value of a turn's folded state; with the agent, warnings tell what its limits could not count."""
    answer = turn.answer[1] if turn.answer else None
    return _make(
        id=turn.id,
        status=turn.status,
        text=answer.message.text if answer else "",
        output=None,
        message=answer.message if answer else None,
        tool_calls=tuple(
            _make_call(
                id=call.block.id,
                name=call.block.name,
                arguments=call.started.arguments if call.started else call.block.arguments,
                _completed=call.completed,
            )
            for call in turn.all_calls
        ),
        approvals=tuple(a.request for a in status.open_approvals if a.turn == turn.id),
        usage=turn.usage,
        cost=turn.cost,
        steps=turn.steps,
        retries=turn.retries,
        stop_reason=answer.stop_reason if answer else None,
        warnings=_warnings(turn, agent),
        error=turn.failure if turn.status == "failed" else None,
        duration_s=max(0, (turn.ended_at or now) - turn.at) / 1_000_000,
        head=head,
    )


_make: Callable[..., Turn] = maker(Turn)
_make_call: Callable[..., ToolCall] = maker(ToolCall)


def with_output(turn: Turn, types: tuple[Any, ...], asked: Any) -> Turn:
    """The turn with its answer parsed as the first of `types` that has the schema `asked` for."""
    output, problem = parse_asked(types, asked, turn.text)
    return attrs.evolve(turn, output=output, warnings=(*turn.warnings, problem) if problem else turn.warnings)


def _warnings(turn: TurnState, agent: Agent | None) -> tuple[str, ...]:
    found = []
    if not turn.complete:
        found.append("the answer was cut")
    if turn.answer is not None:
        losses = turn.answer[1].metadata.get("losses", ())
        found.extend(str(loss) for loss in losses)
    if agent is not None and (uncounted := unreported(limits_of(agent, turn.started.overrides), turn)) is not None:
        found.append(uncounted)
    return tuple(found)
