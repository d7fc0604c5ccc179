"""The projector `usage` (floor 6): what each model, turn and step used and cost.

Counts are those the providers reported; nothing is estimated, and what was not reported stays unknown.
"""

from collections.abc import Mapping
from types import MappingProxyType

from spine.events import CORE_EVENTS, RecordedEvent
from spine.frozen import frozen
from spine.projectors.figures import TALLY_RULES, Figures, StepTally, Tallies
from spine.values import StepId, TurnId


@frozen(kw_only=True)
class UsageReport:
    """A session's figures: in sum, and by model, turn and step, each in order of first use."""

    total: Figures
    models: Mapping[str, Figures]
    """By `provider:model`; the key `unknown` collects steps whose route the log does not say inline."""
    turns: Mapping[TurnId, Figures]
    steps: Mapping[StepId, Figures]


class SessionUsage:
    """The projector `usage`; `view` makes the report."""

    name = "usage"
    types = frozenset(kind.name for kind in CORE_EVENTS if kind.data in TALLY_RULES)

    def initial(self) -> Tallies:
        """A session that asked no model."""
        return Tallies()

    def apply(self, state: Tallies, event: RecordedEvent) -> Tallies:
        """Fold one event in; the state is changed in place."""
        rule = TALLY_RULES.get(type(event.data))
        if rule is not None:
            rule(state, event, event.data)
        return state

    def view(self, state: Tallies) -> UsageReport:
        """The report of everything folded so far."""
        by_model: dict[str, list[StepTally]] = {}
        for tally in state.steps.values():
            by_model.setdefault(state.route(tally) or "unknown", []).append(tally)
        return UsageReport(
            total=state.sum(state.steps.values()),
            models=MappingProxyType({model: state.sum(tallies) for model, tallies in by_model.items()}),
            turns=MappingProxyType({TurnId(turn): state.sum(tallies) for turn, tallies in state.turns.items()}),
            steps=MappingProxyType({tally.step: state.sum([tally]) for tally in state.steps.values()}),
        )
