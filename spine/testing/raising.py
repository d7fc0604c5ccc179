"""A block that must raise (floor 14), for suites that do not know which test runner runs them."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["raises"]


@contextmanager
def raises(kind: type[BaseException]) -> Iterator[list[BaseException]]:
    """Demand that the block raises `kind`; the list that it yields holds the exception afterwards."""
    caught: list[BaseException] = []
    try:
        yield caught
    except kind as exc:
        caught.append(exc)
    else:
        raise AssertionError(f"{kind.__name__} was expected, nothing was raised")
