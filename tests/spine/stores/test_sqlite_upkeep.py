"""What forking, erasing and deleting leave in the file itself."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from spine.errors import StoreBusy
from spine.store import Content, Overwrite
from spine.stores.sqlite import SqliteStore
from spine.testing.stores.trials import BOB, FIRST, SECOND, Writer, chain, content_of, writer
from spine.testing.stores.upkeep import CHILD, forked

SECRET = b"the secret of a person, "


def on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


def format_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def filled(store: SqliteStore) -> Writer:
    log = writer(store)
    for number in range(40):
        log.append(*(b"%d" % number * 50 for _ in range(20)))
    log.append(SECRET * 2_000, contents=(content_of(SECRET),))
    for number in range(40):
        log.append(*(b"%d" % number * 90 for _ in range(20)))
    return log


def erase(store: SqliteStore, log: Writer) -> None:
    (row,) = store.read(FIRST, after=800, until=801)
    gone = Content(content_of(SECRET).digest, "text/plain", b"gone")
    log.append(b"erased", erased=(Overwrite(801, row.hash, b"gone"),), erased_contents=(gone,))


TAKEN_AWAY: dict[str, Callable[[SqliteStore, Writer], None]] = {
    "erased": erase,
    "deleted": lambda store, log: store.delete(FIRST, log.token),
}


@pytest.mark.parametrize("how", TAKEN_AWAY)
def test_no_byte_of_what_was_taken_away_stays_on_the_disk(tmp_path: Path, how: str) -> None:
    path = tmp_path / "spine.db"
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        log = filled(store)
        assert other.head(FIRST) == (log.seq, log.hash)
        if how == "deleted":  # its content goes only when an event referred to it
            log.append(b'{"digest":"%s"}' % content_of(SECRET).digest.encode())
        assert SECRET in on_disk(path)
        TAKEN_AWAY[how](store, log)
        assert SECRET not in on_disk(path)
        assert other.check() == []


def test_who_still_reads_is_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "spine.db"
    with closing(SqliteStore(path, busy_timeout_s=0.1)) as store:
        log = filled(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            with pytest.raises(StoreBusy, match="older bytes may still lie in the file") as caught:
                erase(store, log)
        assert caught.value.hint == "spine check --repair, once nothing else uses the store"
        assert SECRET in on_disk(path)
        assert store.check(repair=True) == []
        assert SECRET not in on_disk(path)


def test_only_files_that_older_versions_would_misread_get_the_newer_format(tmp_path: Path) -> None:
    formats = []
    for number, work in enumerate(
        (
            lambda store, log: store.cut(FIRST, log.token, 3),
            lambda store, log: forked(store, log, 2),
            lambda store, log: log.append(b"x", erased=(Overwrite(1, log.hash, b""),)),
        )
    ):
        path = tmp_path / f"{number}.db"
        with closing(SqliteStore(path)) as store:
            log = writer(store)
            log.append(b"1", b"2", b"3")
            log.append(b"4")
            work(store, log)
        formats.append(format_of(path))
    assert formats == [1, 2, 2]


def test_a_refused_fork_leaves_the_format_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "spine.db"
    with closing(SqliteStore(path)) as store:
        log = writer(store)
        log.append(b"1")
        child = Writer(store, CHILD, writer(store, CHILD).token, 1, b"another hash")
        assert store.append([child.batch(b"x", base=FIRST)])[0] is not None
    assert format_of(path) == 1


def test_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "spine.db"
    with closing(SqliteStore(path)) as store:
        log = writer(store)
        log.append(rows=chain(0, log.hash, [b"1", b"2"]))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM events WHERE key = 2")
    with closing(SqliteStore(path)) as store:
        assert store.check() == ["session first: its last event is not seq 2"]


POINTERS = {
    "in a circle": "UPDATE events SET place = 2 WHERE key = 1 << 24",
    "nowhere": "UPDATE events SET place = 9 WHERE key = 1 << 24",
    "too far": "UPDATE events SET at = 3 WHERE key = 1 << 24",
    "not far enough": "UPDATE events SET at = 1 WHERE key = 1 << 24",
    "gone": "DELETE FROM events WHERE key = 1 << 24",
}


@pytest.mark.parametrize("case", POINTERS)
def test_a_damaged_pointer_shows_as_missing_events_and_hangs_nobody(tmp_path: Path, case: str) -> None:
    path = tmp_path / "spine.db"
    with closing(SqliteStore(path)) as store:
        log = writer(store)
        log.append(b"1", b"2", b"3", b"4")
        forked(store, log, 2, CHILD, b"c3", b"c4")
        whole = [row.hash for row in store.read(CHILD)]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(POINTERS[case])
    with closing(SqliteStore(path)) as store:
        assert [row.hash for row in store.read(CHILD)] != whole
        assert [row.data for row in store.read(FIRST)] == [b"1", b"2", b"3", b"4"]
        assert len(store.sessions()) == 2


def test_a_fork_may_take_the_name_of_a_session_that_another_process_deleted(tmp_path: Path) -> None:
    """What this store remembers of the old one is not taken for it."""
    path = tmp_path / "a.db"
    with closing(SqliteStore(path)) as here, closing(SqliteStore(path)) as there:
        parent = writer(here)
        parent.append(b"1", b"2")
        old = writer(here, CHILD)
        old.append(b"old")
        old.append(b"older")
        taken = writer(there, CHILD, BOB, take_over=True)
        there.delete(CHILD, taken.token)
        writer(there, SECOND, BOB).append(b"another")
        forked(here, parent, 2, CHILD, b"new")
        assert [row.data for row in here.read(CHILD)] == [b"1", b"2", b"new"]
        assert (here.check(), [row.data for row in here.read(SECOND)]) == ([], [b"another"])
