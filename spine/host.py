"""What a session needs of its runtime (floor 11): a seam, so that a session knows of no runtime."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from spine.agent import Agent
from spine.errors import SpineError
from spine.llm.request import Route
from spine.values import JsonObject

_logger = logging.getLogger("spine")


class Host(Protocol):
    """What a session needs of its runtime."""

    @property
    def versions(self) -> JsonObject:
        """Version of the runtime and of each loaded plugin."""

    def resolve_model(self, model: str) -> Route:
        """A route from `provider:name` or an alias."""

    async def session(
        self, id: str, agent: Agent, *, deps: Any, variables: Mapping[str, Any], reference: str | None
    ) -> Any:
        """Open a session."""

    async def fork(self, id: str, child: str, *, seq: int | None = None) -> Any:
        """Make a session of another one's events."""

    def spawn(self, work: Callable[[], Any]) -> None:
        """Run an async function in the runtime's task group."""

    def entered(self, session: Any) -> None:
        """A turn begins to run."""

    def left(self, session: Any) -> None:
        """It stopped running."""

    async def give_up(self, session: Any) -> None:
        """Forget a session that is no longer wanted, and let others own it."""


async def contained(work: Callable[[], Any]) -> None:
    """Run background work; its failure stands in the log of its session already and must not end the runtime."""
    try:
        await work()
    except SpineError as error:
        _logger.info("in the background: %s", error)
    except Exception:
        _logger.exception("in the background")
