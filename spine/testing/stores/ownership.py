"""What a store must do for owners of sessions, and for those who ask them for something (floor 14): leases and inbox.

Part of the public contract suite: `spine.testing.stores.contract.StoreContract` has these tests, too.
"""

import threading
from typing import Final

from spine.errors import SessionOwned
from spine.store import Claim, Owner
from spine.testing.raising import raises
from spine.testing.stores.trials import (
    ALICE,
    BOB,
    FIRST,
    LEASE,
    SECOND,
    START,
    refused,
    wait_until_quiet,
    writer,
)
from spine.testing.stores.upkeep import UpkeepContract
from spine.values import SessionId

__all__ = ["OwnershipContract"]

_BYTES: Final = (b"", b"\0", b"a\0b\0", bytes(range(256)), b"\xff\xfe\x80", b'{"a":1.0}')


class OwnershipContract(UpkeepContract):
    """The tests; see `StoreContract`."""

    # ----------------------------------------------------------------------------------------------------- inbox

    def test_requests_are_queued_in_order_and_taken_once(self) -> None:
        with self.opened() as store:
            log = writer(store)
            log.append(b"1")
            for number, data in enumerate(_BYTES):
                assert store.put_inbox(FIRST, f"key {number}", "input", data) is True
            entries = store.inbox(FIRST)
            assert [(entry.key, entry.kind, entry.data) for entry in entries] == [
                (f"key {number}", "input", data) for number, data in enumerate(_BYTES)
            ]
            log.append(b"2", consumed=(entries[0].number, entries[2].number))
            assert store.inbox(FIRST) == [entries[1], *entries[3:]]
            log.append(b"3", consumed=tuple(entry.number for entry in entries))
            assert store.inbox(FIRST) == []

    def test_a_used_key_stays_refused(self) -> None:
        with self.opened() as store:
            log, other = writer(store), writer(store, SECOND)
            log.append(b"1")
            other.append(b"1")
            assert store.put_inbox(FIRST, "k", "input", b"1") is True
            assert store.put_inbox(FIRST, "k", "cancel", b"2") is False
            (entry,) = store.inbox(FIRST)
            log.append(b"2", consumed=(entry.number,))
            assert store.put_inbox(FIRST, "k", "input", b"1") is False
            assert store.put_inbox(SECOND, "k", "input", b"1") is True
            assert store.put_inbox(FIRST, "K", "input", b"3") is True
            assert store.inbox(FIRST)[0].number > entry.number

    def test_an_entry_is_taken_only_by_its_own_session(self) -> None:
        with self.opened() as store:
            log, other = writer(store), writer(store, SECOND)
            log.append(b"1")
            other.append(b"1")
            store.put_inbox(FIRST, "k", "input", b"")
            other.append(b"2", consumed=(store.inbox(FIRST)[0].number, 10**6))
            assert len(store.inbox(FIRST)) == 1

    def test_sessions_with_requests_are_told_apart(self) -> None:
        with self.opened() as store:
            logs = [writer(store, SessionId(f"s{number}")) for number in range(4)]
            for log in logs[:3]:
                log.append(b"1")
            assert store.waiting() == []
            for session, key in (("s0", "a"), ("s2", "a"), ("s2", "b")):
                store.put_inbox(SessionId(session), key, "input", b"")
            assert sorted(store.waiting()) == ["s0", "s2"]
            first, second = store.inbox(logs[2].session)
            logs[2].append(b"2", consumed=(first.number,))
            logs[0].append(consumed=(store.inbox(logs[0].session)[0].number,))
            assert store.waiting() == ["s2"]
            logs[2].append(b"3", consumed=(second.number,))
            assert store.waiting() == []

    def test_whoever_watches_a_session_is_woken_where_the_store_can_tell(self) -> None:
        with self.opened() as store:
            log, other, woken = writer(store), writer(store, SECOND), threading.Event()
            log.append(b"1")
            stop = store.watch(FIRST, woken.set)
            if stop is None:
                return
            for change in (lambda: log.append(b"2"), lambda: store.put_inbox(FIRST, "k", "input", b"")):
                wait_until_quiet(woken)
                change()
                assert woken.wait(5)
            wait_until_quiet(woken)
            other.append(b"1")
            stop()
            stop()
            log.append(b"3")
            assert not woken.wait(0.2)

    # ------------------------------------------------------------------------------------------------- ownership

    def test_a_lease_keeps_others_out_until_it_ends(self) -> None:
        with self.opened() as store:
            first = store.claim(FIRST, ALICE, now=START, lease_us=LEASE)
            assert first == Claim(first.token, 0, b"")
            assert store.owner(FIRST) == (ALICE, START + LEASE)
            for now in (START, START + 3_000_000, START + LEASE - 1):
                with raises(SessionOwned) as caught:
                    store.claim(FIRST, BOB, now=now, lease_us=LEASE)
                assert "pid 4121" in str(caught[0])
            assert store.owner(FIRST) == (ALICE, START + LEASE)
            second = store.claim(FIRST, BOB, now=START + LEASE, lease_us=LEASE)
            assert second.token > first.token
            assert store.owner(FIRST) == (BOB, START + 2 * LEASE)

    def test_a_lease_is_shortened_by_no_claim_and_shown_after_its_end(self) -> None:
        with self.opened() as store:
            store.claim(FIRST, ALICE, now=START, lease_us=LEASE)
            store.claim(SECOND, ALICE, now=START, lease_us=1)
            assert store.owner(FIRST) == (ALICE, START + LEASE)
            store.claim(SECOND, BOB, now=START + 2 * LEASE, lease_us=LEASE)
            assert store.owner(FIRST) == (ALICE, START + LEASE)

    def test_taking_over_does_not_wait_and_fences_the_old_owner_off(self) -> None:
        with self.opened() as store:
            old = writer(store)
            old.append(b"1")
            new = writer(store, owner=BOB, take_over=True)
            assert (new.seq, new.hash) == (1, old.hash)
            assert new.token > old.token
            assert store.append([old.batch(b"x")])[0] is not None
            store.release(FIRST, ALICE)  # not hers any more
            new.append(b"2")
            assert store.owner(FIRST) == (BOB, START + LEASE)

    def test_each_claim_gives_a_larger_token(self) -> None:
        with self.opened() as store:
            tokens = [writer(store).token for _ in range(3)]
            store.release(FIRST, ALICE)
            tokens.append(writer(store, owner=BOB).token)
            store.release(FIRST, BOB)
            tokens.append(writer(store).token)
            assert tokens == sorted(set(tokens))

    def test_a_session_released_without_events_takes_no_batch_of_its_old_token(self) -> None:
        with self.opened() as store:
            old = writer(store)
            store.release(FIRST, ALICE)
            refused(store.append([old.batch(b"late")])[0], seq=0, hash=b"")
            assert (store.owner(FIRST), store.head(FIRST), store.sessions()) == (None, None, [])
            assert writer(store, owner=BOB).token > old.token
            refused(store.append([old.batch(b"late")])[0], seq=0, hash=b"")
            assert writer(store, SECOND, owner=Owner("later", "h", 1, 1)).token > 0

    def test_renewing_extends_every_lease_of_the_owner_and_no_other(self) -> None:
        with self.opened() as store:
            store.claim(FIRST, ALICE, now=START, lease_us=LEASE)
            store.claim(SECOND, ALICE, now=START, lease_us=LEASE)
            store.claim(SessionId("third"), BOB, now=START, lease_us=LEASE)
            store.renew(ALICE, until=START + 5 * LEASE)
            store.renew(Owner("nobody", "h", 1, 1), until=START + 9 * LEASE)
            assert store.owner(FIRST) == store.owner(SECOND) == (ALICE, START + 5 * LEASE)
            assert store.owner(SessionId("third")) == (BOB, START + LEASE)
            with raises(SessionOwned):
                store.claim(SECOND, BOB, now=START + 4 * LEASE, lease_us=LEASE)

    def test_a_released_session_is_free_and_its_token_used_up(self) -> None:
        with self.opened() as store:
            old = writer(store)
            old.append(b"1")
            store.release(FIRST, BOB)  # not his: nothing happens
            old.append(b"2")
            store.release(FIRST, ALICE)
            store.release(FIRST, ALICE)
            store.release(SECOND, ALICE)
            assert store.owner(FIRST) is None
            assert store.append([old.batch(b"late")])[0] is not None
            new = writer(store, owner=BOB)
            assert (new.seq, new.hash) == (2, old.hash)
