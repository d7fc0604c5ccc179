"""Prompt sections: pieces of the system prompt that plugins and applications contribute (floor 4).

Values only; rendering, ordering and trimming are done where a step's snapshot is made. A static section sees what
holds for a whole session, so its text can be kept; a dynamic one also sees turn, step, tools and time.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NoReturn

import attrs

from spine.errors import UsageError
from spine.frozen import frozen
from spine.llm.request import Route
from spine.tools import ServerTool, ToolDefinition
from spine.values import EMPTY_OBJECT, JsonObject, ScopeId, SessionId, StepId, TurnId, freeze_object

__all__ = ["DynamicContext", "Render", "Section", "SectionContext", "StaticContext"]

DYNAMIC_FIELDS: Final = ("now", "step", "tools", "turn")


@frozen(kw_only=True)
class StaticContext:
    """What a static section may read; hashable, so that a rendered text can be kept by it."""

    scope: ScopeId
    """The session's own scope."""
    session: SessionId
    agent: str
    """The agent's name."""
    route: Route
    variables: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    """What the application gave when it opened the session."""

    @property
    def model(self) -> str:
        """The model's name in the route."""
        return self.route.model

    def __getattr__(self, name: str) -> NoReturn:
        # Only reached for what is not there. Not an AttributeError for the known four: `getattr(context, "now", None)`
        # would otherwise freeze a None into a prompt.
        if name in DYNAMIC_FIELDS:
            raise UsageError(
                f"a static section read context.{name}, which changes from step to step; "
                f"a section that needs it is made with Section(…, dynamic=True)"
            )
        raise AttributeError(
            f"a section's context has no {name!r}; it has scope, session, agent, route, model, variables"
        )


@frozen(kw_only=True)
class DynamicContext:
    """What a dynamic section may read, at each step."""

    scope: ScopeId
    session: SessionId
    agent: str
    route: Route
    turn: TurnId
    step: StepId
    now: datetime
    """The recorded time of `turn.started`, in UTC: the same when the session is replayed."""
    tools: tuple[ToolDefinition | ServerTool, ...] = ()
    """What the model may call in this step."""
    variables: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)

    @property
    def model(self) -> str:
        """The model's name in the route."""
        return self.route.model

    @property
    def static(self) -> StaticContext:
        """The part of it that a static section may read."""
        return StaticContext(
            scope=self.scope, session=self.session, agent=self.agent, route=self.route, variables=self.variables
        )


SectionContext = StaticContext | DynamicContext
Render = str | Callable[[Any], str]
"""The text itself, or a pure, synchronous function of the section's context."""


@frozen
class Section:
    """A named piece of the system prompt.

    Sections stand by (`order`, `name`). `source` says whose it is (empty: its owner's). When the prompt outgrows the
    window, dynamic sections go first, lowest `priority` first; static ones never. A text that is empty is left out.
    """

    name: str
    order: int = attrs.field(default=0, kw_only=True)
    source: str = attrs.field(default="", kw_only=True)
    priority: int = attrs.field(default=0, kw_only=True)
    dynamic: bool = attrs.field(default=False, kw_only=True)
    """Rendered at each step instead of once."""
    metadata: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object, kw_only=True)
    render: Render = attrs.field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise UsageError(f"a section's name is {self.name!r:.80}; it must be text that is not empty")
        if not isinstance(self.render, str) and not callable(self.render):
            raise UsageError(
                f'section "{self.name}": render is {type(self.render).__name__}; '
                "it must be text, or a function of the context that returns text"
            )

    def evolve(self, **changes: Any) -> "Section":
        """This section with some fields replaced."""
        return attrs.evolve(self, **changes)
