"""What every store must do, as tests that any store's author can run (floor 14).

Subclass `StoreContract`, say how a store is made, and let a test runner collect the class; nothing here needs one:

    class TestMyStore(StoreContract):
        def make_store(self) -> Store:
            return MyStore(self.folder / "sessions")

Each test makes its own store and closes it. The rule it guards: what `spine.store.Store` promises is promised here and
nowhere else, so a store that passes may stand under every log.
"""

import random
import threading
from functools import partial
from typing import Any, ClassVar

import attrs

from spine import late
from spine.errors import SessionUnknown, UsageError
from spine.store import MAX_EVENT_BYTES, Append, Content, SessionInfo, Store
from spine.testing.raising import raises
from spine.testing.stores.ownership import OwnershipContract
from spine.testing.stores.trials import (
    ALICE,
    FIRST,
    GENESIS,
    LEASE,
    SECOND,
    START,
    Writer,
    chain,
    content_of,
    in_threads,
    race,
    refused,
    writer,
)
from spine.values import Digest, SessionId

__all__ = ["StoreContract"]

_TEXTS = ("t1", "t1s1", "t12s345", "t1s99999", "t0", "t01s1", "t1s0", "t1s1c1", "12", "1e3", "ü · \u2028", "\U0001f600")
_BYTES = (b"", b"\0", b"a\0b\0", bytes(range(256)), b"\xff\xfe\x80", b'{"a":1.0}', b" 12", "ü\u2028".encode())
_RANGES = [(after, until) for after in (-3, 0, 1, 3, 6, 9, 10, 50) for until in (None, 0, 1, 3, 7, 10, 20)]


