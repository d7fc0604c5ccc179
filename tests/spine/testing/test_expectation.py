"""What a request must look like: each demand alone, met and not met."""

from typing import Any

import pytest

from spine.llm.request import ModelRequest, Route
from spine.messages import JsonBlock, Message, SystemBlock, TextBlock, ToolResultBlock, user_message
from spine.testing.expectation import Expectation
from spine.tools import ToolDefinition
from spine.values import CallId, StepId


def result(*content: Any) -> Message:
    return Message(role="tool", content=(ToolResultBlock(call_id=CallId("t1s1c1"), name="look", content=content),))


REQUEST = ModelRequest(
    route=Route("demo", "small"),
    step=StepId("t1s2"),
    system=(
        SystemBlock(name="a", source="x", text="You are kind."),
        SystemBlock(name="b", source="x", text="Be brief."),
    ),
    messages=(
        user_message("Find the mug."),
        Message(role="assistant", content=(TextBlock(text="Looking."),)),
        result(TextBlock(text="a mug")),
        result(JsonBlock(value={"paid": 12})),
    ),
    tools=(ToolDefinition(name="look"), ToolDefinition(name="buy")),
)

MET = [
    {"last_role": "tool"},
    {"contains": ("a mug", '{"paid":12}')},
    {"lacks": ("Find", "Looking")},
    {"system_contains": ("kind", "brief")},
    {"system_lacks": ("rude",)},
    {"tools": ("buy", "look")},
    {"messages": 4},
    {},
]
NOT_MET = [
    ({"last_role": "user"}, "expected last_role user, found tool"),
    ({"contains": ("a plate",)}, 'expected "a plate" in the new messages, found "a mug {"paid":12}"'),
    ({"contains": ("Find the mug",)}, 'expected "Find the mug" in the new messages'),
    ({"lacks": ("mug",)}, 'expected the new messages without "mug"'),
    ({"system_contains": ("rude",)}, 'expected "rude" in the system prompt, found "You are kind. Be brief."'),
    ({"system_lacks": ("kind",)}, 'expected the system prompt without "kind"'),
    ({"tools": ("look",)}, "expected the tools look, found buy, look"),
    ({"tools": ()}, "expected the tools none, found buy, look"),
    ({"messages": 3}, "expected 3 messages, found 4"),
]


@pytest.mark.parametrize("demands", MET, ids=str)
def test_a_demand_that_is_met_says_nothing(demands: dict[str, Any]) -> None:
    assert list(Expectation(**demands).differences(REQUEST)) == []


@pytest.mark.parametrize(("demands", "message"), NOT_MET, ids=str)
def test_a_demand_that_is_not_met_says_what_was_found(demands: dict[str, Any], message: str) -> None:
    (difference,) = Expectation(**demands).differences(REQUEST)
    assert difference.startswith(message)


def test_every_demand_is_said() -> None:
    wrong = {"last_role": "user", "messages": 1, "tools": (), "contains": ("x",), "system_contains": ("y",)}
    assert len(list(Expectation(**wrong).differences(REQUEST))) == 5


def test_an_empty_request_has_no_last_role() -> None:
    request = REQUEST.evolve(messages=())
    assert list(Expectation(last_role="user").differences(request)) == ["expected last_role user, found none"]


def test_long_texts_are_cut() -> None:
    request = REQUEST.evolve(messages=(user_message("word " * 100),))
    (difference,) = Expectation(contains=("x",)).differences(request)
    assert len(difference) < 150
    assert difference.endswith('…"')
