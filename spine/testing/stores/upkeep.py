"""What a store must do beside appending and reading: share, copy, cut, forget, overwrite (floor 14).

Part of the public contract suite: `spine.testing.stores.contract.StoreContract` has these tests, too.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from spine.errors import ConcurrencyConflict, LogBroken, SessionShared, UsageError
from spine.store import ERASED_TYPE, Append, Content, Overwrite, Store
from spine.testing.raising import raises
from spine.testing.stores.trials import (
    BOB,
    FIRST,
    GENESIS,
    START,
    Writer,
    chain,
    content_of,
    refused,
    writer,
)
from spine.values import SessionId

__all__ = ["UpkeepContract"]

CHILD: Final = SessionId("child")
GRANDCHILD: Final = SessionId("grandchild")


def forked(store: Store, parent: Writer, seq: int, session: SessionId = CHILD, *payloads: bytes) -> Writer:
    """A fork of `parent` at `seq` with events of its own, and its writer."""
    log = writer(store, session)
    (row,) = store.read(parent.session, after=seq - 1, until=seq)
    log.seq, log.hash = seq, row.hash
    log.append(*(payloads or (b"own",)), base=parent.session)
    return log


def datas(store: Store, session: SessionId, after: int = 0, until: int | None = None) -> list[bytes]:
    """The data of a session's events, or of some of them."""
    return [row.data for row in store.read(session, after=after, until=until)]


