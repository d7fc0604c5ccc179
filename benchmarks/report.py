"""The table of figures, for people and as JSON."""

import json
import platform
from collections.abc import Sequence
from typing import Any

from benchmarks.calibration import Block
from benchmarks.figures import Figure, Missing

__all__ = ["Row", "to_json", "to_table"]

Row = tuple[Figure | Missing, float]
"""A figure, and the calibration that was measured around it."""

_COLUMNS = ("", "what", "figure", "floor", "ratio", "scaled", "must", "aim", "")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _cells(row: Row) -> tuple[str, ...]:
    figure, calibration = row
    if isinstance(figure, Missing):
        return (figure.key, figure.reason, *("-",) * 6, "not taken")
    target, verdict = figure.target, figure.judge(calibration)
    return (
        figure.key,
        f"{target.what} [{target.unit}]" if target.unit else target.what,
        _number(figure.value),
        _number(figure.floor),
        _number(figure.ratio),
        _number(verdict.scaled),
        _number(target.must),
        _number(target.aim),
        verdict.word,
    )


def to_table(rows: Sequence[Row], blocks: Sequence[Block]) -> str:
    """The figures as a table; `scaled` is what stands beside the bounds: the figure over the calibration."""
    cells = [_COLUMNS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    left = (0, 1, len(_COLUMNS) - 1)
    lines = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join([*lines, "", *_footer(rows, blocks)])


def _footer(rows: Sequence[Row], blocks: Sequence[Block]) -> list[str]:
    factors = ", ".join(f"{block.what} {block.factor:.2f}" for block in blocks)
    spread = sorted(calibration for _, calibration in rows) or [1.0]
    words = [row[0].judge(row[1]).word for row in rows if isinstance(row[0], Figure)]
    missed = sum(word == "MISSED" for word in words)
    return [
        f"machine: this one takes {spread[0]:.2f} to {spread[-1]:.2f} times as long as the one the bounds are from "
        f"({platform.python_implementation()} {platform.python_version()}, {platform.machine()})",
        f"its parts: {factors}",
        f"{len(words)} figures: {words.count('aim')} reach their aim, {words.count('ok')} hold, {missed} missed",
    ]


def to_json(rows: Sequence[Row], blocks: Sequence[Block]) -> str:
    """The same facts for programs."""
    return json.dumps(
        {
            "python": platform.python_version(),
            "blocks": [{"what": b.what, "here": b.here, "there": b.there} for b in blocks],
            "figures": [_facts(*row) for row in rows],
        },
        indent=2,
        ensure_ascii=False,
    )


def _facts(figure: Figure | Missing, calibration: float) -> dict[str, Any]:
    if isinstance(figure, Missing):
        return {"key": figure.key, "missing": figure.reason}
    target, verdict = figure.target, figure.judge(calibration)
    return {
        "key": figure.key,
        "what": target.what,
        "unit": target.unit,
        "value": figure.value,
        "floor": figure.floor,
        "ratio": figure.ratio,
        "calibration": calibration,
        "scaled": verdict.scaled,
        "must": target.must,
        "aim": target.aim,
        "verdict": verdict.word,
    }
