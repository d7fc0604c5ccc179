"""Writers of several processes race for one session: linearizable, nothing lost, nothing twice.

python writers.py [--count 1000000] [--stores sqlite,postgres] [--processes 2,4,8] [--where FOLDER] [--seed 1]

Each process tries to append at the head that it knows, and now and then at a stale one, at one that is not there yet,
the same batch again, or other bytes at a place that it won itself. What each attempt was told, and when it began and
ended, is compared with one order of all: every place has one winner, a refusal names the head of a moment inside its
attempt, and nobody sees the log go back. A reader beside them holds a SQLite file's old state for a second each, so
that its write-ahead log cannot be reused meanwhile. COUNT attempts, or a fifth of it for PostgreSQL, are shared out
among the numbers of processes. Prints a line of figures for each store and number; exit status 1 at any anomaly.
"""

import argparse
import os
import random
import sqlite3
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from children import in_workers
from conditions import conditions, count
from postgres_server import Missing, postgres_server

from spine.errors import ConcurrencyConflict, StoreBusy
from spine.store import Append, Row, Store
from spine.stores.sqlite import Durability, SqliteStore
from spine.testing.stores.trials import FIRST, GENESIS, chain, writer
from spine_postgres import open_store

WON, REFUSED, AGAIN, BUSY = range(4)
"""How an attempt ended: stored, refused with the head, found stored already, or the store stayed locked."""
STALE, FUTURE, REPEATED, OTHER = 0.08, 0.04, 0.04, 0.04
"""Shares of attempts that are not made at the head as it is known."""


class Attempt(NamedTuple):
    """One attempt: when it began and ended (nanoseconds), how, and the seq that it won or was told."""

    began: int
    ended: int
    how: int
    seq: int


class Figures(NamedTuple):
    """What came of a race."""

    tried: int
    won: int
    refused: int
    again: int
    busy: int
    anomalies: list[str]
    slowest_ms: float
    p99_ms: float


# ------------------------------------------------------------------------------------------------------- the race


def race(store: Store, token: int, name: str, tries: int, rng: random.Random, records: "array[int]") -> None:
    """Make `tries` attempts; `records` gets four numbers for each."""
    seq, hash = store.head(FIRST) or (0, GENESIS)
    older, last = (seq, hash), None
    for number in range(tries):
        chance, data, batch = rng.random(), b"%s %d" % (name.encode(), number), None
        if chance < STALE:
            batch = _batch(token, *older, data)
        elif chance < STALE + FUTURE:
            batch = _batch(token, seq + 1, hash, data)
        elif last is not None and chance < STALE + FUTURE + REPEATED:
            batch = last
        elif last is not None and chance < STALE + FUTURE + REPEATED + OTHER:
            batch = _batch(token, last.seq, last.prev_hash, data)
        batch = batch or _batch(token, seq, hash, data)
        began = time.monotonic_ns()
        try:
            (verdict,) = store.append([batch])
        except StoreBusy:
            records.extend((began, time.monotonic_ns(), BUSY, 0))
            continue
        ended = time.monotonic_ns()
        if verdict is None:
            records.extend((began, ended, AGAIN if batch is last else WON, batch.rows[-1].seq))
            older, (seq, hash), last = (seq, hash), (batch.rows[-1].seq, batch.rows[-1].hash), batch
        else:
            assert isinstance(verdict, ConcurrencyConflict), verdict
            records.extend((began, ended, REFUSED, verdict.actual_seq))
            if (verdict.actual_seq, verdict.actual_hash) != (seq, hash):
                older, seq, hash = (seq, hash), verdict.actual_seq, verdict.actual_hash or GENESIS


def _batch(token: int, seq: int, hash: bytes, data: bytes) -> Append:
    return Append(FIRST, token, seq, hash, chain(seq, hash, [data]))


def hold_back(file: Path, is_over: Callable[[], bool]) -> None:
    """Read a SQLite file in one transaction after the other, each kept open for a second."""
    while not is_over():
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            time.sleep(1)


