"""What is known of providers and models, and what their usage costs."""

import pytest

from spine.llm.catalogue import Prices, Traits, price
from spine.llm.usage import Usage


@pytest.mark.parametrize(
    ("tokens", "micros"),
    [(0, 0), (1, 0), (2, 1), (3, 2), (5, 2), (7, 4), (-1, 0), (-3, -2), (2_000_001, 1_000_000)],
)
def test_a_cost_is_rounded_half_to_even(tokens: int, micros: int) -> None:
    """At half a millionth a token; as `round` does it, without a fraction."""
    prices = Prices(id="list", input=500_000, output=0)
    cost = price(Usage(input_tokens=tokens, output_tokens=0), prices)
    assert cost is not None
    assert cost.micros == micros == round(tokens / 2)
    assert type(cost.micros) is int


def test_efforts_of_a_model_are_a_tuple_or_unknown() -> None:
    assert Traits(thinking=["low", "high"]).thinking == ("low", "high")  # type: ignore[arg-type]
    assert Traits().thinking is None
