"""What a model is shown: a fold that is the same event by event and at once, and whose views never change."""

from typing import Any

import pytest
from generated import generated_logs
from handwritten import Log, call, committed, result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spine.codec import Codec
from spine.events import (
    HistoryCompacted,
    InputAccepted,
    InputDelivered,
    MessageInterrupted,
    ModelRequested,
    RecordedEvent,
    Repeats,
    ToolRevised,
    TurnCompleted,
    TurnStarted,
)
from spine.messages import Message, TextBlock, ThinkingBlock, ToolResultBlock, user_message
from spine.projectors.model_history import CHAIN_START, History, HistoryState, ModelHistory, next_hash
from spine.values import TurnId, digest

CODEC = Codec()
lawful = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def folded(events: list[RecordedEvent]) -> HistoryState:
    projector = ModelHistory()
    state = projector.initial()
    for event in events:
        if event.type in projector.types:
            state = projector.apply(state, event)
    return state


def texts(events: list[RecordedEvent]) -> list[str]:
    return [message.text for message in folded(events).view()]


@lawful
@given(generated_logs())
def test_the_history_after_each_event_is_a_fresh_fold_of_that_prefix(events: list[RecordedEvent]) -> None:
    """fold(prefix) + event = fold(prefix + event), at every prefix, however often it was looked at."""
    projector = ModelHistory()
    state = projector.initial()
    for end, event in enumerate(events, 1):
        if event.type in projector.types:
            state = projector.apply(state, event)
        live, fresh = state.view(), folded(events[:end]).view()
        assert (tuple(live), live.seqs) == (tuple(fresh), fresh.seqs)
        assert live.running_hash(CODEC.message_bytes) == fresh.running_hash(CODEC.message_bytes)


@lawful
@given(generated_logs(), st.data())
def test_a_view_given_out_stays_as_it_is(events: list[RecordedEvent], data: st.DataObject) -> None:
    """Whatever happens later, a view holds the messages it held."""
    end = data.draw(st.integers(0, len(events)))
    projector = ModelHistory()
    state = projector.initial()
    views: list[tuple[History, tuple[Any, ...], bytes]] = []
    for event in events:
        if event.type in projector.types:
            state = projector.apply(state, event)
        if event.seq >= end:
            view = state.view()
            views.append((view, tuple(view), view.running_hash(CODEC.message_bytes)))
    for view, messages, running in views:
        assert tuple(view) == messages
        assert view.running_hash(CODEC.message_bytes) == running


@lawful
@given(generated_logs())
def test_the_running_hash_is_that_of_the_messages_one_by_one(events: list[RecordedEvent]) -> None:
    """h(i) = SHA-256(h(i-1) + SHA-256(message i)), however it was reached."""
    view = folded(events).view()
    value = CHAIN_START
    for message in view:
        value = next_hash(value, CODEC.message_bytes(message))
    assert view.running_hash(CODEC.message_bytes) == value


@lawful
@given(generated_logs())
def test_a_history_at_a_request_has_every_call_answered_in_order(events: list[RecordedEvent]) -> None:
    """Where a request is made, results stand right after their message, in call order, each once."""
    for end, event in enumerate(events):
        if not isinstance(event.data, ModelRequested):
            continue
        waiting: list[str] = []
        for message in folded(events[:end]).view():
            if message.role == "tool":
                block = message.content[0]
                assert isinstance(block, ToolResultBlock)
                assert waiting.pop(0) == block.call_id
            else:
                assert waiting == []
                waiting = [block.id for block in message.tool_calls]
        assert waiting == []


def two_calls(*completions: str) -> Log:
    log = Log()
    accepted = log.add(InputAccepted(message=user_message("Go.")))
    log.add(TurnStarted(inputs=(accepted,)), "t1")
    log.add(InputDelivered(inputs=(accepted,)), "t1")
    log.add(committed(call("look", "t1s1c1"), call("look", "t1s1c2")), "t1s1")
    for id in completions:
        log.add(result("look", f"result of {id}", call_id=id), "t1s1")
    return log


def results(events: list[RecordedEvent]) -> list[str]:
    return [m.content[0].call_id for m in folded(events).view() if m.role == "tool"]  # type: ignore[union-attr]


@pytest.mark.parametrize("order", [("t1s1c1", "t1s1c2"), ("t1s1c2", "t1s1c1")])
def test_results_stand_in_call_order_whatever_the_order_they_came_in(order: tuple[str, str]) -> None:
    """Completion order is the log's affair."""
    assert results(two_calls(*order).events) == ["t1s1c1", "t1s1c2"]
    assert results(two_calls(order[1]).events) == [order[1]]


def test_a_history_with_a_running_call_has_all_but_its_result() -> None:
    """A hook that looks then sees what came before; the view stays when the result is there."""
    state = folded(two_calls("t1s1c2").events)
    early = state.view()
    assert [message.role for message in early] == ["user", "assistant", "tool"]
    log = two_calls("t1s1c2", "t1s1c1")
    ModelHistory().apply(state, log.events[-1])
    assert ([m.role for m in state.view()], len(early)) == (["user", "assistant", "tool", "tool"], 3)


