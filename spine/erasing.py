"""Erasing what must not be kept (floor 9): the data of an event, or a content, goes; its digest stays.

The hash of an event covers the digest of its data, so the chain verifies as before. In the place of the data stands
what still fits the event's type, with every private field emptied, so that histories and transcripts go on. The
`content.erased` event says what was erased and why, and has the digest of what stands there now.

The rule it guards: a chain that verifies shows each erasure, or `verify` says that one is not accounted for.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import attrs

from spine import events as e
from spine.appending import batch_of, claimed, store_all
from spine.codec import Codec
from spine.errors import LogBroken, SessionBusy, UsageError
from spine.frozen import frozen
from spine.llm.errors import Failure
from spine.messages import Message, RefusalBlock, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock
from spine.recorded import ERASED_TEXT, erased_content, erased_data, is_erased
from spine.store import Append, Overwrite, Owner, Row, Store, digests_in
from spine.stored import StoredLog
from spine.values import EMPTY_OBJECT, Digest, SessionId, clean_text, decode, digest, freeze_object

__all__ = ["Erased", "Erasure", "carry_out", "erase", "plan"]


@frozen(kw_only=True)
class Erased:
    """What an erasure did. `sessions` all had or shared an event that was erased, and say so at their end."""

    events: tuple[int, ...]
    contents: tuple[Digest, ...]
    sessions: tuple[SessionId, ...]
    beside: tuple[Digest, ...] = ()
    """Contents that erased events referred to, and that are still there."""


@frozen(kw_only=True)
class Erasure:
    """What is to be erased, looked up and not yet done."""

    source: StoredLog
    rows: tuple[Row, ...]
    overwrites: tuple[Overwrite, ...]
    contents: tuple[Digest, ...]
    concerned: Mapping[SessionId, tuple[set[bytes], set[Digest]]]
    """Each session that has some of the events (by hash) or refers to some of the contents; the source comes first."""


def erase(
    source: StoredLog,
    seqs: Sequence[int] = (),
    contents: Sequence[Digest] = (),
    *,
    reason: str,
    by: str | None = None,
    owner: Owner,
    now: int,
) -> Erased:
    """Erase events of a stored session by their `seqs`, and contents by digest, wherever the store has them.

    With an answer go its pieces, with an event its own long texts beside the log. Erasing again changes nothing that
    is erased. Raises before anything is changed: `UsageError` for an event that holds nothing private or is not there,
    `SessionBusy` while a turn is open, `SessionOwned` while somebody else owns a session that is concerned. For a fork
    that was made meanwhile they may come afterwards: it says nothing of the erasure then until that is done again.
    """
    return carry_out(plan(source, seqs, contents), reason=reason, by=by, owner=owner, now=now)


def plan(source: StoredLog, seqs: Sequence[int] = (), contents: Sequence[str] = ()) -> Erasure:
    """Look up what is taken away, and from whom. Raises `UsageError` for what is not there or holds nothing private."""
    wanted = tuple(map(Digest, contents))
    inline = _inline(source, set(wanted) - {*source.store.contents(wanted)})
    rows = (*_rows_to_erase(source, sorted(set(seqs))), *inline)
    gone = tuple(dict.fromkeys([*wanted, *(found for row in rows for found in _long_texts(row))]))
    overwrites = tuple(Overwrite(row.seq, row.hash, _left(source, row)) for row in rows)
    concerned = _concerned(source, rows, set(gone))
    return Erasure(source=source, rows=rows, overwrites=overwrites, contents=gone, concerned=concerned)


def carry_out(erasure: Erasure, *, reason: str, by: str | None = None, owner: Owner, now: int) -> Erased:
    """Do what was planned; see `erase`."""
    if not reason.strip():
        raise UsageError("erasing wants a reason, which the log keeps", hint='--reason "…"')
    source, rows, gone = erasure.source, erasure.rows, erasure.contents
    store, markers = source.store, tuple(map(erased_content, gone))

    def fact(held: set[bytes], parts: set[Digest]) -> e.ContentErased:
        events = {str(each.seq): digest(each.data) for each in erasure.overwrites if each.hash in held}
        left = {str(each.digest): digest(each.data) for each in markers if each.digest in parts}
        return e.ContentErased(
            events=freeze_object(events), contents=freeze_object(left), reason=clean_text(reason), by=by
        )

    facts = {session: fact(*found) for session, found in erasure.concerned.items()}
    _store(source, facts, owner, now, erased=erasure.overwrites, erased_contents=markers)
    late = {session: fact(*found) for session, found in _concerned(source, rows, set(gone)).items()}
    late = {each: said for each, said in late.items() if each not in facts and not _says(store, each, said)}
    if late:  # forks that were made since it was planned
        _store(source, late, owner, now)
    beside = {found for row in rows for found in digests_in(row.data)} - set(gone)
    still = tuple(store.contents(sorted(beside)))
    return Erased(events=tuple(row.seq for row in rows), contents=gone, sessions=(*facts, *late), beside=still)


def _store(
    source: StoredLog, facts: Mapping[SessionId, e.ContentErased], owner: Owner, now: int, **erased: Any
) -> None:
    """Let each session say what was erased of it; what is `erased` goes in the same transaction."""
    with ExitStack() as claims:
        batches: list[Append] = []
        for session, fact in facts.items():
            claim = claims.enter_context(claimed(source.store, session, owner, now))
            _check_closed(source.store, session)
            batches.append(batch_of(source.codec, session, claim.token, (claim.seq, claim.hash), [(fact, None)], now))
        batches[0] = attrs.evolve(batches[0], **erased)
        store_all(source.store, batches)


def _says(store: Store, session: SessionId, fact: e.ContentErased) -> bool:
    """Whether a session says already what was erased: a fork that was made after that does."""
    wanted = {**fact.events, **fact.contents}.items()
    said = [decode(row.data) for row in store.read(session, types=("content.erased",))]
    return wanted <= {pair for each in said for field in ("events", "contents") for pair in each.get(field, {}).items()}


def _rows_to_erase(source: StoredLog, seqs: Sequence[int]) -> list[Row]:
    """The events of the source with these seqs, and the pieces of the answers among them."""
    answers: dict[str, int] = {}
    wanted: dict[int, Row] = {}
    for seq in seqs:
        row = next(iter(source.rows(after=max(seq - 1, 0), until=seq)), None)
        if row is None:
            raise UsageError(f"{source.session} has no event {seq}; its last is {source.head[0]}", hint="spine log")
        wanted[seq] = row
        if row.type in ("message.committed", "message.interrupted") and row.place:
            answers[row.place] = seq
    for row in source.rows(types=("model.chunks",)) if answers else ():
        if row.place in answers and row.seq < answers[row.place]:
            wanted[row.seq] = row
    return [row for _, row in sorted(wanted.items())]


def _inline(source: StoredLog, wanted: set[Digest]) -> list[Row]:
    """The events of any session that have one of these contents inside of them."""
    found: dict[bytes, Row] = {}
    seen: set[Digest] = set()
    for info in source.store.sessions() if wanted else ():
        for row in source.store.read(info.id, types=("content.added",)):
            if held := wanted.intersection(digests_in(row.data)):
                found[row.hash] = row
                seen |= held
    if seen != wanted:
        raise UsageError(f"content {min(wanted - seen)} is not in {source.store.url}", hint="spine log --json")
    return list(found.values())


def _concerned(
    source: StoredLog, rows: Sequence[Row], contents: set[Digest]
) -> dict[SessionId, tuple[set[bytes], set[Digest]]]:
    store = source.store
    found: dict[SessionId, tuple[set[bytes], set[Digest]]] = {source.session: (set(), set())}
    for session in (source.session, *(info.id for info in store.sessions() if info.id != source.session)):
        held = {row.hash for row in rows if row.hash in _hash_at(store, session, row.seq)}
        parts: set[Digest] = set()
        if contents:  # walks the whole store: erasing is seldom
            parts = contents & {wanted for row in store.read(session) for wanted in digests_in(row.data)}
        if held or parts:
            found[session] = (held, parts)
    return found


def _hash_at(store: Store, session: SessionId, seq: int) -> list[bytes]:
    return [row.hash for row in store.read(session, after=seq - 1, until=seq)]


def _check_closed(store: Store, session: SessionId) -> None:
    marks = ("turn.started", "turn.completed", "turn.failed", "turn.cancelled")
    last = max(store.read(session, types=marks), key=lambda row: row.seq, default=None)
    if last is not None and last.type == "turn.started":
        raise SessionBusy(
            f'turn {last.place} of session "{session}" is open, and what it needs is not erased',
            hint=f"spine resume {session}",
        )


def _long_texts(row: Row) -> tuple[Digest, ...]:
    beside = decode(row.data).get("$contents", {}) if b'"$contents"' in row.data else {}
    return tuple(Digest(str(found)) for found in beside.values())


# --------------------------------------------------------------------------------------------------- what is left


def _left(source: StoredLog, row: Row) -> bytes:
    """What takes the place of an event's data. Raises `UsageError` when it holds nothing that could be private."""
    codec = source.codec
    candidates: list[Mapping[str, Any]] = []
    try:
        data = codec.decode_row(source.session, row, b"", source.content).data
        left = _LEFT[type(data)](data) if type(data) in _LEFT else data
        if left != data or is_erased(row.data):
            candidates.append(codec.to_json(left))
        elif row.origin is None and not isinstance(data, e.UnknownEvent):
            raise UsageError(f"event {row.seq} ({row.type}) holds nothing that could be erased")
    except LogBroken:  # a content is gone already, say
        pass
    for fields in (*candidates, {}):
        erased = erased_data(row.data, fields)
        if _fits(codec, row._replace(data=erased)):
            return erased
    return erased_data(row.data, {})


