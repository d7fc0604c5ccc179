"""One answer in the making: names, usage, indexes and limits."""

import pytest

from spine.llm.catalogue import Traits
from spine.llm.chunks import ResponseStarted, TextDelta, UsageReported
from spine.llm.errors import ProviderError
from spine.llm.usage import Usage
from spine.messages import TextBlock
from spine.wire import Draft, WireLimits, read_counts, settled

LIMITS = WireLimits(blocks=2, calls=1, arguments_chars=3)


def draft() -> Draft:
    return Draft("p", Traits(provider="lab", model="m"), LIMITS)


def test_the_first_names_that_are_not_empty_count() -> None:
    made = draft()
    made.name(None, None)
    made.name(None, None)
    assert (made.has_begun, made.is_named) == (True, False)
    made.name("m-1", None)
    made.name("m-2", "id")
    assert made.out == [ResponseStarted(), ResponseStarted("m-1"), ResponseStarted("m-1", "id")]
    assert made.is_named


def test_usage_is_handed_out_when_it_changes() -> None:
    made = draft()
    for tokens in (1, 1, 2):
        made.report(Usage(input_tokens=tokens))
    assert made.out == [UsageReported(Usage(input_tokens=1)), UsageReported(Usage(input_tokens=2))]


def test_the_response_is_the_fold_of_the_chunks() -> None:
    made = draft()
    made.name("m-1", "id")
    made.emit(TextDelta(made.next_index(), "Hi"))
    response = made.response("end_turn", "stop", {"a": 1})
    assert response.message.content == (TextBlock(text="Hi"),)
    assert (response.model, response.response_id, response.raw_stop_reason) == ("m-1", "id", "stop")
    assert response.metadata == {"a": 1}
    assert response.message.origin is not None
    assert response.message.origin.route == "lab:m"
    assert made.state({"s": 1}).model == "m"


def test_limits_are_borders() -> None:
    made = draft()
    made.count_call()
    made.check_arguments(3)
    assert [made.next_index(), made.next_index()] == [0, 1]
    for step in (made.next_index, made.count_call, lambda: made.check_arguments(4)):
        with pytest.raises(ProviderError) as caught:
            step()
        assert caught.value.category == "protocol_error"


@pytest.mark.parametrize(
    ("reason", "has_calls", "expected"),
    [
        ("end_turn", True, "tool_use"),
        ("pause", True, "tool_use"),
        ("unknown", True, "tool_use"),
        ("max_tokens", True, "max_tokens"),
        ("refusal", True, "refusal"),
        ("tool_use", False, "unknown"),
        ("end_turn", False, "end_turn"),
    ],
)
def test_calls_decide_what_an_ending_means(reason: str, has_calls: bool, expected: str) -> None:
    assert settled(reason, has_calls=has_calls) == expected  # type: ignore[arg-type]


def test_counts_stand_where_a_table_says() -> None:
    places = (("input_tokens", (("a", "b"), ("c",))), ("output_tokens", (("d",),)))
    assert read_counts({"a": {"b": 1}, "c": 2}, places).input_tokens == 1
    usage = read_counts({"a": "x", "c": 2.0, "d": "many"}, places)
    assert (usage.input_tokens, usage.output_tokens, usage.malformed) == (2, None, True)