def test_a_revised_result_takes_the_place_of_the_fact() -> None:
    """Before and after the view was looked at, and for a result in the middle."""
    for looks in (False, True):
        log = two_calls("t1s1c1", "t1s1c2")
        projector = ModelHistory()
        state = folded(log.events)
        if looks:
            state.view()
        seq = log.add(ToolRevised(result=result("look", "revised").result), "t1s1")
        projector.apply(state, log.events[-1])
        view = state.view()
        shown = [m.content[0].content[0].text for m in view if m.role == "tool"]  # type: ignore[union-attr]
        assert shown == ["revised", "result of t1s1c2"]
        assert view.seqs[2] == seq


def test_an_input_joins_at_its_delivery_and_not_before() -> None:
    """Accepted inputs wait; delivered they stand in the order of the delivery."""
    log = Log()
    first = log.add(InputAccepted(message=user_message("first")))
    second = log.add(InputAccepted(message=user_message("second")))
    assert texts(log.events) == []
    log.add(TurnStarted(inputs=(second, first)), "t1")
    log.add(InputDelivered(inputs=(second, first)), "t1")
    assert texts(log.events) == ["second", "first"]


PARTIAL = Message(role="assistant", content=(ThinkingBlock(text="Hm."), TextBlock(text="Half an"), call("look")))
CAUSES = {"cancelled": ["Go.", "Half an"], "failed": ["Go."], "crashed": ["Go."]}


@pytest.mark.parametrize(("cause", "expected"), CAUSES.items())
def test_interrupted_text_stays_only_where_a_person_saw_it(cause: Any, expected: list[str]) -> None:
    """Cut off by a cancel: the text stays, without thinking and calls; by a failure or crash: nothing does."""
    log = two_calls()
    log.events = log.events[:3]
    log.add(MessageInterrupted(message=PARTIAL, cause=cause), "t1s1")
    view = folded(log.events).view()
    assert [m.text for m in view] == expected
    assert all(type(block) is TextBlock for block in view[-1].content)


def test_a_compaction_replaces_everything_up_to_its_seq() -> None:
    """The summary stands first; what came later stays; older views keep what they held."""
    log = two_calls("t1s1c1", "t1s1c2")
    before = folded(log.events)
    view = before.view()
    last = log.events[-1].seq
    accepted = log.add(InputAccepted(message=user_message("And?")))
    log.add(TurnCompleted(), "t1")
    log.add(InputDelivered(inputs=(accepted,)), "t2")
    log.add(HistoryCompacted(summary=user_message("Earlier: much.", kind="summary"), until=last), "t2")
    assert texts(log.events) == ["Earlier: much.", "And?"]
    assert len(view) == 4


def test_a_repeated_turn_leaves_history_but_for_its_inputs() -> None:
    """Its steps go; user messages and other turns stay; with `keep_partial` the cut text is gone on from."""
    for keep in (False, True):
        log = two_calls("t1s1c1", "t1s1c2")
        cut = log.add(MessageInterrupted(message=PARTIAL, cause="failed"), "t1s2")
        log.add(TurnStarted(repeats=Repeats(turn=TurnId("t1"), keep_partial=keep)), "t2")
        view = folded(log.events).view()
        assert [message.text for message in view] == (["Go.", "", "", "", "Half an"] if keep else ["Go."])
        assert (view.seqs[-1] == cut) is keep


def test_what_a_user_said_during_a_repeated_turn_stays() -> None:
    """Steering was the user's word, not the turn's."""
    log = two_calls("t1s1c1", "t1s1c2")
    steer = log.add(InputAccepted(message=user_message("Hurry."), delivery="steer"))
    log.add(InputDelivered(inputs=(steer,), place="step"), "t1")
    log.add(TurnStarted(repeats=Repeats(turn=TurnId("t1"))), "t2")
    assert texts(log.events) == ["Go.", "Hurry."]


def test_a_history_is_a_sequence() -> None:
    """Indexing, slicing, equality and hashing work as for a tuple; what is out of range raises."""
    view = folded(two_calls("t1s1c1", "t1s1c2").events).view()
    assert view[0] is view[-len(view)]
    assert view[1:3] == tuple(view)[1:3]
    assert view == tuple(view)
    assert view != tuple(view)[:2]
    assert hash(view) == hash(view)
    assert repr(view) == "History(4 messages)"
    for index in (4, -5):
        with pytest.raises(IndexError):
            view[index]
    assert view.same_start(view) == 4


def test_an_old_view_has_the_hash_it_had() -> None:
    """Whether it is asked before a newer one or after it, and for no message at all."""
    log = two_calls("t1s1c1", "t1s1c2")
    state = folded(log.events)
    new = state.view()
    older = [History(new._track, length) for length in range(len(new))]
    first = [view.running_hash(CODEC.message_bytes) for view in older]
    new.running_hash(CODEC.message_bytes)
    assert [view.running_hash(CODEC.message_bytes) for view in older] == first
    assert first[0] == CHAIN_START
    assert len({*first, new.running_hash(CODEC.message_bytes)}) == len(new) + 1


def test_looking_at_a_history_costs_nothing_that_grows() -> None:
    """A thousand views of a long session share one list."""
    log = two_calls("t1s1c1", "t1s1c2")
    state = folded(log.events)
    views = [state.view() for _ in range(1000)]
    assert len({id(view._track) for view in views}) == 1
    assert digest(views[0].running_hash(CODEC.message_bytes)) == digest(views[-1].running_hash(CODEC.message_bytes))
