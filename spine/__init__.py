"""Agent Spine: an agent runtime whose session is an append-only event log.

What applications use. Plugin authors also use `spine.messages`, `.tools`, `.llm`, `.events`, `.projectors`, `.hooks`,
`.store`, `.wire` and `.testing`; nothing else of the package is public.

A name is imported from its home when it is first asked for: `spine --help` and whoever needs one room of the house
does not pay for all of it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spine.late import offered as _offered

if TYPE_CHECKING:
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

_HOMES: Final[Mapping[str, str]] = {
    "Agent": "spine.agent",
    "Limits": "spine.agent",
    "Route": "spine.llm.request",
    "Runtime": "spine.runtime",
    "Secret": "spine.values",
    "Section": "spine.sections",
    "SpineError": "spine.errors",
    "ToolContext": "spine.execution",
    "Turn": "spine.turn",
    "TurnFailed": "spine.errors",
    "tool": "spine.functions",
}


if not TYPE_CHECKING:  # a type checker should see the names above and no others
    __getattr__, __dir__ = _offered(globals(), _HOMES)
