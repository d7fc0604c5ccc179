"""Opening the one SQLite file of a store: whose it is, who may read it, which format it has (side room, floors 0-1).

The rule it guards: a file that is not ours, or of a newer format, is looked at through a read-only connection and left
as it was, byte for byte.

Never open an existing database with anything but SQLite: closing any file descriptor of it drops the locks that all
connections of this process hold on it (POSIX record locks), and another process may then throw away a log in use. So
a symbolic link is found by `lstat`, and only a file that this call made itself was ever open here.
"""

import os
import pathlib
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cache

from spine.errors import StoreBusy, StoreError, StoreNewer, StoreUnavailable

APPLICATION_ID = 0x5370696E
"""`Spin` in ASCII: what `file` and SQLite's own header call the program that owns the file."""
FORMAT = 1
"""Of a new file."""
NEWEST = 2
"""What is read here: `sqlite_upkeep` says what makes a file of format 1 one of format 2."""
PAGE_BYTES = 4096

# Each table and index costs a page even while it is empty, so small tables have no index beside them.
SCHEMA = """
CREATE TABLE sessions (
    no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    seq INTEGER NOT NULL,               -- 0: claimed, but no event yet
    hash BLOB NOT NULL,                 -- of the event at seq, empty at 0
    token INTEGER NOT NULL,
    owner TEXT,                         -- owners.id
    created INTEGER,                    -- microseconds since 1970 UTC, of the first event
    updated INTEGER,
    requests INTEGER NOT NULL DEFAULT 0 -- ever queued in the inbox
);
CREATE TABLE owners (
    id TEXT PRIMARY KEY,                -- empty: no owner; its `until` is the last token of a forgotten session
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started INTEGER NOT NULL,
    until INTEGER NOT NULL              -- end of all its leases, microseconds since 1970 UTC
) WITHOUT ROWID;
CREATE TABLE kinds (
    id INTEGER PRIMARY KEY,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    origin TEXT,
    required INTEGER NOT NULL
);
CREATE TABLE events (
    key INTEGER PRIMARY KEY,            -- (sessions.no - 1) << 24 | seq
    at INTEGER NOT NULL,                -- microseconds after sessions.created
    kind INTEGER NOT NULL,              -- kinds.id
    place,                              -- t2s5 as 2 << 13 | 5, anything else as text
    data BLOB NOT NULL,
    hash BLOB NOT NULL
);
CREATE TABLE contents (digest TEXT PRIMARY KEY, media_type TEXT NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE inbox (
    session INTEGER,                    -- sessions.no
    no INTEGER,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (session, no)
) WITHOUT ROWID;
CREATE TABLE inbox_keys (session INTEGER, key TEXT, PRIMARY KEY (session, key)) WITHOUT ROWID;
"""

_NOT_OURS = "is no session store"
_UNCHANGED = "nothing was changed"
_REASONS: Mapping[int, str] = {
    sqlite3.SQLITE_FULL: "the disk or the quota is full",
    sqlite3.SQLITE_IOERR: "input/output error",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_PERM: "permission denied",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_CORRUPT: "its pages are damaged",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_PROTOCOL: "its locks do not work on this file system",
    sqlite3.SQLITE_TOOBIG: "a value is longer than SQLite takes",
    sqlite3.SQLITE_CONSTRAINT: "its rows contradict its list of sessions",
    sqlite3.SQLITE_INTERRUPT: "the work was interrupted",
}
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What opening a file may raise; the latter where the message of the former quotes what is no text."""
_TABLES = (
    "SELECT m.name, c.name, c.type, c.pk FROM sqlite_master m, pragma_table_info(m.name) c "
    "WHERE m.type = 'table' AND m.tbl_name = m.name"
)
_RETRY_S = 0.01
_SHORTEST_BYTES = 512
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
# Between making a file and closing its descriptor no other thread may connect to it: the close would drop its locks.
_opening = threading.Lock()


class Transaction:
    """A block that holds SQLite's write lock: committed at its end, undone by any exception.

    `enter` is called before; `leave` after it, with what undid it or None. To be used again and again: a step commits
    twice, and a generator as context costs as much as two of its statements.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        enter: Callable[[], None],
        leave: Callable[[BaseException | None], None],
    ) -> None:
        self._connection = connection
        self.execute = connection.cursor().execute
        """The connection's own `execute` makes another cursor each time."""
        self._enter = enter
        self._leave = leave

    def __enter__(self) -> sqlite3.Connection:
        self._enter()
        try:
            if self._connection.in_transaction:  # undoing the one before had failed as well
                self._connection.rollback()
            self.execute("BEGIN IMMEDIATE")
        except BaseException as exc:
            self._undo(exc)
            raise
        return self._connection

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if exc is not None:
            self._undo(exc)
            return
        try:
            self.execute("COMMIT")
        except BaseException as failure:
            self._undo(failure)
            raise
        self._leave(None)

    def _undo(self, exc: BaseException) -> None:
        with suppress(sqlite3.Error):
            self._connection.rollback()
        self._leave(exc)


