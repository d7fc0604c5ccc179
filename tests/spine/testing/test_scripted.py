"""The scripted model: what it plays, what it demands, and what it says when script and run disagree."""

import gc
import time
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from spine.errors import ScriptMismatch, UsageError
from spine.llm.chunks import RefusalDelta, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStarted, UsageReported
from spine.llm.errors import ProviderError
from spine.llm.request import ModelRequest, Route
from spine.llm.response import ModelResponse
from spine.llm.usage import Usage
from spine.messages import Message, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock, user_message
from spine.testing.clock import FakeClock
from spine.testing.script import (
    Entry,
    call,
    call_text,
    cut,
    expect,
    fail,
    refuse,
    say,
    stall,
    stop,
    think,
    usage,
)
from spine.testing.scripted import MAX_KEPT_REQUESTS, ScriptedAdapter
from spine.values import CallId, StepId


def request(text: str = "Hello", step: str = "t1s1") -> ModelRequest:
    return ModelRequest(route=Route("demo", "small"), step=StepId(step), messages=(user_message(text),))


def with_result(step: str, *, is_error: bool = False) -> ModelRequest:
    block = ToolResultBlock(call_id=CallId("t1s1c1"), name="refund", is_error=is_error)
    return request(step=step).evolve(messages=(user_message("Hello"), Message(role="tool", content=(block,))))


async def items(
    adapter: ScriptedAdapter, asked: ModelRequest | None = None, *, into: list[Any] | None = None
) -> list[Any]:
    """What one attempt gives; `into` has it also when the attempt fails."""
    given: list[Any] = [] if into is None else into
    async with aclosing(adapter.stream(asked or request())) as stream:
        async for item in stream:
            given.append(item)
    return given


# ---------------------------------------------------------------------------------------------------------- playing


async def test_an_entry_is_played_part_by_part() -> None:
    entry = think("Hm.") + say("Let me see.") + call("look", city="Oslo") + usage(input_tokens=5, output_tokens=7)
    *chunks, response = await items(ScriptedAdapter(entry))
    assert chunks == [
        ThinkingDelta(0, "Hm."),
        TextDelta(1, "Let"),
        TextDelta(1, " me"),
        TextDelta(1, " see."),
        ToolCallStarted(2, "look"),
        ToolCallDelta(2, '{"city":"Oslo"}'),
        UsageReported(Usage(input_tokens=5, output_tokens=7)),
    ]
    assert isinstance(response, ModelResponse)
    assert [type(block) for block in response.message.content] == [ThinkingBlock, TextBlock, ToolCallBlock]
    assert (response.stop_reason, response.usage) == ("tool_use", Usage(input_tokens=5, output_tokens=7))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (say("Hi"), "end_turn"),
        (call("a"), "tool_use"),
        (refuse("No."), "refusal"),
        (call("a") + stop("max_tokens"), "max_tokens"),
        (Entry(), "end_turn"),
    ],
)
async def test_the_stop_reason_is_the_natural_one_unless_said(entry: Entry, reason: str) -> None:
    assert (await items(ScriptedAdapter(entry)))[-1].stop_reason == reason


async def test_a_refusal_is_a_block_of_its_own() -> None:
    chunks = (await items(ScriptedAdapter(refuse("I will not."))))[:-1]
    assert {type(chunk) for chunk in chunks} == {RefusalDelta}


async def test_raw_arguments_stay_raw() -> None:
    response = (await items(ScriptedAdapter(call_text("refund", "{broken"))))[-1]
    (block,) = response.message.tool_calls
    assert (block.arguments, block.arguments_text) == (None, "{broken")


async def test_usage_that_is_not_given_is_not_reported() -> None:
    """None reported is None, never 0, and the metadata says why."""
    response = (await items(ScriptedAdapter(say("Hi"))))[-1]
    assert response.usage == Usage()
    assert response.metadata == {"usage": "the script reports none"}