def run(
    make: Callable[[], Store], processes: int, tries: int, seed: int, folder: Path, file: Path | None = None
) -> Figures:
    """Let that many processes race on the store that each of them makes, with a reader of its `file`, and compare."""
    with closing(make()) as store:
        token = writer(store).token

    def work(number: int) -> int:
        records = array("q")
        with closing(make()) as own:
            race(own, token, f"w{number}", -(-tries // processes), random.Random(f"{seed} {number}"), records)
        (folder / f"{os.getpid()}.records").write_bytes(records.tobytes())
        return os.getpid()

    def read() -> None:
        if file is not None:
            hold_back(file, lambda: len(list(folder.glob("*.records"))) == processes)

    *pids, _ = in_workers([*(lambda number=number: work(number) for number in range(processes)), read])
    attempts: list[Attempt] = []
    for pid in pids:
        numbers = array("q")
        records = folder / f"{pid}.records"
        numbers.frombytes(records.read_bytes())
        records.unlink()
        attempts.extend(map(Attempt._make, zip(*[iter(numbers)] * 4, strict=True)))
    with closing(make()) as store:
        rows = list(store.read(FIRST))
    anomalies = [*wrong_log(rows), *wrong_order(attempts, len(rows))]
    ends = Counter(attempt.how for attempt in attempts)
    took = sorted(attempt.ended - attempt.began for attempt in attempts)
    waits = (took[-1] / 1e6, took[len(took) * 99 // 100] / 1e6)
    return Figures(len(attempts), ends[WON], ends[REFUSED], ends[AGAIN], ends[BUSY], anomalies, *waits)


# -------------------------------------------------------------------------------------------------- the comparison


def wrong_log(rows: Sequence[Row]) -> Iterable[str]:
    """What is wrong with the log itself: a gap, a broken chain, the same data twice."""
    datas = [row.data for row in rows]
    if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
        yield "the log has a gap"
    if [row.hash for row in chain(0, GENESIS, datas)] != [row.hash for row in rows]:
        yield "the chain is broken"
    yield from (f"{data!r} stands there twice" for data, times in Counter(datas).items() if times > 1)


def wrong_order(attempts: Sequence[Attempt], last: int) -> Iterable[str]:
    """Whether no single order explains what everybody was told.

    The moment at which place `s` was taken lies inside its winner's attempt, after the beginning of every attempt that
    was told the head `s - 1`, and before the end of every one that was told `s`. Such moments exist, one after the
    other, or somebody saw what cannot have been.
    """
    winners = Counter(attempt.seq for attempt in attempts if attempt.how == WON)
    yield from (f"place {seq} was won {times} times" for seq, times in winners.items() if times > 1)
    yield from (f"place {seq} was won by nobody" for seq in range(1, last + 1) if seq not in winners)
    yield from (f"place {seq} was won and is not there" for seq in winners if seq > last)
    not_before, not_after = [0] * (last + 3), [2**63] * (last + 3)
    for began, ended, how, seq in attempts:
        if how == BUSY or seq > last:
            continue
        if how == WON:
            not_before[seq] = max(not_before[seq], began)
        not_after[seq] = min(not_after[seq], ended)
        if how != WON:
            not_before[seq + 1] = max(not_before[seq + 1], began)
    moment = 0
    for seq in range(1, last + 1):
        moment = max(moment, not_before[seq])
        if moment > not_after[seq]:
            yield f"no moment is left at which place {seq} was taken"
            return


# --------------------------------------------------------------------------------------------------------- stores


def of_sqlite(path: Path, durability: Durability) -> Callable[[], Store]:
    """One file for all."""
    return lambda: SqliteStore(path, durability, busy_timeout_s=30)


def of_postgres(url: str, name: str) -> Callable[[], Store]:
    """One schema for all."""
    return lambda: open_store(f"{url}?schema={name}")


def main() -> int:
    """Run the races that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--processes", default="2,4,8")
    parser.add_argument("--durability", choices=("full", "relaxed"), default="relaxed")
    parser.add_argument("--where", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    numbers = [int(number) for number in options.processes.split(",")]
    failed = False
    with tempfile.TemporaryDirectory(prefix="spine-writers-", dir=options.where) as folder:
        for name in options.stores.split(","):
            try:
                with postgres_server() if name == "postgres" else nullcontext("") as url:
                    failed = _races(name, url, numbers, Path(folder), options) or failed
            except Missing as missing:
                print(f"writers: {name} left out: {missing}")
    return int(failed)


def _races(name: str, url: str, numbers: Sequence[int], folder: Path, options: argparse.Namespace) -> bool:
    failed = False
    for processes in numbers:
        file = folder / f"{processes}.db" if name == "sqlite" else None
        if file is not None:
            make, sync = of_sqlite(file, options.durability), options.durability
        else:
            make, sync = of_postgres(url, f"writers{processes}"), "fsync off"
        began = time.monotonic()
        tries = options.count // (1 if name == "sqlite" else 5)
        found = run(make, processes, -(-tries // len(numbers)), options.seed, folder, file)
        seconds = time.monotonic() - began
        print(
            f"writers: {name} · {processes} processes · {count(found.tried)} tried, {count(found.won)} won, "
            f"{count(found.refused)} refused, {count(found.again)} known already, {found.busy} busy, "
            f"{len(found.anomalies)} anomalies · "
            f"p99 {found.p99_ms:.1f} ms, slowest {found.slowest_ms:.0f} ms · {seconds:.0f} s · "
            + conditions(folder, seed=options.seed, sync=sync),
            flush=True,
        )
        for anomaly in found.anomalies[:20]:
            print(f"  {anomaly}")
        failed = failed or bool(found.anomalies)
    return failed


if __name__ == "__main__":
    sys.exit(main())
