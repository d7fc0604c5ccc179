"""What PostgreSQL adds to the contract: addresses, lost connections, several processes, and what a server does."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

pytest.importorskip("psycopg", reason="the extra postgres is not installed")

import psycopg
from losing_proxy import LOSSES, losing_proxy

from spine.agent import Agent
from spine.codec import Codec
from spine.config import Settings
from spine.errors import (
    AppendOutcomeUnknown,
    ConfigInvalid,
    SessionOwned,
    StoreBusy,
    StoreNewer,
    StoreUnavailable,
)
from spine.log import LogReader, Synchronised
from spine.messages import user_message
from spine.runtime import Runtime
from spine.store import Overwrite
from spine.testing.raising import raises
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter
from spine.testing.stores.trials import (
    ALICE,
    BOB,
    FIRST,
    GENESIS,
    LEASE,
    SECOND,
    START,
    chain,
    content_of,
    in_threads,
    refused,
    writer,
)
from spine.values import SessionId
from spine_postgres import open_store
from spine_postgres.connections import parse
from spine_postgres.store import PostgresStore

_schemas = count(1)


@pytest.fixture
def url(postgres_url: str) -> str:
    """A store of the test's own."""
    return f"{postgres_url}?schema=postgres_store{next(_schemas)}"


@contextmanager
def opened(url: str, **options: Any) -> Iterator[PostgresStore]:
    store = PostgresStore(url, **options)
    try:
        yield store
    finally:
        store.close()


def asked(url: str, statement: str, *given: Any) -> Any:
    """What the server itself says, beside every store."""
    with psycopg.connect(parse(url).target, autocommit=True) as connection:
        connection.execute("SELECT set_config('search_path', %s, false)", (parse(url).schema,))
        cursor = connection.execute(statement, given)
        return cursor.fetchall() if cursor.description else None


def kill_connections(url: str) -> None:
    """Let the server drop every connection of the stores, as one that is restarted does."""
    asked(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'agent-spine' "
               "AND pid <> pg_backend_pid()")  # fmt: skip


# ------------------------------------------------------------------------------------------------------ addresses


BAD_URLS = {
    "no such option": ("postgresql://h/db?durability=none", "durability=full or =relaxed"),
    "an empty schema": ("postgresql://h/db?schema=", "schema=NAME"),
    "an unknown parameter": ("postgresql://h/db?colour=red", "of the form postgresql://"),
    "a slash in a password": ("postgresql://u:can/ary@h/db", "written as %XX"),
    "an at in a password": ("postgresql://u:can@ary@h/db", "written as %XX"),
    "a port that is none": ("postgresql://u:canary@h:x/db", "written as %XX"),
}


@pytest.mark.parametrize("case", BAD_URLS)
def test_a_wrong_address_is_refused_without_its_password(case: str) -> None:
    """The message says what may stand there, and quotes nothing that libpq could not read."""
    bad, expected = BAD_URLS[case]
    with pytest.raises(ConfigInvalid) as caught:
        open_store(bad)
    assert expected in str(caught.value)
    assert "can" not in str(caught.value).replace("cannot", "")
    assert caught.value.__cause__ is None


def test_a_store_tells_its_address_without_the_password(url: str) -> None:
    """Neither the store nor its errors hold it, whoever looks: text, repr, and what caused what."""
    password = urlsplit(url).password
    assert password
    with opened(url) as store:
        assert (store.url, store.waits) == (url.replace(f":{password}@", "@"), True)
        assert password not in repr(vars(store)) + repr(parse(url))
    for wrong in (
        url.replace(password, "wrong"),
        url.replace("127.0.0.1", "127.0.0.2"),
        url.replace("/postgres?", "/x?"),
    ):
        with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
            open_store(wrong)
        shown = f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {caught.value.__cause__}"
        assert password not in shown
        assert "wrong" not in shown


