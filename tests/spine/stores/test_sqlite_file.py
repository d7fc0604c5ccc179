"""What opening a store file accepts, refuses and leaves alone."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spine.errors import LogBroken, StoreBusy, StoreNewer, StoreUnavailable
from spine.stores.sqlite import SqliteStore
from spine.stores.sqlite_file import translate
from spine.testing.stores.trials import FIRST, writer

SIDE_FILES = ("", "-wal", "-shm")


def written(path: Path) -> Path:
    """A store file with one event, closed."""
    store = SqliteStore(path)
    writer(store).append(b"1")
    store.close()
    return path


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def left_open(path: Path) -> Path:
    """A copy of a store file in use, as a crash leaves it: the newest events are in its write-ahead log only."""
    store = SqliteStore(path.with_name("source.db"))
    writer(store).append(b"1")
    for end in ("", "-wal"):
        shutil.copy(f"{store.path}{end}", f"{path}{end}")
    store.close()
    return path


def cut_in_transaction(path: Path, *before: str) -> Path:
    """A database of 4 KiB pages that lost its process in the middle of a transaction, after the statements `before`."""
    code = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for statement in sys.argv[2:]: connection.execute(statement)\n"
        "connection.execute('PRAGMA cache_spill = 1')\n"
        "connection.execute('PRAGMA cache_size = 1')\n"
        "connection.execute('BEGIN')\n"
        "connection.execute('CREATE TABLE t(a)')\n"
        "connection.execute('INSERT INTO t VALUES (zeroblob(200000))')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path), *before], check=True)
    assert path.stat().st_size >= 4096
    assert Path(f"{path}-journal").stat().st_size
    return path


def test_a_file_whose_making_was_cut_is_made_again(tmp_path: Path) -> None:
    """Its rollback journal says that it was empty before: nothing of anybody is in it."""
    path = cut_in_transaction(tmp_path / "a.db")
    path.chmod(0o600)
    store = SqliteStore(path)
    writer(store).append(b"1")
    assert store.head(FIRST)
    store.close()


def test_a_file_whose_making_met_a_broken_disk_is_made_again(tmp_path: Path) -> None:
    """Its journal was never synced: the first bytes are zero, and nothing is in the file."""
    path = tmp_path / "a.db"
    path.touch(0o600)
    Path(f"{path}-journal").write_bytes(bytes(12) + b"once" + bytes(4) + b"\0\0\2\0\0\0\x10\0" + bytes(484))
    store = SqliteStore(path)
    writer(store).append(b"1")
    store.close()


def test_a_foreign_file_with_a_transaction_to_undo_is_left_as_it_is(tmp_path: Path) -> None:
    """It was not empty before its process died, so that it is not for us to undo."""
    path = cut_in_transaction(tmp_path / "a.db", "CREATE TABLE theirs(a)")
    before = path.read_bytes(), Path(f"{path}-journal").read_bytes()
    with pytest.raises(StoreUnavailable):
        SqliteStore(path)
    assert (path.read_bytes(), Path(f"{path}-journal").read_bytes()) == before


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777])
def test_a_new_file_and_its_side_files_are_for_the_owner_alone(tmp_path: Path, umask: None, mask: int) -> None:
    os.umask(mask)
    store = SqliteStore(tmp_path / "new.db")
    writer(store).append(b"1")
    modes = [stat.S_IMODE(os.stat(f"{store.path}{end}").st_mode) for end in SIDE_FILES]
    assert modes == [0o600] * 3
    store.close()
    assert os.listdir(tmp_path) == ["new.db"]


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db")
    path.chmod(0o640)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("name", ["a b.db", "what?mode=memory", "100%25#x.db", "ü\u2028.db", ":memory:", "file:x"])
def test_any_file_name_is_only_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(name)
    writer(store).append(b"1")
    store.close()
    assert os.listdir(tmp_path) == [name]
    assert store.url == f"sqlite:{name}"
    again = SqliteStore(tmp_path / name, "relaxed")
    assert len(list(again.read(FIRST))) == 1
    assert again.url == f"sqlite:{tmp_path / name}?durability=relaxed"
    again.close()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch(0o600)
    assert written(tmp_path / "a.db").read_bytes().startswith(b"SQLite format 3\0")


@pytest.mark.parametrize("target", ["store", "nothing", "a folder"])
def test_a_symbolic_link_is_never_followed(tmp_path: Path, target: str) -> None:
    if target == "store":
        written(tmp_path / target)
    elif target == "a folder":
        (tmp_path / target).mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / target)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(StoreUnavailable, match=r"link\.db is no session store: it is a symbolic link"):
        SqliteStore(tmp_path / "link.db")
    assert sorted(os.listdir(tmp_path)) == before


def test_a_link_in_the_path_to_the_file_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "var").symlink_to(tmp_path / "real")
    written(tmp_path / "var" / "a.db")
    assert os.listdir(tmp_path / "real") == ["a.db"]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("folder", r"x is no session store: it is no file; nothing was changed"),
        ("pipe", r"x is no session store: it is no file; nothing was changed"),
        ("missing folder", r"x/y/z cannot be made: No such file or directory; nothing was changed"),
        ("text", r"x is no session store: it is no SQLite database; nothing was changed"),
        ("one byte", r"x is no session store: it is no SQLite database; nothing was changed"),
        ("a short line", r"x is no session store: it is no SQLite database; nothing was changed"),
        ("tables", r"x is no session store: it is a SQLite database of another program; nothing was changed"),
        ("other program", r"x is no session store: it is a SQLite database of another program; nothing was changed"),
        ("other format", r"x is no session store: it is a SQLite database of another program; nothing was changed"),
    ],
)
def test_what_is_no_store_is_refused_and_left_as_it_was(tmp_path: Path, kind: str, sentence: str) -> None:
    path = tmp_path / "x"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "missing folder":
            path = path / "y" / "z"
        case "text":
            path.write_text("dear diary, " * 500)
        case "one byte":
            path.write_bytes(b"x")
        case "a short line":
            path.write_text("x" * 511)
        case "tables":
            changed(path, "CREATE TABLE mine (x)")
        case "other program":
            changed(path, "PRAGMA application_id = 7")
        case "other format":
            changed(path, "PRAGMA user_version = 1")
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreUnavailable, match=sentence):
        SqliteStore(path)
    assert (path.read_bytes() if path.is_file() else None) == before
    assert os.listdir(tmp_path) == ([] if kind == "missing folder" else ["x"])


@pytest.mark.parametrize("as_left", ["closed", "after a crash"])
def test_a_newer_format_is_refused_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_left: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("spine.db")
    if as_left == "closed":
        changed(written(path), "PRAGMA user_version = 4")
    else:
        newer = changed(written(Path("newer.db")), "PRAGMA user_version = 4")
        with closing(sqlite3.connect(newer, isolation_level=None)) as connection:
            connection.execute("UPDATE sessions SET token = token + 1")
            for end in ("", "-wal"):
                shutil.copy(f"{newer}{end}", f"{path}{end}")
    before = {end: Path(f"{path}{end}").read_bytes() for end in ("", "-wal") if Path(f"{path}{end}").exists()}
    with pytest.raises(StoreNewer) as caught:
        SqliteStore(path)
    assert str(caught.value) == "spine.db has format 4, this version reads up to 2; nothing was changed"
    assert caught.value.hint == "pip install -U agent-spine"
    assert {end: Path(f"{path}{end}").read_bytes() for end in before} == before


def test_what_a_crash_left_in_the_write_ahead_log_is_read(tmp_path: Path) -> None:
    store = SqliteStore(left_open(tmp_path / "left.db"))
    assert [row.data for row in store.read(FIRST)] == [b"1"]
    store.close()


def test_damaged_pages_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    log = writer(store)
    for _ in range(20):
        log.append(bytes(5_000))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + os.urandom(len(whole) - 8192))
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match=r"its pages are damaged"):
        list(store.read(FIRST))
    store.close()


SPOILT_TABLES = {
    "a key that is no row's number": ("key INTEGER PRIMARY", "key INTEGES PRIMARY"),
    "a column of another name": ("    place,", "    plage,"),
    "a statement that is none": ("CREATE TABLE kinds", "CREATE TABLX kinds"),
    "a name in another place": ("tableeventsevents", "tableeventsEvents"),
    "text that is none": ("CREATE TABLE kinds", "CREATE TABLE ki\xe9ds"),
}


@pytest.mark.parametrize(("old", "new"), SPOILT_TABLES.values(), ids=SPOILT_TABLES)
def test_tables_that_are_not_ours_are_refused_and_left_as_they_were(tmp_path: Path, old: str, new: str) -> None:
    """Rows would be read wrongly, or not at all, and the session would look empty."""
    path = written(tmp_path / "a.db")
    data = path.read_bytes()
    assert data.count(old.encode()) == 1
    path.write_bytes(data.replace(old.encode(), new.encode("latin-1")))
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"cannot be used: its (tables are not those|pages are damaged)"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_text_that_is_no_utf_8_is_damage(tmp_path: Path) -> None:
    """SQLite has no code for it."""
    path = changed(written(tmp_path / "a.db"), "UPDATE kinds SET type = CAST(x'ff' AS TEXT)")
    with closing(SqliteStore(path)) as store, pytest.raises(StoreUnavailable, match="its pages are damaged"):
        list(store.read(FIRST))


WRONG_KINDS = {"version": "'one'", "type": "x'61'", "origin": "x'61'", "id": "99"}


@pytest.mark.parametrize(("column", "value"), WRONG_KINDS.items(), ids=WRONG_KINDS)
def test_a_kind_that_is_none_breaks_the_log_at_its_first_event(tmp_path: Path, column: str, value: str) -> None:
    """What a row's kind says is checked where it is read."""
    path = changed(written(tmp_path / "a.db"), f"UPDATE kinds SET {column} = {value}")
    with closing(SqliteStore(path)) as store, pytest.raises(LogBroken, match="is no event"):
        list(store.read(FIRST))


