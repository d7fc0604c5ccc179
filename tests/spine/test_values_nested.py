"""Frozen JSON put into other JSON: depth counts wherever it was frozen."""

import pytest

from spine.errors import ValueRefused
from spine.values import MAX_DEPTH, JsonObject, decode, encode, freeze_object

LEVELS = 100_000
"""More than any version of Python goes into."""


def test_depth_counts_through_what_was_frozen_before() -> None:
    """Wrapping level after level ends at the same depth as freezing all at once."""
    value = freeze_object({})
    for _ in range(MAX_DEPTH // 2 - 1):  # two levels each time
        value = freeze_object({"a": [value]})
    assert decode(encode(value)) is not None
    with pytest.raises(ValueRefused, match="nested deeper"):
        freeze_object({"a": [{"a": value}]})


def test_what_is_too_deep_for_the_encoder_or_the_decoder_is_refused() -> None:
    """Never a RecursionError."""
    value = JsonObject()
    for _ in range(LEVELS):
        value = JsonObject({"a": value})
    with pytest.raises(ValueRefused):
        encode(value)
    with pytest.raises(ValueRefused):
        decode(b"[" * LEVELS + b"]" * LEVELS)
    while value:  # taken apart level by level: deep structures are freed recursively
        value = value["a"]
