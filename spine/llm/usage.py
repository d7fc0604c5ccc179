"""What an answer used and what it cost (floor 3)."""

from collections.abc import Sequence
from operator import attrgetter

import attrs

from spine.drafts import maker
from spine.frozen import frozen
from spine.values import EMPTY_OBJECT, JsonObject, freeze_object

__all__ = ["Cost", "Usage", "add_usage", "total_usage"]


@frozen(kw_only=True)
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

    def __str__(self) -> str:
        """`612 in, 71 out`, or `1,512 in (1,408 written to cache) 24 out`; `tokens unknown` when nothing was said."""
        cached = ((self.cache_read_tokens, "from cache"), (self.cache_write_tokens, "written to cache"))
        cache = ", ".join(f"{number:,} {where}" for number, where in cached if number)
        parts = []
        if self.input_tokens is not None:
            parts.append(f"{self.input_tokens:,} in" + (f" ({cache})" if cache else ""))
        if self.output_tokens is not None:
            parts.append(f"{self.output_tokens:,} out")
        return (" " if cache else ", ").join(parts) or "tokens unknown"


@frozen(kw_only=True)
class Cost:
    """Money in millionths of a unit of `currency`, rounded half to even; `prices` names the price list used."""

    micros: int
    currency: str = "USD"
    prices: str

    def __str__(self) -> str:
        """`$0.002901`, or `0.002901 EUR`."""
        whole, part = divmod(abs(self.micros), 1_000_000)
        sign, amount = "-" if self.micros < 0 else "", f"{whole:,}.{part:06d}"
        return f"{sign}${amount}" if self.currency == "USD" else f"{sign}{amount} {self.currency}"


_counts = attrgetter(
    "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens"
)


def check_usage(instance: object, field: object, value: Usage) -> None:
    """A validator of fields that hold what a provider counted. Raises `TypeError` for what no event may hold."""
    if type(value) is not Usage or not all(count is None or type(count) is int for count in _counts(value)):
        raise TypeError(f"a Usage of whole numbers was wanted, found {value!r:.80}")


def total_usage(usages: Sequence[Usage]) -> Usage:
    """`add_usage` over any number of them, none included."""
    counts = []
    for column in zip(*map(_counts, usages), strict=True):
        reported = [count for count in column if count is not None]
        counts.append(sum(reported) if reported else None)
    malformed = any(usage.malformed for usage in usages)
    total: Usage = maker(Usage)(*counts, malformed, EMPTY_OBJECT) if counts else Usage()
    return total


def add_usage(left: Usage, right: Usage) -> Usage:
    """The sum, field by field; a field that neither reported stays None. `raw` is dropped."""
    counts = [b if a is None else a if b is None else a + b for a, b in zip(_counts(left), _counts(right), strict=True)]
    total: Usage = maker(Usage)(*counts, left.malformed or right.malformed, EMPTY_OBJECT)
    return total
