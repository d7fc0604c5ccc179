"""Every store that comes with the runtime keeps the public contract."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spine.store import Store
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import Durability, SqliteStore
from spine.testing.store_contract import StoreContract
from spine_postgres import open_store


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


_schemas = count(1)


class PostgresContract(StoreContract):
    """In a schema of its own for each store, on the server of the tests."""

    options = ""

    @pytest.fixture(autouse=True)
    def _server(self, postgres_url: str) -> None:
        self.server = postgres_url
        self.urls: dict[int, str] = {}

    def make_store(self) -> Store:
        return self._opened(f"{self.server}?schema=contract{next(_schemas)}{self.options}")

    def reopen(self, store: Store) -> Store | None:
        store.close()
        return self._opened(self.urls[id(store)])

    def _opened(self, url: str) -> Store:
        store: Any = open_store(url)
        self.urls[id(store)] = url
        return store


class TestPostgresStoreFull(PostgresContract):
    """As it comes."""


class TestPostgresStoreRelaxed(PostgresContract):
    options = "&durability=relaxed"
