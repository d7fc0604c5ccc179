"""When to try a failed request again (floor 3): a pure policy; the wait is the caller's."""

from collections.abc import Callable

from spine.frozen import frozen
from spine.llm.errors import Failure

__all__ = ["RetryPolicy", "next_delay"]


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


def next_delay(
    policy: RetryPolicy, failure: Failure, attempt: int, *, visible: bool, random: Callable[[], float]
) -> float | None:
    """Seconds to wait after attempt number `attempt` (from 1) failed; None for no other attempt.

    Never after visible output unless the policy discards it, never for what an identical request cannot cure, never
    beyond `policy.attempts`, and not when the server asks for more than `max_wait_s`. Exponential backoff with full
    jitter otherwise; `random` gives numbers in [0, 1).
    """
    if not failure.retryable or (visible and not policy.discards) or attempt >= policy.attempts:
        return None
    asked = failure.retry_after_s
    if asked:
        return asked if asked <= policy.max_wait_s else None
    return min(policy.cap_s, policy.base_s * 2.0 ** min(attempt - 1, 60)) * random()
