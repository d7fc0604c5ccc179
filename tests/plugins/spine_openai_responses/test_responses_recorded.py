"""Recorded answers of many servers, and cases from public reports, read as they should be.

The records lie beside the repository; without them these tests are skipped, and the files in `wire/` remain.
"""

from functools import partial
from typing import Any

import pytest
from wire_trials import NO_RECORDS, WAYS, RecordedTrials, cases, error_rows, run, try_case, try_error

from spine.llm.catalogue import Traits
from spine.llm.response import ModelResponse
from spine.messages import ExtensionBlock
from spine_openai_responses.protocol import OpenAIResponses
from spine_openai_responses.wholes import ANNOTATIONS

PROTOCOL = OpenAIResponses()
TRAITS = Traits(provider="lab", protocol="openai_responses", model="m")
MAKE = partial(PROTOCOL.decoder, TRAITS, {})

pytestmark = NO_RECORDS


class TestRecorded(RecordedTrials):
    protocol = PROTOCOL
    prefix = "or-"

    def test_every_call_and_every_built_in_item_is_there_once(self) -> None:
        for record in self.records:
            end = run(MAKE, record["response"]["body"].encode())[1]
            if record["response"]["status"] == 200 and isinstance(end, ModelResponse):
                expected = record["expected"]
                assert len(end.message.tool_calls) == len(expected["tool_calls"]), record["id"]
                kinds = [block.kind for block in end.message.content if type(block) is ExtensionBlock]
                found = sorted(kind for kind in kinds if kind != ANNOTATIONS)
                assert found == sorted(tool["type"] for tool in expected["server_tools"]), record["id"]


@pytest.mark.parametrize("case", cases("w", "openai_responses"), ids=lambda case: case["id"])
@pytest.mark.parametrize("way", WAYS)
def test_reported_streams_read_right(case: dict[str, Any], way: str) -> None:
    try_case(MAKE, case, way)


@pytest.mark.parametrize("row", error_rows("openai-responses"), ids=lambda row: row["id"])
def test_error_answers_mean_what_they_mean(row: dict[str, Any]) -> None:
    try_error(PROTOCOL, row)
