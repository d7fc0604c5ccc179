"""The cyclic garbage collector, left alone where only values are made that stay (floor 0).

A fold over a long log makes nothing but objects that live on, and the collector would look through all of them again
and again: half of the time that reading takes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


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
            gc.enable()
