"""Wire bytes are kept as long as their message, and ids that repeat are told apart."""

import gc
from typing import Any

import attrs

from spine.llm.catalogue import Traits
from spine.messages import Message, Origin, TextBlock, ToolCallBlock, user_message
from spine.wire import MessageMemory, TargetMemory, WrittenResult, call_ids, in_call_order
from spine.wire.memory import MOST_TARGETS

TRAITS = Traits(provider="lab", protocol="p", model="m")
OWN = Origin(protocol="p", route="lab:m")
PATTERN = TRAITS.call_id_pattern


@attrs.define
class Form:
    wire_ids: frozenset[str] = frozenset()


def answer(*vendor_ids: str | None, step: int = 1) -> Message:
    calls = tuple(
        ToolCallBlock(id=f"t1s{step}c{place}", name="f", vendor_id=vendor_id)  # type: ignore[arg-type]
        for place, vendor_id in enumerate(vendor_ids, 1)
    )
    return Message(role="assistant", content=calls, origin=OWN)


def memory(asked: list[Any]) -> MessageMemory[Form]:
    def write(message: Message, use_vendor_ids: bool) -> Form:
        asked.append(use_vendor_ids)
        return Form(frozenset(call_ids(message, TRAITS, "p", use_vendor_ids=use_vendor_ids).values()))

    return MessageMemory(write)


def test_a_message_is_written_once_and_forgotten_with_it() -> None:
    asked: list[Any] = []
    kept = memory(asked)
    messages = [user_message("a"), answer("x")]
    first = [kept.written(message, set()) for message in messages]
    assert all(kept.written(message, set()) is form for message, form in zip(messages, first, strict=True))
    assert asked == [True, True]
    messages.clear()
    gc.collect()
    assert len(kept) == 0


def test_ids_seen_before_in_a_request_are_written_as_ours() -> None:
    asked: list[Any] = []
    kept = memory(asked)
    messages = [answer("call_0", step=step) for step in (1, 2)]
    for _ in range(2):
        seen: set[str] = set()
        forms = [kept.written(message, seen) for message in messages]
        assert [set(form.wire_ids) for form in forms] == [{"call_0"}, {"t1s2c1"}]
        assert seen == {"call_0", "t1s2c1"}
    assert asked == [True, True, False]


def test_vendor_ids_are_used_when_all_of_them_fit_and_differ() -> None:
    for message, expected in (
        (answer("a", "b"), ["a", "b"]),
        (answer("a", "a"), ["t1s1c1", "t1s1c2"]),
        (answer("a", None), ["t1s1c1", "t1s1c2"]),
        (answer("a", "b:1"), ["t1s1c1", "t1s1c2"]),
        (answer("a", "b").evolve(origin=None), ["t1s1c1", "t1s1c2"]),
        (answer("a", "b").evolve(origin=Origin(protocol="q", route="lab:m")), ["t1s1c1", "t1s1c2"]),
    ):
        assert list(call_ids(message, TRAITS, "p", use_vendor_ids=True).values()) == expected


def test_targets_are_told_apart_and_their_number_is_bounded() -> None:
    made: list[tuple[str, Traits]] = []
    targets = TargetMemory(lambda route, traits: made.append((route, traits)) or len(made))  # type: ignore[func-returns-value]
    assert targets.of("lab:m", TRAITS) == targets.of("lab:m", TRAITS) == 1
    assert targets.of("lab:m", attrs.evolve(TRAITS, vision=False)) == 2
    for number in range(MOST_TARGETS - 2):
        targets.of(f"lab:{number}", TRAITS)
    assert targets.of("lab:m", TRAITS) == 1
    targets.of("lab:last", TRAITS)
    assert targets.of("lab:m", TRAITS) == MOST_TARGETS + 2


def test_results_follow_the_calls_and_strangers_come_last() -> None:
    results = [WrittenResult(call_id, b"<", b">") for call_id in ("z", "b", "a")]
    ids = {"a": "wire_a", "b": "wire_b"}
    assert in_call_order(results, ids, PATTERN) == [b'<"wire_a">', b'<"wire_b">', b'<"z">']
    assert in_call_order(results[1:2], {"b": "other"}, PATTERN) == [b'<"other">']
    assert in_call_order([], ids, PATTERN) == []


def test_a_message_without_calls_has_no_ids() -> None:
    assert call_ids(Message(role="assistant", content=(TextBlock(text="a"),)), TRAITS, "p", use_vendor_ids=True) == {}
