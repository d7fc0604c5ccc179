"""An agent is a value: frozen, safe to import, refused early when it cannot be."""

from typing import Any

import attrs
import pytest

from spine import Agent, Limits, tool
from spine.agent import contract
from spine.codec import Codec
from spine.errors import DuplicateContribution, RouteUnknown, UsageError
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


VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "no tokens": ({"max_output_tokens": -5}, "max_output_tokens is -5; it must be a whole number over 0, or None"),
    "tokens in words": ({"max_output_tokens": "x"}, "max_output_tokens is 'x'"),
    "tokens that are true": ({"max_output_tokens": True}, "max_output_tokens is True"),
    "hot": ({"temperature": "hot"}, "temperature is 'hot'; it must be a number from 0, or None"),
    "no number": ({"temperature": float("nan")}, "temperature is nan"),
    "thinking": ({"thinking": "zz"}, "thinking is 'zz'; it must be one of off, minimal, low, medium, high, or a"),
    "approval": ({"approval": "zz"}, "approval is 'zz'; it must be never, ask, a function, or None"),
    "no name": ({"name": ""}, "agent: name is ''"),
    "an empty model": ({"model": ""}, "model is ''; it must be provider:name, or an alias"),
    "no model": ({"model": None}, "model is None"),
    "instructions": ({"instructions": 3}, "instructions is 3"),
    "limits": ({"limits": 20}, "limits is 20; it must be Limits"),
    "a text of tools": ({"tools": "weather"}, "tools are 'weather'; they must be a list"),
    "a number of tools": ({"tools": 3}, "tools are 3"),
}


@pytest.mark.parametrize(("fields", "message"), VALUES.values(), ids=VALUES)
def test_a_value_that_a_field_cannot_have_is_refused_when_the_agent_is_made(
    fields: dict[str, Any], message: str
) -> None:
    """Naming field, value and what is accepted; also when an agent evolves."""
    with pytest.raises(UsageError) as refused:
        Agent(**{"model": "p:m", **fields})
    assert message in refused.value.message
    with pytest.raises(UsageError):
        Agent("p:m").evolve(**fields)


def test_two_tools_of_one_name_are_refused_with_both_places() -> None:
    """Not when a session is opened; a `Tool` has no place."""
    with pytest.raises(DuplicateContribution) as refused:
        Agent("p:m", name="refunds", tools=[weather, tool(name="weather")(weather.__wrapped__)])
    place = weather.where
    assert refused.value.message == (
        f'tool "weather" already in agent "refunds" ({place}); added again at {place}; names are unique per agent'
    )
    with pytest.raises(DuplicateContribution, match='"look" already in agent "agent"; added again; names'):
        Agent("p:m", tools=[LOOK, LOOK.evolve(effect="idempotent")])


COUNT = "must be a positive whole number"
AMOUNT = "must be an amount over 0 with its currency, of at most six decimals"
SECONDS = "must be a number of seconds over 0"
NO_LIMITS: dict[str, tuple[tuple[Any, ...], str]] = {
    "steps": ((0, -1, 1.5, "3", True), COUNT),
    "tokens": ((0, -1, 1.5, "3", True), COUNT),
    "cost": (
        (
            *(0.5, 1, True, "", "0.50", "USD", "0.50USD", "0.50 usd", "0.50 Euro", "-1 USD", "+1 USD", ".5 USD"),
            *("1. USD", "0 USD", "0.000000 USD", "$0", "1,000 USD", "1e3 USD", "nan USD", "0.1234567 USD", " 1 USD"),
            *("1 USD\n", "0.50  USD", "0.50 €", "\u0661 USD", "1234567890123 USD"),
        ),
        AMOUNT,
    ),
    "wall_s": ((0, -1, float("nan"), float("inf"), "3", True), SECONDS),
}


@pytest.mark.parametrize("name", NO_LIMITS)
def test_what_is_no_limit_is_refused_when_it_is_made(name: str) -> None:
    """With the value that was found, and what is accepted."""
    values, wanted = NO_LIMITS[name]
    for value in values:
        with pytest.raises(UsageError) as refused:
            Limits(**{name: value})
        assert refused.value.message == f"limit {name} is {value!r}; it {wanted}"


COSTS = {
    "0.50 USD": ("0.50 USD", 500_000),
    "$0.50": ("0.50 USD", 500_000),
    "3 EUR": ("3 EUR", 3_000_000),
    "0.000001 CHF": ("0.000001 CHF", 1),
    "1234567.100000 USD": ("1234567.100000 USD", 1_234_567_100_000),
}


@pytest.mark.parametrize(("given", "kept"), COSTS.items())
def test_a_limit_on_cost_is_kept_in_millionths(given: str, kept: tuple[str, int]) -> None:
    limits = Limits(cost=given)
    assert (limits.cost, limits.cost_micros) == kept


def test_nothing_is_said_of_limits_that_are_not_given() -> None:
    assert attrs.astuple(Limits()) == (None, None, None, None)
    assert attrs.astuple(Limits(steps=1, tokens=1, wall_s=0.001)) == (1, None, 1, 0.001)


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


def test_lone_surrogates_in_an_agents_texts_are_replaced_when_it_is_made() -> None:
    """No log could hold them, and a contract over them could not be written."""
    agent = Agent("scripted:demo", name="a\ud800", instructions="half \udfff")
    assert (agent.name, agent.instructions) == ("a\ufffd", "half \ufffd")
