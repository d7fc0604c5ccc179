"""A disk that remembers, fails or loses power, under the real SQLite store: a VFS of apsw's, and the store on it.

`recorded_store` writes down each write, truncation, deletion and sync that SQLite makes; `failing_store` lets the N-th
of them fail. The store's own code runs unchanged on connections that look like those of the `sqlite3` module.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from spine.stores import sqlite_file
from spine.stores.sqlite import SqliteStore

_numbers = count(1)
CHECKPOINT_PAGES = 12
"""So few that a short run has many checkpoints."""


class Op(NamedTuple):
    """Something that reached the disk: write, truncate, delete, sync."""

    kind: str
    file: str
    offset: int = 0
    data: bytes = b""


Note = Callable[[Op], None]


class _File(apsw.VFSFile):
    def __init__(self, note: Note, name: str, filename: Any, flags: Any) -> None:
        super().__init__("", filename, flags)
        self._note, self._name = note, name

    def xWrite(self, data: bytes, offset: int) -> None:
        self._note(Op("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._note(Op("truncate", self._name, size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._note(Op("sync", self._name))
        super().xSync(flags)


class _Disk(apsw.VFS):
    def __init__(self, name: str, note: Note) -> None:
        super().__init__(name, "")
        self._note = note

    def xOpen(self, name: Any, flags: Any) -> Any:
        path = name if name is None or isinstance(name, str) else name.filename()
        return _File(self._note, Path(path or "temporary").name, name, flags)

    def xDelete(self, path: str, sync: bool) -> None:
        self._note(Op("delete", Path(path).name))
        super().xDelete(path, sync)


class Connection:
    """A connection of apsw's in the shape of one of `sqlite3`, as far as the store knows that."""

    def __init__(self, uri: str, timeout_s: float, vfs: str) -> None:
        flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
        with _translated():
            self._connection = apsw.Connection(uri, flags=flags, vfs=vfs)
            self._connection.set_busy_timeout(int(timeout_s * 1000))
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")

    def cursor(self) -> "Cursor":
        """A cursor, to be used again and again."""
        return Cursor(self._connection)

    def execute(self, sql: str, values: Any = ()) -> "Cursor":
        """Run a statement."""
        return self.cursor().execute(sql, values)

    def executemany(self, sql: str, rows: Any) -> None:
        """Run a statement for each row."""
        with _translated():
            self._connection.executemany(sql, rows)

    @property
    def in_transaction(self) -> bool:
        """Whether one is open."""
        return bool(self._connection.in_transaction)

    def rollback(self) -> None:
        """Undo the open transaction."""
        if self.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        """Let go; what fails in that is no error to SQLite either."""
        with suppress(apsw.Error):
            self._connection.close()


class Cursor:
    """A statement and its rows."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Any = ()) -> "Cursor":
        """Run a statement."""
        with _translated():
            self._cursor = self._connection.execute(sql, tuple(values))
        self.rowcount, self.lastrowid = self._connection.changes(), self._connection.last_insert_rowid()
        return self

    def fetchone(self) -> Any:
        """The next row, None at the end."""
        with _translated():
            return self._cursor.fetchone()

    def fetchall(self) -> Any:
        """The rows that are left."""
        with _translated():
            return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row

    def close(self) -> None:
        """No more rows are wanted."""
        self._cursor.close()


_CODES = {apsw.IOError: sqlite3.SQLITE_IOERR, apsw.FullError: sqlite3.SQLITE_FULL}
"""An exception that a disk raised comes out as it is, without a number."""


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as exc:
        code = getattr(exc, "extendedresult", None) or _CODES.get(type(exc), sqlite3.SQLITE_ERROR)
        error = (sqlite3.IntegrityError if code & 0xFF == sqlite3.SQLITE_CONSTRAINT else sqlite3.OperationalError)(
            str(exc)
        )
        error.sqlite_errorcode = code  # type: ignore[attr-defined]
        raise error from exc


@contextmanager
def on_disk(note: Note) -> Iterator[None]:
    """Stores that are opened in this block lie on a disk that tells `note` before it does anything."""
    name = f"disk-{next(_numbers)}"
    disk = _Disk(name, note)

    def opened(path: str, mode: str, busy_timeout_s: float) -> Any:
        return Connection(f"{Path(path).absolute().as_uri()}?mode={mode}", busy_timeout_s, name)

    usual = sqlite_file._open, sys.excepthook
    sqlite_file._open = opened  # type: ignore[assignment]
    sys.excepthook = lambda *error: None  # an injected failure is SQLite's affair, not worth a traceback
    try:
        yield
    finally:
        sqlite_file._open, sys.excepthook = usual
        disk.unregister()


class TracingStore:
    """A store on a recording disk: `trace` has each operation, and each batch that was acknowledged."""

    def __init__(self, path: Path, durability: Any) -> None:
        self.trace: list[Any] = []
        self._block = on_disk(self.trace.append)
        self._block.__enter__()
        self._store = SqliteStore(path, durability)

    def append(self, batches: Any) -> Any:
        """Store, and note what was acknowledged."""
        verdicts = self._store.append(batches)
        self.trace.extend(batch for batch, verdict in zip(batches, verdicts, strict=True) if verdict is None)
        return verdicts

    def close(self) -> None:
        """Let go of store and disk."""
        self._store.close()
        self._block.__exit__(None, None, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
