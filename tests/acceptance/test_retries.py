"""Retries: transient failures, nothing visible yet, attempts left; each attempt and each wait stands in the log."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from cases import case, failure_of
from stage import Adapter, agent_of, data_of, events_of, judge, kinds_of, staged, tool_of

from spine.events import ModelAttemptFailed
from spine.llm import chunks as c
from spine.llm.assemble import assemble
from spine.llm.errors import CATEGORIES, RETRYABLE, Failure, provider_error
from spine.llm.response import ModelResponse
from spine.llm.retry import RetryPolicy, next_delay
from spine.testing.clock import FakeClock, FakeRandom
from spine.testing.script import call, fail, say, stall, think, usage
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


async def played(*script: Any, **options: Any) -> tuple[Any, Any, FakeClock, ScriptedAdapter]:
    """One turn on a fake clock: the turn, its events, the clock, the model."""
    clock = FakeClock()
    model = ScriptedAdapter(*script, clock=clock)
    async with staged(model=model, clock=clock, random=FakeRandom(0.5), **options) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: "x")))
        turn = await session.run("Go.", check=False)
        return turn, judge(session.log), clock, model


def attempts_in(events: Any) -> list[ModelAttemptFailed]:
    return [event.data for event in events if event.type == "model.attempt_failed"]


async def test_every_attempt_and_every_wait_is_an_event() -> None:
    """Failed attempts say why, what the server asked and how long is waited; the next attempt's start ends the wait."""
    turn, events, clock, model = await played(
        fail("rate_limit", status=429, retry_after_s=2), fail("overloaded", status=529), say("Done.")
    )
    assert (turn.status, turn.retries, len(model.requests)) == ("completed", 2, 3)
    kinds = [e.type for e in events if e.type.startswith("model.") and e.type != "model.chunks"]
    failed, started = "model.attempt_failed", "model.attempt_started"
    assert kinds == ["model.requested", failed, started, failed, started]
    assert [(f.attempt, f.failure.category, f.failure.status, f.delay_s) for f in attempts_in(events)] == [
        (1, "rate_limit", 429, 2.0),
        (2, "overloaded", 529, 0.5),
    ]
    times = {e.type + str(i): e.at for i, e in enumerate(e for e in events if e.type in (failed, started))}
    assert times[f"{started}1"] - times[f"{failed}0"] == 2_000_000
    assert clock.monotonic() == pytest.approx(2.5)


@pytest.mark.parametrize("category", CATEGORIES)
async def test_only_what_an_identical_request_can_cure_is_tried_again(category: Any) -> None:
    """Transient categories are retried, all others fail at the first attempt; billing never."""
    turn, events, _, model = await played(fail(category), say("Done."))
    assert len(model.requests) == (2 if category in RETRYABLE else 1)
    assert turn.status == ("completed" if category in RETRYABLE else "failed")
    if category not in RETRYABLE:
        assert turn.error.category == category
        assert attempts_in(events)[0].delay_s is None


async def test_a_provider_may_say_that_a_retry_is_welcome_or_useless() -> None:
    """`retryable` of the failure decides, not its category's default."""
    assert len((await played(fail("invalid_request", retryable=True), say("ok")))[3].requests) == 2
    assert len((await played(fail("overloaded", retryable=False), say("ok")))[3].requests) == 1


async def test_attempts_are_exhausted_at_three() -> None:
    """The third failure ends the step; it is the turn's error, and no wait follows it."""
    turn, events, _, model = await played(*[fail("overloaded")] * 5)
    assert (turn.status, len(model.requests), turn.retries) == ("failed", 3, 2)
    assert [f.delay_s for f in attempts_in(events)] == [0.25, 0.5, None]
    assert turn.error == attempts_in(events)[-1].failure
    assert [e.type for e in events][-2:] == ["step.failed", "turn.failed"]


async def test_a_policy_may_allow_more_or_fewer_attempts() -> None:
    """`RetryPolicy(attempts=1)` never retries."""
    turn, _, _, model = await played(fail("overloaded"), say("ok"), retry=RetryPolicy(attempts=1))
    assert (turn.status, len(model.requests)) == ("failed", 1)


