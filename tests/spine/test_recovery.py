"""What to do with a started call: a table over effects, total and safe."""

from typing import Any, get_args

import pytest

from spine.recovery import RULES, resolve
from spine.tools import Effect

TABLE = {
    ("read_only", False): "rerun",
    ("read_only", True): "rerun",
    ("idempotent", False): "rerun",
    ("idempotent", True): "rerun",
    ("reconcilable", True): "reconcile",
    ("reconcilable", False): "interrupt",
    ("irreversible", True): "interrupt",
    ("irreversible", False): "interrupt",
}


@pytest.mark.parametrize(("case", "resolution"), TABLE.items())
def test_each_effect_has_its_resolution(case: tuple[Any, bool], resolution: str) -> None:
    """Only what can be run twice runs twice; without a check of its own a call counts as irreversible."""
    effect, can_reconcile = case
    assert resolve(effect, can_reconcile=can_reconcile) == resolution


def test_the_table_is_total() -> None:
    """Every effect that a tool may have."""
    assert set(RULES) == set(get_args(Effect))
