"""A store against a model of plain lists, driven by hypothesis (floor 14); `contract` runs it.

Rules: append well, at a wrong place, the same again, other bytes at a used place, several sessions at once; read,
follow; queue, look, take out; claim, take over, release; close and reopen; let the clock jump; have a second process
append, queue or claim; flip a bit of a stored event. Whatever the order, every answer is the model's.

A store's author says how to make one, and what is possible with it: reopening, another process, damage.
"""

import random
from typing import Any, Final, Protocol

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from spine.errors import SessionOwned, SessionUnknown
from spine.store import Append, InboxEntry, Owner, Row, Store
from spine.testing.raising import raises
from spine.testing.stores.trials import (
    ALICE,
    BOB,
    GENESIS,
    LEASE,
    START,
    Writer,
    chain,
    content_of,
    refused,
)
from spine.values import SessionId

__all__ = ["Bench", "check_machine"]

SESSIONS: Final = (SessionId("a"), SessionId("b"), SessionId("A"))
_BYTES = st.binary(max_size=40) | st.sampled_from((b"\0", b'{"a":1.0}', b"\xff\xfe", b"x" * 3_000))
_SESSION = st.sampled_from(SESSIONS)
_OWNER = st.sampled_from((ALICE, BOB))


class Bench(Protocol):
    """What the machine needs besides a store; None where the store has no such thing."""

    def make_store(self) -> Store:
        """A new store without sessions."""

    def reopen(self, store: Store) -> Store | None:
        """Close `store` and open the same sessions again."""

    def second(self, store: Store) -> Store | None:
        """The same sessions from another process: a store whose calls are made there."""

    def damage(self, store: Store, session: SessionId, seq: int, bit: int) -> bool:
        """Flip a bit of the data of an event where it lies; False when that cannot be done."""


@attrs.define(slots=True)
class _Model:
    """What a store must hold of one session."""

    rows: list[Row] = attrs.Factory(list)
    last: Append | None = None
    token: int = 0
    owner: Owner | None = None
    until: int = 0
    waiting: list[InboxEntry] = attrs.Factory(list)
    used: set[str] = attrs.Factory(set)

    @property
    def head(self) -> tuple[int, bytes]:
        return (self.rows[-1].seq, self.rows[-1].hash) if self.rows else (0, b"")