DELAYS = {
    "of the server": (20.0, 20.0),
    "of less than a second": (0.04, 0.04),
    "of sixty seconds": (60.0, 60.0),
    "beyond sixty seconds": (60.5, None),
    "of zero is no delay of the server's": (0.0, 0.25),
    "not named": (None, 0.25),
}


@pytest.mark.parametrize(("asked", "waited"), DELAYS.values(), ids=DELAYS)
async def test_a_delay(asked: float | None, waited: float | None) -> None:
    """A server's delay is honoured up to a minute; beyond it the failure is handed up with the number."""
    turn, events, clock, _ = await played(fail("rate_limit", retry_after_s=asked), say("Done."))
    assert attempts_in(events)[0].delay_s == waited
    assert clock.monotonic() == pytest.approx(waited or 0.0)
    assert turn.status == ("completed" if waited is not None else "failed")
    if waited is None:
        assert turn.error.retry_after_s == asked


def test_backoff_doubles_under_full_jitter_up_to_its_cap() -> None:
    """The policy is pure: delays follow attempt and random number, never beyond the cap."""
    policy, failure = RetryPolicy(attempts=99), Failure(category="timeout", message="", retryable=True)
    delays = [next_delay(policy, failure, n, visible=False, random=lambda: 0.999) for n in range(1, 90)]
    assert [round(delay or 0.0, 1) for delay in delays[:6]] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert all(delay is not None and delay <= 8.0 for delay in delays)
    assert next_delay(policy, failure, 1, visible=False, random=lambda: 0.0) == 0.0
    assert next_delay(policy, failure, 99, visible=False, random=lambda: 0.5) is None
    assert next_delay(policy, failure, 1, visible=True, random=lambda: 0.5) is None


VISIBLE = {
    "text": say("Here is the pl"),
    "thinking": think("Hm."),
    "a call": call("look"),
    "text and half a call": say("Here is the pl") + call("look"),
}


@pytest.mark.parametrize("seen", VISIBLE.values(), ids=VISIBLE)
async def test_what_was_seen_is_never_taken_back_by_a_retry(seen: Any) -> None:
    """After visible output there is no retry: the partial is kept as interrupted, with its failure."""
    turn, events, _, model = await played(seen + fail("connection"), say("Here is the plan."))
    assert (turn.status, len(model.requests), turn.error.category) == ("failed", 1, "connection")
    interrupted = [e.data for e in events if e.type == "message.interrupted"]
    assert [(i.cause, i.failure.category) for i in interrupted] == [("failed", "connection")]
    assert "message.committed" not in [e.type for e in events]
    assert "tool.completed" not in [e.type for e in events]


async def test_usage_alone_is_not_visible_and_is_recorded_with_the_failed_attempt() -> None:
    """An attempt that reported tokens and nothing else may be retried; what it used is not lost."""
    turn, events, _, _ = await played(usage(input_tokens=12) + fail("overloaded"), say("Done."))
    assert turn.status == "completed"
    assert attempts_in(events)[0].usage.input_tokens == 12


async def test_texts_of_two_attempts_are_never_glued() -> None:
    """Deltas of a failed attempt do not run into those of the next one, in the log or live."""
    async with staged(fail("overloaded", retry_after_s=0), say("Here is the plan.")) as runtime:
        session = await runtime.session("s", agent_of())
        async with session.stream("Go.") as stream:
            live = [piece async for piece in stream.text()]
        assert "".join(live) == "Here is the plan."
        assert {data.attempt for data in data_of(session, "model.chunks")} == {2}


async def test_a_wait_can_be_cancelled() -> None:
    """Cancelling during the back-off ends the turn at once, without another attempt."""
    async with staged(fail("overloaded", retry_after_s=50), say("never")) as runtime:
        session = await runtime.session("s", agent_of())
        with anyio.fail_after(2):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run, "Go.")
                while "model.attempt_failed" not in kinds_of(session) if session.log.head[0] else True:
                    await anyio.sleep(0.005)
                await session.cancel()
        assert session.turn.status == "cancelled"
        assert "model.attempt_started" not in kinds_of(session)
        judge(session.log)


# ------------------------------------------------------------------------------------------------- the bug cases


