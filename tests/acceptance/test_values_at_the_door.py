"""Whatever comes in as input, arguments or result is kept exactly or refused by a typed error before any effect."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stage import agent_of, data_of, events_of, judge, results_of, staged, tool_of

from spine.codec import Codec
from spine.errors import IdInvalid, SpineError, ValueRefused, ValueTooLarge
from spine.messages import JsonBlock, Message, TextBlock
from spine.store import INLINE_CONTENT_BYTES, MAX_EVENT_BYTES
from spine.stores.memory import MemoryStore
from spine.testing.script import call, call_text, say
from spine.values import encode, freeze, freeze_object, load, session_id

pytestmark = pytest.mark.anyio
MB = 1024 * 1024


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


# ---------------------------------------------------------------------------------------------------------- input

TEXTS = {
    "plain": "hello",
    "NUL and controls": "a\0b\x1b[31m\r\n\u2028",
    "beyond the BMP": "👩\u200d🚀 日本語 é",
    "twenty megabytes": "x" * (20 * MB),
    "one over the inline size": "é" * (INLINE_CONTENT_BYTES // 2 + 1),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_is_kept_exactly(text: str) -> None:
    """Any valid text goes in and comes out unchanged, in memory, in the log, and in the request."""
    async with staged(say("ok")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run(text)
        accepted = data_of(session, "input.accepted")[0]
        assert (accepted.message.text, accepted.surrogates_replaced) == (text, False)
        request = session.log.request(events_of(session, "model.requested")[0].seq)
        assert request.messages[0].text == text
        assert max(len(row.data) for row in session.log.rows()) <= MAX_EVENT_BYTES
        judge(session.log)


async def test_lone_surrogates_of_an_input_are_replaced_and_flagged() -> None:
    """They cannot be written as UTF-8: they become U+FFFD and the event says so."""
    async with staged(say("ok")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("a\ud83d é")
        accepted = data_of(session, "input.accepted")[0]
        assert (accepted.message.text, accepted.surrogates_replaced) == ("a\ufffd é", True)
        judge(session.log)


JSON_VALUES = {
    "2^70": 2**70,
    "-2^300": -(2**300),
    "a large float": 1.7976931348623157e308,
    "the smallest float": 5e-324,
    "minus zero": -0.0,
    "a deep list": deep(150),
    "keys of any text": {"": 1, "\0": 2, "é": 3, "a.b/c~d": 4},
}
REFUSED = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "ten thousand deep": deep(10_000),
    "keys that are no text": {1: 2},
    "bytes": b"x",
    "an object": object(),
}


@pytest.mark.parametrize("value", JSON_VALUES.values(), ids=JSON_VALUES)
async def test_a_json_value_of_an_input_is_kept_exactly(value: Any) -> None:
    """Integers of any size, every float, deep nesting and odd keys survive the log."""
    async with staged(say("ok")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run(Message(role="user", kind="user", content=(JsonBlock(value=value),)))
        stored = data_of(session, "input.accepted")[0].message.content[0].value
        assert encode(stored) == encode(freeze(value))  # as text: Python thinks that 1 == True
        judge(session.log)


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_is_no_json_is_refused_when_the_message_is_made(value: Any) -> None:
    """A typed error names the place; nothing has happened."""
    with pytest.raises(ValueRefused) as refused:
        JsonBlock(value={"a": [value]})
    assert refused.value.path.startswith("$")


async def test_an_input_over_the_limits_is_refused_before_any_effect() -> None:
    """A text over 64 MiB, or an event over 1 MiB of many small ones: `ValueTooLarge`, and nothing is written."""
    many = Message(role="user", kind="user", content=tuple(TextBlock(text="x" * 1000) for _ in range(1100)))
    async with staged(say("ok")) as runtime:
        session = await runtime.session("s", agent_of())
        for value in ("x" * (64 * MB + 1), many):
            with pytest.raises(ValueTooLarge):
                await session.run(value)
        assert session.log.seq == 0
        assert (await session.run("Go.")).status == "completed"


# ------------------------------------------------------------------------------------------------------ arguments

ARGUMENTS = {
    "2^70": ('{"v": 1180591620717411303424}', 2**70),
    "an escaped NUL": ('{"v": "a\\u0000b"}', "a\0b"),
    "an escaped lone surrogate": ('{"v": "a\\ud83d"}', "a\ufffd"),
    "an escaped pair": ('{"v": "\\ud83d\\ude00"}', "😀"),
    "a hundred deep": ('{"v": ' + "[" * 100 + "]" * 100 + "}", None),
    "twenty megabytes": ('{"v": "' + "x" * (20 * MB) + '"}', "x" * (20 * MB)),
}
NO_ARGUMENTS = {
    "NaN": '{"v": NaN}',
    "infinity": '{"v": -Infinity}',
    "a float beyond range": '{"v": 1e999}',
    "ten thousand deep": '{"v": ' + "[" * 10_000 + "]" * 10_000 + "}",
    "an integer of a million digits": '{"v": ' + "9" * 1_000_000 + "}",
    "duplicate keys": '{"v": 1, "v": 2}',
    "a raw control": '{"v": "a\nb"}',
}


@pytest.mark.parametrize(("text", "value"), ARGUMENTS.values(), ids=ARGUMENTS)
async def test_arguments_reach_the_handler_exactly(text: str, value: Any) -> None:
    """What the model wrote is what the handler gets and what the log holds."""
    got: list[Any] = []

    async def handler(arguments: Any, context: Any) -> str:
        got.append(arguments["v"])
        return "x"

    async with staged(call_text("look", text), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", handler)))
        turn = await session.run("Go.")
        assert turn.tool_calls[0].outcome.status == "ok"
        stored = data_of(session, "tool.started")[0].arguments["v"]
        assert got == [stored]
        if value is not None:
            assert stored == value
        assert max(len(row.data) for row in session.log.rows()) <= MAX_EVENT_BYTES
        judge(session.log)


@pytest.mark.parametrize("text", NO_ARGUMENTS.values(), ids=NO_ARGUMENTS)
async def test_arguments_that_no_event_may_hold_do_not_run(text: str) -> None:
    """They are unusable, the model is told, the text stays in the answer."""
    ran: list[int] = []
    async with staged(call_text("look", text), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: ran.append(1))))
        turn = await session.run("Go.")
        assert (turn.tool_calls[0].outcome.error.kind, ran) == ("invalid_arguments", [])
        assert session.history()[1].tool_calls[0].arguments_text == text
        judge(session.log)


async def test_an_answer_too_large_to_record_fails_its_step() -> None:
    """Forty calls of sixty kilobytes of small values each fit no event: the step fails, and nothing runs."""
    ran: list[int] = []
    arguments = {f"k{n}": "x" * 100 for n in range(500)}
    entry = call("look", **arguments)
    for _ in range(39):
        entry = entry + call("look", **arguments)
    async with staged(entry, say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: ran.append(1))))
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.error.category, ran) == ("failed", "protocol_error", [])
        assert "message.committed" not in [e.type for e in events_of(session)]
        assert (await session.run("Go on.")).text == "ok"
        judge(session.log)


# -------------------------------------------------------------------------------------------------------- results


class Hostile:
    """An object whose every inspection raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __iter__(self) -> Any:
        raise RuntimeError("no items")


