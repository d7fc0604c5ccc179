"""When to try a failed request again (floor 3): a pure policy; the wait is the caller's."""

from collections.abc import Callable

from spine.frozen import frozen
from spine.llm.errors import Failure

__all__ = ["GiveUp", "RetryPolicy", "Wait", "decide"]


@frozen(kw_only=True)
class RetryPolicy:
    """`attempts` counts the first one. Delays in seconds; a server's own delay is honoured up to `max_wait_s`.

    With `discards`, an attempt that failed after part of its answer was shown is made again, too: the event says that
    the part is withdrawn. Whoever watches live has seen it.
    """

    attempts: int = 3
    base_s: float = 0.5
    cap_s: float = 8.0
    max_wait_s: float = 60.0
    discards: bool = False


@frozen
class Wait:
    """Try again after `delay_s`."""

    delay_s: float


@frozen
class GiveUp:
    """Do not try again, because `reason`."""

    reason: str


def decide(
    policy: RetryPolicy, failure: Failure, attempt: int, *, visible: bool, random: Callable[[], float]
) -> Wait | GiveUp:
    """What follows after attempt number `attempt` (from 1) failed. `random` gives numbers in [0, 1).

    Never after visible output unless the policy discards it, never for what an identical request cannot cure, never
    beyond `policy.attempts`, and not when the server asks for more than `max_wait_s`. Exponential backoff with full
    jitter otherwise.
    """
    if not failure.retryable:
        return GiveUp(f"{failure.category} is not transient")
    if visible and not policy.discards:
        return GiveUp("part of the answer was already shown")
    if attempt >= policy.attempts:
        return GiveUp(f"{attempt} of {policy.attempts} attempts used")
    backoff = min(policy.cap_s, policy.base_s * 2.0 ** min(attempt - 1, 60)) * random()
    asked = failure.retry_after_s
    if asked is None:
        return Wait(backoff)
    if asked > policy.max_wait_s:
        return GiveUp(f"the server asks for {asked:g} s, more than {policy.max_wait_s:g} s")
    return Wait(asked if asked > 0 else backoff)
