"""Forks of sessions (floor 11): another session that goes on from an event of this one.

The child shares the events up to there, by reference; its own first event is `session.forked`, whose previous hash is
the parent's at that seq. What is open there is closed in the child by the rules of a cancel, in the same batch, so its
next request is valid. What was erased of the shared events is accounted for there, too. The parent is not touched.
"""

from collections.abc import Iterator, Sequence

import attrs

from spine import outcomes
from spine.appending import Fact, batch_of, claimed, store_all
from spine.attempts import crashed_partial
from spine.errors import SessionExists, UsageError
from spine.events import ContentErased, MessageInterrupted, SessionForked, ToolCompleted, ToolRevised, TurnCancelled
from spine.frozen import frozen
from spine.projectors.projector import fold
from spine.projectors.status import Status, TurnState
from spine.revisions import result_block, unshown
from spine.store import Owner, digests_in
from spine.stored import StoredLog
from spine.values import Digest, SessionId, decode, freeze_object, step_of

__all__ = ["Forked", "fork"]

_NOTE = "the session was forked before the answer was complete"


@frozen(kw_only=True)
class Forked:
    """A fork that was made. `shared` events come from the parent, `seq` is the child's last."""

    session: SessionId
    parent: SessionId
    """The session that the last shared event was recorded in."""
    shared: int
    seq: int
    closed: tuple[str, ...] = ()
    """What was open and is closed in the child: calls, an answer, a turn."""


def fork(
    source: StoredLog,
    child: SessionId,
    seq: int | None = None,
    *,
    owner: Owner,
    now: int,
    withholds: bool = False,
    opening: Sequence[Fact] | None = None,
) -> Forked:
    """Make `child` of the events 1 to `seq` of a stored session, by default all; who owns the source does not matter.

    With `withholds`, results that no request has shown are withheld in the child: for a plugin that checks results and
    may not have seen them yet. With `opening` nothing is closed: the child goes on with an open turn and begins with
    these facts, which is for the border between two steps. `now` in microseconds since 1970 UTC. Raises `UsageError`
    when there is no event `seq`, `SessionExists`, `SessionUnknown`, `EventUnknown`; nothing is stored then.
    """
    store, last = source.store, source.head[0]
    at = last if seq is None else seq
    row = next(iter(source.rows(after=max(at - 1, 0), until=at)), None)
    if row is None:
        raise UsageError(f"fork {source.session} at seq {at}: it has the events 1 to {last}", hint="spine log")
    if store.head(child) is not None:
        raise SessionExists(f'session "{child}" is in {store.url} already', hint=f"spine log {child}")
    parent = _recorded_in(source, at)
    closing = _closing(source, at, withholds=withholds) if opening is None else opening
    erasures = tuple(_erasures(source, at))
    facts = ((SessionForked(parent=parent, seq=at, hash=row.hash.hex()), None), *erasures, *closing)
    with claimed(store, child, owner, now) as claim:
        batch = batch_of(source.codec, child, claim.token, (at, row.hash), facts, now, base=source.session)
        store_all(store, (batch,))
        late = [fact for fact in _erasures(source, at) if fact not in erasures]  # they did not see the child yet
        if late:
            end = batch.rows[-1]
            batch = batch_of(source.codec, child, claim.token, (end.seq, end.hash), late, now)
            store_all(store, (batch,))
    closed = tuple(_name(data, place) for data, place in closing) if opening is None else ()
    return Forked(session=child, parent=parent, shared=at, seq=batch.rows[-1].seq, closed=closed)


def _recorded_in(source: StoredLog, seq: int) -> SessionId:
    """Whose event `seq` is. Named so, the first `session.forked` of a log names the session that its chain began in."""
    for row in source.rows(after=seq, types=("session.forked",)):
        return SessionId(decode(row.data)["parent"])
    return source.session


def _erasures(source: StoredLog, seq: int) -> Iterator[Fact]:
    """What the source says after `seq` about what was erased of the shared events: the child must say it, too."""
    for event in source.read(after=seq, types=("content.erased",)):
        said: ContentErased = event.data
        events = {place: left for place, left in said.events.items() if int(place) <= seq}
        contents = dict(said.contents)
        if contents:
            contents = {found: contents[found] for found in _referred_to(source, seq) if found in contents}
        if events or contents:
            yield attrs.evolve(said, events=freeze_object(events), contents=freeze_object(contents)), None


def _referred_to(source: StoredLog, seq: int) -> set[Digest]:
    return {found for row in source.rows(until=seq) for found in digests_in(row.data)}


def _closing(source: StoredLog, seq: int, *, withholds: bool) -> tuple[Fact, ...]:
    status = Status()
    turn = fold(status, source.select(status.types, until=seq)).turn
    if turn is None:
        return ()
    facts: list[Fact] = []
    if turn.phase == "answer":
        _, partial = crashed_partial(source, turn, seq)
        facts.append((MessageInterrupted(message=partial, cause="cancelled", note=_NOTE), turn.step))
    if withholds:
        facts += _withheld(turn)
    for id, call in turn.calls.items():
        if call.completed is None:
            started = call.started is not None
            outcome = outcomes.interrupted("cancelled") if started else outcomes.not_started("closed")
            result = result_block(id, call.block.name, outcome)
            facts.append(
                (ToolCompleted(result=result, status=outcome.status, error=outcome.error, duration_s=None), turn.step)
            )
    return (*facts, (TurnCancelled(cause="the session was forked"), turn.id))


def _withheld(turn: TurnState) -> list[Fact]:
    return [
        (ToolRevised(result=result_block(call.block.id, call.block.name, outcomes.withheld())), step_of(call.block.id))
        for call in unshown(turn)
        if not call.revised
    ]


def _name(data: object, place: str | None) -> str:
    match data:
        case ToolCompleted():
            return f"call {data.call}"
        case ToolRevised():
            return f"result of {data.call}"
        case MessageInterrupted():
            return f"answer {place}"
        case _:
            return f"turn {place}"