def test_durability_is_the_servers_unless_the_url_says_relaxed(url: str) -> None:
    """Also where the server's own setting is off: a commit that returned is on the disk."""
    expected = {"": "on", "&durability=full": "on", "&durability=relaxed": "off"}
    asked(url, "ALTER ROLE spine SET synchronous_commit = off")
    try:
        for option, setting in expected.items():
            with opened(url + option) as store:
                show = lambda connection: connection.execute("SHOW synchronous_commit").fetchone()  # noqa: E731
                assert store._writer.ask(show) == (setting,)
    finally:
        asked(url, "ALTER ROLE spine RESET synchronous_commit")


def test_schemas_of_one_database_are_stores_of_their_own(url: str) -> None:
    """Names that need quoting included."""
    with opened(url) as one, opened(f'{url}%20"Two"') as two:
        writer(one).append(b"1")
        assert two.sessions() == []
        writer(two, SECOND).append(b"2")
        assert [info.id for info in one.sessions()] == [FIRST]
        assert [info.id for info in two.sessions()] == [SECOND]


def test_a_newer_format_is_refused(url: str) -> None:
    """And left as it is."""
    with opened(url) as store:
        writer(store).append(b"1")
    asked(url, "UPDATE meta SET format = 2")
    with pytest.raises(StoreNewer, match="has format 2, this version reads up to 1"):
        open_store(url)
    asked(url, "UPDATE meta SET format = 1")
    with opened(url) as store:
        assert store.head(FIRST) is not None


def test_a_schema_of_another_program_is_refused(url: str) -> None:
    """Nothing is made in it."""
    schema = parse(url).schema
    asked(url, f"CREATE SCHEMA {schema}")
    asked(url, f"CREATE TABLE {schema}.events (id integer)")
    with pytest.raises(StoreUnavailable, match="tables of another program"):
        open_store(url)
    assert asked(url, "SELECT count(*) FROM pg_tables WHERE schemaname = %s", schema) == [(1,)]


def test_a_new_store_may_be_opened_by_many_at_once(url: str) -> None:
    """One of them makes the tables."""
    stores: list[Any] = []
    in_threads([lambda: stores.append(open_store(url)) for _ in range(8)])
    for number, store in enumerate(stores):
        writer(store, SessionId(f"s{number}")).append(b"1")
    assert len(stores[0].sessions()) == 8
    for store in stores:
        store.close()


# ----------------------------------------------------------------------------------------------- lost connections


def test_after_the_server_dropped_all_connections_the_store_goes_on(url: str) -> None:
    """Reading and claiming do it by themselves; an append says that it does not know."""
    with opened(url) as store:
        log = writer(store)
        log.append(b"1")
        for work in (
            lambda: store.head(FIRST),
            lambda: store.sessions(),
            lambda: store.renew(ALICE, until=START),
            lambda: store.claim(SECOND, BOB, now=START, lease_us=LEASE),
            lambda: store.release(SECOND, BOB),
            lambda: list(store.read(FIRST)),
        ):
            kill_connections(url)
            work()
        kill_connections(url)
        with pytest.raises(AppendOutcomeUnknown):
            store.append([log.batch(b"2")])
        log.append(b"2")
        kill_connections(url)
        with pytest.raises(AppendOutcomeUnknown):
            store.put_inbox(FIRST, "k", "input", b"")
        assert store.put_inbox(FIRST, "k", "input", b"") is True


@pytest.mark.parametrize("loss", LOSSES)
def test_the_same_batch_again_tells_what_became_of_it(url: str, loss: Any) -> None:
    """Whatever was lost, the request or the answer: afterwards it is there once."""
    port = urlsplit(url).port
    with losing_proxy(port or 0) as proxy, opened(url.replace(f":{port}/", f":{proxy.port}/")) as store:
        log = writer(store)
        log.append(b"0")
        for number in range(1, 20):
            content = content_of(b"%d" % number)
            store.put_inbox(FIRST, f"k{number}", "input", b"")
            (entry,) = store.inbox(FIRST)
            batch = log.batch(b"%d" % number, b"and", contents=(content,), consumed=(entry.number,))
            proxy.lose(loss)
            with pytest.raises(AppendOutcomeUnknown):
                store.append([batch])
            assert store.append([batch]) == [None]
            log.follow(batch)
            assert store.inbox(FIRST) == []
            assert store.contents([content.digest]) == {content.digest: content}
        assert tuple(store.read(FIRST)) == chain(
            0, GENESIS, [b"0", *(data for number in range(1, 20) for data in (b"%d" % number, b"and"))]
        )
        assert proxy.lost == 19


