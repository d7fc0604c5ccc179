"""Every store that comes with the runtime keeps the public contract."""

from pathlib import Path

import pytest

from spine.store import Store
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import Durability, SqliteStore
from spine.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    """In memory: nothing outlives the store."""

    def make_store(self) -> Store:
        return MemoryStore()


class SqliteContract(StoreContract):
    """In a file of the test's own folder."""

    durability: Durability

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.made = 0

    def make_store(self) -> Store:
        self.made += 1
        return SqliteStore(self.folder / f"{self.made}.db", self.durability)

    def reopen(self, store: Store) -> Store | None:
        assert isinstance(store, SqliteStore)
        store.close()
        return SqliteStore(store.path, self.durability)


class TestSqliteStoreFull(SqliteContract):
    durability = "full"


class TestSqliteStoreRelaxed(SqliteContract):
    durability = "relaxed"
