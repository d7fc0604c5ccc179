"""Entries of a script: parts joined in order, and mistakes refused where they are made."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.errors import UsageError
from spine.llm.usage import Usage
from spine.testing import script
from spine.testing.script import (
    Call,
    Entry,
    Fail,
    Say,
    Stall,
    call,
    call_text,
    cut,
    fail,
    say,
    stall,
    stop,
    think,
    usage,
)


@given(st.text())
def test_words_put_together_are_the_text(text: str) -> None:
    (part,) = say(text).parts
    assert isinstance(part, Say)
    assert "".join(part.pieces) == text


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Done. 12.90 EUR", ("Done.", " 12.90", " EUR")),
        (" a\n\nb ", (" a", "\n\nb", " ")),
        ("", ()),
    ],
)
def test_a_text_is_cut_into_words(text: str, pieces: tuple[str, ...]) -> None:
    assert say(text).parts == (Say(pieces),)


def test_chunks_cut_by_hand() -> None:
    assert say("Hello", chunks=["Hel", "lo"]).parts == say(chunks=["Hel", "lo"]).parts == (Say(("Hel", "lo")),)


def test_parts_keep_their_order() -> None:
    entry = think("Hm.") + say("One moment.") + call("a", x=1) + call_text("b", "{broken") + stall(2)
    assert [type(part).__name__ for part in entry.parts] == ["Think", "Say", "Call", "Call", "Stall"]
    assert entry.parts[2:] == (Call("a", '{"x":1}'), Call("b", "{broken"), Stall(2))


def test_an_argument_may_be_called_name() -> None:
    assert call("greet", name="Ada").parts == (Call("greet", '{"name":"Ada"}'),)


def test_usage_and_stop_reason_join_from_either_side() -> None:
    entry = usage(input_tokens=3) + say("Hi") + stop("max_tokens")
    assert entry.usage == Usage(input_tokens=3)
    assert entry.stop_reason == "max_tokens"
    assert say("Hi", usage={"input_tokens": 3}, stop="max_tokens") == entry


def test_a_failure_may_follow_text() -> None:
    entry = say("Here is") + fail("connection")
    assert isinstance(entry.parts[-1], Fail)
    assert entry.parts[-1].failure.retryable


def test_a_failure_keeps_what_it_is_told() -> None:
    (part,) = fail("rate_limit", status=429, retry_after_s=2, message="slow down", code="rl", retryable=False).parts
    assert isinstance(part, Fail)
    failure = part.failure
    assert (failure.status, failure.retry_after_s, failure.message) == (429, 2, "slow down")
    assert (failure.code, failure.retryable) == ("rl", False)


def test_a_cut_is_a_truncated_stream() -> None:
    (part,) = cut().parts
    assert isinstance(part, Fail)
    assert part.failure.category == "stream_truncated"


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "nothing to say": (lambda: say(), "neither a text nor chunks"),
    "chunks of another text": (lambda: say("Hello", chunks=["Hi"]), "the chunks of a script give 'Hi'"),
    "after the end": (lambda: fail("auth") + say("Hi"), "after fail auth, which ends the attempt"),
    "two usages": (lambda: usage(input_tokens=1) + usage(output_tokens=1), "gives usage twice"),
    "two stops": (lambda: stop("pause") + stop("refusal"), "gives stop_reason twice"),
    "unknown category": (lambda: fail("slow"), 'fails with "slow"; categories are auth'),  # type: ignore[arg-type]
    "unknown stop": (lambda: stop("done"), 'stops with "done"; stop reasons are end_turn'),  # type: ignore[arg-type]
    "unknown count": (lambda: usage(tokens=3), 'reports "tokens"; token counts are input_tokens'),
    "NaN": (lambda: call("a", x=float("nan")), "no JSON number"),
}


@pytest.mark.parametrize(("make", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_refused_where_it_is_made(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_an_entry_joins_entries_only() -> None:
    with pytest.raises(TypeError):
        say("Hi") + "there"  # type: ignore[operator]


def test_an_entry_reads_as_what_it_does() -> None:
    entry = think("Hm.") + say("x" * 50) + call("refund") + stall() + stall(1.5) + fail("auth")
    assert str(entry) == (f'think "Hm." + say "{"x" * 39}…" + call refund + stall + stall 1.5 s + fail auth')
    assert str(Entry()) == "nothing"


def test_every_builder_is_public() -> None:
    """The public list has each builder, so that `from spine.testing import …` finds it."""
    import spine.testing

    builders = {name for name in script.__all__ if name[0].islower()}
    assert builders <= set(spine.testing.__all__)
