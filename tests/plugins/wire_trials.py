"""Trials that every wire protocol must pass, on bytes of one's own and on what was recorded.

The records lie beside the repository; where they are missing, `NO_RECORDS` skips what needs them.
"""

import base64
import functools
import gzip
import importlib.util
import json
import pathlib
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from spine.llm.assemble import assemble
from spine.llm.catalogue import Traits
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
    """What is cut off at `end` completes, is told to be cut or broken, or fails as the whole does."""
    chunks, result = run(make, body[:end])
    if isinstance(result, ProviderError):
        if result.category not in ("stream_truncated", "protocol_error"):  # then it was told in the bytes that came
            whole = run(make, body)[1]
            assert isinstance(whole, ProviderError), result
            assert whole.category == result.category
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


@functools.cache
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


@NO_RECORDS
class RecordedTrials:
    """What holds for every recorded answer; a plugin's tests subclass it and say whose answers they are."""

    protocol: WireProtocol
    prefix: str
    """How the ids of its records begin."""

    def make(self) -> Decoder:
        name = self.protocol.name
        return self.protocol.decoder(Traits(provider="lab", protocol=name, model="m"), {})

    @property
    def records(self) -> list[dict[str, Any]]:
        return recorded(self.protocol.name)

    def test_every_recorded_answer_reads_as_expected(self) -> None:
        """Expectations that are wrong stand in `tests/wire_overrides.txt` with a reason, and must really differ."""
        lines = OVERRIDES.read_text().splitlines()
        overridden = {line.split()[0] for line in lines if line.startswith(self.prefix)}
        score, wrong = _score(), {}
        for record in self.records:
            if not record["oracle"].startswith("ambiguous"):
                result = decode_captured(self.protocol, {**record["response"], "vendor": record["vendor"]})
                found = score.differences(record, result)
                if found:
                    wrong[record["id"]] = found
        assert set(wrong) == overridden, wrong

    def test_a_sample_of_streams_is_the_same_at_every_cut(self) -> None:
        for body in random.Random(7).sample([body for body in answers(self.records) if 200 < len(body) < 2500], 12):
            try_cuts(self.make, body)

    def test_every_stream_is_the_same_in_pieces_of_odd_sizes(self) -> None:
        rng = random.Random(11)
        for body in answers(self.records):
            if len(body) < 20_000:
                size = rng.choice((13, 64, 257, 1400))
                pieces = (body[i : i + size] for i in range(0, len(body), size))
                assert outcome(self.make, *pieces) == outcome(self.make, body)

    def test_cut_streams_end_in_our_errors_or_complete(self) -> None:
        rng = random.Random(13)
        for body in answers(record for record in self.records if record["stream"]):
            try_prefix(self.make, body, rng.randrange(len(body)))


class FileTrials:
    """What holds for the files of a plugin's own in `folder`; `files` says what each of them is read as: its content
    (what had arrived, for a failure), stop reason, and category of the failure."""

    protocol: WireProtocol
    folder: pathlib.Path
    files: dict[str, tuple[list[dict[str, Any]], str | None, str | None]]

    def make(self) -> Decoder:
        return self.protocol.decoder(self._traits(), {})

    def _traits(self) -> Traits:
        return Traits(provider="lab", protocol=self.protocol.name, model="m")

    def test_files_read_as_expected(self) -> None:
        assert {path.name for path in self.folder.iterdir()} == set(self.files)
        for name, (content, stop_reason, category) in self.files.items():
            record = {"status": 200, "headers": {}, "body": (self.folder / name).read_bytes()}
            result = decode_captured(self.protocol, record, self._traits())
            assert (result["content"] or result["partial"]["content"]) == content, name
            assert result["stop_reason"] == stop_reason, name
            assert (result["error"] or {"category": None})["category"] == category, name

    def test_every_cut_gives_the_same_answer(self) -> None:
        for name in self.files:
            try_cuts(self.make, (self.folder / name).read_bytes(), step=7)

    def test_every_prefix_completes_or_raises_our_error(self) -> None:
        for name in self.files:
            body = (self.folder / name).read_bytes()
            for end in range(0, len(body), 3):
                try_prefix(self.make, body, end)


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
