"""Damage to a stored log, all of it found: each bit of each event, each cut, swaps, old copies, rewritten chains.

python damage.py [--count 0] [--events 200] [--workers 2] [--seed 1]

The log is a real session. What a chain alone cannot show (a cut at an event's border, an older copy, a chain written
anew) is tried with a head that was noted elsewhere, and once without, to tell how much of it that is. Bits are flipped
in stored rows, in an export, and in the SQLite file itself; a flip in the file that changes no row and no content is
counted as idle. COUNT limits each kind to a sample; 0 tries everything. Prints one line of figures.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import anyio
from children import in_workers
from conditions import conditions, count
from crash_turns import TURNS, Model, World, agent_of

from spine import Runtime
from spine.clock import SystemClock
from spine.codec import Codec, genesis, row_hash
from spine.commits import Writer
from spine.config import Settings
from spine.errors import SpineError
from spine.exports import ExportReader, export
from spine.log import LogReader, SessionLog
from spine.proof.verify import verify
from spine.store import Row
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing.stores.trials import ALICE, LEASE, START
from spine.values import SessionId

NAME = SessionId("s")
TRIAL_S = 20
"""Reading a damaged file ends sooner, or it does not end."""
FILE_SHARE = 25
"""One bit of the SQLite file is tried for so many there are: its pages hold every row's bits once more."""


class LogStore(MemoryStore):
    """A store whose one session reads as the rows that it was given."""

    rows: tuple[Row, ...] = ()

    def head(self, session: SessionId) -> tuple[int, bytes] | None:
        """Of the last row."""
        return (self.rows[-1].seq, self.rows[-1].hash) if self.rows else None

    def read(self, session: SessionId, *, after: int = 0, until: int | None = None, types: Any = ()) -> Iterator[Row]:
        """The rows as they stand."""
        end = until if until is not None else sys.maxsize
        return (row for row in self.rows if after < row.seq <= end and (not types or row.type in types))


async def record(path: Path, events: int) -> None:
    """Hold a session of at least so many events in a SQLite file: turns with tools, a blob, parallel calls."""
    world, held = World(path.with_name("world")), {}
    turn = TURNS["parallel"]
    names = iter(range(10**6))
    async with Runtime.open(
        f"sqlite:{path}?durability=relaxed", model=Model(turn, is_next=True), settings=Settings(installed_plugins=False)
    ) as runtime:
        session = held["session"] = await runtime.session(NAME, agent_of(turn, world, lambda: held["session"]))
        while session.log.seq < events:
            await session.run(f"Go on, for the {next(names)}. time: äöü €.")


# --------------------------------------------------------------------------------------------------------- changes


def flips(row: Row) -> Iterator[tuple[str, Row]]:
    """The row with each bit of each of its fields flipped in turn."""
    for field in row._fields:
        value = getattr(row, field)
        for changed in _flipped(value):
            yield f"bit of {field} at seq {row.seq}", row._replace(**{field: changed})


def _flipped(value: Any) -> Iterator[Any]:
    match value:
        case bool():
            yield not value
        case int():
            yield from (value ^ (1 << bit) for bit in range(63))
        case bytes():
            for index in range(len(value)):
                for bit in range(8):
                    changed = bytearray(value)
                    changed[index] ^= 1 << bit
                    yield bytes(changed)
        case str():
            yield from (changed.decode("utf-8", "replace") for changed in _flipped(value.encode()))


def rechained(rows: list[Row]) -> list[Row]:
    """The rows with hashes that hold again, as someone makes them who rewrites a log."""
    previous, made = genesis(NAME), []
    for row in rows:
        previous = row_hash(previous, row)
        made.append(row._replace(hash=previous))
    return made


