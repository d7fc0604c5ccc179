"""What a transcript is made of (floor 6): inputs, steps, ends of turns, and facts as the log holds them.

A fact is its `RecordedEvent`: nothing is retold here, so a reader of a transcript can always go back to the log.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from spine.events import ApprovalRequested, Patch, RecordedEvent, ToolCompleted, ToolRevised, ToolStarted
from spine.frozen import frozen
from spine.messages import ContentBlock, Message, ToolCallBlock, ToolResultBlock
from spine.projectors.figures import Figures
from spine.values import SessionId, StepId


@frozen(kw_only=True)
class InputEntry:
    """An input. `event` is its `input.accepted`, `place` where history took it; None while it waits."""

    event: RecordedEvent
    place: Literal["turn", "step"] | None

    @property
    def message(self) -> Message:
        """The input as the model gets it."""
        message: Message = self.event.data.message
        return message


@frozen(kw_only=True)
class Call:
    """A call the model asked for, and everything that became of it, in order of the log."""

    block: ToolCallBlock
    order: tuple[str, ...] = ()
    """The tool's required parameters as it declares them: the order in which arguments are shown."""
    facts: tuple[RecordedEvent, ...] = ()
    """Approvals, start, recovery's decision, completion, revision."""

    @property
    def completed(self) -> ToolCompleted | None:
        """What came back; None while nothing did."""
        return next((fact.data for fact in reversed(self.facts) if type(fact.data) is ToolCompleted), None)

    @property
    def revised(self) -> ToolRevised | None:
        """The revision by plugins that the model sees in place of what came back."""
        return next((fact.data for fact in reversed(self.facts) if type(fact.data) is ToolRevised), None)

    @property
    def result(self) -> ToolResultBlock | None:
        """The result as the model sees it."""
        answer = self.revised or self.completed
        return None if answer is None else answer.result


Part = ContentBlock | Call | RecordedEvent
"""Of a step: a block the model wrote, a call with its outcome, or a fact (failed attempt, interruption, …)."""


@frozen(kw_only=True)
class StepEntry:
    """One step: what the model wrote and what was done, in order. `at` and `seq` are those of its first event."""

    step: StepId
    at: int
    seq: int
    route: str | None
    """`provider:model` that was asked; None when the log does not say it inline."""
    parts: tuple[Part, ...] = ()
    attempts: int = 0
    is_open: bool = False
    """The answer is still arriving: the last parts are what arrived so far."""


@frozen(kw_only=True)
class TurnEntry:
    """The end of a turn, or its suspension as long as it lasts; `figures` cover the turn up to there."""

    event: RecordedEvent
    figures: Figures


Entry = InputEntry | StepEntry | TurnEntry | RecordedEvent
"""What stands between two blank lines. A bare event is a fact outside of steps: a fork, a compaction, a repeat, …"""


class Told(Protocol):
    """What renderers read: a `Transcript`, or anything with the same fields."""

    @property
    def session(self) -> SessionId | None:
        """The session's id, None for an empty log."""
        ...

    @property
    def title(self) -> str | None:
        """Its title, if it has one."""
        ...

    @property
    def routes(self) -> tuple[str, ...]:
        """Every `provider:model` it asked, in order of first use."""
        ...

    @property
    def entries(self) -> Sequence[Entry]:
        """What happened, in order."""
        ...


def patches_of(fact: RecordedEvent) -> tuple[Patch, ...]:
    """What plugins changed of a call or its result, when the fact says so."""
    data = fact.data
    return data.patches if isinstance(data, ToolStarted | ApprovalRequested | ToolRevised) else ()
