"""Hearing of changes that other processes made (LISTEN), on a connection and a thread of its own.

A notification is a hint and nothing more: whoever is woken compares heads. So a lost one costs time, never an event;
when the connection comes back after a loss, everybody is woken.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import psycopg
from psycopg import sql

from spine.errors import StoreError
from spine.values import SessionId
from spine_postgres.connections import Address, Connection, connect

_LOOK_UP_S: Final = 1.0
"""How long the thread may go without looking whether it should end."""


class Listener:
    """Watchers by session; the thread starts with the first one and ends with `close`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.channel = f"spine_{hashlib.sha256(address.schema.encode()).hexdigest()[:16]}"
        """Of this schema alone: notifications reach everybody who listens in the database."""
        self._lock = threading.Lock()
        self._watchers: dict[SessionId, list[Callable[[], object]]] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()

    def watch(self, session: SessionId, wake: Callable[[], object]) -> Callable[[], None]:
        """Call `wake` after a change of `session`, now and then without one; the returned function ends that."""
        with self._lock:
            self._watchers.setdefault(session, []).append(wake)
            if self._thread is None and not self._is_closed.is_set():
                self._thread = threading.Thread(target=self._run, name="spine-listener", daemon=True)
                self._thread.start()

        def stop() -> None:
            with self._lock:
                watchers = self._watchers.get(session, [])
                if wake in watchers:
                    watchers.remove(wake)
                if not watchers:
                    self._watchers.pop(session, None)

        return stop

    def close(self) -> None:
        """End the thread; nobody is woken afterwards. Idempotent."""
        self._is_closed.set()
        with self._lock:
            thread, self._thread = self._thread, None
            self._watchers.clear()
        if thread is not None:
            thread.join(timeout=2 * _LOOK_UP_S)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            with suppress(psycopg.Error, StoreError):
                self._listen()
            self._is_closed.wait(_LOOK_UP_S)

    def _listen(self) -> None:
        with connect(self._address, busy_timeout_s=5.0) as connection:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))
            self._wake(None)  # whatever happened before is not told
            for session in self._heard(connection):
                self._wake(session)

    def _heard(self, connection: Connection) -> Iterator[SessionId]:
        while not self._is_closed.is_set():
            for notification in connection.notifies(timeout=_LOOK_UP_S):
                yield SessionId(notification.payload)

    def _wake(self, session: SessionId | None) -> None:
        """Wake the watchers of a session; of every session for None."""
        with self._lock:
            found = self._watchers.values() if session is None else [self._watchers.get(session, [])]
            watchers = [wake for some in found for wake in some]
        for wake in watchers:
            with suppress(RuntimeError):  # its event loop has ended
                wake()
