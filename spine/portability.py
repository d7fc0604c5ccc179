"""Whether a session could go on with another model, and what would be lost (floor 10): asked before, not found out.

The history is encoded for the target as its next request would be; nothing is sent and nothing is recorded.
"""

from spine.capabilities import snapshot
from spine.estimates import HistoryEstimate
from spine.frozen import frozen
from spine.llm.errors import Failure, ProviderError
from spine.llm.request import ModelRequest, Route
from spine.messages import user_message
from spine.run import Run
from spine.values import StepId

__all__ = ["Portability", "portability"]

_NEXT = user_message("…")
"""What stands for the next input: protocols treat a last answer unlike one that was replied to."""


@frozen(kw_only=True)
class Portability:
    """What a session would be on another route."""

    route: Route
    refused: Failure | None = None
    """Why a request would be refused before anything is sent; None when it would go out."""
    losses: tuple[str, ...] | None = ()
    """What would be left out or replaced, a sentence each; None when the target's adapter cannot tell."""
    estimated_tokens: int = 0
    """The size of the history for this target."""
    window: int | None = None
    """The target's context window in tokens; None when unknown."""

    @property
    def fits(self) -> bool | None:
        """Whether the history fits the window by estimate; None when that is unknown."""
        return None if self.window is None else self.estimated_tokens <= self.window

    @property
    def is_lossless(self) -> bool:
        """Whether the target would take the session as it is."""
        return self.refused is None and self.losses == () and self.fits is not False


def portability(run: Run, route: Route) -> Portability:
    """What the session of `run` would be on `route`. Raises `RouteUnknown` or `KeyMissing`, as a turn would."""
    target = run.routes.resolve(route, run.scope)
    capabilities = snapshot(run.registries, run.scope, run.agent)
    history, agent = run.log.history, run.agent
    request = ModelRequest(
        route=route,
        step=StepId("next"),
        messages=(*history, _NEXT),
        tools=capabilities.definitions,
        max_output_tokens=agent.max_output_tokens,
        temperature=agent.temperature,
        thinking=agent.thinking,
        provider_options=agent.provider_options,
    )
    refused, losses = None, None
    try:
        target.adapter.check(request)
        losses = target.losses(request)
    except ProviderError as error:
        refused = error.failure
    return Portability(
        route=route,
        refused=refused,
        losses=losses,
        estimated_tokens=HistoryEstimate().of(history, capabilities.counter(route.provider)),
        window=target.traits.window,
    )
