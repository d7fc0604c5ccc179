"""What a person reads when a store refuses."""

import attrs
import pytest

from spine.errors import UsageError
from spine.store import Append, Owner
from spine.stores import verdicts
from spine.testing.stores.trials import chain
from spine.values import SessionId

SESSION = SessionId("refund-1017")
HOLDER = Owner("o1", "host-a", 4121, 0)
CLAIMANT = Owner("o2", "host-a", 4122, 0)
BATCH = Append(SESSION, 3, 4, b"\xab" * 32, chain(4, b"\xab" * 32, [b"5", b"6"]))


@pytest.mark.parametrize(
    ("host", "now", "sentence"),
    [
        ("host-a", 3_999_999, "session refund-1017 is owned by another process (pid 4121, 3 s ago)"),
        ("host-a", 0, "session refund-1017 is owned by another process (pid 4121, 0 s ago)"),
        ("host-a", -5_000_000, "session refund-1017 is owned by another process (pid 4121, 0 s ago)"),
        ("host-b", 70_000_000, "session refund-1017 is owned by another process (pid 4121 on host-b, 70 s ago)"),
    ],
)
def test_an_owned_session_says_by_whom_and_how_long_ago(host: str, now: int, sentence: str) -> None:
    holder = (attrs.evolve(HOLDER, host=host), 30_000_000)
    error = verdicts.owned(SESSION, holder, CLAIMANT, now=now, lease_us=30_000_000)
    assert str(error) == sentence
    assert error.hint == "spine log refund-1017 --follow, or wait for its lease"


@pytest.mark.parametrize(
    ("seq", "hash", "token", "found"),
    [
        (0, b"", None, "the session was never claimed; claim it first"),
        (9, b"\xcd" * 32, 5, "another writer claimed it since (token 3, now 5), the log stands at seq 9"),
        (9, b"\xcd" * 32, 3, "the log stands at seq 9"),
        (4, b"\xcd" * 32, 3, "the event there has hash cdcdcdcdcdcd, the batch builds on abababababab"),
    ],
)
def test_a_conflict_says_what_was_found_instead(seq: int, hash: bytes, token: int | None, found: str) -> None:
    error = verdicts.conflict(BATCH, seq=seq, hash=hash, token=token)
    assert str(error) == f"append to session refund-1017 after seq 4: {found}; nothing was written"
    assert (error.actual_seq, error.actual_hash) == (seq, hash)


def test_rows_with_a_gap_are_named() -> None:
    verdicts.check_batch(BATCH)
    with pytest.raises(UsageError, match="found a row with seq 6 where 5 must stand"):
        verdicts.check_batch(attrs.evolve(BATCH, rows=BATCH.rows[1:]))


def test_only_the_last_row_of_the_batch_makes_it_a_repeated_one() -> None:
    first, last = BATCH.rows
    assert verdicts.is_repeated(BATCH, seq=6, hash=last.hash)
    assert not verdicts.is_repeated(BATCH, seq=5, hash=first.hash)
    assert not verdicts.is_repeated(BATCH, seq=6, hash=first.hash)
    assert not verdicts.is_repeated(attrs.evolve(BATCH, rows=()), seq=4, hash=BATCH.prev_hash)


def test_a_lease_holds_others_until_its_last_microsecond() -> None:
    holder = (HOLDER, 100)
    assert verdicts.is_held(holder, CLAIMANT, now=99)
    assert not verdicts.is_held(holder, CLAIMANT, now=100)
    assert not verdicts.is_held(holder, attrs.evolve(HOLDER, pid=1), now=99)
    assert not verdicts.is_held(None, CLAIMANT, now=0)


FORK = attrs.evolve(BATCH, base=SessionId("parent"))


@pytest.mark.parametrize(
    ("batch", "seq", "hash", "token", "found"),
    [
        (BATCH, 6, BATCH.rows[-1].hash, 3, None),
        (BATCH, 6, b"\xcd" * 32, 3, "after seq 4: the log stands at seq 6"),
        (FORK, 0, b"", 3, "session parent has no event 4"),
        (FORK, 0, b"", 5, "another writer claimed it since"),
        (FORK, 6, FORK.rows[-1].hash, 3, None),
    ],
)
def test_a_batch_that_does_not_fit_is_there_already_or_refused(
    batch: Append, seq: int, hash: bytes, token: int, found: str | None
) -> None:
    refused = verdicts.refusal(batch, seq=seq, hash=hash, token=token)
    assert (refused is None) if found is None else (found in str(refused))
