"""A migrated session comes out equal in every projection, or not at all."""

from collections.abc import Iterator
from typing import Any

import anyio
import attrs
import pytest

from spine import Runtime
from spine.codec import Codec, genesis, row_hash
from spine.config import Settings
from spine.errors import LogBroken, SessionExists
from spine.events import EventType
from spine.migrating import migrate
from spine.proof.verify import verify
from spine.recorded import is_erased
from spine.store import Append, Owner, Row
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.testing import ScriptedAdapter
from spine.testing.demo import play_demo
from spine.values import SessionId, decode, encode

SESSION = SessionId("refund-1017")
OWNER = Owner("o", "h", 1, 1)
NOW = 1_790_000_000_000_000
CRM = "crm@2"


@attrs.frozen(kw_only=True)
class Linked:
    """A plugin's event in its second version, which has a list where the first had one ticket."""

    tickets: tuple[str, ...]


def codec(upcaster: Any = lambda data: {"tickets": [data.pop("ticket")], **data}) -> Codec:
    return Codec([(EventType(name="crm.linked", data=Linked, version=2, upcasters={1: upcaster}), CRM)])


def rehashed(rows: Iterator[Row]) -> list[Row]:
    prev, whole = genesis(SESSION), []
    for seq, row in enumerate(rows, 1):
        row = row._replace(seq=seq)
        row = row._replace(hash=row_hash(prev, row))
        prev = row.hash
        whole.append(row)
    return whole


def old_log(**data: Any) -> StoredLog:
    """The demonstration, with two events of the plugin's first version in it."""
    played = MemoryStore()
    anyio.run(play_demo, played)
    note = Row(0, "crm.linked", 1, NOW, None, "crm@1", False, encode({"ticket": "T-1", **data}), b"")
    rows = list(played.read(SESSION))
    whole = rehashed(iter([*rows[:4], note, *rows[4:], note]))
    # What refers to events by their seq is one further on now.
    store = MemoryStore()
    claim = store.claim(SESSION, OWNER, now=NOW, lease_us=1)
    moved = rehashed(iter(moved_on(row, 4) for row in whole))
    assert store.append([Append(SESSION, claim.token, 0, genesis(SESSION), tuple(moved))]) == [None]
    store.release(SESSION, OWNER)
    return StoredLog(store, codec(), SESSION)


def moved_on(row: Row, after: int) -> Row:
    data = decode(row.data)
    for key in ("frame", "message"):
        if isinstance(data.get(key), int) and data[key] > after:
            data[key] += 1
    return row._replace(data=encode(data))


def migrated(log: StoredLog, target: MemoryStore, **options: Any) -> Any:
    return migrate(log, target, owner=OWNER, now=NOW, **options)


def test_without_older_versions_every_byte_is_the_same() -> None:
    store, target = MemoryStore(), MemoryStore()
    anyio.run(play_demo, store)
    done = migrated(StoredLog(store, Codec(), SESSION), target)
    assert (done.upcast, done.old_head) == (0, done.new_head)
    assert list(target.read(SESSION)) == list(store.read(SESSION))


def test_older_versions_are_written_in_the_current_one_in_a_chain_of_their_own() -> None:
    log, target = old_log(), MemoryStore()
    assert verify(log).verdict == "ok"
    done = migrated(log, target)
    assert (done.upcast, done.events) == (2, log.head[0])
    assert done.old_head != done.new_head
    rows = [row for row in target.read(SESSION) if row.type == "crm.linked"]
    assert [(row.version, decode(row.data)) for row in rows] == [(2, {"tickets": ["T-1"]})] * 2
    found = verify(StoredLog(target, codec(), SESSION))
    assert (found.verdict, {request.state for request in found.requests}) == ("ok", {"equal"})


def test_an_event_with_fields_that_would_be_lost_stays_as_it_is() -> None:
    target = MemoryStore()
    assert migrated(old_log(unheard="of"), target).upcast == 0
    rows = [row for row in target.read(SESSION) if row.type == "crm.linked"]
    assert [(row.version, decode(row.data)["unheard"]) for row in rows] == [(1, "of")] * 2


def test_what_does_not_come_out_equal_is_taken_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log, target = old_log(), MemoryStore()
    monkeypatch.setattr("spine.migrating._renewed", lambda source, row, prev: (spoilt(row), ()))
    with pytest.raises(LogBroken, match="does not come out equal"):
        migrated(log, target)
    assert target.sessions() == []


def spoilt(row: Row) -> Row:
    return row._replace(data=row.data.replace(b"mug", b"jug"))


def test_a_session_that_is_there_already_is_left_alone() -> None:
    log, target = old_log(), MemoryStore()
    migrated(log, target)
    before = list(target.read(SESSION))
    with pytest.raises(SessionExists):
        migrated(log, target)
    assert list(target.read(SESSION)) == before


def test_forks_share_again_and_name_the_new_hash() -> None:
    log, target = old_log(), MemoryStore()

    async def fork() -> None:
        async with Runtime.open(log.store, model=ScriptedAdapter(), settings=Settings(installed_plugins=False)) as run:
            await run.fork(SESSION, "late")
            await run.fork(SESSION, "early", seq=3)

    anyio.run(fork)
    done = migrated(log, target)
    for name, shared in (("late", log.head[0]), ("early", 3)):
        child = migrated(StoredLog(log.store, codec(), SessionId(name)), target, base=SESSION)
        assert child.shared == shared
        copy = StoredLog(target, codec(), SessionId(name))
        assert verify(copy).verdict == "ok"
        (forked,) = copy.rows(types=("session.forked",))
        (before,) = copy.rows(after=shared - 1, until=shared)
        assert decode(forked.data)["hash"] == before.hash.hex()
    assert {info.id: info.base for info in target.sessions()} == {SESSION: None, "late": SESSION, "early": SESSION}
    assert done.shared == 0
    apart = MemoryStore()  # without its parent a fork takes its own copy
    assert migrated(StoredLog(log.store, codec(), SessionId("late")), apart, base=SESSION).shared == 0
    assert verify(StoredLog(apart, codec(), SessionId("late"))).verdict == "ok"


def test_an_unknown_event_is_copied_byte_for_byte() -> None:
    log, target = old_log(), MemoryStore()
    unknowing = StoredLog(log.store, Codec(), SESSION)
    assert migrated(unknowing, target).upcast == 0
    assert list(target.read(SESSION)) == list(log.rows())
    assert not any(is_erased(row.data) for row in target.read(SESSION))
