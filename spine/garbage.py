"""The cyclic garbage collector, left alone where only values are made that stay (floor 0).

A fold over a long log makes nothing but objects that live on, and the collector would look through all of them again
and again: half of the time that reading takes.
"""

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collector_paused"]

MANY: Final = 100_000
"""Objects that a block must have made for them to be called old unseen; a pass over fewer costs little."""
LOOK_EVERY: Final = 10
"""After so many such blocks everything is looked through: calling objects old puts that off each time."""
_long_blocks: Final = itertools.count(1)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Run a block without collections; they go on afterwards if they were on before.

    For blocks that end by themselves and wait for nobody: the pause holds for the whole process.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_count()[0] >= MANY:
                _call_old()
            gc.enable()


def _call_old() -> None:
    """Spare all that was made the passes over young objects; what an application froze stays frozen."""
    if next(_long_blocks) % LOOK_EVERY == 0:
        gc.collect()
    elif not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()  # into the oldest generation
