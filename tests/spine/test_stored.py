"""Reading for projections: only what they read is decoded, and what they make is the same."""

import anyio
import pytest

from spine.codec import Codec, genesis, row_hash
from spine.errors import EventUnknown
from spine.projectors import SessionTranscript, SessionUsage, fold
from spine.projectors.model_history import ModelHistory
from spine.store import Append, Owner, Row, Store
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.testing.demo import play_demo
from spine.values import SessionId

SESSION = SessionId("refund-1017")


@pytest.fixture(scope="module")
def store() -> Store:
    made = MemoryStore()
    anyio.run(play_demo, made)
    return made


@pytest.fixture
def log(store: Store) -> StoredLog:
    return StoredLog(store, Codec(), SESSION)


def lengthened(store: Store, *rows: Row) -> StoredLog:
    """The log with more rows at its end."""
    longer = MemoryStore()
    prev, whole = genesis(SESSION), []
    for seq, row in enumerate((*store.read(SESSION), *rows), 1):
        whole.append(row._replace(seq=seq, hash=row_hash(prev, row._replace(seq=seq))))
        prev = whole[-1].hash
    claim = longer.claim(SESSION, Owner(id="o", host="h", pid=1, started=0), now=0, lease_us=1)
    assert longer.append([Append(SESSION, claim.token, 0, genesis(SESSION), tuple(whole))]) == [None]
    return StoredLog(longer, Codec(), SESSION)


def test_a_projection_is_the_fold_of_all_events(log: StoredLog) -> None:
    history, transcript, usage = log.project_all((ModelHistory(), SessionTranscript(), SessionUsage()))
    assert history.view() == fold(ModelHistory(), log.read()).view()
    assert transcript == fold(SessionTranscript(), log.read())
    assert usage == fold(SessionUsage(), log.read()) == log.project(SessionUsage())


def test_selected_events_are_those_that_are_read_whole(log: StoredLog) -> None:
    """Their `prev_hash` is right too, though nothing between them was decoded."""
    types = {"message.committed", "tool.completed"}
    assert list(log.select(types)) == [event for event in log.read() if event.type in types]


def test_pieces_stay_where_no_whole_answer_follows(store: Store, log: StoredLog) -> None:
    """Replaced chunks are left out on request, and those of an answer that never ended are not."""
    chunks = next(row for row in store.read(SESSION) if row.type == "model.chunks")
    requested = next(row for row in store.read(SESSION) if row.type == "model.requested")
    types = SessionTranscript().types
    assert any(event.type == "model.chunks" for event in log.select(types))
    assert not any(event.type == "model.chunks" for event in log.select(types, replaced_chunks=False))
    open_answer = lengthened(store, requested._replace(place="t9s1"), chunks._replace(place="t9s1"))
    kept = [event for event in open_answer.select(types, replaced_chunks=False) if event.type == "model.chunks"]
    assert [event.place for event in kept] == ["t9s1"]
    assert open_answer.project(SessionTranscript()) == fold(SessionTranscript(), open_answer.read())


@pytest.mark.parametrize("is_required", [True, False])
def test_an_unknown_event_stops_a_projection_that_does_not_read_it(store: Store, is_required: bool) -> None:
    log = lengthened(store, Row(1, "demo.odd", 1, 0, None, "demo@1", is_required, b"{}", b""))
    if is_required:
        with pytest.raises(EventUnknown, match=r"demo\.odd"):
            log.project(SessionUsage())
    else:
        assert log.project(SessionUsage()).total.steps
