"""Loss of power: what a disk may have kept of the writes that no sync confirmed, at every point of a run.

python power.py [--count 50000] [--batches 60] [--seed 1]

A run of the store is recorded write by write; a cut is a place in that record. Before the last sync of a file all of
it is there; of what came later, any part: nothing, all, some writes in any order, some sectors of 512 bytes of each.
The stock store must open what is left. With durability `full` every acknowledged batch is whole; with `relaxed` only
batches from the end may be missing; no batch is ever there in part. Prints one line of figures.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
from children import in_workers
from conditions import conditions, count
from disk import Op, TracingStore

from spine.errors import SpineError
from spine.store import Append
from spine.stores.sqlite import SqliteStore
from spine.testing.stores.trials import content_of, writer
from spine.values import SessionId

SECTOR = 512
SESSIONS = tuple(SessionId(name) for name in ("one", "two"))


def record(path: Path, durability: str, batches: int, seed: int) -> list[Any]:
    """The trace of a run: two sessions by turns, batches of several sizes, some with contents."""
    rng = random.Random(seed)
    store = TracingStore(path, durability)
    writers = [writer(store, session) for session in SESSIONS]  # type: ignore[arg-type]
    for number in range(batches):
        payloads = [rng.randbytes(rng.choice((10, 300, 5_000))) for _ in range(rng.randrange(1, 5))]
        beside = {"contents": (content_of(rng.randbytes(9_000)),)} if number % 7 == 3 else {}
        writers[number % 2].append(*payloads, **beside)
    trace = list(store.trace)
    store.close()
    return trace


class Disk:
    """What a disk holds for certain, and what it may hold."""

    def __init__(self) -> None:
        self._durable: dict[str, bytearray] = {}
        self._pending: dict[str, list[Op]] = {}

    def take(self, op: Op) -> None:
        """One more operation."""
        if op.kind == "sync":
            content = self._durable.setdefault(op.file, bytearray())
            for each in self._pending.pop(op.file, []):
                _apply(content, each)
        elif op.kind == "delete":
            self._durable.pop(op.file, None)
            self._pending.pop(op.file, None)
        else:
            self._pending.setdefault(op.file, []).append(op)

    def after_cut(self, rng: random.Random) -> dict[str, bytes]:
        """The files as they may be after a loss of power."""
        files = {}
        for name in {*self._durable, *self._pending}:
            content = bytearray(self._durable.get(name, b""))
            for op in _survivors(self._pending.get(name, []), rng):
                _apply(content, op)
            files[name] = bytes(content)
        return files


def _apply(content: bytearray, op: Op) -> None:
    if op.kind == "truncate":
        del content[op.offset :]
        content.extend(bytes(max(0, op.offset - len(content))))
        return
    if len(content) < op.offset:
        content.extend(bytes(op.offset - len(content)))
    content[op.offset : op.offset + len(op.data)] = op.data


def _survivors(ops: list[Op], rng: random.Random) -> list[Op]:
    way = rng.choice(("none", "all", "first", "some", "torn"))
    if way == "none" or not ops:
        return []
    if way == "first":
        return ops[: rng.randrange(len(ops) + 1)]
    if way == "torn":
        ops = [part for op in ops for part in _sectors(op)]
    if way in ("some", "torn"):
        ops = [op for op in ops if rng.random() < 0.5]
        rng.shuffle(ops)
    return ops


def _sectors(op: Op) -> list[Op]:
    if op.kind != "write":
        return [op]
    starts = range(0, len(op.data), SECTOR - op.offset % SECTOR or SECTOR)
    return [op._replace(offset=op.offset + at, data=op.data[at : at + SECTOR]) for at in starts]


def problem_of(
    folder: Path, files: dict[str, bytes], acknowledged: list[Append], tried: list[Append], full: bool
) -> str:
    """What does not hold of the files after a cut; empty when everything does."""
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    try:
        store = SqliteStore(folder / "s.db")
    except SpineError as error:
        return f"does not open: {error.message}"
    try:
        for session in SESSIONS:
            intended = [row for batch in tried if batch.session == session for row in batch.rows]
            rows = list(store.read(session))
            if rows != intended[: len(rows)]:
                return f"{session} is no prefix of what was written"
            borders = {0, *(batch.rows[-1].seq for batch in tried if batch.session == session)}
            if len(rows) not in borders:
                return f"{session} has part of a batch"
            known = max((batch.rows[-1].seq for batch in acknowledged if batch.session == session), default=0)
            if full and len(rows) < known:
                return f"LOST {session} has {len(rows)} of {known} acknowledged events"
            needed = [
                c.digest for b in tried if b.session == session and b.rows[-1].seq <= len(rows) for c in b.contents
            ]
            if len(store.contents(needed)) != len(needed):
                return f"{session} misses contents"
    except SpineError as error:
        return f"does not read: {error.message}"
    finally:
        store.close()
    return ""


def work(given: argparse.Namespace, number: int) -> Any:
    """One worker's share of the cuts: each place of the trace, again and again with other luck."""
    counts: Counter[str] = Counter()
    told: list[str] = []
    with tempfile.TemporaryDirectory(prefix="spine-power-", dir=given.where) as name:
        for durability in ("full", "relaxed"):
            run, folder = Path(name, f"run-{durability}"), Path(name, f"cut-{durability}")
            run.mkdir()
            folder.mkdir()
            trace = record(run / "s.db", durability, given.batches, given.seed)
            tried = [item for item in trace if isinstance(item, Append)]
            counts["places"] += len(trace)
            rounds = -(-given.count // 2 // given.workers // len(trace))
            rng, disk, acknowledged = random.Random(given.seed * 100 + number), Disk(), []
            for place, item in enumerate(trace):
                if isinstance(item, Op):
                    disk.take(item)
                    counts["syncs"] += item.kind == "sync"
                else:
                    acknowledged.append(item)
                for _ in range(rounds):
                    problem = problem_of(folder, disk.after_cut(rng), acknowledged, tried, durability == "full")
                    counts[durability] += 1
                    counts["lost" if problem.startswith("LOST") else "broken"] += bool(problem)
                    if problem and len(told) < 10:
                        told.append(f"{durability}, cut at place {place}: {problem}")
    return {"counts": counts, "told": told}


def main(arguments: list[str] | None = None) -> int:
    """Cut and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=50_000, help="cuts at least")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--where", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    began = time.monotonic()
    results = in_workers([lambda number=number: work(given, number) for number in range(given.workers)])
    counts: Counter[str] = sum((Counter(result["counts"]) for result in results), Counter())
    for line in [line for result in results for line in result["told"]][:20]:
        print(f"  {line}")
    print(
        f"power: {count(counts['full'] + counts['relaxed'])} cuts at {count(counts['places'] // given.workers)} places "
        f"({counts['syncs'] // given.workers} syncs), full {count(counts['full'])}, relaxed "
        f"{count(counts['relaxed'])} · "
        f"acknowledged batches lost {counts['lost']}, otherwise broken {counts['broken']} · "
        f"{time.monotonic() - began:.0f} s · "
        + conditions(
            given.where, seed=given.seed, sync="full and relaxed", writer=f"SQLite {apsw.sqlite_lib_version()}"
        )
    )
    return 1 if counts["lost"] or counts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
