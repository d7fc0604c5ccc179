"""Counts, tokens and money of some steps (floor 6): what usage, transcript and log add up.

The rule guarded here: what nobody reported is unknown, never zero, and a sum with an unknown part says so.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from spine.events import (
    ContentAdded,
    MessageCommitted,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelRequested,
    RecordedEvent,
)
from spine.frozen import define, frozen
from spine.llm.usage import Cost, Usage, total_usage
from spine.projectors.contents import Contents
from spine.projectors.phrases import counted, listed, money
from spine.projectors.visible import one_line
from spine.values import StepId, TurnId


@frozen(kw_only=True)
class Figures:
    """The sum over some steps. `usage` and `cost` are those of whole answers; failed attempts are counted apart."""

    steps: int = 0
    attempts: int = 0
    """All requests that went out, first ones included."""
    retries: int = 0
    tool_calls: int = 0
    answers: int = 0
    """Whole answers (`message.committed`)."""
    unreported: int = 0
    """Answers that did not report both input and output tokens: `usage` is then a lower bound."""
    interrupted: int = 0
    """Answers that were cut; what they used is not known."""
    usage: Usage = Usage()
    failed_usage: Usage = Usage()
    """What failed attempts reported; never part of `usage` or `cost`."""
    cost: Cost | None = None
    """None when there was no answer, or some answer's cost is not known."""
    cost_unknown: tuple[str, ...] = ()
    """Why the cost is not known, one phrase for each reason; empty when it is."""

    def __str__(self) -> str:
        """`3 steps, 2 tool calls, 1 retry, 4,717 tokens in (2,816 from cache), 82 out, $0.008833`."""
        return ", ".join([*self._count_phrases(), *self._usage_phrases()])

    def _count_phrases(self) -> Iterable[str]:
        yield counted(self.steps, "step")
        if self.tool_calls:
            yield counted(self.tool_calls, "tool call")
        if self.retries:
            yield counted(self.retries, "retry")

    def _usage_phrases(self) -> Iterable[str]:
        usage, at_least = self.usage, "at least " if self.unreported else ""
        if usage.input_tokens is not None:
            cached = f" ({usage.cache_read_tokens:,} from cache)" if usage.cache_read_tokens else ""
            yield f"{at_least}{counted(usage.input_tokens, 'token')} in{cached}"
        if usage.output_tokens is not None:
            yield f"{at_least}{usage.output_tokens:,} out"
        if self.failed_usage != Usage():
            yield f"failed attempts used {_in_and_out(self.failed_usage)}"
        if self.cost is not None:
            yield money(self.cost)
        elif usage != Usage() and self.cost_unknown:
            yield f"cost unknown ({'; '.join(self.cost_unknown)})"
        if self.interrupted and (usage != Usage() or self.cost is not None):
            yield f"{counted(self.interrupted, 'interrupted answer')} not counted"


def _in_and_out(usage: Usage) -> str:
    counts = ((usage.input_tokens, "in"), (usage.output_tokens, "out"))
    return " and ".join(f"{'unknown' if number is None else f'{number:,}'} {way}" for number, way in counts)


# ------------------------------------------------------------------------------------------------------- adding up


@define
class StepTally:
    """What one step used so far."""

    step: StepId
    requested: ModelRequested | None = None
    attempts: int = 0
    retries: int = 0
    interrupted: int = 0
    tool_calls: int = 0
    answers: tuple[MessageCommitted, ...] = ()
    failed: tuple[Usage, ...] = ()


