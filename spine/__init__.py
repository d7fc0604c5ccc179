"""Agent Spine: an agent runtime whose session is an append-only event log.

What applications use. Plugin authors also use `spine.messages`, `.tools`, `.llm`, `.events`, `.projectors`, `.hooks`,
`.store`, `.wire` and `.testing`; nothing else of the package is public.
"""

from spine.agent import Agent, Limits
from spine.errors import SpineError, TurnFailed
from spine.execution import ToolContext
from spine.functions import tool
from spine.llm.request import Route
from spine.runtime import Runtime
from spine.sections import Section
from spine.turn import Turn
from spine.values import Secret

__all__ = [
    "Agent",
    "Limits",
    "Route",
    "Runtime",
    "Secret",
    "Section",
    "SpineError",
    "ToolContext",
    "Turn",
    "TurnFailed",
    "tool",
]
