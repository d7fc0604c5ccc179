"""The SQLite store: what it costs, how it fails, and what survives. The contract is bound in tests/contracts."""

import itertools
import os
import random
import sqlite3
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from spine.errors import LogBroken, SpineError, StoreBusy, StoreUnavailable
from spine.store import Append, Owner
from spine.stores.sqlite import SqliteStore
from spine.testing.stores.trials import ALICE, FIRST, LEASE, START, Writer, chain, writer
from spine.values import SessionId

NO_BYTES: Any = object()
TRIALS = Path(__file__).with_name("process_trials.py")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "a.db", "relaxed", busy_timeout_s=0.1)
    yield store
    store.close()


def trial(*arguments: object) -> str:
    """Run one of `process_trials.py` and return what it printed."""
    done = subprocess.run([sys.executable, TRIALS, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def append_step(log: Writer, step: int, sizes: list[int]) -> None:
    """One step of the loop: a batch of two events and one of three."""
    for part in (sizes[:2], sizes[2:]):
        payloads = [os.urandom(size) for size in part]
        log.append(rows=chain(log.seq, log.hash, payloads, place=f"t1s{step}", at=START + step * 300_000))


def bytes_on_disk(path: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return os.path.getsize(path)


def random_sizes(rng: random.Random) -> list[int]:
    cuts = [0, *sorted(rng.sample(range(30, 570), 4)), 600]
    return [end - start for start, end in itertools.pairwise(cuts)]


# ------------------------------------------------------------------------------------------------------ what it costs


@pytest.mark.parametrize("sizes", ["equal", "random"])
def test_a_step_of_600_bytes_costs_at_most_900_on_disk_and_stays_there(store: SqliteStore, sizes: str) -> None:
    log, rng = writer(store), random.Random(5)
    marks = [bytes_on_disk(store.path)]
    for step in range(1, 1_601):
        append_step(log, step, [120] * 5 if sizes == "equal" else random_sizes(rng))
        if step % 800 == 0:
            marks.append(bytes_on_disk(store.path))
    first, second = ((end - start) / 800 for start, end in itertools.pairwise(marks))
    assert max(first, second) <= 900
    assert second / first < 1.03


@pytest.mark.parametrize(("rows", "size", "bound"), [(60, 400_000, 4_000_000), (10_000, 0, 500_000)])
def test_reading_takes_memory_for_a_page_and_not_for_the_log(
    store: SqliteStore, rows: int, size: int, bound: int
) -> None:
    log = writer(store)
    for _ in range(10):
        log.append(*(bytes(size) for _ in range(rows // 10)))
    tracemalloc.start()
    assert sum(len(row.data) for row in store.read(FIRST)) == rows * size
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < bound


def test_a_reader_that_stopped_half_way_lets_the_write_ahead_log_be_reused(store: SqliteStore) -> None:
    log = writer(store)
    log.append(*(b"x" for _ in range(2_000)))
    reading = store.read(FIRST)
    next(reading)
    for _ in range(60):
        log.append(*(os.urandom(100_000) for _ in range(5)))
    assert os.path.getsize(f"{store.path}-wal") < 20_000_000
    assert sum(1 for _ in reading) == 1_999


@pytest.mark.parametrize(("durability", "level", "waits"), [("full", 2, True), ("relaxed", 1, False)])
def test_durability_sets_what_a_commit_waits_for(tmp_path: Path, durability: Any, level: int, waits: bool) -> None:
    store = SqliteStore(tmp_path / "a.db", durability)
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (level,)
    assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store.waits is waits
    store.close()


# -------------------------------------------------------------------------------------------------------- how it fails


def test_a_locked_file_is_waited_for_and_then_reported_busy(store: SqliteStore) -> None:
    log = writer(store)
    log.append(b"1")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="stayed locked by another process"):
            store.append([log.batch(b"2")])
        with pytest.raises(StoreBusy):
            writer(store)
        assert [row.data for row in store.read(FIRST)] == [b"1"]
        other.execute("ROLLBACK")
    log.append(b"2")
    assert store.head(FIRST) == (2, log.hash)


def test_a_lock_that_ends_in_time_is_only_a_wait(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", "relaxed", busy_timeout_s=10)
    log = writer(store)
    with closing(sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.1, other.execute, ("ROLLBACK",))
        release.start()
        log.append(b"1")
        release.join()
    store.close()


def test_a_store_in_use_by_another_thread_is_waited_for_and_then_reported_busy(store: SqliteStore) -> None:
    log = writer(store)
    with store._writing, pytest.raises(StoreBusy, match=r"in use by another thread for longer than 0\.1 s"):
        store.append([log.batch(b"1")])
    log.append(b"1")


def test_a_failure_in_the_middle_undoes_the_whole_call_and_is_forgotten(store: SqliteStore) -> None:
    log, other = writer(store), writer(store, SessionId("other"))
    rows = chain(0, log.hash, [b"1", b"2"], type="fresh", origin="p@1")
    broken = rows[1]._replace(data=NO_BYTES)
    with pytest.raises(sqlite3.ProgrammingError):
        store.append([other.batch(b"1"), log.batch(rows=(rows[0], broken))])
    with closing(sqlite3.connect(store.path, timeout=0, isolation_level=None)) as neighbour:
        neighbour.execute("BEGIN IMMEDIATE")
    assert store.sessions() == []
    other.append(rows=chain(0, other.hash, [b"1"], type="another"))
    log.append(rows=rows)
    assert tuple(store.read(FIRST)) == rows
    assert [row.type for row in store.read(other.session)] == ["another"]


def test_a_time_set_by_an_undone_batch_is_forgotten(store: SqliteStore) -> None:
    log = writer(store)
    undone = log.batch(rows=chain(0, log.hash, [b"1"], at=START - 10**9))
    broken = chain(1, undone.rows[0].hash, [b"2"])[0]._replace(data=NO_BYTES)
    with pytest.raises(sqlite3.ProgrammingError):
        store.append([undone, Append(FIRST, log.token, 1, undone.rows[0].hash, (broken,))])
    log.append(b"1")
    log.append(b"2")
    assert [row.at for row in store.read(FIRST)] == [START + 1, START + 2]
    assert store.sessions()[0].created == START + 1


def test_a_kind_is_kept_once_whoever_writes_it(store: SqliteStore) -> None:
    for _ in range(3):
        again = SqliteStore(store.path, "relaxed")
        log = writer(again)
        log.append(rows=chain(log.seq, log.hash, [b"1", b"2"], origin=None))
        log.append(rows=chain(log.seq, log.hash, [b"3"], origin="p@1"))
        again.close()
    with closing(sqlite3.connect(store.path)) as other:
        assert other.execute("SELECT origin FROM kinds ORDER BY id").fetchall() == [(None,), ("p@1",)]


def test_two_batches_of_one_session_may_build_on_each_other(store: SqliteStore) -> None:
    log = writer(store)
    first = log.batch(b"1")
    log.follow(first)
    second = log.batch(b"2")
    assert store.append([first, second]) == [None, None]
    assert [row.at for row in store.read(FIRST)] == [START + 1, START + 2]


def test_a_session_is_full_before_it_would_run_into_the_next(store: SqliteStore) -> None:
    log = writer(store)
    log.append(b"1")
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("UPDATE sessions SET seq = (1 << 24) - 2")
        other.commit()
    log.seq = (1 << 24) - 2
    log.append(b"last")
    (verdict,) = store.append([log.batch(b"too many")])
    assert isinstance(verdict, StoreUnavailable)
    assert str(verdict) == "session first is full: a store holds 16777216 events of each"


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_deleted_session_s_number_never_leads_into_another_s_log(store: SqliteStore, goes_on: bool) -> None:
    log = writer(store)
    log.append(b"1")
    log.append(b"2")
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("DELETE FROM sessions")
        other.execute("DELETE FROM events")
        other.commit()
    neighbour = writer(store, SessionId("next"))
    if goes_on:
        assert store.append([log.batch(b"3")])[0] is not None
    writer(store).append(b"again")
    assert list(store.read(neighbour.session)) == []
    assert [row.data for row in store.read(FIRST)] == [b"again"]


def test_reading_ends_whatever_bit_of_the_tree_of_events_is_another(tmp_path: Path) -> None:
    """Also where a page leads back to itself, so that the same rows come again and again."""
    path, changed = tmp_path / "a.db", tmp_path / "b.db"
    with closing(SqliteStore(path, "relaxed")) as store:
        writer(store).append(*[b"%0120d" % number for number in range(1200)])
        rows = list(store.read(FIRST))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = path.read_bytes()
    assert data[(page - 1) * size] == 5, "the root of the tree is no inner page"
    ends: Counter[str] = Counter()
    for at, bit in itertools.product(range((page - 1) * size, page * size), range(8)):
        if data[at] == 0 and (at % 8 or bit % 3):  # mostly what is not in use
            continue
        damaged = bytearray(data)
        damaged[at] ^= 1 << bit
        changed.write_bytes(damaged)
        ends[_end_of_reading(changed, rows)] += 1
    assert ends["broken"], ends


def _end_of_reading(path: Path, rows: list[Any]) -> str:
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    try:
        with closing(SqliteStore(path, "relaxed")) as store:
            found = list(itertools.islice(store.read(FIRST), 5 * len(rows)))
    except SpineError as error:
        return "broken" if isinstance(error, LogBroken) else "unreadable"
    assert len(found) < 5 * len(rows), "it reads in a circle"
    return "whole" if found == rows else "another"


def test_a_closed_store_says_so(store: SqliteStore) -> None:
    log = writer(store)
    log.append(b"1", b"2")
    reading = store.read(FIRST)
    store.close()
    for work in (
        lambda: store.append([log.batch(b"3")]),
        lambda: store.head(FIRST),
        lambda: next(reading),
        lambda: writer(store),
    ):
        with pytest.raises(StoreUnavailable, match=r"a\.db\?durability=relaxed is closed; open it again"):
            work()


def test_a_forked_child_may_not_use_the_connections(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = writer(store)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreUnavailable, match="was opened before this process was forked"):
            store.append([log.batch(b"1")])
        with pytest.raises(StoreUnavailable, match="was opened before this process was forked"):
            store.sessions()
    log.append(b"1")


def test_owners_that_hold_nothing_any_more_are_forgotten(store: SqliteStore) -> None:
    writer(store, SessionId("released"))
    store.release(SessionId("released"), ALICE)
    for number in range(20):
        writer(store, owner=Owner(f"owner {number}", "host", number, number), now=START + number * 60_000_000)
    with closing(sqlite3.connect(store.path)) as other:
        assert other.execute("SELECT count(*) FROM owners WHERE id <> ''").fetchone() == (1,)


# ------------------------------------------------------------------------------------------------------- what survives


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    assert trial("kill", tmp_path / "a.db", 20, 1017).startswith("20 kills, ")


def test_of_racing_processes_exactly_one_wins_each_place(tmp_path: Path) -> None:
    assert trial("race", tmp_path / "a.db", 2, 100) == "200 places, each won once\n"


def test_many_processes_may_make_the_same_file_at_once(tmp_path: Path) -> None:
    for number in range(4):
        trial("open", tmp_path / f"{number}.db", 8)


def test_a_full_disk_stores_nothing_by_halves_and_the_same_store_goes_on(tmp_path: Path) -> None:
    assert "stored before the limit was lifted" in trial("full", tmp_path / "a.db")


def test_a_full_file_system_is_reported_and_left_usable(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        store = SqliteStore(tmp_path / "a.db")
        log = writer(store)
        log.append(b"1")
        ballast = tmp_path / "ballast"
        with pytest.raises(OSError, match="No space left"):
            ballast.write_bytes(bytes(4_000_000))
        for size in (300_000, 20_000, 9_000):
            with pytest.raises(StoreUnavailable, match="nothing was changed"):
                store.append([log.batch(bytes(size), b"second")])
            assert store.head(FIRST) == (log.seq, log.hash)
        ballast.unlink()
        log.append(bytes(300_000), b"after")
        store.close()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_session_that_got_no_event_leaves_no_row(tmp_path: Path) -> None:
    """And no token is handed out twice, also when the file was opened again and other owners came."""
    path = tmp_path / "spine.db"
    tokens = []
    for number in range(3):
        store = SqliteStore(path)
        owner = attrs.evolve(ALICE, id=f"owner{number}")
        tokens.append(store.claim(FIRST, owner, now=START + number * 9 * LEASE, lease_us=LEASE).token)
        store.release(FIRST, owner)
        store.close()
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
    assert tokens == sorted(set(tokens))