class StoreContract(OwnershipContract):
    """The tests. A subclass gives `make_store`, and `reopen` when its sessions outlive a store object.

    Where it can, it also gives `second` and `damage`; the last test needs hypothesis, of the extra `testing`.
    """

    # ---------------------------------------------------------------------------------------------------- append

    def test_a_row_comes_back_as_it_was_given(self) -> None:
        with self.opened() as store:
            log = writer(store)
            for number, text in enumerate(_TEXTS):
                given = {"type": text, "place": text, "origin": f"{text}@1", "version": number, "required": False}
                log.append(rows=chain(log.seq, log.hash, [b"1", b"2"], **given))
                log.append(rows=chain(log.seq, log.hash, [b"3"], type=text, at=START - number * 10**12))
            stored = list(store.read(FIRST))
            assert [row.seq for row in stored] == list(range(1, 3 * len(_TEXTS) + 1))
            for number, text in enumerate(_TEXTS):
                tagged, also, plain = stored[3 * number : 3 * number + 3]
                assert (tagged.type, tagged.place, tagged.origin) == (text, text, f"{text}@1")
                assert (tagged.version, tagged.required is False, tagged.at) == (number, True, START + tagged.seq)
                assert also._replace(seq=tagged.seq, at=tagged.at, data=b"1", hash=tagged.hash) == tagged
                assert (plain.type, plain.place, plain.origin) == (text, None, None)
                assert (plain.version, plain.required, plain.at) == (1, True, START - number * 10**12)

    def test_bytes_come_back_exactly(self) -> None:
        with self.opened() as store:
            batch = writer(store).append(*_BYTES)
            assert tuple(store.read(FIRST)) == batch.rows
            assert all(type(row.data) is bytes and type(row.hash) is bytes for row in store.read(FIRST))

    def test_events_of_the_largest_size_fit(self) -> None:
        with self.opened() as store:
            large = [random.Random(size).randbytes(size) for size in (MAX_EVENT_BYTES, 65_536, MAX_EVENT_BYTES - 1)]
            batch = writer(store).append(*large)
            assert tuple(store.read(FIRST)) == batch.rows

    def test_a_batch_on_another_seq_is_refused_and_nothing_of_it_stored(self) -> None:
        with self.opened() as store:
            log = writer(store)
            first = log.append(b"1", b"2", b"3")
            for seq in (0, 1, 2, 4, 9):
                prev_hash = first.rows[seq - 1].hash if 0 < seq < 4 else log.hash
                batch = Append(FIRST, log.token, seq, prev_hash, chain(seq, prev_hash, [b"x", b"y"]))
                refused(store.append([batch])[0], seq=3, hash=log.hash)
            assert tuple(store.read(FIRST)) == first.rows
            log.append(b"4")

    def test_a_batch_on_another_hash_is_refused(self) -> None:
        with self.opened() as store:
            log = writer(store)
            log.append(b"1")
            batch = attrs.evolve(log.batch(b"2"), prev_hash=GENESIS)
            refused(store.append([batch])[0], seq=1, hash=log.hash)
            assert store.head(FIRST) == (1, log.hash)

    def test_a_batch_with_an_old_token_is_refused(self) -> None:
        with self.opened() as store:
            old = writer(store)
            old.append(b"1")
            new = writer(store)
            refused(store.append([old.batch(b"old")])[0], seq=1, hash=old.hash)
            refused(store.append([attrs.evolve(new.batch(b"x"), token=new.token + 1)])[0], seq=1, hash=new.hash)
            new.append(b"new")
            assert [row.data for row in store.read(FIRST)] == [b"1", b"new"]

    def test_a_session_that_nobody_claimed_takes_no_batch(self) -> None:
        with self.opened() as store:
            refused(store.append([Writer(store, FIRST, 1).batch(b"1")])[0], seq=0, hash=b"")
            assert store.head(FIRST) is None
            writer(store).append(b"1")

    def test_a_repeated_batch_counts_as_stored_and_is_not_doubled(self) -> None:
        with self.opened() as store:
            log = writer(store)
            log.append(b"1")
            batch = log.append(b"2", b"3", contents=(content_of(b"c"),))
            assert store.append([batch]) == [None]
            writer(store)
            assert store.append([batch, batch]) == [None, None]
            assert [row.data for row in store.read(FIRST)] == [b"1", b"2", b"3"]

    def test_a_repeated_batch_that_others_have_built_on_is_refused(self) -> None:
        with self.opened() as store:
            log = writer(store)
            batch = log.append(b"1")
            log.append(b"2")
            refused(store.append([batch])[0], seq=2, hash=log.hash)

    def test_other_bytes_at_a_used_place_are_refused(self) -> None:
        with self.opened() as store:
            log = writer(store)
            log.append(b"1")
            lost, kept = log.batch(b"2 lost"), log.append(b"2 kept")
            refused(store.append([lost])[0], seq=2, hash=kept.rows[-1].hash)
            assert [row.data for row in store.read(FIRST)] == [b"1", b"2 kept"]

    def test_a_refused_batch_does_not_keep_its_neighbours_from_being_stored(self) -> None:
        with self.opened() as store:
            logs = [writer(store, SessionId(f"s{number}")) for number in range(4)]
            batches = [log.batch(b"a", b"b") for log in logs]
            batches[1] = attrs.evolve(batches[1], token=99)
            verdicts = store.append(batches)
            assert [verdict is None for verdict in verdicts] == [True, False, True, True]
            assert [store.head(log.session) is None for log in logs] == [False, True, False, False]
            assert [row.data for row in store.read(logs[3].session)] == [b"a", b"b"]
            assert store.append([]) == []

    def test_a_refused_batch_leaves_contents_and_inbox_alone(self) -> None:
        with self.opened() as store:
            log, content = writer(store), content_of(b"beside")
            log.append(b"1")
            store.put_inbox(FIRST, "k", "input", b"x")
            (entry,) = store.inbox(FIRST)
            refused = attrs.evolve(log.batch(b"2", contents=(content,), consumed=(entry.number,)), token=99)
            assert store.append([refused])[0] is not None
            assert store.inbox(FIRST) == [entry]
            assert store.contents([content.digest]) == {}

    def test_rows_with_a_gap_are_refused_with_the_whole_call(self) -> None:
        with self.opened() as store:
            log, other = writer(store), writer(store, SECOND)
            rows = chain(0, GENESIS, [b"1", b"2", b"3"])
            for bad in (rows[1:], (rows[0], rows[2]), (rows[0], rows[0]), rows[::-1]):
                with raises(UsageError):
                    store.append([other.batch(b"1"), log.batch(rows=bad)])
            assert store.sessions() == []

    def test_what_not_every_store_could_hold_is_refused_by_all_of_them(self) -> None:
        """With nothing stored: a log that one store takes, each other one takes as well."""
        names: tuple[Any, ...] = ("a\0b", "\ud800")
        headers = [{field: name} for field in ("type", "place", "origin") for name in names]
        headers += [{"at": 1 << 62}, {"at": -(1 << 62) - 1}, {"version": 1 << 31}, {"hash": bytes(256)}]
        with self.opened() as store:
            log = writer(store)
            log.append(b"1")
            for header in headers:
                good, bad = log.batch(b"2", b"3").rows
                with raises(UsageError):
                    store.append([log.batch(rows=(good, bad._replace(**header)))])
            for content in (Content(Digest("1:\0"), "", b""), Content(content_of(b"").digest, "\ud800", b"")):
                with raises(UsageError):
                    store.append([log.batch(b"2", contents=(content,))])
            for key, kind in (("\ud800", "input"), ("key", "\ud800"), ("key", "a\0")):
                with raises(UsageError):
                    store.put_inbox(FIRST, key, kind, b"")
            assert store.put_inbox(FIRST, "a\0b", "input", b"\0")
            (row,) = log.batch(b"2").rows
            for place, at in (("t1s0", -(1 << 62)), ("t01", (1 << 62) - 1), ("", 0), ("12", -1), ("ü\u2028", 1)):
                row = row._replace(
                    seq=log.seq + 1, place=place, at=at, origin="ü@1", type="\x1b", version=(1 << 31) - 1
                )
                log.append(rows=(row,))
                assert list(store.read(FIRST, after=log.seq - 1)) == [row]
            assert len(list(store.read(FIRST))) == log.seq == 6

    def test_a_batch_without_rows_still_takes_entries_out(self) -> None:
        with self.opened() as store:
            log, content = writer(store), content_of(b"beside")
            log.append(b"1")
            store.put_inbox(FIRST, "k", "cancel", b"")
            number = store.inbox(FIRST)[0].number
            stale = attrs.evolve(log.batch(consumed=(number,)), token=99)
            assert store.append([stale])[0] is not None
            assert len(store.inbox(FIRST)) == 1
            log.append(consumed=(number,), contents=(content,))
            assert store.inbox(FIRST) == []
            assert store.contents([content.digest]) == {content.digest: content}
            log.append(b"2")

    # ------------------------------------------------------------------------------------------------------ read

    def test_ranges_are_after_and_until(self) -> None:
        with self.opened() as store:
            log = writer(store)
            rows = log.append(*(b"%d" % number for number in range(5))).rows
            rows += log.append(*(b"%d" % number for number in range(5, 10))).rows
            for after, until in _RANGES:
                found = tuple(store.read(FIRST, after=after, until=until))
                assert found == tuple(row for row in rows if after < row.seq <= (until if until is not None else 10))

    def test_types_choose_rows(self) -> None:
        with self.opened() as store:
            log = writer(store)
            for number in range(30):
                kind = {"type": f"type.{number % 3}", "version": 1 + number % 2}
                log.append(rows=chain(log.seq, log.hash, [b""], **kind))
            every = list(store.read(FIRST))
            for types in (("type.1",), ("type.0", "type.2"), ("type.1", "absent"), ("absent",), ("type.1", "type.1")):
                wanted = [row for row in every if row.type in types]
                assert list(store.read(FIRST, types=types)) == wanted
                assert list(store.read(FIRST, after=7, until=20, types=types)) == [
                    row for row in wanted if 7 < row.seq <= 20
                ]

    def test_a_long_read_is_complete_and_ends_where_the_log_stood(self) -> None:
        with self.opened() as store:
            log = writer(store)
            for _ in range(4):
                log.append(*(b"x" * 2_000 for _ in range(500)))
            readings = [store.read(FIRST), store.read(FIRST, until=10**6)]
            starts = [next(reading).seq for reading in readings]
            for _ in range(3):
                log.append(b"later")
            for start, reading in zip(starts, readings, strict=True):
                assert [start, *(row.seq for row in reading)] == list(range(1, 2_001))
            assert sum(1 for _ in store.read(FIRST, after=1_990)) == 13

    def test_an_unread_rest_holds_nobody_up(self) -> None:
        with self.opened() as store:
            log = writer(store)
            log.append(b"1", b"2", b"3")
            left = [store.read(FIRST) for _ in range(20)]
            assert [next(each).seq for each in left] == [1] * 20
            log.append(b"4")
            assert [row.data for row in store.read(FIRST, after=3)] == [b"4"]

    def test_an_unknown_session_has_nothing(self) -> None:
        with self.opened() as store:
            for _ in range(2):
                assert list(store.read(FIRST)) == []
                assert store.head(FIRST) is None
                assert store.inbox(FIRST) == []
                assert store.sessions() == []
                with raises(SessionUnknown):
                    store.put_inbox(FIRST, "k", "input", b"")
                store.claim(FIRST, ALICE, now=START, lease_us=LEASE)  # a claim alone makes no session

    def test_head_and_list_follow_each_batch(self) -> None:
        with self.opened() as store:
            logs = [writer(store, SessionId(f"s{number}")) for number in range(3)]
            for number in (0, 2, 1, 0):
                log = logs[number]
                log.append(rows=chain(log.seq, log.hash, [b"a", b"b"], at=START + sum(each.seq for each in logs)))
                assert store.head(log.session) == (log.seq, log.hash)
            assert store.sessions() == [
                SessionInfo(logs[2].session, 2, logs[2].hash, START + 2, START + 2),
                SessionInfo(logs[1].session, 2, logs[1].hash, START + 4, START + 4),
                SessionInfo(logs[0].session, 4, logs[0].hash, START, START + 6),
            ]

    def test_sessions_do_not_touch_each_other(self) -> None:
        with self.opened() as store:
            logs = [writer(store, SessionId(name)) for name in ("a", "A", "a_", "a-", "b")]
            for turn in range(20):
                for log in logs:
                    log.append(f"{log.session} {turn}".encode())
            for log in logs:
                assert [row.data for row in store.read(log.session, after=-1)] == [
                    f"{log.session} {turn}".encode() for turn in range(20)
                ]
                assert store.head(log.session) == (20, log.hash)

    # -------------------------------------------------------------------------------------------------- contents

    def test_contents_are_found_by_digest(self) -> None:
        with self.opened() as store:
            log, other = writer(store), writer(store, SECOND)
            large = random.Random(1).randbytes(3 * 1024 * 1024)
            contents = [content_of(data) for data in (large, *_BYTES, *(b"%d" % number for number in range(1_200)))]
            log.append(b"1", contents=tuple(contents))
            log.append(b"2", contents=tuple(contents[:3]))
            other.append(b"1", contents=(contents[0], content_of(b"other", "image/png")))
            contents.append(content_of(b"other", "image/png"))
            asked = [each.digest for each in contents] + [content_of(b"absent").digest]
            assert store.contents(asked) == {each.digest: each for each in contents}
            assert store.contents([]) == {}

    # --------------------------------------------------------------------------------------------------- threads

    def test_of_racing_writers_exactly_one_wins_each_place(self) -> None:
        with self.opened() as store:
            token = writer(store).token
            wins: list[list[bytes]] = [[] for _ in range(4)]
            in_threads([partial(race, store, token, f"w{number}", own, goal=25) for number, own in enumerate(wins)])
            stored = [row.data for row in store.read(FIRST)]
            assert sorted(stored) == sorted(data for own in wins for data in own)
            assert len(stored) == 4 * 25

    def test_a_reader_never_sees_half_a_batch(self) -> None:
        with self.opened() as store:
            log, done = writer(store), threading.Event()
            seen: list[int] = []
            log.append(b"1", b"2", b"3")

            def write() -> None:
                try:
                    while len(seen) < 40 and log.seq < 60_000:
                        log.append(b"1", b"2", b"3")
                finally:
                    done.set()

            def watch() -> None:
                while not done.is_set():
                    head = store.head(FIRST)
                    assert head is not None
                    seen.append(head[0])
                    seen.append(sum(1 for _ in store.read(FIRST, after=max(0, head[0] - 60))))

            in_threads([write, watch, watch])
            assert len(seen) >= 40
            assert {count % 3 for count in seen} == {0}

    # ----------------------------------------------------------------------------------------------- everything

    def test_what_was_stored_outlives_the_store(self) -> None:
        with self.opened() as store:
            log, content = writer(store), content_of(b"beside")
            batch = log.append(*_BYTES, contents=(content,))
            store.put_inbox(FIRST, "used", "input", b"1")
            log.append(b"last", consumed=(store.inbox(FIRST)[0].number,))
            store.put_inbox(FIRST, "waits", "input", b"2")
            listed, waiting = store.sessions(), store.inbox(FIRST)
            again = self.reopen(store)
            if again is None:
                return
            try:
                assert tuple(again.read(FIRST, until=len(_BYTES))) == batch.rows
                assert (again.sessions(), again.inbox(FIRST)) == (listed, waiting)
                assert again.contents([content.digest]) == {content.digest: content}
                assert again.owner(FIRST) == (ALICE, START + LEASE)
                assert again.put_inbox(FIRST, "used", "input", b"1") is False
                assert writer(again).token > log.token
            finally:
                again.close()

    def test_closing_twice_is_closing_once(self) -> None:
        store = self.make_store()
        store.close()
        store.close()

    def test_whatever_happens_the_store_is_what_a_plain_list_is(self) -> None:
        late.load("spine.testing.stores.machine").check_machine(self, examples=self.examples)

    # ------------------------------------------------------------------------------------- what a store may offer

    examples: ClassVar[int] = 40
    """Histories that the last test tries."""

    def second(self, store: Store) -> Store | None:
        """The sessions of `store` as another process has them; None where there is no such thing."""
        return None

    def damage(self, store: Store, session: SessionId, seq: int, bit: int) -> bool:
        """Flip a bit of the data of an event where `store` keeps it; False where nobody can."""
        return False
