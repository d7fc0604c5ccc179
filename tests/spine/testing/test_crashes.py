"""A process that dies: what was stored stays, and nothing more is."""

from pathlib import Path

import pytest

from spine.errors import StoreError
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing.crashes import CrashingStore, ProcessDied
from spine.testing.stores.contract import StoreContract
from spine.testing.stores.trials import ALICE, BOB, FIRST, LEASE, START, writer


class TestAStoreBeforeItsDeath(StoreContract):
    """Until then it is the store that it stands in front of."""

    def make_store(self) -> CrashingStore:  # type: ignore[override]
        return CrashingStore(MemoryStore(), lambda row: False)


def test_the_fatal_batch_is_durable_and_nothing_after_it() -> None:
    behind = MemoryStore()
    store = CrashingStore(behind, lambda row: row.data == b"fatal")
    alice = writer(store)  # type: ignore[arg-type]
    alice.append(b"good")
    with pytest.raises(ProcessDied):
        store.append([alice.batch(b"before", b"fatal", b"beside")])
    assert [row.data for row in behind.read(FIRST)] == [b"good", b"before", b"fatal", b"beside"]
    with pytest.raises(ProcessDied):
        store.append([alice.batch(b"after")])
    assert behind.head(FIRST)[0] == 4  # type: ignore[index]


def test_a_dead_process_keeps_no_lease_and_gives_none_back() -> None:
    behind = MemoryStore()
    store = CrashingStore(behind, lambda row: True)
    alice = writer(store)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        store.append([alice.batch(b"x")])
    store.renew(ALICE, until=START + 10 * LEASE)
    store.release(FIRST, ALICE)
    assert behind.owner(FIRST) == (ALICE, START + LEASE)
    behind.claim(FIRST, BOB, now=START + LEASE + 1, lease_us=LEASE)


def test_a_moment_that_does_not_kill_is_told() -> None:
    store = CrashingStore(MemoryStore(), lambda row: row.data == b"now", kills=False)
    alice = writer(store)  # type: ignore[arg-type]
    alice.append(b"good")
    assert not store.is_over
    alice.append(b"now")
    assert store.is_over
    alice.append(b"after")


def test_a_batch_that_was_refused_kills_nobody(tmp_path: Path) -> None:
    store = CrashingStore(SqliteStore(tmp_path / "a.db"), lambda row: True)
    stale = writer(store)  # type: ignore[arg-type]
    writer(store, owner=ALICE)  # type: ignore[arg-type]
    (verdict,) = store.append([stale.batch(b"x")])
    assert verdict is not None
    assert not store.is_over
    store.close()
