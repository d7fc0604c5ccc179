"""An agent is a value: frozen, safe to import, refused early when it cannot be."""

from typing import Any

import attrs
import pytest

from spine import Agent, Limits, tool
from spine.agent import contract
from spine.codec import Codec
from spine.errors import LimitUnavailable, RouteUnknown, UsageError
from spine.llm.request import Route
from spine.tools import Tool, ToolDefinition

CODEC = Codec()
LOOK = Tool(definition=ToolDefinition(name="look"), handler=lambda arguments, context: None)


@tool(effect="read_only")
def weather(city: str) -> str:
    """Weather in a city."""
    return city


def contract_of(agent: Agent) -> str:
    return contract(CODEC, agent, Route.parse(agent.model), agent.own_tools)


def test_an_agent_is_frozen_and_evolves() -> None:
    """The model may be given first; everything else by keyword; lists become tuples."""
    agent = Agent("p:m", tools=[weather, "orders.*", LOOK], metadata={"k": [1]})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        agent.model = "x:y"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Agent("p:m", "name")  # type: ignore[misc]
    assert [t.name for t in agent.own_tools] == ["weather", "look"]
    assert agent.selected == ("orders.*",)
    assert agent.evolve(name="other").name == "other"
    assert agent.metadata == {"k": (1,)}
    assert Agent(Route("p", "m:x")).model == "p:m:x"


WRONG: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "half a route": ({"model": "p:"}, RouteUnknown),
    "no provider": ({"model": ":m"}, RouteUnknown),
    "a tool that is none": ({"tools": [5]}, UsageError),
    "a function without hints": ({"tools": [lambda x: x]}, UsageError),
}


@pytest.mark.parametrize(("fields", "error"), WRONG.values(), ids=WRONG)
def test_an_agent_that_cannot_be_is_refused_when_it_is_made(fields: dict[str, Any], error: type[Exception]) -> None:
    """Not when it runs."""
    with pytest.raises(error):
        Agent(**{"model": "p:m", **fields})


@pytest.mark.parametrize("steps", [0, -1, 1.5, "3", True, None])
def test_a_limit_of_steps_is_a_positive_whole_number(steps: Any) -> None:
    """Anything else is refused."""
    with pytest.raises((UsageError, LimitUnavailable)):
        Limits(steps=steps)
    assert Limits().steps == 50


CHANGES: dict[str, dict[str, Any]] = {
    "model": {"model": "p:n"},
    "name": {"name": "other"},
    "instructions": {"instructions": "Be long."},
    "a tool": {"tools": (LOOK.evolve(definition=ToolDefinition(name="look", description="x")),)},
    "an effect": {"tools": (LOOK.evolve(effect="idempotent"),)},
    "an approval": {"tools": (LOOK.evolve(approval="ask"),)},
    "a selection": {"tools": (LOOK, "mail.*")},
    "a parameter": {"max_output_tokens": 5},
    "an option": {"provider_options": {"p": {"a": 1}}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_contract_covers_what_the_agent_asks_of_model_and_tools(change: dict[str, Any]) -> None:
    """Each change is another contract; limits and metadata are the application's own affair."""
    agent = Agent("p:m", instructions="Be brief.", tools=[LOOK])
    assert contract_of(agent.evolve(**change)) != contract_of(agent)
    assert contract_of(agent.evolve(limits=Limits(steps=3), metadata={"k": 1})) == contract_of(agent)
