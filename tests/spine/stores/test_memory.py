"""The memory store: what an event costs. The contract is bound in tests/contracts."""

import gc
import tracemalloc

from spine.stores.memory import MemoryStore
from spine.testing.stores.trials import FIRST, writer


def test_an_event_costs_little_beside_its_data_and_hash() -> None:
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
    assert added / 25_000 < 120 + 32 + 128


def test_kept_rows_are_nothing_to_the_garbage_collector() -> None:
    """Long sessions, and many of them, would otherwise be walked again and again."""
    store = MemoryStore()
    log = writer(store)
    log.append(b"1")
    kept = store._sessions[FIRST]
    gc.collect()  # what all rows of a kind share is looked at once
    log.append(b"2", b"3")
    assert len(kept.rows) == 3
    assert not any(map(gc.is_tracked, [*kept.rows, *kept.kinds, *kept.places]))


def test_closing_leaves_the_sessions_for_the_next_runtime() -> None:
    store = MemoryStore()
    log = writer(store)
    log.append(b"1")
    store.close()
    log.append(b"2")
    assert [row.data for row in store.read(FIRST)] == [b"1", b"2"]
