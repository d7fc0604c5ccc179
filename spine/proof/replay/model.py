"""Model, routes and retry policy of a replayed session (floor 13): in the shape of the real ones, fed by the world."""

from collections.abc import AsyncIterator
from typing import Any

from spine.events import ModelAttemptFailed
from spine.llm.chunks import Chunk
from spine.llm.errors import Failure
from spine.llm.request import ModelRequest, Route
from spine.llm.response import ModelResponse
from spine.proof.replay.world import World
from spine.routes import Routes, Target
from spine.scope import Contribution, Scope

__all__ = ["RecordedModel", "RecordedPolicy", "RecordedRoutes"]


class RecordedModel:
    """An adapter that answers every route as the log says."""

    def __init__(self, world: World) -> None:
        self._world = world

    def check(self, request: ModelRequest) -> None:
        """Refuse what was refused."""
        self._world.check(request)

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | ModelResponse]:
        """One recorded attempt."""
        return self._world.answer()

    async def aclose(self) -> None:
        """Nothing is open."""


class RecordedRoutes(Routes):
    """Routes that need no key and make no adapter; what the catalogue says of them is today's."""

    def __init__(self, world: World, routes: Routes) -> None:
        vars(self).update(vars(routes))
        self._world = world
        self._model = RecordedModel(world)

    def resolve(self, route: Route, scope: Scope | None) -> Target:
        """The recorded model, with the protocol that answered this route."""
        protocol = self._world.recording.protocols.get(str(route))
        if protocol is None:
            self._world.refuse_route()
            entry = self.catalogue.providers.get(route.provider)
            protocol = entry.protocol if entry is not None else route.provider
        return self.target(self._model, route, protocol)

    def source(self, route: Route, protocol: str, scope: Scope) -> Contribution[Any] | None:
        """Who would answer today; nobody where an adapter was given to the recorded runtime."""
        return None if self._world.recording.was_given_adapter else super().source(route, protocol, scope)


_NONE = ModelAttemptFailed(attempt=1, failure=Failure(category="internal", message="none is recorded"))


class RecordedPolicy:
    """A retry policy that waits and gives up as recorded; its fields are asked when an attempt has just failed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _failed(self) -> ModelAttemptFailed:
        event = self._world.next
        if event is not None and isinstance(event.data, ModelAttemptFailed):
            return event.data
        return _NONE

    @property
    def attempts(self) -> int:
        """One more than there were so far, or none left."""
        failed = self._failed()
        return failed.attempt if failed.delay_s is None else failed.attempt + 1

    @property
    def base_s(self) -> float:
        """What becomes the recorded delay after doubling."""
        failed = self._failed()
        return (failed.delay_s or 0.0) / 2.0 ** min(failed.attempt - 1, 60)

    @property
    def discards(self) -> bool:
        """Whether shown output was withdrawn for another attempt."""
        return self._failed().discarded

    cap_s = max_wait_s = float("inf")
