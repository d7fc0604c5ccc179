"""Logs to prove things about: the demonstration's, whole or changed with its hashes made right again."""

from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from spine.codec import Codec, genesis, row_hash
from spine.exports import ExportReader, export
from spine.log import LogReader
from spine.store import Append, Owner, Row
from spine.stores.memory import MemoryStore
from spine.testing.demo import play_demo
from spine.values import SessionId

SESSION = SessionId("refund-1017")
Edit = Callable[[list[Row]], list[Row]]


@pytest.fixture(scope="session")
def demo_store() -> MemoryStore:
    """The store of the demonstration; tests read it."""
    store = MemoryStore()
    anyio.run(play_demo, store)
    return store


@pytest.fixture
def demo(demo_store: MemoryStore) -> LogReader:
    """The demonstration's log."""
    return LogReader(demo_store, Codec(), SESSION)


@pytest.fixture
def rechained(demo_store: MemoryStore) -> Callable[[Edit], LogReader]:
    """The demonstration's log after an edit of its rows, numbered and hashed anew: its chain is whole."""

    def make(edit: Edit) -> LogReader:
        prev, rows = genesis(SESSION), []
        for seq, row in enumerate(edit(list(demo_store.read(SESSION))), 1):
            numbered = row._replace(seq=seq)
            rows.append(numbered._replace(hash=row_hash(prev, numbered)))
            prev = rows[-1].hash
        store = MemoryStore()
        claim = store.claim(SESSION, Owner(id="o", host="h", pid=1, started=0), now=0, lease_us=1)
        assert store.append([Append(SESSION, claim.token, 0, genesis(SESSION), tuple(rows))]) == [None]
        return LogReader(store, Codec(), SESSION)

    return make


@pytest.fixture(scope="session")
def demo_export(demo_store: MemoryStore) -> bytes:
    """The demonstration as an export."""
    lines: list[bytes] = []
    export(LogReader(demo_store, Codec(), SESSION), lines.append)
    return b"".join(lines)


@pytest.fixture
def from_file(tmp_path: Path) -> Iterator[Callable[[bytes], ExportReader]]:
    """A reader of these bytes as an export."""
    opened: list[ExportReader] = []

    def read(data: bytes) -> ExportReader:
        path = tmp_path / f"export-{len(opened)}.jsonl"
        path.write_bytes(data)
        opened.append(ExportReader(path, Codec()))
        return opened[-1]

    yield read
    for reader in opened:
        reader.close()
