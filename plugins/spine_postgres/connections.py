"""Connections to the server: how they are opened, guarded, found lost and opened again.

The rule it guards: what a person reads never holds a password. libpq quotes pieces of a malformed URL in its errors,
so a URL is taken apart here first and such an error is not passed on.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import attrs
import psycopg
from psycopg import conninfo, errors, sql

from spine.errors import AppendOutcomeUnknown, ConfigInvalid, StoreBusy, StoreError, StoreNewer, StoreUnavailable
from spine.stores.urls import without_secrets
from spine_postgres import schema

Connection = psycopg.Connection[Any]
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # what it tells of a lost connection is raised as well

_DEFAULTS: Final = {
    "connect_timeout": "5",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "15",
    "application_name": "agent-spine",
    "client_encoding": "utf8",
}
"""libpq's own settings, unless the URL or the environment has others: a dead server is noticed in seconds."""
_OWN: Final = {"durability": "full", "schema": "spine"}
"""Options of ours that may stand in a URL after the `?`."""
_MANY_TRIES: Final = 4
_SETTLE: Final = """
SELECT set_config('search_path', %(schema)s, false),
       set_config('lock_timeout', %(lock_timeout_ms)s, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('default_transaction_read_only', 'off', false),
       set_config('synchronous_commit', CASE WHEN %(relaxed)s THEN 'off'
           WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, false)
"""
_RETRIED: Final = (errors.DeadlockDetected, errors.SerializationFailure)
_BUSY: Final = (errors.LockNotAvailable, errors.QueryCanceled, errors.TooManyConnections)


@attrs.frozen(kw_only=True)
class Address:
    """What a URL says. `shown` is the URL for people, without secrets."""

    shown: str
    target: str = attrs.field(repr=False)
    schema: str
    is_relaxed: bool


def parse(url: str) -> Address:
    """Take a store's URL apart. Raises `ConfigInvalid`, which quotes nothing that libpq could not read."""
    shown = without_secrets(url)
    base, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    own = _OWN | {name: value for name, value in given if name in _OWN}
    if own["durability"] not in ("full", "relaxed") or not own["schema"]:
        raise ConfigInvalid(
            f'store "{shown}": after the ? may stand durability=full or =relaxed, schema=NAME, and what libpq knows'
        )
    rest = urlencode([pair for pair in given if pair[0] not in _OWN])
    try:
        known = conninfo.conninfo_to_dict(f"{base}?{rest}" if rest else base)
    except psycopg.Error:
        known = {"port": "unreadable"}
    is_mistaken = any("@" in str(known.get(name, "")) for name in ("host", "hostaddr", "dbname"))
    if is_mistaken or not str(known.get("port", "0")).replace(",", "").isdigit():
        raise ConfigInvalid(
            f'store "{shown}" cannot be read; it is of the form postgresql://USER@HOST:PORT/DATABASE, and special '
            "characters of a password are written as %XX",
            hint="--store postgresql:///spine",
        )
    settings = {**_from_environment(_DEFAULTS), **known}
    target = conninfo.make_conninfo("", **settings)
    return Address(shown=shown, target=target, schema=own["schema"], is_relaxed=own["durability"] == "relaxed")


def _from_environment(defaults: dict[str, str]) -> dict[str, str]:
    """Defaults that no variable of libpq overrides."""
    variables = {"connect_timeout": "PGCONNECT_TIMEOUT", "application_name": "PGAPPNAME"}
    return {name: value for name, value in defaults.items() if not os.environ.get(variables.get(name, ""))}


def connect(address: Address, busy_timeout_s: float) -> Connection:
    """A connection that commits each statement by itself, in the store's schema, which is made when it is not there.

    Raises `StoreUnavailable`, `StoreNewer`, `StoreBusy`.
    """
    try:
        connection = psycopg.connect(address.target, autocommit=True)
    except psycopg.Error as exc:
        raise StoreUnavailable(f"{address.shown} cannot be reached: {_first_line(exc)}") from exc
    try:
        _prepare(connection, address, busy_timeout_s)
    except BaseException as exc:
        connection.close()
        raise translate(exc, address.shown) from exc
    return connection


def _prepare(connection: Connection, address: Address, busy_timeout_s: float) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnavailable(f"{address.shown} cannot be used: its database has the encoding {encoding}, not UTF8")
    settings = {
        "schema": sql.Identifier(address.schema).as_string(connection),
        "lock_timeout_ms": str(int(busy_timeout_s * 1000)),
        "relaxed": address.is_relaxed,
    }
    connection.execute(_SETTLE, settings)
    if not _has_tables(connection, address):
        _make_tables(connection, address)


