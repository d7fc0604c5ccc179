"""A damaged end is cut off; damage with anything whole behind it is not."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from spine.codec import Codec, row_hash
from spine.errors import LogBroken, SessionShared, UsageError
from spine.proof.repair import Cut, in_words, repair_tail
from spine.proof.verify import verify
from spine.store import Append, Owner
from spine.stored import StoredLog
from spine.stores.sqlite import SqliteStore
from spine.testing.demo import play_demo
from spine.values import SessionId

SESSION = SessionId("refund-1017")
OWNER = Owner("o", "h", 1, 1)
NOW = 1_790_000_000_000_000
LAST = 27
SPOIL = "UPDATE events SET data = x'7b7d' WHERE key = {}"
DROP = "DELETE FROM events WHERE key = {}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "spine.db"
    anyio.run(play_demo, SqliteStore(made, "relaxed"))
    return made


def damaged(path: Path, *statements: str) -> StoredLog:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return StoredLog(SqliteStore(path), Codec(), SESSION)


def repaired(log: StoredLog) -> Cut | None:
    return repair_tail(log, owner=OWNER, now=NOW)


ENDS = {
    "the last is spoilt": ((SPOIL.format(LAST),), Cut(seq=26, lost=("27 turn.completed",))),
    "the last is gone": ((DROP.format(LAST),), Cut(seq=26)),
    "the last two are gone": ((DROP.format(LAST), DROP.format(LAST - 1)), Cut(seq=25)),
    "the last is spoilt, the one before gone": (
        (SPOIL.format(LAST), DROP.format(LAST - 1)),
        Cut(seq=25, lost=("27 turn.completed",)),
    ),
    "the head is another": (("UPDATE sessions SET hash = x'00'",), Cut(seq=LAST)),
    "the head is further": (("UPDATE sessions SET seq = 40",), Cut(seq=LAST)),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_damaged_end_is_cut_and_the_rest_verifies(path: Path, case: str) -> None:
    statements, expected = ENDS[case]
    log = damaged(path, *statements)
    assert repaired(log) == expected
    found = verify(StoredLog(log.store, Codec(), SESSION))
    assert (found.verdict, found.head[0]) == ("ok", expected.seq)
    assert repaired(log) is None
    log.store.close()


@pytest.mark.parametrize("statement", [SPOIL.format(20), DROP.format(20), SPOIL.format(LAST - 1), SPOIL.format(1)])
def test_nothing_is_cut_while_something_whole_follows(path: Path, statement: str) -> None:
    log = damaged(path, statement)
    before = list(log.rows())
    with pytest.raises(LogBroken, match="only a damaged end is cut"):
        repaired(log)
    assert list(log.rows()) == before
    log.store.close()


def test_an_end_that_forks_share_stays(path: Path) -> None:
    store = SqliteStore(path)
    claim = store.claim(SessionId("child"), OWNER, now=NOW, lease_us=1)
    (row,) = store.read(SESSION, after=LAST - 1)
    own = row._replace(seq=LAST + 1, hash=b"x")
    assert store.append([Append(SessionId("child"), claim.token, LAST, row.hash, (own,), base=SESSION)]) == [None]
    store.close()
    log = damaged(path, SPOIL.format(LAST))
    with pytest.raises(SessionShared):
        repaired(log)
    log.store.close()


def test_what_contradicts_itself_without_damage_is_not_cut(path: Path) -> None:
    """A log whose hashes hold and whose facts do not was written so: cutting would hide it."""
    log = damaged(path)
    claim = log.store.claim(SESSION, OWNER, now=NOW, lease_us=1)
    answer = next(iter(log.rows(types=("tool.completed",))))
    twice = answer._replace(seq=LAST + 1)
    twice = twice._replace(hash=row_hash(log.head[1], twice))
    assert log.store.append([Append(SESSION, claim.token, *log.head, (twice,))]) == [None]
    with pytest.raises(UsageError, match="is not damaged: at seq 28"):
        repaired(log)
    log.store.close()


def test_a_repair_is_told_in_a_line() -> None:
    assert in_words(SESSION, None) == "refund-1017: nothing to repair"
    assert in_words(SESSION, Cut(seq=26, lost=("27 turn.completed",))) == (
        "refund-1017: ends at seq 26 now; cut off: 27 turn.completed"
    )
    assert in_words(SESSION, Cut(seq=26)) == "refund-1017: ends at seq 26 now; its head was set back"
