"""An agent without tools, for scenarios in which only the model matters."""

from spine import Agent

AGENT = Agent("demo:small", name="clerk", instructions="You are a kind clerk in a shop for mugs.")
