"""Commits without an answer, in their short form."""

import random
from pathlib import Path
from typing import Any

import pytest
from unknown import Forgetful, lose_answers, of_postgres, of_sqlite

from spine.errors import AppendOutcomeUnknown, ConcurrencyConflict
from spine.stores.memory import MemoryStore


def test_a_file_that_loses_answers_holds_everything_once(tmp_path: Path) -> None:
    """Stored or not: after a lost answer the same batch is there once."""
    found = of_sqlite(60, random.Random(1), tmp_path)
    assert (found.unknown, found.doubled, found.missing) == (60, 0, 0)
    assert 0 < found.stored < 60


def test_a_server_behind_a_line_that_breaks_holds_everything_once(postgres_url: str) -> None:
    """Before the request, in the answer, and after it."""
    found = of_postgres(40, random.Random(1), postgres_url)
    assert (found.unknown, found.doubled, found.missing) == (40, 0, 0)
    assert 0 < found.stored < 40


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ("spine.commits.SETTLE_WAITS_S", AppendOutcomeUnknown),
        ("spine.stores.verdicts.is_repeated", ConcurrencyConflict),
    ],
)
def test_the_run_ends_where_an_answer_is_not_settled(broken: str, error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a writer that does not ask again, or a store that does not know its own batch."""
    monkeypatch.setattr(broken, () if broken.endswith("_S") else lambda *args, **more: False)
    with pytest.raises(error):
        lose_answers(Forgetful(MemoryStore(), random.Random(1)), 20, random.Random(1))
