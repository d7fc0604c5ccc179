"""The agent whose answer must fit a type: `--agent scenarios.live.agents:capital`."""

import attrs

from spine import Agent

__all__ = ["City", "capital"]


@attrs.frozen
class City:
    """A city, as the model has to describe it."""

    name: str
    country: str


capital = Agent(
    "local:smollm2",
    name="capital",
    instructions="You name capitals. Answer as JSON with the city's name and its country.",
    output=City,
)