async def test_a_failure_comes_after_what_stands_before_it() -> None:
    seen: list[Any] = []
    with pytest.raises(ProviderError, match="reset") as caught:
        await items(ScriptedAdapter(say("Here is") + fail("connection", message="reset")), into=seen)
    assert seen == [TextDelta(0, "Here"), TextDelta(0, " is")]
    assert caught.value.category == "connection"


async def test_failed_attempts_may_report_usage() -> None:
    seen: list[Any] = []
    with pytest.raises(ProviderError):
        await items(ScriptedAdapter(fail("overloaded") + usage(input_tokens=9)), into=seen)
    assert seen == [UsageReported(Usage(input_tokens=9))]


async def test_a_cut_is_a_truncated_stream() -> None:
    with pytest.raises(ProviderError, match="ended before the answer did") as caught:
        await items(ScriptedAdapter(say("Here is") + cut()))
    assert caught.value.category == "stream_truncated"


async def test_a_stall_waits_on_the_clock() -> None:
    clock = FakeClock()
    with anyio.fail_after(5):
        assert len(await items(ScriptedAdapter(say("a") + stall(300) + say("b"), clock=clock))) == 3
    assert clock.monotonic() == 300


async def test_a_stall_without_an_end_is_ended_by_a_cancel() -> None:
    clock = FakeClock()
    with anyio.move_on_after(0.05) as scope:
        await items(ScriptedAdapter(say("a") + stall(), clock=clock))
    assert scope.cancelled_caught
    assert clock.monotonic() == 1, "time must move, so that what was due in the silence happens"


async def test_an_entry_may_be_a_function_of_the_request() -> None:
    adapter = ScriptedAdapter(lambda asked: say(f"You said {asked.messages[-1].text}."))
    assert (await items(adapter, request("yes")))[-1].message.text == "You said yes."


@pytest.mark.parametrize(("live", "least", "most"), [(True, 18, 22), (False, 0, 0)])
async def test_a_live_model_lets_other_tasks_run_at_each_chunk(live: bool, least: int, most: int) -> None:
    """How often another task ran between the first and the last of twenty chunks."""
    turns = 0
    at_item: list[int] = []

    async def play() -> None:
        words = [f"{number} " for number in range(20)]
        async with aclosing(ScriptedAdapter(say(chunks=words), live=live).stream(request())) as stream:
            async for _ in stream:
                at_item.append(turns)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(play)
        while True:
            await checkpoint()
            turns += 1
    between = at_item[-2] - at_item[0]
    assert least <= between <= most


# ------------------------------------------------------------------------------------------------------ disagreeing


async def test_a_script_that_runs_out_says_who_asked() -> None:
    adapter = ScriptedAdapter(say("a"), say("b"))
    await items(adapter)
    await items(adapter)
    with pytest.raises(ScriptMismatch) as caught:
        await items(adapter, with_result("t1s3"))
    assert caught.value.message == (
        "script exhausted: step t1s3 asked the model a third time, the script has 2 entries; "
        "last message was the result of refund (ok)"
    )
    assert adapter.mismatch == (3, caught.value.message)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "a first time, the script has no entries"),
        (1, "a second time, the script has 1 entry"),
        (10, "a 11th time"),
        (20, "a 21st time"),
        (21, "a 22nd time"),
        (22, "a 23rd time"),
        (110, "a 111th time"),
    ],
)
async def test_times_are_counted_in_words(count: int, words: str) -> None:
    adapter = ScriptedAdapter(*[say("a")] * count)
    for _ in range(count):
        await items(adapter)
    with pytest.raises(ScriptMismatch, match=words):
        await items(adapter)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (request("Hello"), """the user's "Hello"$"""),
        (request("x" * 50), 'the user\'s "x{39}…"$'),
        (with_result("t1s2", is_error=True), r"the result of refund \(error\)$"),
        (request().evolve(messages=()), "none$"),
    ],
)
async def test_the_last_message_is_described(asked: ModelRequest, words: str) -> None:
    with pytest.raises(ScriptMismatch, match=words):
        await items(ScriptedAdapter(), asked)


