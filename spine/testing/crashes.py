"""A process that dies at a chosen event, without a process (floor 14): a store that takes one batch more and no other.

What dies is everything in memory: the batch with the fatal event is durable, nothing after it is, and nothing that the
runtime does on its way out reaches the store. Opening the same store again is what the next process does.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from spine.errors import StoreUnavailable
from spine.store import Append, Row, Store

__all__ = ["CrashingStore", "ProcessDied", "crashing"]


class ProcessDied(StoreUnavailable):
    """The simulated death of the process; only `CrashingStore` raises it."""


class CrashingStore:
    """A store in front of another one. `is_fatal` is asked about each row once it is durable.

    With `kills` the process dies there; without, `is_over` only tells that the moment has come.
    """

    def __init__(self, store: Store, is_fatal: Callable[[Row], bool], *, kills: bool = True) -> None:
        self._store = store
        self._is_fatal = is_fatal
        self._kills = kills
        self.is_over = False
        """Whether the fatal row is durable."""
        self.borders: list[int] = []
        """The last seq of each batch that was stored: everywhere that a process can die."""

    def append(self, batches: Sequence[Append]) -> list[Exception | None]:
        """Store, and die when a fatal row was among what was stored."""
        self._check_alive()
        verdicts = self._store.append(batches)
        for batch, verdict in zip(batches, verdicts, strict=True):
            if verdict is None and batch.rows:
                self.borders.append(batch.rows[-1].seq)
                self.is_over = self.is_over or any(self._is_fatal(row) for row in batch.rows)
        self._check_alive()
        return verdicts

    def renew(self, *arguments: Any, **named: Any) -> None:
        """A dead process keeps no lease."""
        if not self.is_dead:
            self._store.renew(*arguments, **named)

    def release(self, *arguments: Any) -> None:
        """A dead process gives nothing back either."""
        if not self.is_dead:
            self._store.release(*arguments)

    def kill(self) -> None:
        """Die now, wherever the process is: what is not stored yet never will be."""
        self.is_over = self._kills = True

    @property
    def is_dead(self) -> bool:
        """Whether the process died."""
        return self._kills and self.is_over

    def _check_alive(self) -> None:
        if self.is_dead:
            raise ProcessDied("the process died here (a fault of the test)")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def crashing(store: Store, is_fatal: Callable[[Row], bool], *, kills: bool = True) -> tuple[Store, CrashingStore]:
    """A `CrashingStore` in front of `store`, typed as the store that it stands for, and as itself."""
    made = CrashingStore(store, is_fatal, kills=kills)
    return cast(Store, made), made