@define
class Tallies:
    """The tallies of all steps, in order, and the contents that name their routes."""

    steps: dict[str, StepTally] = attrs.Factory(dict)
    """By place, which is a step's id."""
    turns: dict[str, list[StepTally]] = attrs.Factory(dict)
    contents: Contents = attrs.Factory(Contents)

    def of(self, event: RecordedEvent) -> StepTally:
        """The tally of the step an event belongs to."""
        place = event.place or ""
        tally = self.steps.get(place)
        if tally is None:
            tally = self.steps[place] = StepTally(StepId(place))
            turn = place.partition("s")[0]
            if turn in self.turns:
                self.turns[turn].append(tally)
            else:
                self.turns[turn] = [tally]
        return tally

    def route(self, tally: StepTally) -> str | None:
        """`provider:model` a step asked; None when the log does not say it inline."""
        origin = tally.answers[-1].message.origin if tally.answers else None
        if origin is not None:
            return origin.route
        return None if tally.requested is None else self.contents.route(tally.requested)

    def turn(self, turn: TurnId | None) -> Figures:
        """The figures of one turn so far."""
        return self.sum(self.turns.get(turn, ()) if turn is not None else ())

    def sum(self, tallies: Iterable[StepTally]) -> Figures:
        """The figures of some steps."""
        tallies = list(tallies)
        answers = [answer for tally in tallies for answer in tally.answers]
        unreported, unpriced = 0, dict[tuple[str | None, bool], None]()
        for tally in tallies:
            for answer in tally.answers:
                lacks_usage = _lacks_usage(answer.usage)
                unreported += lacks_usage
                if answer.cost is None:
                    unpriced[self.route(tally), lacks_usage] = None
        cost, cost_unknown = _sum_of_costs(
            [answer.cost for answer in answers if answer.cost is not None],
            [_why_unknown(route, lacks_usage) for route, lacks_usage in unpriced],
        )
        return Figures(
            steps=sum([tally.requested is not None for tally in tallies]),
            attempts=sum([tally.attempts for tally in tallies]),
            retries=sum([tally.retries for tally in tallies]),
            tool_calls=sum([tally.tool_calls for tally in tallies]),
            answers=len(answers),
            unreported=unreported,
            interrupted=sum([tally.interrupted for tally in tallies]),
            usage=total_usage([answer.usage for answer in answers]),
            failed_usage=total_usage([usage for tally in tallies for usage in tally.failed]),
            cost=cost,
            cost_unknown=cost_unknown,
        )


def _lacks_usage(usage: Usage) -> bool:
    return usage.input_tokens is None or usage.output_tokens is None


def _sum_of_costs(costs: list[Cost], reasons: list[str]) -> tuple[Cost | None, tuple[str, ...]]:
    currencies = sorted({cost.currency for cost in costs})
    if len(currencies) > 1:
        reasons.append(f"prices are in {listed(currencies)}")
    if reasons or not costs:
        return None, tuple(dict.fromkeys(reasons))
    prices = ", ".join(dict.fromkeys(cost.prices for cost in costs))
    return Cost(micros=sum(cost.micros for cost in costs), currency=currencies[0], prices=prices), ()


def _why_unknown(route: str | None, lacks_usage: bool) -> str:
    return f"{one_line(route or 'the model')} {'did not report its usage' if lacks_usage else 'has no price'}"


# ----------------------------------------------------------------------------------------------------------- rules


def _content(tallies: Tallies, event: RecordedEvent, data: ContentAdded) -> None:
    tallies.contents.add(event.seq, data)


def _requested(tallies: Tallies, event: RecordedEvent, data: ModelRequested) -> None:
    tally = tallies.of(event)
    tally.requested = data
    tally.attempts += 1


def _attempt_started(tallies: Tallies, event: RecordedEvent, data: ModelAttemptStarted) -> None:
    tally = tallies.of(event)
    tally.attempts += 1
    tally.retries += 1


def _attempt_failed(tallies: Tallies, event: RecordedEvent, data: ModelAttemptFailed) -> None:
    tallies.of(event).failed += (data.usage,)


def _committed(tallies: Tallies, event: RecordedEvent, data: MessageCommitted) -> None:
    tally = tallies.of(event)
    tally.answers += (data,)
    tally.tool_calls += len(data.message.tool_calls)


def _interrupted(tallies: Tallies, event: RecordedEvent, data: MessageInterrupted) -> None:
    tallies.of(event).interrupted += 1


TALLY_RULES: Mapping[type, Callable[[Tallies, RecordedEvent, Any], None]] = {
    ContentAdded: _content,
    ModelRequested: _requested,
    ModelAttemptStarted: _attempt_started,
    ModelAttemptFailed: _attempt_failed,
    MessageCommitted: _committed,
    MessageInterrupted: _interrupted,
}
"""By class of the data: how an event changes the tallies."""
