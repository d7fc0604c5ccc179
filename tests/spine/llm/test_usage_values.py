"""Usage and cost as they read when they are printed."""

import pytest

from spine.llm.usage import Cost, Usage

USAGES: dict[str, tuple[Usage, str]] = {
    "both": (Usage(input_tokens=612, output_tokens=71), "612 in, 71 out"),
    "cache": (
        Usage(input_tokens=4717, cache_read_tokens=2816, cache_write_tokens=10, output_tokens=82),
        "4,717 in (2,816 from cache, 10 written to cache) 82 out",
    ),
    "output only": (Usage(output_tokens=0), "0 out"),
    "unreported": (Usage(total_tokens=3), "tokens unknown"),
}
COSTS: dict[str, tuple[Cost, str]] = {
    "dollars": (Cost(micros=2901, prices="p"), "$0.002901"),
    "thousands": (Cost(micros=1_234_567_890, prices="p"), "$1,234.567890"),
    "another currency": (Cost(micros=-5, currency="EUR", prices="p"), "-0.000005 EUR"),
}


@pytest.mark.parametrize(("value", "text"), [*USAGES.values(), *COSTS.values()], ids=[*USAGES, *COSTS])
def test_usage_and_cost_read_well(value: Usage | Cost, text: str) -> None:
    """What is unknown is never 0."""
    assert str(value) == text
