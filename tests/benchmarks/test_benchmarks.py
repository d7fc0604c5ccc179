"""The benchmarks' harness, at sizes that mean nothing: everything is taken, judged and printed; no time is demanded."""

import json

import pytest

from benchmarks.calibration import Block, calibration
from benchmarks.decoding import call_stream, chat_stream, decode
from benchmarks.figures import Figure, Missing
from benchmarks.floors import read_stream
from benchmarks.ideas import IDEAS, run_ideas, wanted_ideas
from benchmarks.report import Row, to_json, to_table
from benchmarks.targets import TARGETS
from benchmarks.workload import TINY

QUICK = [idea for numbers, idea in IDEAS if not {"T10", "T17", "T21"} & set(numbers)]
"""Without those that start processes."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Every figure that one process can take."""
    return list(run_ideas(QUICK, TINY))


@pytest.fixture(scope="module")
def figures(rows: list[Row]) -> dict[str, Figure]:
    """The figures by key."""
    return {figure.key: figure for figure, _ in rows if isinstance(figure, Figure)}


def test_every_target_is_taken_once(figures: dict[str, Figure], rows: list[Row]) -> None:
    """Each key of the table of targets has its figure, but for those that are taken in other processes."""
    assert len(rows) == len(figures)
    apart = {"T10", "T11", "T12", "T17", "T17 use", "T17 memory", "T21", "T21 transcript"}
    assert set(TARGETS) - set(figures) == apart


def test_figures_and_floors_are_positive(figures: dict[str, Figure]) -> None:
    """Nothing costs nothing, and no floor is nothing either."""
    assert [key for key, figure in figures.items() if not figure.value > 0] == []
    assert [key for key, figure in figures.items() if figure.floor is not None and not figure.floor > 0] == []


def test_a_step_commits_twice_when_no_hook_awaits(figures: dict[str, Figure]) -> None:
    """Commits are counted, not timed, so they hold at any size."""
    assert figures["T6"].value == 2
    assert 2 <= figures["T6 awaiting"].value <= 4


def test_our_step_costs_more_than_the_bare_loop(figures: dict[str, Figure]) -> None:
    """The floor is a floor: less work than the runtime does."""
    ratio = figures["T1"].ratio
    assert ratio is not None
    assert ratio > 1


def test_bytes_a_step_hardly_depend_on_the_length(figures: dict[str, Figure]) -> None:
    """Even between turns of 5, 10 and 20 steps, where pages of a file still show, a step's bytes stay in bounds."""
    assert figures["T7"].value < 2 * TARGETS["T7"].must  # type: ignore[operator]


@pytest.mark.parametrize(
    ("key", "value", "calibration_", "word"),
    [
        ("T1", 59.0, 1.0, "aim"),
        ("T1", 61.0, 1.0, "ok"),
        ("T1", 121.0, 1.0, "MISSED"),
        ("T1", 121.0, 1.1, "ok"),  # a slower machine
        ("T1", 119.0, 0.9, "MISSED"),  # a faster one
        ("T9", 99_000.0, 1.0, "MISSED"),
        ("T9", 99_000.0, 1.1, "ok"),
        ("T7", 901.0, 2.0, "MISSED"),  # bytes do not depend on the machine
        ("T16", 0.84, 2.0, "MISSED"),
        ("T16", 0.95, 1.0, "aim"),
        ("T5 wall", 1e9, 1.0, ""),
    ],
)
def test_a_figure_is_judged_on_the_machine_of_the_bounds(
    key: str, value: float, calibration_: float, word: str
) -> None:
    """Times are divided by the calibration, rates multiplied, everything else judged as it is."""
    assert Figure(key, value).judge(calibration_).word == word


def test_the_calibration_is_the_median_factor() -> None:
    """One block that is off does not move it."""
    blocks = [Block("a", 2.0, 1.0), Block("b", 3.0, 1.0), Block("c", 100.0, 1.0)]
    assert calibration(blocks) == 3.0


@pytest.mark.parametrize("pieces", [1, 2, 50])
def test_streams_decode_to_what_they_say(pieces: int) -> None:
    """The streams that are measured are whole answers, for the decoder as for the floor."""
    events = chat_stream(pieces)
    assert decode(events).message.text == read_stream(events) == "".join(f" word{n % 97}" for n in range(pieces))


def test_a_stream_of_fragments_is_one_call() -> None:
    """The fragments join to one JSON object."""
    calls = decode(call_stream(50)).message.tool_calls
    assert [(call.name, call.arguments) for call in calls] == [("look", {"word": "abcd" * 48})]


def test_targets_are_chosen_by_number() -> None:
    """T15 is two functions, nothing chooses all, and a stranger is refused with what there is."""
    assert len(wanted_ideas(["T15"])) == 2
    assert len(wanted_ideas([])) == len(IDEAS)
    with pytest.raises(ValueError, match='nothing measures "T99"; there are T1, T2'):
        wanted_ideas(["T99"])


def test_the_table_and_the_json_say_the_same(rows: list[Row]) -> None:
    """Both have a line for each figure, with its verdict; one that was not taken says why."""
    shown = [*rows, (Missing("T21", "there is no console script"), 1.0)]
    table = to_table(shown, [])
    facts = json.loads(to_json(shown, []))["figures"]
    assert [fact["key"] for fact in facts] == [figure.key for figure, _ in shown]
    assert all(f"{fact['key']} " in table for fact in facts)
    assert "there is no console script" in table
