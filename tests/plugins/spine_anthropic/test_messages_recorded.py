"""Recorded answers, and cases from public reports, read as they should be.

The records lie beside the repository; without them these tests are skipped, and the files in `wire/` remain.
"""

from functools import partial
from typing import Any

import pytest
from wire_trials import (
    NO_RECORDS,
    WAYS,
    RecordedTrials,
    cases,
    error_rows,
    try_case,
    try_error,
)

from spine.llm.catalogue import Traits
from spine_anthropic.protocol import AnthropicMessages

PROTOCOL = AnthropicMessages()
TRAITS = Traits(provider="lab", protocol="anthropic_messages", model="m")
MAKE = partial(PROTOCOL.decoder, TRAITS, {})

pytestmark = NO_RECORDS


class TestRecorded(RecordedTrials):
    protocol = PROTOCOL
    prefix = "am-"


@pytest.mark.parametrize("case", cases("w", "anthropic_messages"), ids=lambda case: case["id"])
@pytest.mark.parametrize("way", WAYS)
def test_reported_streams_read_right(case: dict[str, Any], way: str) -> None:
    try_case(MAKE, case, way)


@pytest.mark.parametrize("row", error_rows("anthropic-messages"), ids=lambda row: row["id"])
def test_error_answers_mean_what_they_mean(row: dict[str, Any]) -> None:
    try_error(PROTOCOL, row)
