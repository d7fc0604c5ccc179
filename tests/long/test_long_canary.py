"""Canaries, in their short form."""

import re
from pathlib import Path
from typing import Any

import canary
import pytest

from spine.secrecy import Secrecy


@pytest.fixture(autouse=True)
def few_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "FILL", 3)


def test_no_canary_is_found_in_anything_that_was_written(tmp_path: Path) -> None:
    found = canary.look_for_canaries(1, tmp_path)
    assert (len(canary.CANARY), found.hits, found.rounds) == (44, [], 1)
    assert found.scanned > 1_000_000


@pytest.mark.parametrize(
    ("broken", "places"),
    [
        ("event", "approval reason, approver, cancel cause, document name"),
        ("failure", "cut error message"),
        ("usage", ""),
    ],
)
def test_a_canary_that_gets_out_is_named(
    broken: str, places: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Secrecy, broken, lambda secrecy, value: value)
    hits = canary.look_for_canaries(1, tmp_path).hits
    assert bool(hits) is bool(places)
    assert all(place in "".join(hits) for place in places.split(", "))


def test_a_search_finds_whole_ones_pieces_and_base64(tmp_path: Path) -> None:
    whole = canary.CANARY["answer text"].encode()
    written: dict[str, Any] = {
        "whole": (b"x" + whole, "answer text"),
        "piece": (whole[:13] + b"...", "a piece, or Base64"),
        "base64": (canary.base64.b64encode(b"Basic " + whole), "a piece, or Base64"),
        "none": (b"nothing", None),
    }
    for name, (data, _) in written.items():
        (tmp_path / name).write_bytes(data)
    size, hits = canary.search(tmp_path)
    assert size == sum(len(data) for data, _ in written.values())
    found = {hit.partition(":")[0]: re.split("[:;] ", hit)[1] for hit in hits}
    assert found == {name: place for name, (_, place) in written.items() if place}
