"""Recorded answers of many servers, and cases from public reports, read as they should be.

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
    pieces_of,
    run,
    try_case,
    try_error,
)

from spine.llm.assemble import Assembler
from spine.llm.catalogue import Traits
from spine_openai_chat.protocol import OpenAIChat

PROTOCOL = OpenAIChat()
TRAITS = Traits(provider="lab", protocol="openai_chat", model="m")
MAKE = partial(PROTOCOL.decoder, TRAITS, {})
CASES = cases("w", "openai_chat")

pytestmark = NO_RECORDS


class TestRecorded(RecordedTrials):
    protocol = PROTOCOL
    prefix = "oc-"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
@pytest.mark.parametrize("way", WAYS)
def test_reported_streams_read_right(case: dict[str, Any], way: str) -> None:
    try_case(MAKE, case, way)


@pytest.mark.parametrize("row", error_rows("openai-chat"), ids=lambda row: row["id"])
def test_error_answers_mean_what_they_mean(row: dict[str, Any]) -> None:
    try_error(PROTOCOL, row)


def test_partial_answers_keep_what_had_arrived() -> None:
    seen = Assembler()
    case = next(case for case in CASES if case["id"].startswith("w07"))
    for chunk in run(MAKE, *pieces_of(case))[0]:
        seen.add(chunk)
    assert seen.is_visible
