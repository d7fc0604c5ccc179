"""A kept state is only a cache: with it, without it, and from any moment, a session opens to the same."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from golden_sessions import BUSY, agent, opened, play_all

from spine.codec import Codec
from spine.erasing import erase
from spine.errors import ConcurrencyConflict
from spine.events import EventType
from spine.log import SessionLog
from spine.projectors.model_history import HISTORY_RULES, HistoryState
from spine.projectors.status import STATUS_RULES, SessionStatus
from spine.snapshots import read_snapshot, write_snapshot
from spine.store import Owner, Snapshot, keeps_snapshots
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing import say
from spine.testing.raising import raises
from spine.testing.stores.trials import FIRST, content_of, writer

PLAYED = anyio.run(play_all)
OWNER = Owner("o", "h", 1, 1)
NOW = 1_790_000_000_000_000


def folded(events: list[Any], history: HistoryState, status: SessionStatus) -> tuple[HistoryState, SessionStatus]:
    for event in events:
        if event.type in HISTORY_RULES:
            HISTORY_RULES[event.type](history, event, event.data)
        if event.type in STATUS_RULES:
            STATUS_RULES[event.type](status, event, event.data)
    return history, status


@pytest.mark.parametrize("name", PLAYED)
def test_from_every_moment_between_turns_the_fold_goes_on_to_the_same(name: str) -> None:
    store, session = PLAYED[name]
    log = StoredLog(store, Codec(), session)
    events = list(log.read())
    whole = folded(events, HistoryState(), SessionStatus())
    hashed = whole[0].view().running_hash(Codec().message_bytes)
    moments = 0
    for at in range(len(events) + 1):
        history, status = folded(events[:at], HistoryState(), SessionStatus())
        if status.turn is not None:
            continue
        moments += 1
        history.view().running_hash(Codec().message_bytes)
        data = write_snapshot(Codec(), (history, status, {}))
        kept = read_snapshot(Codec(), data)
        assert kept is not None
        assert (kept[0], kept[1]) == (history, status)
        again = folded(events[at:], kept[0], kept[1])
        assert again[1] == whole[1]
        assert list(again[0].view()) == list(whole[0].view())
        assert again[0].view().seqs == whole[0].view().seqs
        assert again[0].view().running_hash(Codec().message_bytes) == hashed
    assert moments > 1


def test_what_other_code_or_damage_left_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    state = (HistoryState(), SessionStatus(), {})
    data = write_snapshot(Codec(), state)
    assert read_snapshot(Codec(), data) == state
    for place in range(0, len(data), 3):
        assert read_snapshot(Codec(), data[:place]) is None
    monkeypatch.setattr("spine.snapshots._code", lambda: "another")
    assert read_snapshot(Codec(), data) is None


@attrs.frozen(kw_only=True)
class Note:
    """A plugin's event."""


def test_a_state_whose_log_demands_an_absent_plugin_is_passed_over() -> None:
    data = write_snapshot(Codec(), (HistoryState(), SessionStatus(), {}), {("crm.note", 2)})
    upcasters = {1: lambda stored: stored}
    knowing = Codec([(EventType(name="crm.note", data=Note, version=2, upcasters=upcasters), "crm@2")])
    older = Codec([(EventType(name="crm.note", data=Note), "crm@1")])
    assert [read_snapshot(codec, data) is None for codec in (Codec(), older, knowing)] == [True, True, False]


# ------------------------------------------------------------------------------------------------------ in a store


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept whenever a session is given up."""
    monkeypatch.setattr("spine.log.EVERY", 1)


async def talk(path: Path, *texts: str) -> tuple[Any, ...]:
    store = SqliteStore(path, "relaxed")
    async with opened(store, *(say(f"On {text}.") for text in texts)) as runtime:
        session = await runtime.session(BUSY, agent(), scope="shop")
        log = session.log
        state = (list(log.history), log.status, log.content_seqs, log._kept)
        for text in texts:
            await session.run(text)
        return state


def kept_rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        has = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'snapshots'").fetchone()[0]
        return int(connection.execute("SELECT count(*) FROM snapshots").fetchone()[0]) if has else 0


def test_a_session_opens_from_it_and_without_it_to_the_same(tmp_path: Path, often: None) -> None:
    path = tmp_path / "spine.db"
    anyio.run(talk, path, "one", "two")
    assert kept_rows(path) == 1
    *with_it, kept = anyio.run(talk, path)
    assert kept > 0
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE snapshots")
    *without, kept = anyio.run(talk, path)
    assert kept == 0
    assert with_it == without
    anyio.run(talk, path, "three")
    *_, kept = anyio.run(talk, path, "four")
    assert kept > 0


def test_a_state_of_another_log_is_passed_over(tmp_path: Path, often: None) -> None:
    path = tmp_path / "spine.db"
    anyio.run(talk, path, "one")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE snapshots SET hash = x'00'")
    assert anyio.run(talk, path)[-1] == 0


def test_short_logs_and_open_turns_keep_none(tmp_path: Path) -> None:
    path = tmp_path / "spine.db"
    anyio.run(talk, path, "one")
    assert kept_rows(path) == 0
    assert SessionLog.keep_snapshot.__doc__ is not None


def test_it_is_forgotten_with_what_is_erased_cut_or_deleted(tmp_path: Path) -> None:
    for number, take in enumerate(
        (
            lambda store, log: store.cut(FIRST, log.token, 1),
            lambda store, log: store.delete(FIRST, log.token),
            lambda store, log: log.append(b"3", erased_contents=(content_of(b"x"),)),
        )
    ):
        with closing(SqliteStore(tmp_path / f"{number}.db")) as store:
            assert keeps_snapshots(store)
            log = writer(store)
            log.append(b"1", b"2")
            assert store.snapshot(FIRST) is None
            kept = Snapshot(2, log.hash, b"state")
            store.keep_snapshot(FIRST, log.token, kept)
            store.keep_snapshot(FIRST, log.token, kept)
            assert store.snapshot(FIRST) == kept
            with raises(ConcurrencyConflict):
                store.keep_snapshot(FIRST, log.token + 1, kept)
            take(store, log)
            assert store.snapshot(FIRST) is None


def test_nothing_erased_stays_in_it(tmp_path: Path, often: None) -> None:
    path = tmp_path / "spine.db"
    anyio.run(talk, path, "the secret", "two")
    assert kept_rows(path) == 1
    with closing(SqliteStore(path)) as store:
        log = StoredLog(store, Codec(), BUSY)
        seq = next(row.seq for row in log.rows(types=("input.accepted",)))
        erase(log, [seq], reason="asked for", owner=OWNER, now=NOW)
    assert kept_rows(path) == 0
    messages, *_ = anyio.run(talk, path)
    assert [message.text for message in messages] == ["[erased]", "On the secret.", "two", "On two."]


def test_a_store_without_them_folds() -> None:
    assert not keeps_snapshots(MemoryStore())


def test_a_session_closes_whether_its_state_could_be_kept_or_not(
    tmp_path: Path, often: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bytes:
        raise TypeError("no such state")

    monkeypatch.setattr("spine.log.write_snapshot", broken)
    path = tmp_path / "spine.db"
    anyio.run(talk, path, "one")
    assert "the state of session busy was not kept" in caplog.text
    assert kept_rows(path) == 0
    assert len(anyio.run(talk, path)[0]) == 2