def test_a_batch_still_under_way_on_the_server_is_waited_for(url: str) -> None:
    """Its answer was lost while the server had not decided yet: the same batch waits for it and finds it stored."""
    with opened(url) as store:
        log = writer(store)
        log.append(b"1")
        batch = log.batch(b"2")
        held, done = threading.Event(), []
        slow = psycopg.connect(parse(url).target)
        slow.execute("SELECT set_config('search_path', %s, false)", (parse(url).schema,))
        row = batch.rows[0]
        slow.execute("UPDATE sessions SET seq = 2, hash = %b WHERE id = 'first'", (row.hash,))
        slow.execute(
            "INSERT INTO events SELECT no, 2, 'note', 1, %s, NULL, NULL, true, %b, %b FROM sessions",
            (row.at, row.data, row.hash),
        )

        def again() -> None:
            held.set()
            done.extend(store.append([batch]))

        thread = threading.Thread(target=again)
        thread.start()
        held.wait(5)
        thread.join(0.2)
        assert thread.is_alive()
        slow.commit()
        slow.close()
        thread.join(5)
        assert done == [None]
        assert tuple(store.read(FIRST, after=1)) == batch.rows


def test_a_lock_that_is_never_let_go_is_a_busy_store(url: str) -> None:
    """Within the bound, and nothing was done."""
    with opened(url) as plain, opened(url, busy_timeout_s=0.2) as store:
        log = writer(plain)
        log.append(b"1")
        with psycopg.connect(parse(url).target) as other:
            other.execute("SELECT set_config('search_path', %s, false)", (parse(url).schema,))
            other.execute("SELECT * FROM sessions FOR UPDATE")
            with pytest.raises(StoreBusy, match="nothing was changed"):
                store.append([log.batch(b"2")])
            other.rollback()
        assert store.append([log.batch(b"2")]) == [None]


def test_batches_of_the_same_contents_in_another_order_do_not_wait_for_each_other(url: str) -> None:
    """A deadlock that the server ends is tried again."""
    contents = [content_of(b"%d" % number) for number in range(40)]
    with opened(url) as one, opened(url) as other:

        def work(store: Any, name: str, order: int) -> None:
            logs = [writer(store, SessionId(f"{name}{number}")) for number in range(4)]
            for turn in range(15):
                batches = [
                    log.batch(b"x", contents=(content_of(b"%d %d" % (turn, number)),))
                    for number, log in list(enumerate(logs))[::order]
                ]
                assert store.append(batches) == [None] * 4
                for batch, log in zip(batches, logs[::order], strict=True):
                    log.follow(batch)

        in_threads([lambda: work(one, "a", 1), lambda: work(other, "b", -1)])
        assert all(one.head(SessionId(f"{name}{number}")) for name in "ab" for number in range(4))
        assert contents


def test_a_closed_store_and_one_of_a_forked_process_say_so(url: str) -> None:
    """Nothing is sent over a connection that two processes hold."""
    store = PostgresStore(url)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            with raises(StoreUnavailable) as caught:
                store.head(FIRST)
            status = 0 if "forked" in str(caught[0]) else 2
            store.close()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.head(FIRST) is None
    store.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        store.head(FIRST)


# ------------------------------------------------------------------------------------------------- what is stored


def test_what_no_text_of_the_server_can_hold_comes_back(url: str) -> None:
    """NUL in keys and media types, as any other store keeps it."""
    odd = "a\0b \U0001f600"
    with opened(url) as store:
        log, content = writer(store), content_of(b"x", odd)
        log.append(b"1", contents=(content,))
        assert store.put_inbox(FIRST, odd, "input", b"\0") is True
        assert store.put_inbox(FIRST, odd, "input", b"") is False
        assert [entry.key for entry in store.inbox(FIRST)] == [odd]
        assert store.contents([content.digest]) == {content.digest: content}