def translate(exc: sqlite3.Error, name: str) -> StoreError | None:
    """What `exc` means for callers: `StoreBusy`, `StoreUnavailable`, or None for a mistake of ours."""
    code: int | None = getattr(exc, "sqlite_errorcode", None)
    if code is None and isinstance(exc, sqlite3.OperationalError):  # text that is no UTF-8
        code = sqlite3.SQLITE_CORRUPT
    if code is None:
        return None
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"{name} stayed locked by another process for longer than the bound; {_UNCHANGED}")
    reason = _REASONS.get(code & 0xFF)
    return StoreUnavailable(f"{name} cannot be used: {reason} ({exc}); {_UNCHANGED}") if reason else None


def connect(path: str, *, durability: str, busy_timeout_s: float) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Open `path`, made with mode 0600 when it is not there, and return one connection to write and one to read.

    Raises `StoreUnavailable` for a symbolic link, a file of another kind or program, a missing folder;
    `StoreNewer` for a later format; `StoreBusy` when another process keeps it locked. Nothing was written then.
    """
    try:
        with _opening:
            identity = _make_private(path)
        with closing(_open(path, "rw" if _was_cut_at_birth(path) else "ro", busy_timeout_s)) as probe:
            _check_tables(probe, path)
        writer = _open(path, "rw", busy_timeout_s)
    except _UNREADABLE as exc:
        raise _refusal(exc, path) from exc
    try:
        _prepare(writer, path, durability, busy_timeout_s)
        reader = _open(path, "rw", busy_timeout_s)
        reader.execute("PRAGMA query_only = ON")
        if _identity(path) != identity:
            reader.close()
            raise StoreUnavailable(f"{path} was replaced by another file while it was opened; {_UNCHANGED}")
    except BaseException as exc:
        writer.close()
        if isinstance(exc, _UNREADABLE):
            raise _refusal(exc, path) from exc
        raise
    return writer, reader


def _was_cut_at_birth(path: str) -> bool:
    """Whether process, power or disk was lost while the file was made: its journal says that it was empty before.

    SQLite then makes it empty again, which a read-only connection may not do; nothing of anybody is in it. Of a journal
    that was never synced only the first bytes are zero.
    """
    try:
        with open(f"{path}-journal", "rb") as journal:
            head = journal.read(20)
    except OSError:
        return False
    return head[:8] in (_JOURNAL_MAGIC, bytes(8)) and head[16:] == bytes(4)


def connect_unchanging(path: str) -> sqlite3.Connection:
    """One connection to read a file that lies where nothing can be made; no lock is taken.

    The file must not change meanwhile: raises `StoreUnavailable` when a write-ahead log beside it is in use, and as
    `connect` does.
    """
    log = f"{path}-wal"
    if os.path.exists(log) and os.path.getsize(log):
        raise StoreUnavailable(
            f"{path} cannot be read where nothing can be written: {log} holds events that are not in it yet",
            hint=f"copy {path}* into a folder of yours",
        )
    _identity(path)
    try:
        connection = _open(path, "ro&immutable=1", 0)
        _check_tables(connection, path)
    except _UNREADABLE as exc:
        raise _refusal(exc, path) from exc
    return connection


def _refusal(exc: Exception, path: str) -> Exception:
    if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return StoreUnavailable(f"{path} {_NOT_OURS}: it is no SQLite database; {_UNCHANGED}")
    known = translate(exc, path) if isinstance(exc, sqlite3.Error) else None
    return known or _other_tables(path)  # the statements of opening are right


def _other_tables(path: str) -> StoreUnavailable:
    return StoreUnavailable(f"{path} cannot be used: its tables are not those of a session store; {_UNCHANGED}")


def _make_private(path: str) -> tuple[int, int]:
    """Make the file, readable by its owner alone, unless it is there; return what tells it from any other file."""
    try:
        # Exclusive creation never follows a link, and nobody can have opened the file before its mode is right.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    except FileExistsError:
        identity = _identity(path)
        # SQLite takes so short a file for an empty one and would write over it.
        if 0 < os.lstat(path).st_size < _SHORTEST_BYTES:
            raise StoreUnavailable(f"{path} {_NOT_OURS}: it is no SQLite database; {_UNCHANGED}") from None
        return identity
    except OSError as exc:
        raise StoreUnavailable(f"{path} cannot be made: {exc.strerror}; {_UNCHANGED}") from exc
    try:
        os.chmod(descriptor if os.chmod in os.supports_fd else path, 0o600)  # whatever the umask took away
    finally:
        os.close(descriptor)
    return _identity(path)


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.lstat(path)
    except OSError as exc:
        raise StoreUnavailable(f"{path} cannot be opened: {exc.strerror}; {_UNCHANGED}") from exc
    if not stat.S_ISREG(found.st_mode):
        kind = "a symbolic link, which a store is never opened through" if stat.S_ISLNK(found.st_mode) else "no file"
        raise StoreUnavailable(f"{path} {_NOT_OURS}: it is {kind}; {_UNCHANGED}")
    return found.st_dev, found.st_ino


def _open(path: str, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{pathlib.Path(path).absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _is_ours(connection: sqlite3.Connection, path: str) -> bool:
    # One transaction: between two statements another process may make the tables.
    connection.execute("BEGIN")
    ours = _check_owner(connection, path)
    connection.execute("COMMIT")
    return ours


def _check_owner(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file holds our tables already; False for an empty one. Raises for what is not ours to use."""
    owner, found = _number(connection, "application_id"), _number(connection, "user_version")
    if owner == APPLICATION_ID and found > NEWEST:
        raise StoreNewer(
            f"{path} has format {found}, this version reads up to {NEWEST}; {_UNCHANGED}",
            hint="pip install -U agent-spine",
        )
    if owner == APPLICATION_ID and found >= 1:
        return True
    if owner or found or connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StoreUnavailable(f"{path} {_NOT_OURS}: it is a SQLite database of another program; {_UNCHANGED}")
    return False


