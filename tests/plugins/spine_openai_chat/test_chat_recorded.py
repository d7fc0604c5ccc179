"""Recorded answers of many servers, and cases from public reports, read as they should be.

The records lie beside the repository; without them these tests are skipped, and the files in `wire/` remain.
"""

import base64
import gzip
import importlib.util
import json
import pathlib
import random
from typing import Any

import pytest

from spine.llm.assemble import Assembler, assemble
from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.response import ModelResponse
from spine.wire import decode_captured
from spine_openai_chat.protocol import OpenAIChat

ROOT = pathlib.Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"
CORPUS = SHARED / "wire" / "openai_chat.jsonl.gz"
OVERRIDES = ROOT / "tests" / "wire_overrides.txt"
PROTOCOL = OpenAIChat()
TRAITS = Traits(provider="lab", protocol="openai_chat", model="m")

pytestmark = pytest.mark.skipif(not CORPUS.exists(), reason="the recorded traffic does not lie beside the repository")


def load(path: pathlib.Path) -> list[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return load(CORPUS)


@pytest.fixture(scope="module")
def score() -> Any:
    spec = importlib.util.spec_from_file_location("recorded_score", SHARED / "wire" / "score.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*pieces: bytes) -> tuple[list[Any], ModelResponse | ProviderError]:
    decoder = PROTOCOL.decoder(TRAITS, {})
    chunks: list[Any] = []
    try:
        for piece in (*pieces, b""):
            chunks.extend(decoder.feed(piece))
        return chunks, decoder.finish()
    except ProviderError as failed:
        return chunks, failed


def outcome(*pieces: bytes) -> Any:
    chunks, end = run(*pieces)
    return assemble(chunks), end.failure if isinstance(end, ProviderError) else end


def test_every_recorded_answer_reads_as_expected(records: list[dict[str, Any]], score: Any) -> None:
    """Expectations that are wrong stand in tests/wire_overrides.txt, each with its reason, and must really differ."""
    overridden = {line.split()[0] for line in OVERRIDES.read_text().splitlines() if line.startswith("oc-")}
    wrong = {}
    for record in records:
        if record["oracle"].startswith("ambiguous"):
            continue
        result = decode_captured(PROTOCOL, {**record["response"], "vendor": record["vendor"]})
        found = score.differences(record, result)
        if found:
            wrong[record["id"]] = found
    assert set(wrong) == overridden, wrong


def test_a_sample_of_streams_is_the_same_at_every_cut(records: list[dict[str, Any]]) -> None:
    bodies = [r["response"]["body"].encode() for r in records if r["response"]["status"] == 200]
    for body in random.Random(7).sample([body for body in bodies if 200 < len(body) < 2500], 12):
        whole = outcome(body)
        assert outcome(*(body[i : i + 1] for i in range(len(body)))) == whole
        for cut in range(1, len(body)):
            assert outcome(body[:cut], body[cut:]) == whole, cut


def test_every_stream_is_the_same_in_pieces_of_odd_sizes(records: list[dict[str, Any]]) -> None:
    rng = random.Random(11)
    for record in records:
        body = record["response"]["body"].encode()
        if record["response"]["status"] == 200 and len(body) < 20_000:
            size = rng.choice((13, 64, 257, 1400))
            assert outcome(*(body[i : i + size] for i in range(0, len(body), size))) == outcome(body), record["id"]


def test_cut_streams_end_in_our_errors_or_complete(records: list[dict[str, Any]]) -> None:
    rng = random.Random(13)
    for record in records:
        body = record["response"]["body"].encode()
        if record["stream"] and record["response"]["status"] == 200:
            chunks, end = run(body[: rng.randrange(len(body))])
            if isinstance(end, ProviderError):
                assert end.category in ("stream_truncated", "protocol_error", "server_error"), record["id"]
            else:
                assert end.message.evolve(origin=None) == assemble(chunks), record["id"]


# ------------------------------------------------------------------------------------------- reported bugs

CATEGORIES = {
    "quota": "billing",
    "server": "server_error",
    "network": "connection",
    "truncated": "stream_truncated",
    "protocol": "protocol_error",
}
CASES = [json.loads(path.read_text()) for path in sorted((SHARED / "bug-cases").glob("w*.json"))]
CHAT_CASES = [case for case in CASES if case["protocol"] == "openai_chat"]


def pieces_of(case: dict[str, Any]) -> list[bytes]:
    return [
        base64.b64decode(piece["b64"]) if isinstance(piece, dict) else piece.encode()
        for piece in case["response"]["chunks"]
    ]


def neutral(block: Any) -> dict[str, Any]:
    match type(block).__name__:
        case "ToolCallBlock":
            named = {"type": "tool_call", "id": block.vendor_id, "name": block.name, "args": block.arguments}
            return named if block.arguments is not None else {**named, "args_raw": block.arguments_text}
        case name:
            return {"type": name.removesuffix("Block").lower(), "text": block.text}


@pytest.mark.parametrize("case", CHAT_CASES, ids=lambda case: case["id"])
@pytest.mark.parametrize("way", ["as recorded", "whole", "byte by byte"])
def test_reported_streams_read_right(case: dict[str, Any], way: str) -> None:
    pieces, expect = pieces_of(case), case["expect"]
    body = b"".join(pieces)
    chunks, end = run(*{"as recorded": pieces, "whole": [body], "byte by byte": [bytes([b]) for b in body]}[way])
    if expect["outcome"] == "error":
        assert isinstance(end, ProviderError)
        wanted = expect["error"]
        assert (end.category, end.retryable) == (
            CATEGORIES.get(wanted["category"], wanted["category"]),
            wanted["retryable"],
        )
        assert wanted.get("message_contains", "") in end.message
        assert [neutral(block) for block in assemble(chunks).content] == expect["partial"]["content"]
        return
    assert isinstance(end, ModelResponse)
    assert [neutral(block) for block in end.message.content] == expect["content"]
    assert end.stop_reason in expect.get("stop_accept", [expect["stop"]])
    assert end.raw_stop_reason == expect["stop_raw"]
    usage = expect.get("usage") or {}
    for theirs, ours in (("input_all", "input_tokens"), ("output", "output_tokens"), ("reasoning", "reasoning_tokens")):
        assert usage.get(theirs) == getattr(end.usage, ours), theirs
    assert (usage.get("cache_read") or None) == end.usage.cache_read_tokens


# --------------------------------------------------------------------------------------------- error answers


def errors() -> list[dict[str, Any]]:
    path = SHARED / "provider-errors.jsonl"
    rows = load(path) if path.exists() else []
    return [row for row in rows if row["protocol"] == "openai-chat" and row["phase"] != "transport"]


@pytest.mark.parametrize("row", errors(), ids=lambda row: row["id"])
def test_error_answers_mean_what_they_mean(row: dict[str, Any]) -> None:
    result = decode_captured(PROTOCOL, row)
    wanted = row["expected"]
    if wanted["category"] in ("ok", "content_filter") and result["error"] is None:
        assert result["stop_reason"] == "content_filter" or wanted["category"] == "ok"
        return
    found = result["error"]
    assert {key: found[key] for key in wanted} == wanted


def test_partial_answers_keep_what_had_arrived() -> None:
    seen = Assembler()
    case = next(case for case in CHAT_CASES if case["id"].startswith("w07"))
    for chunk in run(*pieces_of(case))[0]:
        seen.add(chunk)
    assert seen.is_visible