def test_an_event_whose_bytes_were_changed_on_the_server_does_not_match_its_hash(url: str) -> None:
    """What is stored is what is read; the chain tells."""
    with opened(url) as store:
        rows = writer(store).append(b"one", b"two", b"three").rows
        asked(url, "UPDATE events SET data = set_bit(data, 3, 1 - get_bit(data, 3)) WHERE seq = 2")
        found = tuple(store.read(FIRST))
        assert [row.seq for row, given in zip(found, rows, strict=True) if row != given] == [2]
        assert store.check() == []
        asked(url, "DELETE FROM events WHERE seq = 3")
        assert store.check() == ["first: its last event is not the one at seq 3", "first: 2 events lie where 3 belong"]


def test_erased_bytes_are_in_no_page_of_the_tables(url: str) -> None:
    """Not even in dead rows: the tables are written anew."""
    with opened(url) as store:
        log = writer(store)
        rows = log.append(b"secret of somebody", b"2").rows
        log.append(b"3", erased=(Overwrite(1, rows[0].hash, b"erased"),))
        asked(url, "CHECKPOINT")
        for table in ("events", "contents"):
            ((pages,),) = asked(url, "SELECT pg_read_binary_file(pg_relation_filepath(%s))", table)
            assert b"secret of somebody" not in pages
            assert (b"erased" in pages) == (table == "events")


# ------------------------------------------------------------------------------------------------ several processes


@pytest.mark.anyio
async def test_a_follower_hears_of_commits_of_another_process_at_once(url: str) -> None:
    """Faster than anybody polls, and again after the connection that listens was lost."""
    with opened(url) as here, opened(url) as there:
        log = writer(there)
        log.append(b"1")
        seen: list[int] = []
        reader = LogReader(here, Codec(), FIRST)
        with anyio.fail_after(30):
            await reader.changed(0)
            for number in range(2, 8):
                if number == 5:
                    kill_connections(url)
                    log = writer(there)  # its line was cut as well
                async with anyio.create_task_group() as group:
                    group.start_soon(reader.changed, log.seq)
                    await anyio.sleep(0.3 if number not in (2, 5) else 1.5)  # until it listens
                    began = anyio.current_time()
                    await anyio.to_thread.run_sync(lambda log=log: log.append(b"x"))
                seen.append(number)
                assert anyio.current_time() - began < 2
        assert here._listener._watchers == {}


@pytest.mark.anyio
async def test_a_session_moves_between_processes_with_its_inbox(url: str) -> None:
    """The whole runtime over two stores: inputs from elsewhere once, a stale owner fenced off, follow without gaps."""
    options = {"settings": Settings(installed_plugins=False)}
    model = ScriptedAdapter(say("One."), say("Two."), say("Three."))
    with opened(url) as here, opened(url) as there:
        async with (
            Runtime.open(here, model=model, **options) as owner,
            Runtime.open(there, model=ScriptedAdapter(say("Four.")), **options) as other,
        ):
            session = await owner.session("s", Agent("p:m"))
            await session.run("first")
            with pytest.raises(SessionOwned):
                await other.session("s", Agent("p:m"))
            message = owner.codec.to_json(user_message("from afar"))
            assert [other.send("s", "input", {"message": message}, key="k") for _ in range(2)] == [True, False]
            with anyio.fail_after(10):
                async for event in other.follow("s"):
                    if not isinstance(event, Synchronised) and event.type == "turn.completed" and event.turn == "t2":
                        break
            await session.close()
            moved = await other.session("s", Agent("p:m"))
            await moved.run("third")
            assert [m.text for m in moved.history()] == ["first", "One.", "from afar", "Two.", "third", "Four."]


def test_an_owner_that_was_taken_over_writes_nothing(url: str) -> None:
    """Its token is refused, in the transaction of its append."""
    with opened(url) as here, opened(url) as there:
        old = writer(here)
        old.append(b"1")
        new = writer(there, owner=BOB, now=START + LEASE)
        refused(here.append([old.batch(b"late")])[0], seq=1, hash=old.hash)
        new.append(b"2")
        assert [row.data for row in here.read(FIRST)] == [b"1", b"2"]