def changed_logs(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Everything a chain shows: flips, gaps, repeats, swaps with and without their numbers."""
    for index, row in enumerate(rows):
        for what, other in flips(row):
            yield what, [*rows[:index], other, *rows[index + 1 :]]
        if index < len(rows) - 1:
            yield f"gap at seq {row.seq}", rows[:index] + rows[index + 1 :]
        yield f"seq {row.seq} twice", rows[: index + 1] + rows[index:]
    for first, second in combinations(range(len(rows)), 2):
        swapped = list(rows)
        swapped[first], swapped[second] = rows[second], rows[first]
        yield f"swap of seq {first + 1} and {second + 1}", swapped
        swapped[first] = rows[second]._replace(seq=first + 1)
        swapped[second] = rows[first]._replace(seq=second + 1)
        yield f"swap of what seq {first + 1} and {second + 1} say", swapped


def hidden_changes(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """What only a head noted elsewhere shows: cuts at a border (older copies too), and chains written anew."""
    yield from ((f"cut after seq {end}", rows[:end]) for end in range(len(rows)))
    for index, row in enumerate(rows):
        data = row.data.replace(b"a", b"b") if b"a" in row.data else row.data[:-1] + b" }"
        yield f"rewritten from seq {row.seq}", rechained([*rows[:index], row._replace(data=data), *rows[index + 1 :]])


# ---------------------------------------------------------------------------------------------------------- trials


class Trials:
    """One worker's trials: `tried`, `found`, and what was not."""

    def __init__(self, share: Callable[[Iterable[Any]], Iterator[Any]]) -> None:
        self.share = share
        self.counts: Counter[str] = Counter()
        self.missed: list[str] = []

    def note(self, kind: str, what: str, is_found: bool) -> None:
        """One trial."""
        self.counts[kind] += 1
        if not is_found:
            self.counts["missed"] += 1
            self.missed = [*self.missed[:9], what]

    def rows(self, rows: list[Row], contents: Any) -> None:
        """Changes to the rows, against the chain, and against a head."""
        store = LogStore()
        reader = LogReader(store, Codec(), NAME)
        store.contents = contents  # type: ignore[method-assign]
        head = (rows[-1].seq, rows[-1].hash.hex())

        def is_found(changed: list[Row], noted: tuple[int, str] | None) -> bool:
            store.rows = tuple(changed)
            try:
                return verify(reader, noted).verdict == "broken"
            except SpineError:
                return True

        for what, changed in self.share(changed_logs(rows)):
            self.note("chain", what, is_found(changed, None))
        for what, changed in self.share(hidden_changes(rows)):
            self.note("head", what, is_found(changed, head))
            self.counts["only with head"] += not is_found(changed, None)

    def exported(self, data: bytes, head: tuple[int, str], path: Path) -> None:
        """Each bit of an export, and each cut of it."""
        bits = ((f"bit {bit} of byte {at} of the export", at, bit) for at in range(len(data)) for bit in range(8))
        for what, at, bit in self.share(bits):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            self.note("export", what, _export_is_found(bytes(changed), path, head, data))
        for end in self.share(range(len(data) - 1)):  # the last byte is a newline
            self.note("export cut", f"export cut at byte {end}", _export_is_found(data[:end], path, head, data))

    def in_file(self, source: Path, folder: Path, rows: list[Row], seed: int) -> None:
        """Bits of the SQLite file: found, or no row is another one."""
        data = source.read_bytes()
        rng = random.Random(seed)
        for _ in self.share(range(8 * len(data) // FILE_SHARE)):
            at, bit = rng.randrange(len(data)), rng.randrange(8)
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            signal.alarm(TRIAL_S)
            verdict = _file_verdict(bytes(changed), folder / "changed.db", rows)
            signal.alarm(0)
            self.counts[f"file {verdict}"] += 1
            self.note("file", f"bit {bit} of byte {at} of the file: {verdict}", verdict in ("found", "idle"))


def _is_overdue(*_: object) -> None:
    raise TimeoutError(f"a damaged file was read for {TRIAL_S} s")


def _export_is_found(data: bytes, path: Path, head: tuple[int, str], whole: bytes) -> bool:
    path.write_bytes(data)
    try:
        reader = ExportReader(path, Codec())
    except SpineError:
        return True
    try:
        if reader.torn is not None or verify(reader, head).verdict == "broken":
            return True
        reader.check()
    except SpineError:
        return True
    finally:
        reader.close()
    copy: list[bytes] = []  # a flip may change how a line is written and not what it says: then it says the same
    with_reader = ExportReader(path, Codec())
    export(with_reader, copy.append)
    with_reader.close()
    return b"".join(copy) == whole


def _file_verdict(data: bytes, path: Path, rows: list[Row]) -> str:
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(data)
    try:
        store = SqliteStore(path)
    except SpineError:
        return "found"
    except Exception as error:
        return f"{type(error).__name__} at opening"
    try:
        reader = LogReader(store, Codec(), NAME)
        verdict = verify(reader).verdict
        same = verdict != "broken" and list(reader.rows()) == rows
        if verdict != "broken" and not same:
            return "MISSED"
        _use(store)
        return "idle" if same else "found"
    except SpineError:
        return "found"
    except Exception as error:
        return f"{type(error).__name__}"
    finally:
        store.close()


def _use(store: SqliteStore) -> None:
    """What else is asked of a store, and a session opened to go on with it: an error of ours or none."""
    asked: Sequence[Callable[[], object]] = (
        store.sessions,
        store.waiting,
        lambda: store.inbox(NAME),
        lambda: store.put_inbox(NAME, "key", "input", b""),
        store.check,
        lambda: _load(store),
    )
    for ask in asked:
        with suppress(SpineError):
            ask()


def _load(store: SqliteStore) -> None:
    claim = store.claim(NAME, ALICE, now=START, lease_us=LEASE, take_over=True)
    SessionLog(Writer(store), Codec(), NAME, claim, SystemClock()).load()


# ------------------------------------------------------------------------------------------------------------ main


def work(given: argparse.Namespace, number: int) -> Any:
    """One worker's share of everything."""

    def share(items: Iterable[Any]) -> Iterator[Any]:
        mine = islice(items, number, None, given.workers)
        return mine if not given.count else _sample(mine, -(-given.count // given.workers), given.seed)

    trials = Trials(share)
    signal.signal(signal.SIGALRM, _is_overdue)
    folder = Path(tempfile.mkdtemp(prefix="spine-damage-", dir=given.where))
    try:
        path = folder / "s.db"
        anyio.run(record, path, given.events)
        store = SqliteStore(path)
        rows = list(store.read(NAME))
        reader, lines = LogReader(store, Codec(), NAME), []
        export(reader, lines.append)
        trials.rows(rows, store.contents)
        trials.exported(b"".join(lines), (rows[-1].seq, rows[-1].hash.hex()), folder / "x.jsonl")
        store.close()
        trials.in_file(path, folder, rows, given.seed + number)
    finally:
        shutil.rmtree(folder)
    return {"counts": trials.counts, "missed": trials.missed, "events": len(rows), "bytes": len(b"".join(lines))}


def _sample(items: Iterable[Any], size: int, seed: int) -> Iterator[Any]:
    """`size` items at random, without holding the rest."""
    kept: list[Any] = []
    rng = random.Random(seed)
    for number, item in enumerate(items):
        if len(kept) < size:
            kept.append(item)
        elif (place := rng.randrange(number + 1)) < size:
            kept[place] = item
    yield from kept


def main(arguments: list[str] | None = None) -> int:
    """Damage and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=0, help="trials of each kind; 0 for all of them")
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--where", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    began = time.monotonic()
    results = in_workers([lambda number=number: work(given, number) for number in range(given.workers)])
    counts: Counter[str] = sum((Counter(result["counts"]) for result in results), Counter())
    for what in [what for result in results for what in result["missed"]][:20]:
        print(f"  not found: {what}")
    tried = sum(counts[kind] for kind in ("chain", "head", "export", "export cut", "file"))
    print(
        f"damage: {count(tried)} changes to a log of {results[0]['events']} events tried, lost {counts['missed']} · "
        f"rows {count(counts['chain'])}, with a head {count(counts['head'])} "
        f"({count(counts['only with head'])} of them only so), "
        f"export bits {count(counts['export'])} and cuts {count(counts['export cut'])}, "
        f"file {count(counts['file'])} ({count(counts['file idle'])} idle) · "
        f"{time.monotonic() - began:.0f} s · " + conditions(given.where, seed=given.seed)
    )
    return 1 if counts["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