def test_a_file_that_another_program_keeps_locked_is_busy(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreBusy, match="stayed locked by another process"):
            SqliteStore(path, busy_timeout_s=0.05)
    SqliteStore(path).close()


def test_opening_a_file_twice_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    """A descriptor of the file closed in this process would let the other one throw the write-ahead log away."""
    store = SqliteStore(tmp_path / "a.db")
    log = writer(store)
    log.append(b"1")
    SqliteStore(store.path).close()
    other = f"from spine.stores.sqlite import SqliteStore; SqliteStore({store.path!r}).close()"
    subprocess.run([sys.executable, "-c", other], check=True)
    assert Path(f"{store.path}-wal").exists()
    log.append(b"2")
    again = SqliteStore(store.path)
    assert [row.data for row in again.read(FIRST)] == [b"1", b"2"]
    again.close()
    store.close()


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (sqlite3.SQLITE_BUSY, StoreBusy, "stayed locked"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy, "stayed locked"),
        (sqlite3.SQLITE_LOCKED, StoreBusy, "stayed locked"),
        (sqlite3.SQLITE_FULL, StoreUnavailable, "full"),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable, "input/output error"),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreUnavailable, "read-only"),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable, "cannot be opened"),
        (sqlite3.SQLITE_CORRUPT, StoreUnavailable, "damaged"),
        (sqlite3.SQLITE_NOTADB, StoreUnavailable, "no SQLite database"),
        (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, StoreUnavailable, "contradict"),
    ],
)
def test_each_cause_has_its_error(code: int, kind: type[Exception], words: str) -> None:
    exc = sqlite3.OperationalError("as SQLite says")
    exc.sqlite_errorcode = code
    error = translate(exc, "sqlite:a.db")
    assert type(error) is kind
    assert str(error).startswith("sqlite:a.db ")
    assert words in str(error)
    assert str(error).endswith("nothing was changed")


def test_a_mistake_in_our_own_sql_is_not_blamed_on_the_file() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("SELEC 1")
    assert translate(caught.value, "x") is None
    assert translate(sqlite3.ProgrammingError("closed"), "x") is None
