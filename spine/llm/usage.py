"""What an answer used and what it cost (floor 3)."""

from operator import attrgetter

import attrs

from spine.drafts import maker
from spine.values import EMPTY_OBJECT, JsonObject, freeze_object

__all__ = ["Cost", "Usage", "add_usage"]


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens of one answer. None means the provider did not report it (or not as a number): never 0 in its place."""

    input_tokens: int | None = None
    """All input, what came from the cache included."""
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    """All output, reasoning included."""
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    malformed: bool = False
    """Something was reported that is no token count."""
    raw: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    """As the provider wrote it."""


@attrs.frozen(kw_only=True)
class Cost:
    """Money in millionths of a unit of `currency`, rounded half to even; `prices` names the price list used."""

    micros: int
    currency: str = "USD"
    prices: str


_counts = attrgetter(
    "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens"
)


def add_usage(left: Usage, right: Usage) -> Usage:
    """The sum, field by field; a field that neither reported stays None. `raw` is dropped."""
    counts = [b if a is None else a if b is None else a + b for a, b in zip(_counts(left), _counts(right), strict=True)]
    total: Usage = maker(Usage)(*counts, left.malformed or right.malformed, EMPTY_OBJECT)
    return total