def generator() -> Any:
    yield 1


RESULTS: dict[str, Any] = {
    "NaN": float("nan"),
    "lone surrogates": "a\ud83d",
    "NUL": "a\0b",
    "2^70": 2**70,
    "ten thousand deep": deep(10_000),
    "twenty megabytes": "x" * (20 * MB),
    "a set": {1, 2},
    "bytes": b"\xff\x00",
    "a generator": generator(),
    "a hostile object": Hostile(),
    "a list of hostile objects": [Hostile()],
    "None": None,
    "a class": Hostile,
    "an exception": ValueError("returned, not raised"),
    "keys that are no text": {1: {2: 3}},
    "itself": [],
    "a huge repr": type("Huge", (), {"__repr__": lambda self: "x" * (5 * MB)})(),
}
RESULTS["itself"].append(RESULTS["itself"])


@pytest.mark.parametrize("is_sync", [False, True], ids=["on the loop", "in a thread"])
@pytest.mark.parametrize("value", RESULTS.values(), ids=RESULTS)
async def test_no_result_of_a_handler_can_break_the_loop(value: Any, is_sync: bool) -> None:
    """Whatever a handler returns becomes a result the model can be shown, or an error result; the turn goes on."""

    async def on_loop(arguments: Any, context: Any) -> Any:
        return value

    def in_thread(arguments: Any, context: Any) -> Any:
        return value

    async with staged(call("odd"), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("odd", in_thread if is_sync else on_loop)))
        turn = await session.run("Go.")
        assert (turn.status, turn.text) == ("completed", "ok")
        block = results_of(session.history())["t1s1c1"]
        assert len(session.log.codec.message_bytes(Message(role="tool", content=(block,)))) < 2 * INLINE_CONTENT_BYTES
        encode(session.log.codec.to_json(block))
        judge(session.log)


