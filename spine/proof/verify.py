"""Is this log what was recorded? (floor 13): chain, gaps, contents, requests, calls; told with the first bad seq.

Everything is checked over stored bytes. What the check proves is consistency: a cut at the end, an old copy or a log
rewritten as a whole shows only against a head that was noted elsewhere.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

import attrs

from spine.codec import row_hash
from spine.errors import LogBroken, SpineError, UsageError, ValueRefused
from spine.events import (
    ContentAdded,
    ContentErased,
    MessageCommitted,
    ModelRequested,
    RecordedEvent,
    SessionForked,
    ToolCompleted,
    UnknownEvent,
)
from spine.exports import ExportReader, needed_contents
from spine.projectors.phrases import excerpt, listed, name_text
from spine.rebuild import Rebuilder, Rebuilt
from spine.recorded import is_erased
from spine.store import Row
from spine.stored import StoredLog
from spine.values import CallId, Digest, SessionId, decode, digest, short

__all__ = ["CheckedRequest", "Problem", "Verification", "parse_head", "verify"]

Verdict = Literal["ok", "broken", "unproven"]
MAX_PROBLEMS: Final = 1000
_HEAD = re.compile(r"([0-9]{1,15}):([0-9a-f]{8,64})")
_MALFORMED: Final = (KeyError, IndexError, AssertionError, AttributeError, TypeError, ValueError)
"""What folding raises over a log whose hashes hold but whose facts contradict each other."""


@attrs.frozen(kw_only=True)
class Problem:
    """Something that does not hold. `what` names the event, as `tool.completed t1s1c1`."""

    seq: int
    what: str
    text: str


@attrs.frozen(kw_only=True)
class CheckedRequest:
    """A request of the log: rebuilt and equal, different, or resting on a bad event or on erased data."""

    step: str
    seq: int
    state: Literal["equal", "different", "rests", "erased"]
    digest: str = ""
    """The recorded one."""
    part: str = ""
    """What of it is bad, as `message 3` or `section policy`; empty when nothing is, and when that cannot be told."""


@attrs.frozen(kw_only=True)
class ErasedPart:
    """An event or a content of which only the digest is left. `reason` None: no event of the log accounts for it."""

    seq: int
    """Of the event, or of the first one that needs the content."""
    what: str
    """The event's type, or the content's digest."""
    reason: str | None


@attrs.frozen(kw_only=True)
class Verification:
    """What was found. `head` is the log's last event as read, (0, b"") when there is none."""

    session: SessionId
    events: int
    head: tuple[int, bytes]
    problems: tuple[Problem, ...] = ()
    """In order of their seq; the chain's first."""
    broken_at: int | None = None
    """The first seq that the chain does not prove; None when it is whole."""
    requests: tuple[CheckedRequest, ...] = ()
    answered: int = 0
    """Calls that were answered exactly once."""
    contents: int = 0
    """Contents beside the log that match their digests."""
    unknown_types: Mapping[str, int] = attrs.field(factory=dict)
    """Events of types not known here: `crm.ticket_linked of crm@1.4` to how many."""
    unknown_fields: tuple[tuple[int, str], ...] = ()
    """Fields that a newer version or another program wrote: seq and JSON path."""
    erased: tuple[ErasedPart, ...] = ()
    unproven: str | None = None
    """Why requests could not be rebuilt though nothing is broken; None when they were."""

    @property
    def verdict(self) -> Verdict:
        """Whether it holds; `unproven`: what was checked holds, and something could not be checked here."""
        if self.problems:
            return "broken"
        return "unproven" if self.unproven or any(part.reason is None for part in self.erased) else "ok"


def parse_head(text: str) -> tuple[int, str]:
    """Read `41:9f1c6b02d7e8`: a seq and the beginning of its hash. Raises `UsageError`."""
    found = _HEAD.fullmatch(text.strip())
    if found is None:
        raise UsageError(f'head "{text}" is not of the form SEQ:HASH, at least 8 hexadecimal digits of the hash')
    return int(found[1]), found[2]


