"""Which function takes which figures, and how a run of them goes."""

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks import crowd, decoding, durable, loopback, parts, startup, steps, stored
from benchmarks.calibration import calibration, measure_blocks
from benchmarks.figures import Figure, Missing
from benchmarks.report import Row
from benchmarks.workload import Sizes

__all__ = ["IDEAS", "run_ideas", "wanted_ideas"]

Idea = Callable[[Sizes], Sequence[Figure | Missing]]

IDEAS: Final[tuple[tuple[tuple[str, ...], Idea], ...]] = (
    (("T1",), steps.measure_step),
    (("T2",), steps.measure_growth),
    (("T3",), steps.measure_memory),
    (("T4",), steps.measure_first_turn),
    (("T5",), durable.measure_durable),
    (("T6",), durable.measure_commits),
    (("T7",), durable.measure_bytes),
    (("T8",), stored.measure_history),
    (("T9",), stored.measure_projections),
    (("T10", "T11", "T12"), loopback.measure_loopback),
    (("T13",), decoding.measure_chunks),
    (("T14",), decoding.measure_fragments),
    (("T15", "T16"), crowd.measure_crowd),
    (("T15",), crowd.measure_crowd_memory),
    (("T17",), startup.measure_import),
    (("T18",), parts.measure_validation),
    (("T19",), parts.measure_waterfall),
    (("T20",), decoding.measure_body),
    (("T21",), startup.measure_commands),
)
"""In the order of the table."""


def wanted_ideas(numbers: Sequence[str]) -> list[Idea]:
    """The functions for these target numbers; all of them for none. Raises `ValueError` naming what there is."""
    known = {number for covered, _ in IDEAS for number in covered}
    strangers = [number for number in numbers if number not in known]
    if strangers:
        order = sorted(known, key=lambda number: int(number[1:]))
        raise ValueError(f'nothing measures "{strangers[0]}"; there are {", ".join(order)}')
    return [idea for covered, idea in IDEAS if not numbers or set(covered) & set(numbers)]


def run_ideas(ideas: Sequence[Idea], sizes: Sizes) -> Iterator[Row]:
    """Take the figures of `ideas`; the machine is calibrated before and after each, since others use it too."""
    before = calibration(measure_blocks(sizes.calls))
    for idea in ideas:
        gc.collect()
        figures = idea(sizes)
        after = calibration(measure_blocks(sizes.calls))
        for figure in figures:
            yield figure, (before + after) / 2
        before = after
