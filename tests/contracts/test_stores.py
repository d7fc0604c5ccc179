"""Every store that comes with the runtime keeps the public contract."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from second_process import SecondProcess, second_process

from spine.store import Store
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import Durability, SqliteStore
from spine.testing.stores.contract import StoreContract
from spine.values import SessionId
from spine_postgres import open_store


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[SecondProcess]:
    """Another process for the stores that can be opened there."""
    with second_process() as process:
        yield process


class TestMemoryStore(StoreContract):
    """In memory: nothing outlives the store."""

    def make_store(self) -> Store:
        return MemoryStore()


class SqliteContract(StoreContract):
    """In a file of the test's own folder."""

    durability: Durability

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, elsewhere: SecondProcess) -> None:
        self.folder, self.elsewhere = tmp_path, elsewhere
        self.made = 0

    def make_store(self) -> Store:
        self.made += 1
        return SqliteStore(self.folder / f"{self.made}.db", self.durability)

    def reopen(self, store: Store) -> Store | None:
        assert isinstance(store, SqliteStore)
        store.close()
        return SqliteStore(store.path, self.durability)

    def second(self, store: Store) -> Store | None:
        assert isinstance(store, SqliteStore)
        other: Store = self.elsewhere.store(f"sqlite:{store.path}?durability={self.durability}")
        return other

    def damage(self, store: Store, session: SessionId, seq: int, bit: int) -> bool:
        assert isinstance(store, SqliteStore)
        with closing(sqlite3.connect(store.path)) as connection, connection:
            (no,) = connection.execute("SELECT no FROM sessions WHERE id = ?", (session,)).fetchone()
            place = ((no - 1) << 24) | seq
            (data,) = connection.execute("SELECT data FROM events WHERE key = ?", (place,)).fetchone()
            connection.execute("UPDATE events SET data = ? WHERE key = ?", (flipped(data, bit), place))
        return True


def flipped(data: bytes, bit: int) -> bytes:
    """`data` with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


class TestSqliteStoreFull(SqliteContract):
    durability = "full"


class TestSqliteStoreRelaxed(SqliteContract):
    durability = "relaxed"


_schemas = count(1)
_FLIP = (
    "UPDATE events SET data = set_bit(data, %s, 1 - get_bit(data, %s)) "
    "WHERE session = (SELECT no FROM sessions WHERE id = %s) AND seq = %s"
)


class PostgresContract(StoreContract):
    """In a schema of its own for each store, on the server of the tests."""

    options = ""
    examples = 5

    @pytest.fixture(autouse=True)
    def _server(self, postgres_url: str, elsewhere: SecondProcess) -> None:
        self.server, self.elsewhere = postgres_url, elsewhere
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

    def second(self, store: Store) -> Store | None:
        other: Store = self.elsewhere.store(self.urls[id(store)])
        return other

    def damage(self, store: Store, session: SessionId, seq: int, bit: int) -> bool:
        """As an administrator could, over a connection of the store's own."""
        place = (bit, bit, session, seq)
        store._writer.ask(lambda connection: connection.execute(_FLIP, place))  # type: ignore[attr-defined]
        return True


class TestPostgresStoreFull(PostgresContract):
    """As it comes."""


class TestPostgresStoreRelaxed(PostgresContract):
    options = "&durability=relaxed"
