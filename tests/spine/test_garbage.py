"""The collector is left as it was, and finds everything in the end."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from spine.garbage import LOOK_EVERY, MANY, collector_paused


class Node:
    """An object that may hold itself."""

    itself: "Node"


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Each test begins with a collector that is on and has nothing to do, and leaves it as it was."""
    was_on = gc.isenabled()
    gc.collect()
    gc.enable()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_left_as_it_was(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled() is was_on


def many(share: float = 1.5) -> list[list[int]]:
    """That share of what makes a block a long one."""
    return [[] for _ in range(int(MANY * share))]


def looked_through() -> list[int]:
    return [generation["collections"] for generation in gc.get_stats()]


def test_what_a_long_block_made_is_old_at_once() -> None:
    """No pass over young objects follows: it would look through all of them for nothing."""
    for _ in range(2):  # one of two blocks in a row is none in which everything is looked through
        before = looked_through()
        with collector_paused():
            made = many()
        after = looked_through()
        if after[2] == before[2]:
            break
    assert after == before
    assert gc.get_freeze_count() == 0
    assert made


def test_a_short_block_is_nothing_special() -> None:
    with collector_paused():
        made = many(0.5)
    made.append([])
    assert any(made[0] is each for each in gc.get_objects(generation=1))


def test_garbage_of_long_blocks_is_found_within_some_of_them() -> None:
    """However many follow each other, what one of them left in a cycle does not stay."""
    found: list[weakref.ref[Node]] = []
    for _ in range(2 * LOOK_EVERY):
        with collector_paused():
            node = Node()
            node.itself = node
            found.append(weakref.ref(node))
            del node
            made = many()
        del made
    assert sum(each() is not None for each in found) <= LOOK_EVERY


def test_what_an_application_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        with collector_paused():
            made = many()
        assert gc.get_freeze_count() > 0
        assert made
    finally:
        gc.unfreeze()