HOSTILE_ERRORS: dict[str, BaseException] = {
    "a huge message": ValueError("x" * (5 * MB)),
    "surrogates": ValueError("a\ud83d"),
    "no text": type("Mute", (Exception,), {"__str__": lambda self: 1 / 0})(),
    "recursion": RecursionError("deep"),
    "memory": MemoryError(),
    "stop iteration": StopIteration("odd"),
    "a group": ExceptionGroup("many", [ValueError("a"), ValueError("b")]),
}


@pytest.mark.parametrize("error", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
async def test_no_exception_of_a_handler_can_break_the_loop(error: Exception) -> None:
    """Every ordinary exception is a bounded error result."""

    def handler(arguments: Any, context: Any) -> Any:
        raise error

    async with staged(call("odd"), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("odd", handler)))
        turn = await session.run("Go.")
        assert turn.tool_calls[0].outcome.status == "error"
        assert len(turn.tool_calls[0].outcome.content[0].text) < 5000
        judge(session.log)


async def test_a_result_over_its_limit_is_cut_with_the_whole_beside_the_log() -> None:
    """The model sees a marker with both sizes; the full text is content that a person can read."""
    text = "".join(f"line {n}\n" for n in range(50_000))
    async with staged(call("look"), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: text, max_result_bytes=1000)))
        turn = await session.run("Go.")
        assert turn.tool_calls[0].outcome.truncated
        completed = data_of(session, "tool.completed")[0]
        assert completed.truncated
        assert any(str(len(text)) in str(part).replace(",", "") for part in completed.result.content)
        added = [d for d in data_of(session, "content.added") if d.size >= len(text)]
        assert session.log.content(added[0].digest).decode().startswith("line 0\nline 1\n")
        judge(session.log)


async def test_progress_of_any_size_or_kind_cannot_break_a_call() -> None:
    """A report that no event may hold is the handler's own error; good ones are recorded in order."""

    async def handler(arguments: Any, context: Any) -> str:
        for number in range(3):
            context.progress(f"step {number}", {"n": number})
        context.progress("x", [["y" * 1000]] * 2000)
        return "x"

    async with staged(call("look"), say("ok")) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", handler)))
        turn = await session.run("Go.")
        assert turn.tool_calls[0].outcome.error.type == "ValueTooLarge"
        assert [d.text for d in data_of(session, "tool.progress")] == ["step 0", "step 1", "step 2"]
        judge(session.log)


# ----------------------------------------------------------------------------------------------- beside the log


async def test_large_texts_lie_beside_the_log_by_their_digest() -> None:
    """A text over 64 KiB is stored once as content, however often it appears; the event holds its digest."""
    text = "y" * (100 * 1024)
    store = MemoryStore()
    async with staged(say("ok"), say("ok"), store=store) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run(text)
        await session.run(text)
        rows = list(session.log.rows(types=("input.accepted",)))
        assert all(len(row.data) < 1000 for row in rows)
        assert rows[0].data == rows[1].data
        assert [d.message.text for d in data_of(session, "input.accepted")] == [text, text]
        judge(session.log)


CODEC = Codec()
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(_json)
def test_any_json_value_survives_event_and_bytes(value: Any) -> None:
    """freeze → event → bytes → event gives the same value, or the door refused it."""
    try:
        message = Message(role="user", content=(JsonBlock(value=value),))
    except SpineError:
        return
    again = CODEC.from_json(load(CODEC.message_bytes(message)), Message)
    assert again == message
    assert CODEC.message_bytes(again) == CODEC.message_bytes(message)


# ------------------------------------------------------------------------------------------------------------ ids

BAD_IDS = [
    "", ".", "..", "a/b", "a\\b", "a\0", "a b", "é", "a" * 65, "con", "NUL", "com1", "a.b", "../x", "a\n", "\ud83d",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_IDS)
async def test_a_session_id_outside_its_grammar_is_refused(text: str) -> None:
    """Paths, blanks, controls, device names, other scripts and long names are no ids: refused before any effect."""
    with pytest.raises(IdInvalid):
        session_id(text)
    async with staged() as runtime:
        with pytest.raises(IdInvalid):
            await runtime.session(text, agent_of())
        with pytest.raises(IdInvalid):
            runtime.reader(text)
        with pytest.raises(IdInvalid):
            runtime.send(text, "cancel", {}, key="k")


def test_frozen_arguments_of_a_huge_object_stay_an_object() -> None:
    """Ten thousand keys are frozen and found again."""
    frozen = freeze_object({f"k{n}": n for n in range(10_000)})
    assert load(encode(frozen)) == dict(frozen)