async def test_an_unexpected_request_says_what_was_found_and_which_entry_would_fit() -> None:
    adapter = ScriptedAdapter(
        (expect(last_role="tool", messages=5) + say("a")).evolve(where="line 14"),
        (expect(last_role="user") + say("b")).evolve(where="line 19"),
    )
    with pytest.raises(ScriptMismatch) as caught:
        await items(adapter)
    assert caught.value.message == (
        "model entry 1 (line 14): expected last_role tool, found user; expected 5 messages, found 1 "
        '(step t1s1, last message was the user\'s "Hello"); model entry 2 (line 19) would fit'
    )


async def test_an_expected_request_is_answered() -> None:
    assert len(await items(ScriptedAdapter(expect(last_role="user", contains="Hello") + say("a")))) == 2


async def test_entries_left_over_are_named() -> None:
    adapter = ScriptedAdapter(say("a"), say("b").evolve(where="line 3"), call("c"))
    await items(adapter)
    assert adapter.left_over() == (say("b").evolve(where="line 3"), call("c"))
    with pytest.raises(ScriptMismatch) as caught:
        adapter.check_used()
    assert (
        caught.value.message == 'script left over: 2 of 3 entries not asked for, from model entry 2 (line 3): say "b"'
    )


async def test_leaving_the_block_demands_that_all_is_used() -> None:
    with pytest.raises(ScriptMismatch, match="left over"), ScriptedAdapter(say("a")):
        pass
    with ScriptedAdapter(say("a")) as adapter:
        await items(adapter)


async def test_leaving_the_block_with_an_error_says_the_error() -> None:
    with pytest.raises(ZeroDivisionError), ScriptedAdapter(say("a")):
        _ = 1 / 0


async def test_a_mismatch_that_somebody_swallowed_is_told_at_the_end() -> None:
    adapter = ScriptedAdapter()
    with pytest.raises(ScriptMismatch):
        await items(adapter)
    with pytest.raises(ScriptMismatch, match="asked the model a first time"):
        adapter.check_used()


async def test_entries_may_be_added_later() -> None:
    adapter = ScriptedAdapter()
    adapter.add(say("a"))
    assert (await items(adapter))[-1].message.text == "a"


def test_what_is_no_entry_is_refused() -> None:
    with pytest.raises(UsageError, match="must come from say, call"):
        ScriptedAdapter("Hello")  # type: ignore[arg-type]


async def test_a_function_must_give_an_entry() -> None:
    with pytest.raises(UsageError, match="returned 'Hello'; it must return an entry"):
        await items(ScriptedAdapter(lambda asked: "Hello"))  # type: ignore[arg-type,return-value]


async def test_requests_are_kept_up_to_a_bound() -> None:
    adapter = ScriptedAdapter(*[say("a")] * (MAX_KEPT_REQUESTS + 2))
    for number in range(MAX_KEPT_REQUESTS + 2):
        await items(adapter, request(str(number)))
    assert len(adapter.requests) == MAX_KEPT_REQUESTS
    assert [asked.messages[0].text for asked in adapter.requests[::255]] == ["2", str(MAX_KEPT_REQUESTS + 1)]


async def test_closing_is_told_and_idempotent() -> None:
    adapter = ScriptedAdapter()
    assert not adapter.is_closed
    await adapter.aclose()
    await adapter.aclose()
    assert adapter.is_closed


def test_a_step_costs_next_to_nothing() -> None:
    """Entries are made ready when they are added; the bound is thirty times what a step takes."""
    count = 300
    adapter = ScriptedAdapter(*[say("one two")] * count)

    async def play() -> float:
        began = time.perf_counter()
        for _ in range(count):
            await items(adapter)
        return time.perf_counter() - began

    assert anyio.run(play) / count < 300e-6


def test_an_entry_that_a_script_repeats_is_made_once() -> None:
    """Many sessions with one script would otherwise weigh more by their script than by themselves."""
    entry = say("Hello.") + call("look", word="a")
    gc.collect()
    before = len(gc.get_objects())
    adapter = ScriptedAdapter(*[entry] * 1_000)
    assert len(gc.get_objects()) - before < 100
    assert adapter.left_over() == (entry,) * 1_000
