"""Endings: calls decide, not the stop reason. The whole table, each stop reason with and without calls."""

from itertools import product
from typing import Any

import pytest
from stage import agent_of, data_of, judge, kinds_of, staged, text_of_result, tool_of

from spine.llm.response import STOP_REASONS
from spine.projectors.status import ending
from spine.testing.script import call, call_text, cut, expect, fail, say, stop
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio
CALLS = {
    "no calls": say("Text."),
    "a whole call": say("Text.") + call("look", n=1),
    "a broken call": say("Text.") + call_text("look", '{"n": '),
    "a whole and a broken call": say("Text.") + call("look", n=1) + call_text("look", '{"n": '),
}
RUNS = ("end_turn", "tool_use", "stop_sequence", "pause", "unknown")
DROPS = {"refusal", "content_filter", "context_window"}


def outcome_of(stop_reason: str, calls: str) -> tuple[str, list[str]]:
    """What the table says: how the turn ends after this answer (or `step`), and the outcomes of the calls."""
    kinds = {
        "no calls": [],
        "a whole call": ["ok"],
        "a broken call": ["error"],
        "a whole and a broken call": ["ok", "error"],
    }
    if calls == "no calls":
        return {"pause": "step", "context_window": "failed"}.get(stop_reason, "completed"), []
    if stop_reason in RUNS:
        return "step", kinds[calls]
    dropped = ["not_started"] * len(kinds[calls])
    if stop_reason == "max_tokens":
        return "step", dropped
    return ("failed" if stop_reason == "context_window" else "completed"), dropped


@pytest.mark.parametrize(("stop_reason", "calls"), list(product(STOP_REASONS, CALLS)))
async def test_every_ending_has_its_consequence(stop_reason: Any, calls: str) -> None:
    """Each stop reason × calls: run or not started, next step or the end, complete or cut, as the table says."""
    consequence, expected = outcome_of(stop_reason, calls)
    ran: list[Any] = []
    async with staged(CALLS[calls] + stop(stop_reason), say("Next.")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: ran.append(1) or "x")))
        turn = await session.run("Go.", check=False)
        judge(session.log)
        assert [call.outcome.status for call in turn.tool_calls] == expected
        assert len(ran) == expected.count("ok")
        assert turn.steps == (2 if consequence == "step" else 1)
        if consequence == "failed":
            assert (turn.status, turn.error.category) == ("failed", "context_overflow")
            assert kinds_of(session)[-2:] == ["step.failed", "turn.failed"]
            return
        assert turn.status == "completed"
        ended = data_of(session, "turn.completed")[0]
        final = "end_turn" if consequence == "step" else stop_reason
        assert (ended.stop_reason, turn.stop_reason) == (final, final)
        assert ended.complete is (final not in ("max_tokens", "refusal", "content_filter"))
        assert bool(turn.warnings) is not ended.complete
        assert turn.text == ("Next." if consequence == "step" else "Text.")


def test_the_table_of_endings_is_total() -> None:
    """Every stop reason has an entry with and without calls."""
    assert {ending(has_calls, reason) for has_calls in (True, False) for reason in STOP_REASONS} == {
        "run", "drop_then_step", "drop_then_end", "step", "end", "fail",
    }  # fmt: skip


async def test_after_max_tokens_the_model_is_told_that_its_calls_may_be_incomplete() -> None:
    """The dropped calls say why they did not run, and the next step shows it."""
    model = ScriptedAdapter(
        call("look") + stop("max_tokens"), expect(last_role="tool", contains="output limit") + say("Again.")
    )
    async with staged(model=model) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: "x")))
        assert (await session.run("Go.")).text == "Again."
        model.check_used()


async def test_a_pause_goes_on_at_once() -> None:
    """After `pause` the same turn asks again, with what was said so far."""
    model = ScriptedAdapter(say("So far.") + stop("pause"), expect(last_role="assistant") + say(" And on."))
    async with staged(model=model) as runtime:
        session = await runtime.session("s", agent_of())
        turn = await session.run("Go.")
        assert (turn.steps, turn.text) == (2, " And on.")


async def test_a_cut_is_a_failed_attempt_and_nothing_of_it_runs() -> None:
    """A stream that ends too early executes none of its calls: what was visible is kept as interrupted."""
    ran: list[int] = []
    async with staged(say("One moment.") + call("look", n=1) + cut(), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: ran.append(1))))
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.error.category, ran) == ("failed", "stream_truncated", [])
        kept = data_of(session, "message.interrupted")[0]
        assert (kept.cause, kept.message.text, kept.failure) == ("failed", "One moment.", turn.error)
        assert "tool.completed" not in kinds_of(session)
        await session.run("Go on.")
        assert [message.text for message in session.history()] == ["Go.", "Go on.", "ok"]
        judge(session.log)


async def test_empty_arguments_mean_no_arguments() -> None:
    """ "" is `{}`."""
    got: list[Any] = []
    async with staged(call_text("look", ""), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: got.append(dict(a)) or "x")))
        await session.run("Go.")
        assert got == [{}]
        assert text_of_result(data_of(session, "tool.completed")[0].result) == "x"


async def test_an_empty_answer_completes_the_turn_without_text() -> None:
    """No block at all is an answer too: nothing is invented."""
    async with staged(say("")) as runtime:
        session = await runtime.session("s", agent_of())
        turn = await session.run("Go.")
        assert (turn.status, turn.text, turn.message.content) == ("completed", "", ())
        judge(session.log)


async def test_a_failure_after_a_step_keeps_what_was_done() -> None:
    """A later step that fails leaves the earlier steps' messages and results in history."""
    async with staged(call("look"), fail("auth"), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: "x")))
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.steps) == ("failed", 2)
        assert [c.outcome.status for c in turn.tool_calls] == ["ok"]
        await session.run("Go on.")
        assert [m.role for m in session.history()] == ["user", "assistant", "tool", "user", "assistant"]
        judge(session.log)