def verify(reader: StoredLog, head: tuple[int, str] | None = None) -> Verification:
    """Check a whole log, or an export; `head` is a seq and the beginning of a hash that were noted elsewhere.

    Never raises for what is wrong with the log. Raises `SessionUnknown`, and what the store raises.
    """
    check = _Check(reader)
    has_lost_all = isinstance(reader, ExportReader) and not reader.head[0]
    try:
        for row in () if has_lost_all else reader.rows():
            check.row(row)
    except LogBroken as error:
        check.breaks(error.seq, "", error.message)
    check.end(head)
    return check.result()


class _Check:
    """The state of one verification; each row goes through chain, contents, and then its meaning."""

    def __init__(self, reader: StoredLog) -> None:
        self._reader = reader
        self._prev = reader.genesis
        self._last: Row | None = None
        self._events = 0
        self._problems: list[Problem] = []
        self._broken_at: int | None = None
        self._bad: set[int] = set()
        self._bad_contents: list[str] = []
        """Texts that bad events brought, as they read now."""
        self._last_equal: tuple[str, int] | None = None
        """The last request that was rebuilt, and how many messages its history had."""
        self._unproven: str | None = None
        self._rebuilder = Rebuilder(reader.codec, reader.content)
        self._requests: list[CheckedRequest] = []
        self._asked: dict[CallId, int] = {}
        self._answered: dict[CallId, int] = {}
        self._contents: set[Digest] = set()
        self._erased: dict[str, tuple[int, str, Digest]] = {}
        """By seq or digest: where, what, and the digest of what is left of it."""
        self._reasons: dict[tuple[str, str], str] = {}
        """Why, by seq or digest and what is left."""
        self._unknown_types: Counter[str] = Counter()
        self._unknown_fields: list[tuple[int, str]] = []

    # ----------------------------------------------------------------------------------------------------- findings

    def problem(self, seq: int, what: str, text: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(seq=seq, what=what, text=text))

    def breaks(self, seq: int, what: str, text: str) -> None:
        self.problem(seq, what, text)
        self._bad.add(seq)
        self._broken_at = seq if self._broken_at is None else min(self._broken_at, seq)

    # --------------------------------------------------------------------------------------------------------- rows

    def row(self, row: Row) -> None:
        self._events += 1
        self._chain(row)
        if is_erased(row.data):
            self._erased[str(row.seq)] = (row.seq, row.type, digest(row.data))
        self._beside(row)
        if self._unproven and row.type == "model.requested":
            self._requests.append(CheckedRequest(step=row.place or "?", seq=row.seq, state="rests"))
        elif self._broken_at is None:
            self._meaning(row)
        else:
            self._beyond(row)
        self._prev, self._last = row.hash, row

    def _chain(self, row: Row) -> None:
        expected = 1 if self._last is None else self._last.seq + 1
        if row.seq != expected:
            how = "it is missing" if row.seq > expected else "it does not stand in its place"
            text = f"{how}; after seq {expected - 1} comes seq {row.seq} ({_name(row)})"
            self.breaks(min(expected, row.seq), "", text)
            return
        actual = row_hash(self._prev, row)
        if actual != row.hash:
            text = f"its hash should be {short(row.hash)}, its content gives {short(actual)}"
            self.breaks(row.seq, _name(row), text)

    def _beside(self, row: Row) -> None:
        for wanted in needed_contents(row):
            if wanted in self._contents:
                continue
            try:
                found = digest(self._reader.content(wanted))
                if found != wanted:
                    self._erased[wanted] = (row.seq, wanted, found)
                else:
                    self._contents.add(wanted)
            except LogBroken as error:
                self.breaks(row.seq, _name(row), error.message)

    def _meaning(self, row: Row) -> None:
        try:
            event = self._reader.codec.decode_row(self._reader.session, row, self._prev, self._reader.content)
            if isinstance(event.data, UnknownEvent):
                if not event.data.is_erased:  # those are listed as such
                    self._unknown(row, event)
            else:
                self._extra_fields(row, event)
                self._calls(event)
                self._rebuild(event)
        except SpineError as error:
            self.breaks(row.seq, _name(row), error.message)
        except _MALFORMED as error:
            self.breaks(row.seq, _name(row), f"it contradicts the events before it ({type(error).__name__}: {error})")

    def _beyond(self, row: Row) -> None:
        """Nothing is proven after the chain broke; but a request that rebuilds to the one sent rests on nothing bad."""
        rebuilt: Rebuilt | None = None
        with suppress(SpineError, *_MALFORMED):
            event = self._reader.codec.decode_row(self._reader.session, row, self._prev, self._reader.content)
            if row.seq in self._bad and isinstance(event.data, ContentAdded):
                self._bad_contents.append(event.data.text or "")
            rebuilt = self._rebuilder.add(event)
        if row.type == "model.requested":
            is_equal = rebuilt is not None and rebuilt.is_equal
            part = "" if is_equal or rebuilt is None else ", ".join(self._bad_parts(rebuilt))
            state: Literal["equal", "rests"] = "equal" if is_equal else "rests"
            self._requests.append(CheckedRequest(step=row.place or "?", seq=row.seq, state=state, part=part))

    def _bad_parts(self, rebuilt: Rebuilt) -> Iterator[str]:
        """The parts of a request that come from bad events."""
        for number, seq in enumerate(self._rebuilder.history.seqs, 1):
            if seq in self._bad:
                yield f"message {number}"
        for block in rebuilt.request.system:
            if block.text in self._bad_contents:
                yield f"section {name_text(block.name)}"
        for tool in rebuilt.request.tools:
            if any(_names_tool(text, tool.name) for text in self._bad_contents):
                yield f"tool {name_text(tool.name)}"

    def _unknown(self, row: Row, event: RecordedEvent) -> None:
        owner = row.origin or "a newer version"
        self._unknown_types[f"{row.type} of {owner}"] += 1
        if row.required or row.origin is None:
            package = f"spine-{row.type.partition('.')[0]}" if row.origin else "a newer agent-spine"
            text = f'seq {row.seq} has the required type "{row.type}" of {owner}; requests after it need {package}'
            self._unproven = self._unproven or text

    def _extra_fields(self, row: Row, event: RecordedEvent) -> None:
        # Equal bytes mean that every field is known; the slow way is for the few other rows.
        if row.data != self._reader.codec.encode_event(event.data).data:
            self._unknown_fields.extend((row.seq, path) for path in self._reader.codec.unknown_fields(row))

    def _calls(self, event: RecordedEvent) -> None:
        data = event.data
        if isinstance(data, MessageCommitted):
            self._asked.update({call.id: event.seq for call in data.message.tool_calls})
        elif isinstance(data, ToolCompleted):
            self._answer(event.seq, data.call)
        elif isinstance(data, SessionForked):
            if (data.seq, data.hash) != (event.seq - 1, event.prev_hash.hex()):
                text = f"it says that it was forked at seq {data.seq}, after another event than the one before it"
                self.problem(event.seq, event.type, text)
        elif isinstance(data, ContentErased):
            left = [*data.events.items(), *data.contents.items()]
            self._reasons.update({(part, str(stays)): data.reason for part, stays in left})
        elif event.type == "model.requested":
            for call in [call for call in self._asked if call not in self._answered]:
                text = f"the request went out although call {call} (seq {self._asked[call]}) has no result"
                self.problem(event.seq, f"{event.type} {event.place}", text)

    def _answer(self, seq: int, call: CallId) -> None:
        what = f"tool.completed {call}"
        if call in self._answered:
            self.problem(seq, what, f"the call was answered at seq {self._answered[call]} already")
        elif call not in self._asked:
            self.problem(seq, what, "no message asks for this call")
        self._answered.setdefault(call, seq)

    def _rebuild(self, event: RecordedEvent) -> None:
        step = event.place or "?"
        try:
            rebuilt = self._rebuilder.add(event)
        except (SpineError, *_MALFORMED):
            if not self._erased or event.type != "model.requested":
                raise
            self._requests.append(CheckedRequest(step=step, seq=event.seq, state="erased", digest=event.data.digest))
            return
        if rebuilt is None:
            return
        recorded = short(rebuilt.recorded)
        state: Literal["equal", "different", "erased"] = "different" if not self._erased else "erased"
        state = "equal" if rebuilt.is_equal else state
        part = self._new_parts(event.data) if state == "different" else ""
        self._requests.append(CheckedRequest(step=step, seq=event.seq, state=state, digest=rebuilt.recorded, part=part))
        if state == "different":
            where = f"; it differs in {part}" if part else ""
            text = f"the rebuilt request has digest {short(rebuilt.digest)}, the one sent had {recorded}{where}"
            self.problem(event.seq, f"model.requested {step}", text)
        elif state == "equal":
            self._last_equal = (step, len(self._rebuilder.history))

    def _new_parts(self, data: ModelRequested) -> str:
        """Where a request differs from the one sent: in what it has that the last equal one had not."""
        if self._last_equal is None:
            return ""
        step, known = self._last_equal
        last = len(self._rebuilder.history)
        messages = f"message {last}" if last == known + 1 else f"messages {known + 1}-{last}"
        parts = [messages] if last > known else []
        parts += [f"what {listed(patch.plugin for patch in data.patches)} changed"] if data.patches else []
        return f"{' or '.join(parts) or 'its frame'}, new since {step}"

    # ---------------------------------------------------------------------------------------------------------- end

    def end(self, noted: tuple[int, str] | None) -> None:
        last = (self._last.seq, self._last.hash) if self._last else (0, b"")
        if self._broken_at is None:
            self._ending(last)
        if noted is not None:
            self._compare(noted, last)

    def _ending(self, last: tuple[int, bytes]) -> None:
        reader = self._reader
        if isinstance(reader, ExportReader) and reader.torn:
            self.breaks(last[0] + 1, "", f"the file is not whole: {reader.torn}")
        elif isinstance(reader, ExportReader) and (reader.file.announced.seq, reader.file.announced.hash) != (
            last[0],
            last[1].hex(),
        ):
            self.breaks(last[0], "", f"the file's first line has the hash {reader.file.announced.hash[:8]} for its end")
        elif reader.head[0] and reader.head != last:
            self.breaks(last[0] + 1, "", f"the log ends at seq {last[0]}, its head should be seq {reader.head[0]}")

    def _compare(self, noted: tuple[int, str], last: tuple[int, bytes]) -> None:
        seq, hash = noted
        if seq > last[0]:
            self.breaks(last[0] + 1, "", f"the log ends at seq {last[0]}, the noted head is seq {seq}: its end was cut")
            return
        row = next(iter(self._reader.rows(after=seq - 1, until=seq)), None)
        if row is not None and not row.hash.hex().startswith(hash):
            self.breaks(seq, _name(row), f"its hash is {row.hash.hex()[: len(hash)]}, the noted head has {hash}")

    def result(self) -> Verification:
        return Verification(
            session=self._reader.session,
            events=self._events,
            head=(self._last.seq, self._last.hash) if self._last else (0, b""),
            problems=tuple(sorted(self._problems, key=lambda problem: problem.seq)),
            broken_at=self._broken_at,
            requests=tuple(self._requests),
            answered=len(self._answered),
            contents=len(self._contents),
            erased=tuple(
                ErasedPart(seq=seq, what=what, reason=self._reasons.get((part, left)))
                for part, (seq, what, left) in self._erased.items()
            ),
            unknown_types=dict(self._unknown_types),
            unknown_fields=tuple(self._unknown_fields),
            unproven=self._unproven,
        )