class StoreMachine(RuleBasedStateMachine):
    """The machine; `bench` is set by `check_machine`."""

    bench: Bench

    @initialize()
    def begin(self) -> None:
        """A new store, the model of nothing, and a clock."""
        self.store = self.bench.make_store()
        self.other: Store | None = None
        self.models = {session: _Model() for session in SESSIONS}
        self.leases: dict[str, int] = {}
        self.now = START
        self.followed = dict.fromkeys(SESSIONS, 0)
        self.written = 0

    def teardown(self) -> None:
        """Let go of the stores."""
        for store in (getattr(self, "other", None), getattr(self, "store", None)):
            if store is not None:
                store.close()

    # ---------------------------------------------------------------------------------------------------- ownership

    def _claim(self, store: Store, session: SessionId, owner: Owner, *, take_over: bool) -> None:
        model = self.models[session]
        held = model.owner is not None and model.owner != owner and self.leases[model.owner.id] > self.now
        if held and not take_over:
            with raises(SessionOwned):
                store.claim(session, owner, now=self.now, lease_us=LEASE)
            return
        claim = store.claim(session, owner, now=self.now, lease_us=LEASE, take_over=take_over)
        assert claim.token > model.token
        assert (claim.seq, claim.hash) == model.head
        model.token, model.owner = claim.token, owner
        self.leases[owner.id] = max(self.leases.get(owner.id, 0), self.now + LEASE)
        assert store.owner(session) == (owner, self.leases[owner.id])

    @rule(session=_SESSION, owner=_OWNER, take_over=st.booleans())
    def claim(self, session: SessionId, owner: Owner, take_over: bool) -> None:
        """Claim, in vain while another lease runs."""
        self._claim(self.store, session, owner, take_over=take_over)

    @rule(session=_SESSION, owner=_OWNER)
    def release(self, session: SessionId, owner: Owner) -> None:
        """Give up what one has; nothing happens otherwise."""
        self.store.release(session, owner)
        model = self.models[session]
        if model.owner == owner:
            stale = attrs.evolve(self._batch(session, [b"late"]))
            model.owner = None
            assert self.store.append([stale])[0] is not None
            assert self.store.owner(session) is None

    @rule(owner=_OWNER, ahead=st.integers(1, 5))
    def renew(self, owner: Owner, ahead: int) -> None:
        """All leases of an owner end when it says."""
        self.store.renew(owner, until=self.now + ahead * LEASE)
        if owner.id in self.leases:
            self.leases[owner.id] = self.now + ahead * LEASE

    @rule(years=st.integers(-10, 10))
    def jump(self, years: int) -> None:
        """The wall clock jumps: order is by seq alone."""
        self.now = max(1, START + years * 31_557_600_000_000)

    # ------------------------------------------------------------------------------------------------------ append

    def _batch(self, session: SessionId, datas: list[bytes], **beside: Any) -> Append:
        model = self.models[session]
        self.written += 1
        log = Writer(self.store, session, model.token, model.head[0], model.head[1] or GENESIS)
        kind = {"type": f"type.{self.written % 3}", "place": f"t{self.written}", "at": self.now}
        return log.batch(rows=chain(log.seq, log.hash, datas, **kind), **beside)

    def _own(self, session: SessionId) -> None:
        if self.models[session].owner is None:
            self._claim(self.store, session, ALICE, take_over=False)

    def _stored(self, batch: Append) -> None:
        model = self.models[batch.session]
        model.rows += batch.rows
        model.last = batch if batch.rows else model.last
        model.waiting = [entry for entry in model.waiting if entry.number not in batch.consumed]

    @rule(
        session=_SESSION,
        datas=st.lists(_BYTES, min_size=1, max_size=4),
        takes=st.integers(0, 2),
        elsewhere=st.booleans(),
    )
    def append(self, session: SessionId, datas: list[bytes], takes: int, elsewhere: bool) -> None:
        """The owner's batch is stored, with what it brings and takes out; from another process, too.

        Then it is known when it comes again, and every key stays used.
        """
        self._own(session)
        consumed = tuple(entry.number for entry in self.models[session].waiting[:takes])
        content = content_of(b"content %d" % self.written)
        batch = self._batch(session, datas, consumed=consumed, contents=(content,))
        store = self._second() if elsewhere else self.store
        assert store.append([batch]) == [None]
        self._stored(batch)
        assert self.store.contents([content.digest]) == {content.digest: content}
        assert self.store.append([batch]) == [None]
        for key in self.models[session].used:
            assert self.store.put_inbox(session, key, "input", b"") is False

    @rule(session=_SESSION, how=st.sampled_from(("token", "seq", "hash", "bytes")))
    def append_wrongly(self, session: SessionId, how: str) -> None:
        """A batch that does not fit is refused with the head, and nothing of it is stored."""
        self._own(session)
        model, batch = self.models[session], self._batch(session, [b"wrong"])
        if how == "token" or not model.rows:
            batch = attrs.evolve(batch, token=batch.token + 1)
        elif how == "seq":
            batch = attrs.evolve(batch, seq=batch.seq + 1, rows=chain(batch.seq + 1, batch.prev_hash, [b"wrong"]))
        elif how == "hash":
            batch = attrs.evolve(batch, prev_hash=GENESIS)
        elif model.last is not None:
            last = model.last
            batch = attrs.evolve(last, rows=chain(last.seq, last.prev_hash, [b"other bytes"]), token=model.token)
        refused(self.store.append([batch])[0], seq=model.head[0], hash=model.head[1])

    @rule(session=_SESSION)
    def append_again(self, session: SessionId) -> None:
        """The batch that made the head counts as stored, whoever owns the session now."""
        last = self.models[session].last
        if last is not None:
            assert self.store.append([last]) == [None]

    @rule(bad=st.integers(0, len(SESSIONS)))
    def append_together(self, bad: int) -> None:
        """Of batches in one transaction each has its own verdict."""
        for session in SESSIONS:
            self._own(session)
        batches = [self._batch(session, [b"together", b"too"]) for session in SESSIONS]
        if bad < len(batches):
            batches[bad] = attrs.evolve(batches[bad], token=-1)
        verdicts = self.store.append(batches)
        assert [verdict is None for verdict in verdicts] == [number != bad for number in range(len(batches))]
        for batch, verdict in zip(batches, verdicts, strict=True):
            if verdict is None:
                self._stored(batch)

    # ------------------------------------------------------------------------------------------------------- inbox

    @rule(session=_SESSION, key=st.sampled_from("klmn"), elsewhere=st.booleans())
    def put(self, session: SessionId, key: str, elsewhere: bool) -> None:
        """A request is queued once by its key, for a session that is there."""
        model, store = self.models[session], self._second() if elsewhere else self.store
        if not model.rows:
            with raises(SessionUnknown):
                store.put_inbox(session, key, "input", b"")
            return
        assert store.put_inbox(session, key, "input", key.encode()) is (key not in model.used)
        found = self.store.inbox(session)
        assert found[: len(model.waiting)] == model.waiting
        assert [entry.key for entry in found[len(model.waiting) :]] == ([key] if key not in model.used else [])
        model.used.add(key)
        model.waiting = found

    # ----------------------------------------------------------------------------------------- processes and damage

    def _second(self) -> Store:
        if self.other is None:
            self.other = self.bench.second(self.store)
        return self.other or self.store

    @rule(session=_SESSION, owner=_OWNER)
    def claim_elsewhere(self, session: SessionId, owner: Owner) -> None:
        """Another process takes the session over; what this one still holds is refused."""
        stale = self._batch(session, [b"stale"])
        self._claim(self._second(), session, owner, take_over=True)
        model = self.models[session]
        refused(self.store.append([stale])[0], seq=model.head[0], hash=model.head[1])

    @rule()
    def reopen(self) -> None:
        """A process that comes back finds everything."""
        if self.other is not None:
            self.other.close()
            self.other = None
        self.store = self.bench.reopen(self.store) or self.store

    @precondition(lambda self: any(model.rows for model in self.models.values()))
    @rule(data=st.data())
    def damage(self, data: Any) -> None:
        """A bit that flips in storage is found by the chain, at its event; nothing else is touched."""
        session = data.draw(st.sampled_from([session for session, model in self.models.items() if model.rows]))
        model = self.models[session]
        sized = [row.seq for row in model.rows if row.data]
        if not sized:
            return
        seq = data.draw(st.sampled_from(sized))
        bit = data.draw(st.integers(0, 8 * len(model.rows[seq - 1].data) - 1))
        if not self.bench.damage(self.store, session, seq, bit):
            return
        found = list(self.store.read(session))
        assert _first_broken(found) == seq
        assert found[: seq - 1] + found[seq:] == model.rows[: seq - 1] + model.rows[seq:]
        assert self.bench.damage(self.store, session, seq, bit)

    # ----------------------------------------------------------------------------------------------------- looking

    @rule(session=_SESSION, after=st.integers(-1, 12), until=st.none() | st.integers(0, 12), kind=st.integers(0, 3))
    def read(self, session: SessionId, after: int, until: int | None, kind: int) -> None:
        """Any range, of any types, in order."""
        types = () if kind == 3 else (f"type.{kind}",)
        rows = self.models[session].rows
        expected = [row for row in rows if after < row.seq and (until is None or row.seq <= until)]
        expected = [row for row in expected if not types or row.type in types]
        assert list(self.store.read(session, after=after, until=until, types=types)) == expected

    @rule(session=_SESSION)
    def follow(self, session: SessionId) -> None:
        """Whoever goes on from the last seq it saw misses nothing."""
        rows = list(self.store.read(session, after=self.followed[session]))
        assert rows == self.models[session].rows[self.followed[session] :]
        self.followed[session] += len(rows)

    @invariant()
    def stands(self) -> None:
        """Heads, inboxes and the list are those of the model, at every moment."""
        for session, model in self.models.items():
            assert self.store.head(session) == (model.head if model.rows else None)
            assert self.store.inbox(session) == model.waiting
        listed = {info.id: (info.seq, info.hash, info.updated) for info in self.store.sessions()}
        assert listed == {
            session: (*model.head, model.rows[-1].at) for session, model in self.models.items() if model.rows
        }
        assert sorted(self.store.waiting()) == sorted(s for s, model in self.models.items() if model.waiting)


def _first_broken(rows: list[Row]) -> int:
    hash = GENESIS
    for row in rows:
        if chain(row.seq - 1, hash, [row.data])[0].hash != row.hash:
            return row.seq
        hash = row.hash
    return 0


def check_machine(bench: Bench, *, examples: int, steps: int = 30, seed: int | None = None) -> None:
    """Run the machine; raises the smallest history that a store answers otherwise than the model."""
    machine: type[RuleBasedStateMachine] = type("StoreMachine", (StoreMachine,), {"bench": bench})
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=seed is None,
        suppress_health_check=list(HealthCheck),
    )
    if seed is not None:
        random.seed(seed)
    run_state_machine_as_test(machine, settings=chosen)
