"""Recorded answers of many servers, and cases from public reports, read as they should be.

The records lie beside the repository; without them these tests are skipped, and the files in `wire/` remain.
"""

from functools import partial
from typing import Any

import pytest
from wire_trials import (
    NO_RECORDS,
    WAYS,
    cases,
    error_rows,
    pieces_of,
    recorded,
    run,
    try_case,
    try_error,
    try_expectations,
    try_odd_pieces,
    try_sample_of_cuts,
    try_truncations,
)

from spine.llm.assemble import Assembler
from spine.llm.catalogue import Traits
from spine_openai_chat.protocol import OpenAIChat

PROTOCOL = OpenAIChat()
TRAITS = Traits(provider="lab", protocol="openai_chat", model="m")
MAKE = partial(PROTOCOL.decoder, TRAITS, {})
CASES = cases("w", "openai_chat")

pytestmark = NO_RECORDS


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return recorded("openai_chat")


def test_every_recorded_answer_reads_as_expected(records: list[dict[str, Any]]) -> None:
    try_expectations(PROTOCOL, records, "oc-")


def test_a_sample_of_streams_is_the_same_at_every_cut(records: list[dict[str, Any]]) -> None:
    try_sample_of_cuts(MAKE, records)


def test_every_stream_is_the_same_in_pieces_of_odd_sizes(records: list[dict[str, Any]]) -> None:
    try_odd_pieces(MAKE, records)


def test_cut_streams_end_in_our_errors_or_complete(records: list[dict[str, Any]]) -> None:
    try_truncations(MAKE, records)


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