def _names_tool(text: str, name: str) -> bool:
    """Whether a content's text is the definition of that tool."""
    with suppress(ValueRefused):
        value = decode(text.encode())
        return isinstance(value, dict) and value.get("name") == name
    return False


def _name(row: Row) -> str:
    """`tool.completed t1s1c1`: the type, and the call or place that it is about."""
    try:
        data: Any = decode(row.data)
        call = data.get("call") or data.get("result", {}).get("call_id")
    except (ValueRefused, AttributeError):
        call = None
    place = call if isinstance(call, str) else row.place
    return f"{row.type} {place}" if place else row.type


# ---------------------------------------------------------------------------------------------------------- in words


def report(found: Verification) -> str:
    """The verification in lines for people, without a newline at the end."""
    lines = [*(_broken_lines(found) if found.problems else [_whole_line(found)]), *_notes(found)]
    return "\n".join(lines)


def _whole_line(found: Verification) -> str:
    requests, calls = len(found.requests), found.answered
    equal = sum(request.state == "equal" for request in found.requests)
    parts = [f"{_count(found.events, 'event')} without gap", "chain whole"]
    rest = sum(request.state == "erased" for request in found.requests)
    parts.append(
        f"{_count(requests - rest, 'request')} rebuilt, {_count(equal, 'digest')} equal" if requests else "no request"
    )
    if rest:
        parts.append(f"{_count(rest, 'request')} on erased data")
    parts.append(f"{_count(calls, 'call')} answered once" if calls else "no call")
    if found.contents:
        parts.append(f"{_count(found.contents, 'content')} beside the log")
    return f"{found.session}  {'ok' if found.verdict == 'ok' else 'UNPROVEN'}  {' · '.join(parts)}"


