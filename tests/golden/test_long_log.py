"""A log of 100,000 events opens in bounded memory, and with its kept state in next to no time."""

import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spine.appending import batch_of
from spine.clock import SystemClock
from spine.codec import Codec, genesis
from spine.commits import Writer
from spine.events import (
    AgentFact,
    HistoryCompacted,
    InputAccepted,
    InputDelivered,
    MessageCommitted,
    SessionCreated,
    TurnCompleted,
    TurnStarted,
)
from spine.log import SessionLog
from spine.messages import Message, TextBlock, user_message
from spine.proof.verify import verify
from spine.store import Owner
from spine.stored import StoredLog
from spine.stores.sqlite import SqliteStore
from spine.values import Digest, SessionId

SESSION = SessionId("long")
OWNER = Owner("o", "h", 1, 1)
NOW = 1_790_000_000_000_000
EVENTS = 100_000
MIB = 1024 * 1024


def facts() -> Iterator[tuple[Any, str | None]]:
    """Turns of five events, and a summary of all but the last of them."""
    yield SessionCreated(agent=AgentFact(name="a", contract=Digest("1:" + "0" * 64))), None
    for turn in range(1, EVENTS // 5 + 1):
        place, seq = f"t{turn}", 5 * turn - 3
        yield InputAccepted(message=user_message(f"Question {turn}, with some words to it.")), None
        yield TurnStarted(inputs=(seq,)), place
        yield InputDelivered(inputs=(seq,)), place
        answer = Message(content=(TextBlock(text=f"The answer to question {turn} is {turn}."),))
        yield MessageCommitted(message=answer, stop_reason="end_turn"), place
        yield TurnCompleted(message=seq + 3), place
    yield HistoryCompacted(summary=user_message("All was answered.", kind="summary"), until=EVENTS - 4), None


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("long") / "spine.db"
    store, codec = SqliteStore(made, "relaxed"), Codec()
    claim = store.claim(SESSION, OWNER, now=NOW, lease_us=1)
    head, page = (0, genesis(SESSION)), []
    whole = list(facts())
    for start in range(0, len(whole), 5_000):
        page = whole[start : start + 5_000]
        batch = batch_of(codec, SESSION, claim.token, head, page, NOW)
        assert store.append([batch]) == [None]
        head = batch.rows[-1].seq, batch.rows[-1].hash
    store.release(SESSION, OWNER)
    store.close()
    return made


def opened(path: Path) -> tuple[SessionLog, float, float]:
    """The log, what opening it cost in CPU seconds, and its peak of memory in MiB."""
    store = SqliteStore(path, "relaxed")
    claim = store.claim(SESSION, OWNER, now=NOW, lease_us=1)
    log = SessionLog(Writer(store), Codec(), SESSION, claim, SystemClock())
    tracemalloc.start()
    began = time.process_time()
    log.load()
    used, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return log, used, peak / MIB


def test_a_log_of_100_000_events_opens_in_bounded_memory_and_time(path: Path) -> None:
    """Rows are read in pages, folded and dropped; a summary frees what it stands for."""
    folded, folding_s, folding_mib = opened(path)
    assert (len(folded.history), folded.status.turns) == (3, EVENTS // 5)
    assert folding_mib < 60
    folded.keep_snapshot()
    folded.store.close()
    kept, opening_s, opening_mib = opened(path)
    assert kept._kept == folded.seq
    assert list(kept.history) == list(folded.history)
    assert kept.status == folded.status
    assert opening_mib < 20
    assert opening_s < folding_s / 2
    print(f"\n{folding_s:.2f} s and {folding_mib:.1f} MiB folded, {opening_s:.3f} s and {opening_mib:.1f} MiB kept")
    kept.store.close()


def test_a_log_of_100_000_events_is_verified_page_by_page(path: Path) -> None:
    store = SqliteStore(path)
    tracemalloc.start()
    found = verify(StoredLog(store, Codec(), SESSION))
    peak = tracemalloc.get_traced_memory()[1] / MIB
    tracemalloc.stop()
    assert (found.verdict, found.events) == ("ok", EVENTS + 2)
    assert peak < 60
    store.close()
