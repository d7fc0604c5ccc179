"""How much and how long an answer may be (side room `wire`): plain values, no clock.

Every number is a border at which the attempt fails as `protocol_error` or `timeout`; none of them truncates silently.
"""

from spine.frozen import frozen

__all__ = ["Deadlines", "WireLimits"]

KIB = 1024
MIB = 1024 * KIB


@frozen(kw_only=True)
class WireLimits:
    """Sizes of one response. `line` and `event` bound a piece of an event stream, `response` the decompressed whole."""

    line_bytes: int = 16 * MIB
    event_bytes: int = 16 * MIB
    response_bytes: int = 64 * MIB
    error_bytes: int = 64 * KIB
    """How much of an error answer is read; the rest is left unread."""
    blocks: int = 1024
    """Content blocks of one answer, calls included."""
    calls: int = 256
    arguments_chars: int = 1 * MIB
    """Length of the arguments of one call, in characters."""


@frozen(kw_only=True)
class Deadlines:
    """How long to wait, in seconds; None waits for ever.

    `idle_s` is the longest silence between bytes of the body. `progress_s` is the longest time without a model event:
    comments and pings keep a connection from being idle, but are no progress. `total_s` counts from the start.
    """

    connect_s: float | None = 10.0
    first_byte_s: float | None = 300.0
    """From the start of the request to the head of the response."""
    idle_s: float | None = 120.0
    progress_s: float | None = 300.0
    total_s: float | None = 1800.0
    linger_s: float = 1.0
    """How long a response may stay open after the answer's last word; then it is closed, which is no failure."""
