"""Sessions in PostgreSQL, as the schemes `postgresql:` and `postgres:` of a store's URL; needs the extra `postgres`."""

import importlib
from typing import Any

from spine.errors import ConfigInvalid
from spine.hooks import hookimpl
from spine.store import Store


@hookimpl
def spine_register_stores(registrar: Any) -> None:
    """Offer the store under both schemes that its servers are known by."""
    for scheme in ("postgresql", "postgres"):
        registrar.add(open_store, name=scheme)


def open_store(url: str) -> Store:
    """The store of a URL; psycopg is imported now, because most sessions lie elsewhere."""
    try:
        module = importlib.import_module("spine_postgres.store")
    except ImportError as exc:
        raise ConfigInvalid(
            f"a store in PostgreSQL needs psycopg, which cannot be imported here: {exc}",
            hint="pip install 'agent-spine[postgres]'",
        ) from exc
    store: Store = module.PostgresStore(url)
    return store