def _has_tables(connection: Connection, address: Address) -> bool:
    """Whether the schema holds a store of a format that is read here."""
    if "meta" not in _tables(connection, address):
        return False
    (format_,) = connection.execute("SELECT format FROM meta").fetchone() or (0,)
    if format_ > schema.FORMAT:
        raise StoreNewer(
            f"{address.shown} has format {format_}, this version reads up to {schema.FORMAT}; nothing was changed",
            hint="pip install -U agent-spine",
        )
    return True


def _tables(connection: Connection, address: Address) -> set[str]:
    # From the catalogue itself: what looks names up may remember that another process had not made them yet.
    found = connection.execute(
        "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s",
        (address.schema,),
    )
    return {name for (name,) in found}


def _make_tables(connection: Connection, address: Address) -> None:
    with connection.transaction():
        # Of processes that come at once, one makes the tables and the others wait for it.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"agent-spine {address.schema}",))
        if _has_tables(connection, address):
            return
        if _tables(connection, address):
            raise StoreUnavailable(
                f'{address.shown} is no session store: the schema "{address.schema}" holds tables of another program'
            )
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(address.schema)))
        connection.execute(schema.TABLES)


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0]


def translate(exc: BaseException, shown: str) -> BaseException:
    """What an exception means for callers; one that is none of the server's comes back as it is."""
    if isinstance(exc, StoreError) or not isinstance(exc, psycopg.Error):
        return exc
    if isinstance(exc, (*_BUSY, *_RETRIED)):
        return StoreBusy(f"{shown} stayed busy for longer than the bound: {_first_line(exc)}; nothing was changed")
    return StoreUnavailable(f"{shown} cannot be used: {_first_line(exc)}; nothing was changed")


class Line:
    """One connection, for one thread at a time; opened when it is first needed, and again when it was lost."""

    def __init__(self, address: Address, busy_timeout_s: float) -> None:
        self._address = address
        self._busy_timeout_s = busy_timeout_s
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._connection: Connection | None = None
        self._is_closed = False

    @contextmanager
    def using(self) -> Iterator[Connection]:
        """The connection. Raises `AppendOutcomeUnknown` when it breaks inside, else what `translate` gives."""
        shown = self._address.shown
        if not self._lock.acquire(timeout=self._busy_timeout_s):
            raise StoreBusy(f"{shown} was in use by another thread for longer than {self._busy_timeout_s:g} s")
        try:
            if self._is_closed or self._process != os.getpid():
                reason = "is closed" if self._is_closed else "was opened before this process was forked"
                raise StoreUnavailable(f"{shown} {reason}; open it again")
            if self._connection is None:
                self._connection = connect(self._address, self._busy_timeout_s)
            yield self._connection
        except psycopg.Error as exc:
            if self._is_lost():
                self._drop()
                raise AppendOutcomeUnknown(
                    f"{shown} gave no answer ({_first_line(exc)}), so it was done or not; the head tells"
                ) from exc
            self._undo()
            if isinstance(exc, _RETRIED):
                raise
            raise translate(exc, shown) from exc
        except BaseException:
            self._undo()
            raise
        finally:
            self._lock.release()

    def ask(self, work: Callable[[Connection], Any], *, is_repeatable: bool = True) -> Any:
        """What `work` makes of the connection; done again after a deadlock, and when it is repeatable after a loss.

        Raises `AppendOutcomeUnknown` after a loss otherwise: it was done, or it was not.
        """
        for left in range(_MANY_TRIES, 0, -1):
            try:
                with self.using() as connection:
                    return work(connection)
            except AppendOutcomeUnknown as exc:
                if not is_repeatable:
                    raise
                if left == 1:
                    raise StoreUnavailable(f"{self._address.shown} loses every connection") from exc
            except _RETRIED as exc:
                if left == 1:
                    raise translate(exc, self._address.shown) from exc
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Let the connection go; idempotent."""
        with self._lock:
            self._is_closed = True
            if self._process == os.getpid():
                self._drop()

    def _is_lost(self) -> bool:
        return self._connection is not None and (self._connection.closed or self._connection.broken)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _undo(self) -> None:
        """After a failure nothing of it may be left open; a connection that cannot undo is given up."""
        if self._connection is None:
            return
        try:
            self._connection.rollback()
        except psycopg.Error:
            self._drop()