def _broken_lines(found: Verification) -> Iterable[str]:
    first = next((p for p in found.problems if p.seq == found.broken_at), found.problems[0])
    what = f" ({first.what})" if first.what else ""
    yield f"{found.session}  BROKEN at seq {first.seq}{what}: {first.text}"
    indent = " " * (len(found.session) + 2)
    proven = (found.broken_at or found.events + 1) - 1
    facts = [f"seq 1-{proven} are proven" if proven > 1 else f"seq {proven or 'none'} is proven"]
    facts.append(_requests_text(found) if found.requests else "no request")
    yield f"{indent}{'; '.join(facts)}"
    others = [problem for problem in found.problems if problem is not first]
    for problem in others[:10]:
        yield f"{indent}also at seq {problem.seq}{f' ({problem.what})' if problem.what else ''}: {problem.text}"
    if len(others) > 10:
        yield f"{indent}and {len(others) - 10:,} more"


def _requests_text(found: Verification) -> str:
    groups = []
    words_of = {"equal": "equal", "different": "different", "rests": f"on seq {found.broken_at}"}
    words_of["erased"] = "on erased data"
    for state, words in words_of.items():
        steps = [request.step for request in found.requests if request.state == state]
        if steps and state == "rests":
            parts = list(dict.fromkeys(r.part for r in found.requests if r.state == state and r.part))
            words += f" ({'; '.join(parts)})" if parts else ""
        if steps:
            verb = ("rest " if len(steps) > 1 else "rests ") if words.startswith("on") else ""
            groups.append(f"{_steps(steps)} {verb}{words}")
    return f"{_count(len(found.requests), 'request')}: {', '.join(groups)}"


