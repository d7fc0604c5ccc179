"""What the processes of a crash trial leave: a store (a file or a schema of a server), and notes in files beside it."""

import os
import shutil
from pathlib import Path
from typing import Any

import attrs
import psycopg
from crash_turns import World
from psycopg import sql

from spine.store import Store
from spine.stores.sqlite import SqliteStore
from spine_postgres import open_store


@attrs.frozen
class Folder:
    """Where a trial's files are: the store, what was acknowledged, and the world outside.

    With the URL of a `server` the store is a schema there, by the folder's name.
    """

    path: Path
    server: str | None = None

    @property
    def store(self) -> Path:
        """The SQLite file."""
        return self.path / "s.db"

    @property
    def acknowledged(self) -> Path:
        """`seq hash` of each head that a commit returned for, a line each."""
        return self.path / "acknowledged"

    @property
    def world(self) -> World:
        """The world outside."""
        return World(self.path / "world")

    def open(self, durability: Any = "full") -> Store:
        """The store; it is made when it is not there."""
        if self.server is None:
            return SqliteStore(self.store, durability)
        return open_store(f"{self.server}?schema={self.path.name}&durability={durability}")

    def copy_to(self, target: "Folder") -> None:
        """Let `target` be as this is now."""
        for path in self.path.iterdir():
            if not path.name.endswith("-shm"):
                shutil.copyfile(path, target.path / path.name)
        if self.server is not None:
            target.open().close()
            _copy_schema(self.server, self.path.name, target.path.name)

    def remove(self) -> None:
        """Take everything away."""
        shutil.rmtree(self.path)
        if self.server is not None:
            with psycopg.connect(self.server, autocommit=True) as connection:
                name = sql.Identifier(self.path.name)
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(name))


def _copy_schema(server: str, source: str, target: str) -> None:
    """Let the tables and sequences of `target`, which are there, hold what those of `source` do."""
    with psycopg.connect(server) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # whatever a dying one commits now
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (source,)).fetchall()
        for (table,) in tables:
            here, there = sql.Identifier(source, table), sql.Identifier(target, table)
            connection.execute(sql.SQL("TRUNCATE {}").format(there))
            connection.execute(sql.SQL("INSERT INTO {} OVERRIDING SYSTEM VALUE SELECT * FROM {}").format(there, here))
        connection.execute(
            "SELECT setval(format('%%I.%%I', %s::text, sequencename)::regclass, last_value) FROM pg_sequences "
            "WHERE schemaname = %s AND last_value IS NOT NULL",
            (target, source),
        )


class NotingStore:
    """A trial's store that notes outside, before it returns, which head it has acknowledged."""

    def __init__(self, folder: Folder, durability: Any) -> None:
        self._store = folder.open(durability)
        self._descriptor = os.open(folder.acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, batches: Any) -> Any:
        """Store and note."""
        verdicts = self._store.append(batches)
        for batch, verdict in zip(batches, verdicts, strict=True):
            if verdict is None and batch.rows:
                last = batch.rows[-1]
                os.write(self._descriptor, f"{last.seq} {last.hash.hex()}\n".encode())
        return verdicts

    def close(self) -> None:
        """Let go."""
        self._store.close()
        os.close(self._descriptor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
