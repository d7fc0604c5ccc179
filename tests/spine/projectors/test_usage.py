"""What a session used and cost: by model, turn and step; the unknown stays unknown."""

from typing import Any

import attrs
import pytest
from generated import generated_logs
from handwritten import RATE_LIMIT, Log, call, committed, requested
from hypothesis import given, settings

from spine.events import (
    MessageCommitted,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelRequested,
    RecordedEvent,
    StepFailed,
)
from spine.llm.usage import Cost, Usage, add_usage
from spine.projectors import Figures, SessionUsage, UsageReport, fold


def report_of(log: Log) -> UsageReport:
    return fold(SessionUsage(), log.events)


def dollars(micros: int, prices: str = "2026") -> Cost:
    return Cost(micros=micros, prices=prices)


def two_models() -> Log:
    log = Log()
    frames = {route: log.frame(route) for route in ("a:one", "b:two")}
    log.add(requested(frames["a:one"]), "t1s1")
    failed = Usage(input_tokens=5, output_tokens=1)
    log.add(ModelAttemptFailed(attempt=1, failure=RATE_LIMIT, delay_s=1, usage=failed), "t1s1")
    log.add(ModelAttemptStarted(attempt=2), "t1s1")
    used = Usage(input_tokens=100, cache_read_tokens=60, output_tokens=10)
    log.add(committed(call("f"), route="a:one", usage=used, cost=dollars(300)), "t1s1")
    log.step("Hm.", step="t1s2", route="b:two", usage=Usage(input_tokens=7, output_tokens=2), cost=dollars(20))
    log.step("Hm.", step="t2s1", route="a:one", usage=Usage(input_tokens=1, output_tokens=1), cost=dollars(1, "2027"))
    log.add(requested(frames["b:two"]), "t2s2")
    log.add(MessageInterrupted(), "t2s2")
    return log


def test_figures_by_model_turn_step_and_in_sum() -> None:
    report = report_of(two_models())
    assert list(report.models) == ["a:one", "b:two"]
    assert list(report.turns) == ["t1", "t2"]
    assert list(report.steps) == ["t1s1", "t1s2", "t2s1", "t2s2"]
    assert report.total == Figures(
        steps=4,
        attempts=5,
        retries=1,
        tool_calls=1,
        answers=3,
        interrupted=1,
        usage=Usage(input_tokens=108, cache_read_tokens=60, output_tokens=13),
        failed_usage=Usage(input_tokens=5, output_tokens=1),
        cost=Cost(micros=321, prices="2026, 2027"),
    )
    assert report.models["b:two"] == Figures(
        steps=2, attempts=2, answers=1, interrupted=1, usage=Usage(input_tokens=7, output_tokens=2), cost=dollars(20)
    )
    assert (report.turns["t1"].cost, report.turns["t2"].cost) == (dollars(320), dollars(1, "2027"))  # type: ignore[index]
    assert report.steps["t2s2"] == Figures(steps=1, attempts=1, interrupted=1)  # type: ignore[index]


def test_a_report_is_read_only() -> None:
    report = report_of(two_models())
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        report.total = Figures()  # type: ignore[misc]
    for part in (report.models, report.turns, report.steps):
        with pytest.raises(TypeError):
            part["x"] = Figures()  # type: ignore[index]


def test_a_session_that_asked_nobody_used_nothing_known() -> None:
    report = report_of(Log())
    assert report.total == Figures()
    assert report.total.cost is None
    assert report.total.cost_unknown == ()
    assert str(report.total) == "0 steps"


def test_a_step_without_a_request_is_no_step() -> None:
    log = Log()
    log.add(StepFailed(failure=RATE_LIMIT), "t1s1")
    assert report_of(log).total == Figures()


REPORTED = Usage(input_tokens=10, output_tokens=1)
UNKNOWN_COSTS: list[tuple[list[dict[str, Any]], tuple[str, ...]]] = [
    ([{"usage": REPORTED}], ("scripted:demo has no price",)),
    ([{"usage": REPORTED, "cost": dollars(1)}, {"usage": REPORTED}], ("scripted:demo has no price",)),
    ([{"usage": REPORTED}, {"usage": REPORTED}], ("scripted:demo has no price",)),
    ([{}], ("scripted:demo did not report its usage",)),
    ([{"usage": Usage(output_tokens=1)}], ("scripted:demo did not report its usage",)),
    (
        [{"usage": REPORTED}, {"route": "lab:tiny"}],
        ("scripted:demo has no price", "lab:tiny did not report its usage"),
    ),
    ([{"usage": REPORTED, "route": None}], ("the model has no price",)),
    ([{"usage": REPORTED, "route": "a\nb"}], ("a\\nb has no price",)),
    (
        [
            {"usage": REPORTED, "cost": dollars(1)},
            {"usage": REPORTED, "cost": Cost(micros=1, currency="EUR", prices="e")},
        ],
        ("prices are in EUR and USD",),
    ),
]


@pytest.mark.parametrize(("answers", "reasons"), UNKNOWN_COSTS)
def test_a_cost_with_an_unknown_part_is_unknown_and_says_why(
    answers: list[dict[str, Any]], reasons: tuple[str, ...]
) -> None:
    log = Log()
    for number, fields in enumerate(answers, 1):
        log.step("Hm.", step=f"t1s{number}", **fields)
    total = report_of(log).total
    assert total.cost is None
    assert total.cost_unknown == reasons


def test_a_free_answer_costs_nothing_and_that_is_known() -> None:
    log = Log()
    log.step("Hm.", usage=REPORTED, cost=dollars(0))
    assert report_of(log).total.cost == dollars(0)
    assert str(report_of(log).total).endswith("10 tokens in, 1 out, $0.000000")


def test_the_route_of_a_step_without_an_answer_comes_from_its_request() -> None:
    log = Log()
    log.add(requested(log.frame("lab:tiny")), "t1s1")
    log.add(requested(999), "t1s2")
    assert list(report_of(log).models) == ["lab:tiny", "unknown"]


@settings(deadline=None, max_examples=60)
@given(generated_logs())
def test_sums_agree_with_each_other_and_with_the_log(events: list[RecordedEvent]) -> None:
    report = fold(SessionUsage(), events)
    total = report.total
    for part in (report.models, report.turns, report.steps):
        for name in ("steps", "attempts", "retries", "tool_calls", "answers", "unreported", "interrupted"):
            assert sum(getattr(figures, name) for figures in part.values()) == getattr(total, name)
        usage = Usage()
        for figures in part.values():
            usage = add_usage(usage, figures.usage)
        assert usage == total.usage
    answers = [event.data for event in events if type(event.data) is MessageCommitted]
    assert total.answers == len(answers)
    assert total.steps == sum(type(event.data) is ModelRequested for event in events)
    assert total.attempts == total.steps + total.retries
    costs = [answer.cost for answer in answers]
    if answers and None not in costs:
        assert total.cost is not None
        assert total.cost.micros == sum(cost.micros for cost in costs if cost is not None)
    else:
        assert total.cost is None
        assert bool(total.cost_unknown) == bool(answers)