def _fits(codec: Codec, row: Row) -> bool:
    try:
        codec.decode_data(row, lambda wanted: b"")
    except LogBroken:
        return False
    return True


def _message(message: Message) -> Message:
    return message.evolve(content=tuple(map(_block, message.content)), metadata=EMPTY_OBJECT)


def _block(block: Any) -> Any:
    """A block in which nothing of anybody's is left; calls and results keep what ties them together."""
    match block:
        case ThinkingBlock():
            return ThinkingBlock(text=ERASED_TEXT)
        case RefusalBlock():
            return RefusalBlock(text=ERASED_TEXT)
        case ToolCallBlock():
            return attrs.evolve(block, arguments=EMPTY_OBJECT, arguments_text=None, provider_state=None)
        case ToolResultBlock():
            return attrs.evolve(block, content=(TextBlock(text=ERASED_TEXT),), provider_state=None)
        case _:
            return TextBlock(text=ERASED_TEXT)


def _failure(failure: Failure | None) -> Failure | None:
    return failure and Failure(category=failure.category, message=ERASED_TEXT, status=failure.status)


def _result(data: Any) -> Any:
    error = getattr(data, "error", None)
    more = {} if error is None else {"error": attrs.evolve(error, message=ERASED_TEXT)}
    return attrs.evolve(data, result=_block(data.result), patches=(), **more)


