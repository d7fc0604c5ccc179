"""Trials with several processes, run as a program of their own: forking inside a test runner would copy its threads.

python process_trials.py kill PATH ROUNDS SEED     kills a writer again and again, then proves the log
python process_trials.py race PATH WRITERS GOAL    lets writers race for the same places
python process_trials.py open PATH PROCESSES       opens a new file from many processes at once
python process_trials.py full PATH                 lets the file reach a size limit, then lifts it
"""

import os
import random
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from spine.errors import StoreUnavailable
from spine.stores.sqlite import SqliteStore
from spine.testing.stores.trials import BOB, FIRST, GENESIS, chain, race, writer


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; its exit status is 0 when nothing was raised."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def all_succeed(pids: list[int]) -> None:
    """Wait for the processes and demand that each ended well."""
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)


def write_for_ever(path: str, acknowledged: int) -> None:
    """Append batches of three rows, writing the seq of each to the descriptor once it is stored."""
    store = SqliteStore(path, "relaxed")
    log = writer(store, take_over=True)
    while True:
        log.append(b"a %d" % log.seq, b"b", bytes(log.seq % 3_000))
        os.write(acknowledged, b"%d\n" % log.seq)


def prove(path: str) -> int:
    """Demand a whole chain in whole batches; return its length."""
    store = SqliteStore(path)
    rows = list(store.read(FIRST))
    seq, hash = 0, GENESIS
    for row in rows:
        (expected,) = chain(seq, hash, [row.data])
        assert (row.seq, row.hash) == (expected.seq, expected.hash)
        seq, hash = row.seq, row.hash
    assert seq % 3 == 0
    assert store.head(FIRST) == ((seq, hash) if rows else None)
    store.close()
    return seq


def kill(path: str, rounds: int, seed: int) -> None:
    """Kill a writer `rounds` times at random moments; every acknowledged batch must still be there."""
    rng = random.Random(seed)
    for _ in range(rounds):
        reading, acknowledged = os.pipe()
        pid = in_child(lambda descriptor=acknowledged: write_for_ever(path, descriptor))
        os.close(acknowledged)
        assert select.select([reading], [], [], 20)[0], "the writer stored nothing"
        time.sleep(rng.random() * 0.02)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with os.fdopen(reading, "rb") as pipe:
            last = int(pipe.read().split(b"\n")[-2])
        found = prove(path)
        assert last <= found <= last + 3, f"acknowledged {last}, found {found}"
    print(f"{rounds} kills, {found} events")


def race_for_places(path: str, writers: int, goal: int) -> None:
    """Let processes append to one session with one token; each place must go to exactly one of them."""
    store = SqliteStore(path)
    token = writer(store).token
    store.close()
    won = [f"{path}.{number}" for number in range(writers)]

    def work(number: int) -> None:
        wins: list[bytes] = []
        own = SqliteStore(path, busy_timeout_s=20)
        race(own, token, f"w{number}", wins, goal=goal)
        own.close()
        Path(won[number]).write_bytes(b"\n".join(wins))

    all_succeed([in_child(lambda number=number: work(number)) for number in range(writers)])
    store = SqliteStore(path)
    stored = [row.data for row in store.read(FIRST)]
    claimed = [data for name in won for data in Path(name).read_bytes().split(b"\n")]
    assert len(stored) == writers * goal
    assert sorted(stored) == sorted(claimed)
    print(f"{len(stored)} places, each won once")


def open_at_once(path: str, processes: int) -> None:
    """Open a file that is not there from many processes at the same moment; all must get the same store."""
    start, gate = os.pipe()

    def work() -> None:
        os.close(gate)
        os.read(start, 1)
        store = SqliteStore(path, busy_timeout_s=20)
        writer(store, take_over=True)
        store.close()

    pids = [in_child(work) for _ in range(processes)]
    os.close(gate)
    all_succeed(pids)
    assert writer(SqliteStore(path), owner=BOB, take_over=True).token == processes + 1


def fill_up(path: str) -> None:
    """Append until the file may not grow; then everything stored is there, and the same store goes on afterwards."""
    store = SqliteStore(path, "relaxed")
    log = writer(store)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, most))
    refused = 0
    for size in (50_000, 50_000, 50_000, 50_000, 50_000, 50_000, 50_000, 50_000, 500, 500, 60_000, 500, 90_000):
        batch = log.batch(bytes(size), b"second")
        try:
            assert store.append([batch]) == [None]
            log.follow(batch)
        except StoreUnavailable:
            refused += 1
        assert (store.head(FIRST) or (0, GENESIS)) == (log.seq, log.hash)
        assert [row.seq for row in store.read(FIRST)] == list(range(1, log.seq + 1))
    assert refused
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    stored = log.seq
    log.append(bytes(500_000), b"after")
    store.close()
    assert writer(SqliteStore(path)).seq == stored + 2
    print(f"{refused} refused, {stored} stored before the limit was lifted")


TRIALS: dict[str, Callable[..., None]] = {
    "kill": kill,
    "race": race_for_places,
    "open": open_at_once,
    "full": fill_up,
}

if __name__ == "__main__":
    TRIALS[sys.argv[1]](sys.argv[2], *(int(text) for text in sys.argv[3:]))
