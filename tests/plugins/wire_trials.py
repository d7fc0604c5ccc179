"""Trials that every wire protocol must pass, on bytes of one's own and on what was recorded.

The records lie beside the repository; where they are missing, `NO_RECORDS` skips what needs them.
"""

import base64
import gzip
import importlib.util
import json
import pathlib
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from spine.llm.assemble import assemble
from spine.llm.errors import ProviderError
from spine.llm.protocols import Decoder, WireProtocol
from spine.llm.response import ModelResponse
from spine.wire import decode_captured

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
OVERRIDES = ROOT / "tests" / "wire_overrides.txt"
NO_RECORDS = pytest.mark.skipif(
    not (SHARED / "wire").exists(), reason="the recorded traffic does not lie beside the repository"
)
WAYS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "as recorded": lambda pieces: pieces,
    "whole": lambda pieces: [b"".join(pieces)],
    "byte by byte": lambda pieces: bytewise(b"".join(pieces)),
}

Make = Callable[[], Decoder]
End = ModelResponse | ProviderError


def run(make: Make, *pieces: bytes) -> tuple[list[Any], End]:
    """All chunks, and the response or the error."""
    decoder = make()
    chunks: list[Any] = []
    try:
        for piece in (*pieces, b""):
            chunks.extend(decoder.feed(piece))
        return chunks, decoder.finish()
    except ProviderError as failed:
        return chunks, failed


def outcome(make: Make, *pieces: bytes) -> Any:
    """What must not depend on the cuts: the folded message and how it ended."""
    chunks, end = run(make, *pieces)
    if isinstance(end, ProviderError):
        return assemble(chunks), end.failure
    assert end.message.evolve(origin=None) == assemble(chunks)
    return end


def bytewise(body: bytes) -> list[bytes]:
    return [body[i : i + 1] for i in range(len(body))]


def try_cuts(make: Make, body: bytes, step: int = 1) -> None:
    """The same outcome whole, byte by byte, and cut once at every place (or every `step` bytes)."""
    whole = outcome(make, body)
    assert outcome(make, *bytewise(body)) == whole
    for cut in range(1, len(body), step):
        assert outcome(make, body[:cut], body[cut:]) == whole, cut


def try_prefix(make: Make, body: bytes, end: int) -> None:
    """What is cut off at `end` completes or raises one of the errors that a cut may make."""
    chunks, result = run(make, body[:end])
    if isinstance(result, ProviderError):
        assert result.category in ("stream_truncated", "protocol_error", "server_error", "overloaded"), result
    else:
        assert result.message.evolve(origin=None) == assemble(chunks)


def try_limit(make: Make, body: bytes, what: str) -> None:
    """A limit ends the answer as a protocol error that names it, however the bytes are cut."""
    for pieces in ([body], [body[i : i + 11] for i in range(0, len(body), 11)]):
        end = run(make, *pieces)[1]
        assert isinstance(end, ProviderError)
        assert end.category == "protocol_error"
        assert what in end.message


# --------------------------------------------------------------------------------------------- recorded answers