def _without(**fields: Any) -> Callable[[Any], Any]:
    return lambda data: attrs.evolve(data, **fields)


def _failed(data: Any) -> Any:
    return attrs.evolve(data, failure=_failure(data.failure))


_LEFT: Final[Mapping[type, Callable[[Any], Any]]] = {
    e.SessionCreated: _without(title=None, metadata=EMPTY_OBJECT),
    e.SessionRenamed: _without(title=ERASED_TEXT),
    e.InputAccepted: lambda data: attrs.evolve(data, message=_message(data.message), key=None),
    e.TurnStarted: _without(overrides=EMPTY_OBJECT),
    e.TurnFailed: _failed,
    e.TurnCancelled: _without(cause=ERASED_TEXT),
    e.ContentAdded: lambda data: attrs.evolve(data, text=None if data.text is None else ERASED_TEXT),
    e.ModelRequested: _without(patches=()),
    e.ModelAttemptFailed: _failed,
    e.ModelChunks: _without(chunks=(), offsets=()),
    e.MessageCommitted: lambda data: attrs.evolve(data, message=_message(data.message), metadata=EMPTY_OBJECT),
    e.MessageInterrupted: lambda data: attrs.evolve(
        data, message=data.message and _message(data.message), failure=_failure(data.failure), note=""
    ),
    e.ToolStarted: _without(arguments=EMPTY_OBJECT, requested=None, patches=()),
    e.ToolProgress: _without(text=None, data=None),
    e.ToolCompleted: _result,
    e.ToolRevised: _result,
    e.StepFailed: _failed,
    e.HookFailed: _without(error=ERASED_TEXT),
    e.CancelRequested: lambda data: attrs.evolve(data, cause=ERASED_TEXT, by=None, failure=_failure(data.failure)),
    e.ApprovalRequested: _without(arguments=EMPTY_OBJECT, patches=(), reason=None),
    e.ApprovalDecided: _without(by=ERASED_TEXT, reason=None),
    e.HistoryCompacted: lambda data: attrs.evolve(data, summary=_message(data.summary)),
}
"""What stays of each type that can hold something private; ids, names, kinds and numbers do."""
