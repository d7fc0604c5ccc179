"""What a session needs of its runtime (floor 11): a seam, so that a session knows of no runtime."""

from collections.abc import Callable
from typing import Any, Protocol

from spine.llm.request import Route
from spine.values import JsonObject


class Host(Protocol):
    """What a session needs of its runtime."""

    @property
    def versions(self) -> JsonObject:
        """Version of the runtime and of each loaded plugin."""

    def resolve_model(self, model: str) -> Route:
        """A route from `provider:name` or an alias."""

    def spawn(self, work: Callable[[], Any]) -> None:
        """Run an async function in the runtime's task group."""

    def entered(self, session: Any) -> None:
        """A turn begins to run."""

    def left(self, session: Any) -> None:
        """It stopped running."""

    async def give_up(self, session: Any) -> None:
        """Forget a session that is no longer wanted, and let others own it."""