def load(path: pathlib.Path) -> list[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def recorded(protocol: str) -> list[dict[str, Any]]:
    return load(SHARED / "wire" / f"{protocol}.jsonl.gz")


def answers(records: Iterable[dict[str, Any]]) -> list[bytes]:
    """Bodies of answers that were no HTTP errors."""
    return [record["response"]["body"].encode() for record in records if record["response"]["status"] == 200]


def _score() -> Any:
    spec = importlib.util.spec_from_file_location("recorded_score", SHARED / "wire" / "score.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def try_expectations(protocol: WireProtocol, records: list[dict[str, Any]], prefix: str) -> None:
    """Every record reads as expected, but for those in `tests/wire_overrides.txt`, which must really differ."""
    overridden = {line.split()[0] for line in OVERRIDES.read_text().splitlines() if line.startswith(prefix)}
    score, wrong = _score(), {}
    for record in records:
        if not record["oracle"].startswith("ambiguous"):
            result = decode_captured(protocol, {**record["response"], "vendor": record["vendor"]})
            found = score.differences(record, result)
            if found:
                wrong[record["id"]] = found
    assert set(wrong) == overridden, wrong


def try_sample_of_cuts(make: Make, records: list[dict[str, Any]]) -> None:
    """A sample of short streams is the same at every cut."""
    for body in random.Random(7).sample([body for body in answers(records) if 200 < len(body) < 2500], 12):
        try_cuts(make, body)


def try_odd_pieces(make: Make, records: list[dict[str, Any]]) -> None:
    """Every answer of moderate length is the same in pieces of odd sizes."""
    rng = random.Random(11)
    for body in answers(records):
        if len(body) < 20_000:
            size = rng.choice((13, 64, 257, 1400))
            assert outcome(make, *(body[i : i + size] for i in range(0, len(body), size))) == outcome(make, body)


def try_truncations(make: Make, records: list[dict[str, Any]]) -> None:
    """Streams that are cut off somewhere end in our errors or complete."""
    rng = random.Random(13)
    for body in answers(record for record in records if record["stream"]):
        try_prefix(make, body, rng.randrange(len(body)))


# ------------------------------------------------------------------------------------------------ reported bugs

_CATEGORIES = {
    "quota": "billing",
    "server": "server_error",
    "network": "connection",
    "truncated": "stream_truncated",
    "protocol": "protocol_error",
}
_COUNTS = (
    ("input_all", "input_tokens"),
    ("output", "output_tokens"),
    ("reasoning", "reasoning_tokens"),
)


def cases(prefix: str, protocol: str | None = None) -> list[dict[str, Any]]:
    """Reported cases whose id begins with `prefix`, of one protocol."""
    found = [json.loads(path.read_text()) for path in sorted((SHARED / "bug-cases").glob(f"{prefix}*.json"))]
    return [case for case in found if protocol is None or case.get("protocol") == protocol]


def pieces_of(case: dict[str, Any]) -> list[bytes]:
    return [
        base64.b64decode(piece["b64"]) if isinstance(piece, dict) else piece.encode()
        for piece in case["response"]["chunks"]
    ]


def neutral(block: Any) -> dict[str, Any]:
    """A block in the words of the cases."""
    kind = type(block).__name__
    if kind == "ToolCallBlock":
        named = {"type": "tool_call", "id": block.vendor_id, "name": block.name, "args": block.arguments}
        return named if block.arguments is not None else {**named, "args_raw": block.arguments_text}
    state = block.provider_state.data if block.provider_state is not None else {}
    if kind == "ThinkingBlock" and block.redacted:
        return {"type": "redacted_thinking", "data": state["data"]}
    signature = {"signature": state["signature"]} if "signature" in state else {}
    return {"type": kind.removesuffix("Block").lower(), "text": block.text, **signature}


def try_case(make: Make, case: dict[str, Any], way: str) -> None:
    """A reported stream reads as the case says."""
    chunks, end = run(make, *WAYS[way](pieces_of(case)))
    expect = case["expect"]
    if expect["outcome"] == "error":
        assert isinstance(end, ProviderError)
        wanted = expect["error"]
        assert end.category == _CATEGORIES.get(wanted["category"], wanted["category"])
        assert end.retryable == wanted["retryable"]
        assert wanted.get("message_contains", "") in end.message
        assert [neutral(block) for block in assemble(chunks).content] == expect["partial"]["content"]
        return
    assert isinstance(end, ModelResponse)
    assert [neutral(block) for block in end.message.content] == expect["content"]
    assert end.stop_reason in expect.get("stop_accept", [expect["stop"]])
    assert end.raw_stop_reason == expect["stop_raw"]
    usage = expect.get("usage") or {}
    for theirs, ours in _COUNTS:
        assert usage.get(theirs) == getattr(end.usage, ours), theirs
    for theirs in ("cache_read", "cache_write"):
        assert (usage.get(theirs) or None) == (getattr(end.usage, f"{theirs}_tokens") or None), theirs


# ------------------------------------------------------------------------------------------------ error answers


def error_rows(protocol: str) -> list[dict[str, Any]]:
    path = SHARED / "provider-errors.jsonl"
    rows = load(path) if path.exists() else []
    return [row for row in rows if row["protocol"] == protocol and row["phase"] != "transport"]


def try_error(protocol: WireProtocol, row: dict[str, Any]) -> None:
    """An error answer means what it means."""
    result, wanted = decode_captured(protocol, row), row["expected"]
    found = result["error"]
    if wanted["category"] in ("ok", "content_filter") and found is None:
        assert wanted["category"] == "ok" or result["stop_reason"] == "content_filter"
        return
    assert {key: found[key] for key in wanted} == wanted