async def test_r01_a_quota_is_not_retried() -> None:
    """429 that means "no money left" is one request, category billing, and keeps the provider's code."""
    given = case("r01-quota-not-retried")
    error = given["server_script"][0]["body"]["error"]
    turn, _, _, model = await played(fail("billing", status=429, code=error["code"], message=error["message"]))
    assert len(model.requests) == given["expect_requests"]
    assert (turn.error.category, turn.error.retryable, turn.error.code) == ("billing", False, error["code"])


async def test_r02_the_servers_delays_are_kept_between_requests() -> None:
    """Twenty seconds by date and one and a half by milliseconds: three requests, not before their time."""
    given = case("r02-retry-after-date")
    turn, _events, clock, model = await played(
        fail("rate_limit", retry_after_s=20.0), fail("overloaded", retry_after_s=1.5), say("ok")
    )
    assert len(model.requests) == given["expect_requests"]
    assert (turn.status, clock.monotonic()) == ("completed", pytest.approx(21.5))


async def test_r03_a_stream_that_breaks_after_text_and_half_a_call_is_not_retried() -> None:
    """The turn ends as failed with the partial text marked incomplete; no half call stays in history."""
    case("r03-retry-after-partial-output")

    async def play(request: Any) -> AsyncIterator[Any]:
        yield c.TextDelta(0, "Here is the pl")
        yield c.ToolCallStarted(1, "look", "call_9")
        yield c.ToolCallDelta(1, '{"n": ')
        raise provider_error("connection", "reset")

    async with staged(model=Adapter(play)) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: "x")))
        turn = await session.run("Go.", check=False)
        assert (turn.status, len(events_of(session, "model.attempt_failed"))) == ("failed", 1)
        assert data_of(session, "message.interrupted")[0].message.text == "Here is the pl"
        assert not any(m.tool_calls for m in session.history())


async def test_r04_an_overflow_is_recognised_and_not_blindly_retried() -> None:
    """Context overflow is one request, not retryable as it stands."""
    case("r04-overflow-not-retried")
    turn, _, _, model = await played(fail("context_overflow", status=400), say("never"))
    assert (len(model.requests), turn.error.category, turn.error.retryable) == (1, "context_overflow", False)


async def test_r05_a_stream_that_goes_silent_times_out_with_its_text_kept() -> None:
    """A stall that its adapter reports as timeout is retryable in itself; the text that came is kept."""
    case("r05-idle-stall")
    turn, events, clock, _ = await played(say("One") + stall(5) + fail("timeout"))
    assert (turn.status, turn.error.category, turn.error.retryable) == ("failed", "timeout", True)
    assert [e.data.message.text for e in events if e.type == "message.interrupted"] == ["One"]
    assert clock.monotonic() == pytest.approx(5.0)
    assert failure_of("timeout").retryable


async def test_the_response_of_the_good_attempt_is_the_only_message() -> None:
    """After a retry history has one assistant message, from the attempt that went well."""
    turn, events, _, _ = await played(fail("server_error"), say("Here is the plan."))
    committed = [e.data.message for e in events if e.type == "message.committed"]
    assert [m.text for m in committed] == ["Here is the plan."]
    assert turn.message == committed[0]


def test_the_fold_of_no_chunks_is_an_empty_message() -> None:
    """An attempt without chunks has nothing to keep."""
    assert ModelResponse(message=assemble([]), stop_reason="end_turn").message.content == ()


async def test_a_policy_may_take_back_what_was_shown_and_says_so() -> None:
    """The caller accepted a discard: the attempt is made again, the withdrawn part stands in no history."""
    policy = RetryPolicy(discards=True)
    turn, events, _, _ = await played(say("Half") + fail("connection"), say("Whole."), retry=policy)
    assert (turn.status, turn.text, turn.retries) == ("completed", "Whole.", 1)
    assert [data.discarded for data in attempts_in(events)] == [True]
    assert "message.interrupted" not in [event.type for event in events]


async def test_nothing_is_withdrawn_by_an_attempt_that_is_the_last() -> None:
    """What was shown then stays as an interrupted message."""
    policy = RetryPolicy(attempts=2, discards=True)
    script = (say("Half") + fail("connection"), say("Again") + fail("connection"))
    turn, events, _, _ = await played(*script, retry=policy)
    assert turn.status == "failed"
    assert [data.discarded for data in attempts_in(events)] == [True, False]
    assert [e.data.message.text for e in events if e.type == "message.interrupted"] == ["Again"]
