"""Recorded answers of many servers, and cases from public reports, read as they should be.

The records lie beside the repository; without them these tests are skipped, and the files in `wire/` remain.
"""

import json
from functools import partial
from typing import Any

import pytest
from histories_made import request
from wire_trials import NO_RECORDS, WAYS, RecordedTrials, answers, cases, error_rows, run, try_case, try_error

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

    def test_recorded_answers_go_back_as_they_came(self) -> None:
        """Item by item, but for the reasoning that a server which keeps nothing could not read."""
        traits = Traits(provider="lab", protocol=PROTOCOL.name, model="m", call_id_pattern=r".{1,200}")
        tried = 0
        for body in answers(self.records):
            end = run(MAKE, body)[1]
            if body.lstrip().startswith(b"{") and isinstance(end, ModelResponse):
                items = [_replayed(item) for item in json.loads(body)["output"] if _is_replayed(item)]
                while items and items[-1]["type"] == "reasoning":
                    del items[-1]
                sent = json.loads(PROTOCOL.encode(request(end.message), traits).content)["input"]
                assert [_replayed(item) for item in sent] == items
                tried += 1
        assert tried > 500


def _is_replayed(item: dict[str, Any]) -> bool:
    if item["type"] == "message":
        return any(part["text"] for part in item["content"])
    return item["type"] != "reasoning" or bool(item.get("encrypted_content"))


def _replayed(item: dict[str, Any]) -> dict[str, Any]:
    """What of an item must come back, written in one way."""
    members = _MEMBERS.get(item["type"])
    if members is None:
        return item
    kept = {key: item[key] for key in members if item.get(key) is not None}
    if item["type"] == "message":
        kept["content"] = [(part["text"], part["annotations"]) for part in item["content"]]
    elif item["type"] == "function_call":
        kept["arguments"] = json.loads(item["arguments"] or "{}")
    return {"type": item["type"], **kept}


_MEMBERS = {
    "message": ("id", "role", "phase"),
    "reasoning": ("id", "summary", "encrypted_content"),
    "function_call": ("id", "call_id", "name", "namespace", "caller"),
    "custom_tool_call": ("id", "call_id", "name", "input"),
}


@pytest.mark.parametrize("case", cases("w", "openai_responses"), ids=lambda case: case["id"])
@pytest.mark.parametrize("way", WAYS)
def test_reported_streams_read_right(case: dict[str, Any], way: str) -> None:
    try_case(MAKE, case, way)


@pytest.mark.parametrize("row", error_rows("openai-responses"), ids=lambda row: row["id"])
def test_error_answers_mean_what_they_mean(row: dict[str, Any]) -> None:
    try_error(PROTOCOL, row)