class UpkeepContract:
    """The tests; see `StoreContract`."""

    def make_store(self) -> Store:
        """A new store without sessions."""
        raise NotImplementedError

    def reopen(self, store: Store) -> Store | None:
        """Close `store` and open the same sessions again; None when they are gone with it."""
        return None

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """A new store that is closed at the end."""
        store = self.make_store()
        try:
            yield store
        finally:
            store.close()

    # ----------------------------------------------------------------------------------------------------- forks

    def test_a_fork_reads_as_the_events_it_shares_and_its_own(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            rows = parent.append(*(b"%d" % number for number in range(1, 8))).rows
            for seq in range(1, 8):
                child = forked(store, parent, seq, SessionId(f"child{seq}"), b"own", b"more")
                whole = (*rows[:seq], *chain(seq, rows[seq - 1].hash, [b"own", b"more"]))
                for after in range(seq + 3):
                    for until in (None, *range(seq + 3)):
                        part = whole[after : len(whole) if until is None else until]
                        assert tuple(store.read(child.session, after=after, until=until)) == part
                assert list(store.read(child.session, types=("note",))) == list(whole)
                assert list(store.read(child.session, types=("absent",))) == []
                assert store.head(child.session) == (seq + 2, whole[-1].hash)
            assert tuple(store.read(FIRST)) == rows

    def test_a_fork_and_its_parent_go_on_apart(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            parent.append(b"1", b"2", b"3")
            child = forked(store, parent, 2)
            parent.append(b"4")
            child.append(b"own 4")
            assert datas(store, FIRST) == [b"1", b"2", b"3", b"4"]
            assert datas(store, CHILD) == [b"1", b"2", b"own", b"own 4"]
            later = writer(store, CHILD)
            assert (later.seq, later.hash) == (4, child.hash)

    def test_forks_of_forks_share_with_whoever_holds_the_event(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            parent.append(b"1", b"2", b"3")
            child = forked(store, parent, 2, CHILD, b"c3", b"c4")
            forked(store, child, 4, GRANDCHILD, b"g5")
            forked(store, child, 1, SessionId("other"), b"o2")
            assert datas(store, GRANDCHILD) == [b"1", b"2", b"c3", b"c4", b"g5"]
            assert datas(store, GRANDCHILD, after=1, until=3) == [b"2", b"c3"]
            assert datas(store, SessionId("other")) == [b"1", b"o2"]
            bases = {info.id: info.base for info in store.sessions()}
            assert bases == {FIRST: None, CHILD: FIRST, GRANDCHILD: CHILD, "other": FIRST}

    def test_the_list_tells_when_a_fork_was_made(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            parent.append(b"1", b"2")
            child = forked(store, parent, 1)
            info = next(info for info in store.sessions() if info.id == CHILD)
            own = START + 2
            assert (info.seq, info.hash, info.created, info.updated) == (2, child.hash, own, own)

    def test_a_fork_of_what_is_not_there_is_refused(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            row = parent.append(b"1", b"2").rows[0]
            child = writer(store, CHILD)
            for seq, hash, base in (
                (3, parent.hash, FIRST),
                (1, parent.hash, FIRST),
                (1, row.hash, GRANDCHILD),
                (1, row.hash, CHILD),
            ):
                batch = Append(CHILD, child.token, seq, hash, chain(seq, hash, [b"x"]), base=base)
                refused(store.append([batch])[0], seq=0, hash=b"")
            batch = Append(CHILD, child.token, 1, row.hash, chain(1, row.hash, [b"x"]), base=FIRST)
            refused(store.append([attrs.evolve(batch, token=99)])[0], seq=0, hash=b"")
            assert [info.id for info in store.sessions()] == [FIRST]
            for bad in (attrs.evolve(batch, rows=()), Append(CHILD, child.token, 0, b"", batch.rows, base=FIRST)):
                with raises(UsageError):
                    store.append([bad])
            assert store.append([batch]) == [None]
            assert store.append([batch]) == [None]  # the answer was lost, say
            other = attrs.evolve(batch, rows=chain(1, row.hash, [b"y"]))
            refused(store.append([other])[0], seq=2, hash=batch.rows[-1].hash)
            assert datas(store, CHILD) == [b"1", b"x"]

    def test_a_long_shared_reading_is_complete(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            for _ in range(3):
                parent.append(*(b"x" * 2_000 for _ in range(500)))
            child = forked(store, parent, 1_400)
            child.append(*(b"y" for _ in range(700)))
            assert [row.seq for row in store.read(CHILD)] == list(range(1, 2_102))

    # ------------------------------------------------------------------------------------------ copying, deleting

    def test_a_parent_is_deleted_only_when_its_forks_have_copies(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            parent.append(b"1", b"2", b"3")
            child = forked(store, parent, 2, CHILD, b"c3")
            forked(store, child, 3, GRANDCHILD, b"g4")
            for log in (parent, child):
                with raises(SessionShared) as caught:
                    store.delete(log.session, log.token)
                assert log.session in str(caught[0])
            before = {id: list(store.read(id)) for id in (CHILD, GRANDCHILD)}
            assert store.detach(CHILD, child.token) == 2
            assert store.detach(CHILD, child.token) == 0
            store.delete(FIRST, parent.token)
            assert {id: list(store.read(id)) for id in (CHILD, GRANDCHILD)} == before
            assert store.head(FIRST) is None
            child.append(b"c4")
            assert {info.id: info.base for info in store.sessions()} == {CHILD: None, GRANDCHILD: CHILD}

    def test_what_a_copy_reads_is_what_was_shared(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            for number in range(40):
                kind = {"type": f"type.{number % 3}", "place": f"t{number}", "at": START - number * 10**9}
                parent.append(rows=chain(parent.seq, parent.hash, [b"%d" % number], **kind))
            child = forked(store, parent, 30)
            grandchild = forked(store, child, 31, GRANDCHILD)
            before = list(store.read(GRANDCHILD))
            assert store.detach(GRANDCHILD, grandchild.token) == 31
            assert list(store.read(GRANDCHILD)) == before
            store.delete(CHILD, child.token)
            assert list(store.read(GRANDCHILD)) == before

    def test_a_deleted_session_is_gone_with_what_only_it_referred_to(self) -> None:
        with self.opened() as store:
            log, other = writer(store), writer(store, CHILD)
            kept, gone = content_of(b"kept"), content_of(b"gone")
            log.append(*(b'{"digest":"%s"}' % each.digest.encode() for each in (kept, gone)), contents=(kept, gone))
            other.append(b'{"digest":"%s"}' % kept.digest.encode(), contents=(kept,))
            store.put_inbox(FIRST, "k", "input", b"")
            store.delete(FIRST, log.token)
            assert (store.head(FIRST), store.owner(FIRST), store.inbox(FIRST)) == (None, None, [])
            assert store.contents([kept.digest, gone.digest]) == {kept.digest: kept}
            refused(store.append([log.batch(b"late")])[0], seq=0, hash=b"")
            again = writer(store)
            assert again.token > log.token
            again.append(b"1")
            assert store.put_inbox(FIRST, "k", "input", b"") is True

    def test_upkeep_asks_for_the_token(self) -> None:
        with self.opened() as store:
            log = writer(store)
            log.append(b"1", b"2")
            for token, session in ((log.token + 1, FIRST), (log.token - 1, FIRST), (1, CHILD)):
                for work in (
                    lambda session=session, token=token: store.detach(session, token),
                    lambda session=session, token=token: store.cut(session, token, 1),
                    lambda session=session, token=token: store.delete(session, token),
                ):
                    with raises(ConcurrencyConflict):
                        work()
            assert datas(store, FIRST) == [b"1", b"2"]

    # -------------------------------------------------------------------------------------------------- cutting

    def test_a_cut_log_goes_on_from_where_it_was_cut(self) -> None:
        with self.opened() as store:
            log = writer(store)
            rows = log.append(*(b"%d" % number for number in range(1, 6))).rows
            for seq in (0, 6, -1):
                with raises(LogBroken):
                    store.cut(FIRST, log.token, seq)
            store.cut(FIRST, log.token, 3)
            assert store.head(FIRST) == (3, rows[2].hash)
            assert tuple(store.read(FIRST)) == rows[:3]
            assert store.sessions()[0].updated == rows[2].at
            log.seq, log.hash = 3, rows[2].hash
            log.append(b"4 anew")
            assert datas(store, FIRST, after=2) == [b"3", b"4 anew"]

    def test_shared_events_are_not_cut(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            parent.append(b"1", b"2", b"3", b"4")
            child = forked(store, parent, 3, CHILD, b"c4", b"c5")
            for log, seq in ((parent, 2), (child, 2), (child, 3)):
                with raises(SessionShared):
                    store.cut(log.session, log.token, seq)
            store.cut(FIRST, parent.token, 3)
            store.cut(CHILD, child.token, 4)
            assert datas(store, FIRST) == [b"1", b"2", b"3"]
            assert datas(store, CHILD) == [b"1", b"2", b"3", b"c4"]

    # -------------------------------------------------------------------------------------------------- erasing

    def test_erased_data_gives_way_wherever_it_lies(self) -> None:
        with self.opened() as store:
            parent, other = writer(store), writer(store, SessionId("other"), owner=BOB)
            rows = parent.append(b"1", b"secret", b"3").rows
            other.append(b"a", b"secret of another", b"c")
            child = forked(store, parent, 3)
            copy = forked(store, parent, 2, GRANDCHILD)
            store.detach(GRANDCHILD, copy.token)
            gone, content = Overwrite(2, rows[1].hash, b"erased"), content_of(b"beside")
            parent.append(b"4", contents=(content,))
            marker = Content(content.digest, "x/erased", b"[erased]")
            absent = Content(content_of(b"absent").digest, "x/erased", b"[erased]")
            batch = parent.batch(b"5", erased=(gone,), erased_contents=(marker, absent))
            refused(store.append([attrs.evolve(batch, token=99)])[0], seq=4, hash=parent.hash)
            assert datas(store, FIRST, after=1, until=2) == [b"secret"]
            parent.append(b"5", erased=(gone,), erased_contents=(marker, absent))
            for session in (FIRST, CHILD, GRANDCHILD):
                (row,) = store.read(session, after=1, until=2)
                assert row == rows[1]._replace(data=b"erased")
            assert datas(store, other.session) == [b"a", b"secret of another", b"c"]
            assert store.contents([content.digest, absent.digest]) == {content.digest: marker}
            child.append(b"goes on")

    # ------------------------------------------------------------------------------------------------ everything

    def test_an_erased_content_that_is_added_again_is_there_again(self) -> None:
        """Whoever needs it later must not read what was left for those who had it before; others do not replace it."""
        with self.opened() as store:
            parent, content = writer(store), content_of(b"needed again")
            parent.append(b"3", contents=(content,))
            marker = Content(content.digest, ERASED_TYPE, b"[erased]")
            parent.append(b"4", erased_contents=(marker,))
            assert store.contents([content.digest]) == {content.digest: marker}
            parent.append(b"5", contents=(content, content))
            assert store.contents([content.digest]) == {content.digest: content}
            parent.append(b"6", contents=(marker,))
            assert store.contents([content.digest]) == {content.digest: content}

    def test_nothing_is_wrong_with_a_store_that_was_used(self) -> None:
        with self.opened() as store:
            rng = random.Random(5)
            logs = [writer(store)]
            logs[0].append(b"1")
            for number in range(60):
                log = rng.choice(logs)
                if rng.random() < 0.3:
                    logs.append(forked(store, log, rng.randint(1, log.seq), SessionId(f"f{number}")))
                else:
                    log.append(*(rng.randbytes(rng.randint(0, 9_000)) for _ in range(3)))
            before = {log.session: list(store.read(log.session)) for log in logs}
            assert store.check() == []
            assert store.check(repair=True) == []
            again = self.reopen(store) or store
            try:
                assert {log.session: list(again.read(log.session)) for log in logs} == before
                for log in logs:
                    again.detach(log.session, log.token)
                assert {log.session: list(again.read(log.session)) for log in logs} == before
                assert again.check() == []
            finally:
                again.close()

    def test_a_fork_may_be_the_first_of_its_writer(self) -> None:
        with self.opened() as store:
            parent = writer(store)
            first = parent.append(b"1").rows[0]
            child = Writer(store, CHILD, writer(store, CHILD).token, 1, first.hash)
            both = [parent.batch(b"2"), child.batch(b"c2", base=FIRST)]
            assert store.append(both) == [None, None]
            assert GENESIS not in (row.hash for row in store.read(CHILD))
