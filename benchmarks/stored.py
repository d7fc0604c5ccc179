"""T8, T9: what it costs to read a stored session again."""

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import anyio

from benchmarks.figures import Figure
from benchmarks.floors import read_rows
from benchmarks.timing import Meter
from benchmarks.workload import Sizes, open_runtime, open_session, script
from spine.log import LogReader
from spine.projectors.entries import StepEntry
from spine.projectors.model_history import ModelHistory
from spine.projectors.transcript import SessionTranscript

__all__ = ["measure_history", "measure_projections"]


@contextmanager
def _stored_session(steps: int) -> Iterator[str]:
    """The path of a database with one session `s`, of one turn of `steps` steps."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stored.db")

        async def write() -> None:
            async with open_runtime(f"sqlite:{path}?durability=relaxed", script(steps)) as runtime:
                await (await open_session(runtime, steps)).run("go")

        anyio.run(write)
        yield path


def _fold_history(reader: LogReader) -> int:
    return len(reader.project(ModelHistory()).view())


async def _history_costs(path: str, steps: int, repeats: int) -> tuple[float, float, float]:
    """CPU seconds: opening the session with its history, folding the history alone, and reading by hand."""
    opened, folded, by_hand = [], [], []
    for _ in range(repeats):
        with Meter() as floor:
            read_rows(path)
        by_hand.append(floor.cpu_s)
        async with open_runtime(f"sqlite:{path}?durability=relaxed", []) as runtime:
            with Meter() as meter:
                session = await open_session(runtime, steps)
                length = len(session.history())
            opened.append(meter.cpu_s)
            assert length == 2 * steps + 2, length
            with Meter() as meter:
                length = _fold_history(runtime.reader("s"))
            folded.append(meter.cpu_s)
            assert length == 2 * steps + 2, length
    return statistics.median(opened), statistics.median(folded), statistics.median(by_hand)


def measure_history(sizes: Sizes) -> list[Figure]:
    """T8: a stored session to the history a model would be shown, for each step of it."""
    steps = sizes.long_turn
    with _stored_session(steps) as path:
        costs = anyio.run(partial(_history_costs, path, steps, sizes.repeats))
    opened, folded, floor = (cost / (steps + 1) * 1e6 for cost in costs)
    return [Figure("T8", opened, floor), Figure("T8 fold", folded, floor)]


def measure_projections(sizes: Sizes) -> list[Figure]:
    """T9: many stored events through history and transcript in one reading."""
    with _stored_session(sizes.stored_steps) as path:
        rounds = [anyio.run(partial(_project_all, path)) for _ in range(3)]
    projected, printed, by_hand = (statistics.median(column) for column in zip(*rounds, strict=True))
    return [Figure("T9", projected, by_hand), Figure("T9 text", printed, by_hand)]


async def _project_all(path: str) -> tuple[float, float, float]:
    """Events a second: projected, projected and written out as text, and read by hand."""
    async with open_runtime(f"sqlite:{path}?durability=relaxed", []) as runtime:
        with Meter() as floor:
            by_hand = read_rows(path)
        reader = runtime.reader("s")
        with Meter() as meter:
            state, transcript = reader.project_all((ModelHistory(), SessionTranscript()))
            length = len(state.view())
        assert reader.head[0] == by_hand, (reader.head, by_hand)
        assert length == 2 * sum(isinstance(entry, StepEntry) for entry in transcript.entries), length
        with Meter() as printing:
            assert "found spine" in transcript.text
    return by_hand / meter.cpu_s, by_hand / (meter.cpu_s + printing.cpu_s), by_hand / floor.cpu_s