def _steps(steps: list[str]) -> str:
    if len(steps) > 6:
        return f"{steps[0]} to {steps[-1]}"
    return " and ".join([", ".join(steps[:-1]), steps[-1]]) if len(steps) > 1 else steps[0]


def _notes(found: Verification) -> Iterable[str]:
    if found.unproven:
        yield f"not rebuilt: {found.unproven}"
    for part in found.erased:
        reason = "no event of the log accounts for it" if part.reason is None else excerpt(part.reason)
        yield f"erased: {part.what[:14]}{'…' * (len(part.what) > 14)} at seq {part.seq} · {reason}"
    for name, number in found.unknown_types.items():
        yield f"unknown type {name}: {_count(number, 'event')}"
    for seq, path in found.unknown_fields[:10]:
        yield f"unknown field {path} at seq {seq}"
    if len(found.unknown_fields) > 10:
        yield f"and {len(found.unknown_fields) - 10:,} more unknown fields"


def head_note(found: Verification) -> str:
    """The head, to be noted elsewhere, and what to do with it."""
    seq, hash = found.head[0], found.head[1].hex()[:12]
    return (
        f"head {seq} {hash}…   note it elsewhere: a chain alone cannot show a cut at its end; "
        f"then: spine verify {found.session} --head {seq}:{hash}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"
