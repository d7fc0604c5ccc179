"""The memory store: what an event costs. The contract is bound in tests/contracts."""

import tracemalloc

from spine.stores.memory import MemoryStore
from spine.testing.store_trials import FIRST, writer


def test_an_event_costs_a_pointer_beside_its_own_row() -> None:
    store = MemoryStore()
    log = writer(store)
    batches = []
    for _ in range(5_000):
        batches.append(log.batch(*(bytes(120) for _ in range(5))))
        log.follow(batches[-1])
    tracemalloc.start()
    for batch in batches:
        assert store.append((batch,)) == [None]
    added, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert added / 25_000 < 16


def test_rows_come_back_as_the_objects_they_were() -> None:
    store = MemoryStore()
    batch = writer(store).append(b"1", b"2")
    assert all(found is given for found, given in zip(store.read(FIRST), batch.rows, strict=True))


def test_closing_leaves_the_sessions_for_the_next_runtime() -> None:
    store = MemoryStore()
    log = writer(store)
    log.append(b"1")
    store.close()
    log.append(b"2")
    assert [row.data for row in store.read(FIRST)] == [b"1", b"2"]