def _check_tables(connection: sqlite3.Connection, path: str) -> None:
    """Raise unless the file is empty or has our tables: with a column of another kind, rows would be read wrongly."""
    if _is_ours(connection, path) and not _tables() <= set(connection.execute(_TABLES)):
        raise _other_tables(path)


@cache
def _tables() -> frozenset[tuple[str, str, str, int]]:
    """Of each column the table, name, type, and place in the primary key."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return frozenset(connection.execute(_TABLES))


def _prepare(connection: sqlite3.Connection, path: str, durability: str, busy_timeout_s: float) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    _use_wal(connection, path, busy_timeout_s)
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute(f"PRAGMA journal_size_limit = {16 * 1024 * 1024}")
    if _is_ours(connection, path):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _check_owner(connection, path):  # another process may have been first
            for statement in SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _use_wal(connection: sqlite3.Connection, path: str, busy_timeout_s: float) -> None:
    # The change of mode is the one statement that does not wait for locks by itself.
    for left in range(int(busy_timeout_s / _RETRY_S), -1, -1):
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as exc:
            if left and getattr(exc, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                time.sleep(_RETRY_S)
                continue
            raise
        if mode != "wal":
            raise StoreUnavailable(f"{path} cannot be used: its file system offers no shared memory; {_UNCHANGED}")
        return
