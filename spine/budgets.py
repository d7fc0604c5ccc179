"""What a turn may use (floor 7): its limits, whether one is used up, and whether a limit on cost can be checked.

Steps, tokens and cost are compared with the turn's folded state and with nothing else, so that a turn comes to the same
end after a crash, on resuming and in a replay. Time is read from a clock; so a limit on it acts as a cancel does, which
is recorded first.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from spine.agent import Agent, Limits
from spine.clock import Clock
from spine.errors import BudgetUnknown, UsageError
from spine.frozen import frozen
from spine.llm.catalogue import Prices
from spine.llm.errors import Failure
from spine.llm.request import Route
from spine.projectors.status import TurnState

__all__ = ["STEPS", "Time", "as_overrides", "check_price", "limits_of", "unreported", "used_up"]

STEPS: Final = 50
"""Requests of a turn whose limits do not say how many."""
_NAMES: Final = ("steps", "cost", "tokens", "wall_s")


def as_overrides(limits: Limits) -> dict[str, Any]:
    """What `turn.started` records of limits that a turn was given: those that are there."""
    if not isinstance(limits, Limits):
        raise UsageError(f"limits are {limits!r:.80}; they must be Limits", hint="Limits(steps=20)")
    return {name: value for name in _NAMES if (value := getattr(limits, name)) is not None}


def limits_of(agent: Agent, overrides: Mapping[str, Any]) -> Limits:
    """The limits of a turn: the agent's, but for those that it was given itself."""
    given = {name: overrides[name] for name in _NAMES if name in overrides} if overrides else None
    return attrs.evolve(agent.limits, **given) if given else agent.limits


def used_up(limits: Limits, turn: TurnState) -> Failure | None:
    """Why no other request may be made; None while one may."""
    if turn.steps >= (steps := limits.steps or STEPS):
        return _failure("steps", steps, turn.steps, f"{steps} steps used")
    if limits.tokens is not None:
        used = (turn.usage.input_tokens or 0) + (turn.usage.output_tokens or 0)
        if used >= limits.tokens:
            return _failure("tokens", limits.tokens, used, f"{used:,} of {limits.tokens:,} tokens used")
    if limits.cost is not None and turn.spent_micros >= limits.cost_micros:
        spent, currency = divmod(turn.spent_micros, 1_000_000), _currency(limits.cost)
        message = f"{spent[0]}.{spent[1]:06d} of {limits.cost} used"
        return _failure("cost", limits.cost_micros, turn.spent_micros, message, currency=currency)
    return None


@frozen
class Time:
    """A turn's limit on time, counted from `since`, when the turn began or was gone on with in this process."""

    wall_s: float
    clock: Clock
    since: float

    @classmethod
    def of(cls, limits: Limits, clock: Clock) -> "Time | None":
        """The limit of a turn that goes on now; None without one."""
        return None if limits.wall_s is None else cls(limits.wall_s, clock, clock.monotonic())

    def used_up(self, turn: TurnState | None) -> Failure | None:
        """Why a running turn must stop; None while it may go on."""
        used = self.clock.monotonic() - self.since
        if turn is None or turn.status != "open" or used < self.wall_s:
            return None
        return _failure("wall_s", self.wall_s, round(used, 3), f"{self.wall_s:g} s used")


def _failure(name: str, allowed: float, used: float, message: str, **more: str) -> Failure:
    return Failure(category="limit", message=message, details={"limit": name, "allowed": allowed, "used": used, **more})


def _currency(cost: str) -> str:
    return cost.rpartition(" ")[2]


def check_price(limits: Limits, route: Route, prices: Prices | None) -> None:
    """Raise `BudgetUnknown` when what the route's answers cost could not be compared with the limit on cost."""
    if limits.cost is None or (prices is not None and prices.currency == _currency(limits.cost)):
        return
    cannot = f"limit cost {limits.cost} cannot be checked"
    if prices is None:
        hint = f'prices in spine.toml [models."{route}"], or limits without cost'
        raise BudgetUnknown(f"{cannot}: no price for {route}", hint=hint)
    raise BudgetUnknown(
        f"{cannot}: prices of {route} are in {prices.currency}",
        hint=f"a limit in {prices.currency}, or limits without cost",
    )


def unreported(limits: Limits, turn: TurnState) -> str | None:
    """What is to be known of a turn whose limits could not count everything; None when they could."""
    uncounted = {
        "tokens": limits.tokens is not None and turn.has_unreported,
        "cost": limits.cost is not None and turn.has_unpriced,
    }
    names = " and ".join(name for name, is_so in uncounted.items() if is_so)
    return f"the limit on {names} counted only what was reported; some answer did not say all" if names else None
