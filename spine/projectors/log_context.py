"""What one line of a log needs to know of the lines before it (floor 6)."""

from collections.abc import Mapping
from typing import Any

from spine.events import ApprovalDecided, ApprovalRequested, ModelRequested, RecordedEvent, Splice, UnknownEvent
from spine.projectors.figures import Figures
from spine.projectors.model_history import HistoryState, ModelHistory
from spine.projectors.usage import SessionUsage
from spine.values import CallId


class LogContext:
    """Follows the events of one log: contents, figures and the length of history.

    Begun in the middle of a log, or past an event that is not known here, it answers None instead of guessing.
    """

    def __init__(self) -> None:
        self._usage = SessionUsage()
        self._tallies = self._usage.initial()
        self._projector = ModelHistory()
        self._history: HistoryState | None = self._projector.initial()
        self._last_seq = 0
        self._is_whole = True
        self._approvals: dict[str, CallId] = {}

    def follow(self, event: RecordedEvent) -> None:
        """Take the next event in."""
        self._is_whole = self._continues(event)
        self._last_seq = event.seq
        self._tallies = self._usage.apply(self._tallies, event)
        if type(event.data) is ApprovalRequested:
            self._approvals[event.data.id] = event.data.call
        if event.type in self._projector.types:
            if not self._is_whole or type(event.data) is UnknownEvent:
                self._history = None
            elif self._history is not None:
                self._history = self._next_history(self._history, event)

    def _next_history(self, history: HistoryState, event: RecordedEvent) -> HistoryState | None:
        try:
            return self._projector.apply(history, event)
        except LookupError:  # a log that does not fit together must be listed all the same
            return None

    def place(self, event: RecordedEvent) -> str:
        """The call an event is about, else its step; empty when it is about a turn or the session."""
        decided = self._approvals.get(event.data.id) if type(event.data) is ApprovalDecided else None
        call = decided or getattr(event.data, "call", None)
        return call if isinstance(call, str) else event.step or ""

    def figures(self, event: RecordedEvent) -> Figures | None:
        """The figures of the turn an event belongs to; None when the log was not seen from its beginning."""
        return self._tallies.turn(event.turn) if self._continues(event) else None

    def _continues(self, event: RecordedEvent) -> bool:
        return self._is_whole and event.seq == self._last_seq + 1

    def request(self, requested: ModelRequested) -> Mapping[str, Any]:
        """The fields of a request, as far as the log holds them inline; empty when it does not."""
        return self._tallies.contents.fields(requested)

    def messages(self, event: RecordedEvent) -> int | None:
        """How many messages a `model.requested` sent; None when the log was not seen from its beginning."""
        if self._history is None or not self._continues(event):
            return None
        splices = [change for patch in event.data.patches for change in patch.changes if type(change) is Splice]
        added = sum(len(splice.messages) - (splice.end - splice.start) for splice in splices)
        return len(self._history.view()) + added

    def parameter_order(self, event: RecordedEvent, tool: str) -> tuple[str, ...]:
        """The required parameters of a tool, in the order in which the request of the event's step declared them."""
        tally = None if event.step is None else self._tallies.steps.get(event.step)
        requested = None if tally is None else tally.requested
        return () if requested is None else self._tallies.contents.parameter_order(requested).get(tool, ())
