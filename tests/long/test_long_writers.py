"""The race of writers in its short form, and the comparison that judges it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from writers import AGAIN, BUSY, REFUSED, WON, Attempt, of_postgres, of_sqlite, run, wrong_log, wrong_order

from spine.testing.stores.trials import GENESIS, chain


@pytest.mark.parametrize("processes", [2, 4])
def test_writers_of_one_file_are_linearizable(tmp_path: Path, processes: int) -> None:
    """Every place has one winner, and one order explains what everybody was told; a reader beside them is no matter."""
    file = tmp_path / "s.db"
    found = run(of_sqlite(file, "relaxed"), processes, 2_000, 1, tmp_path, file)
    assert found.anomalies == []
    assert found.tried == 2_000
    assert found.won
    assert found.refused
    assert found.again


def test_writers_of_one_database_are_linearizable(tmp_path: Path, postgres_url: str) -> None:
    """Over connections as in a file."""
    found = run(of_postgres(postgres_url, "short_race"), 3, 900, 1, tmp_path)
    assert found.anomalies == []
    assert found.tried == 900
    assert found.won
    assert found.refused


GOOD = [
    Attempt(0, 10, WON, 1),
    Attempt(5, 30, REFUSED, 1),  # told the head of a moment inside
    Attempt(8, 25, WON, 2),
    Attempt(20, 40, AGAIN, 2),
    Attempt(21, 22, BUSY, 0),
    Attempt(30, 50, WON, 3),
    Attempt(31, 60, REFUSED, 3),
    Attempt(0, 3, REFUSED, 0),
]
ANOMALIES: dict[str, tuple[Callable[[list[Attempt]], Any], str]] = {
    "two winners": (lambda all: all.append(Attempt(12, 13, WON, 1)), "won 2 times"),
    "no winner": (lambda all: all.remove(Attempt(8, 25, WON, 2)), "won by nobody"),
    "a lost win": (lambda all: all.append(Attempt(70, 80, WON, 4)), "is not there"),
    "a win after its successor": (lambda all: all.__setitem__(0, Attempt(51, 52, WON, 1)), "no moment"),
    "a head of the past": (lambda all: all.append(Attempt(26, 27, REFUSED, 1)), "no moment"),
    "a head of the future": (lambda all: all.append(Attempt(1, 7, REFUSED, 2)), "no moment"),
    "a repeat of what was passed": (lambda all: all.append(Attempt(55, 56, AGAIN, 2)), "no moment"),
    "two readers who see it go back": (
        lambda all: all.extend((Attempt(9, 12, REFUSED, 2), Attempt(14, 20, REFUSED, 1))), "no moment",
    ),
}  # fmt: skip


def test_one_order_explains_a_good_race() -> None:
    """In whatever order the attempts are told."""
    for seed in range(5):
        assert list(wrong_order(random.Random(seed).sample(GOOD, len(GOOD)), 3)) == []


@pytest.mark.parametrize("case", ANOMALIES)
def test_what_no_order_explains_is_found(case: str) -> None:
    """Each way in which a store could cheat."""
    attempts = list(GOOD)
    change, expected = ANOMALIES[case]
    change(attempts)
    assert any(expected in found for found in wrong_order(attempts, 3))


def test_a_log_with_a_gap_a_break_or_a_double_is_found() -> None:
    """Whatever the attempts say."""
    rows = list(chain(0, GENESIS, [b"1", b"2", b"3"]))
    assert list(wrong_log(rows)) == []
    assert list(wrong_log(rows[:1] + rows[2:]))
    assert list(wrong_log([rows[0], rows[1]._replace(hash=b"x"), rows[2]]))
    assert any("twice" in found for found in wrong_log(chain(0, GENESIS, [b"1", b"1"])))
