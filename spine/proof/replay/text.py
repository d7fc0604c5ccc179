"""What a replay found (floor 13): a value, in words for people and as facts for programs."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import attrs

from spine.events import RecordedEvent
from spine.projectors.phrases import counted, json_text
from spine.projectors.visible import one_line
from spine.proof.replay.cause import Cause
from spine.proof.replay.compare import Difference
from spine.values import freeze

__all__ = ["Replayed", "erased_text", "finding", "missing_text", "replay_fact"]

_AROUND: Final = 24
"""Characters shown on either side of where two texts begin to differ."""
_MAX: Final = 160


@attrs.frozen(kw_only=True)
class Replayed:
    """What a replay found. It holds when nothing is different or missing."""

    session: str
    events: int
    """How many events came out equal."""
    processes: int
    difference: Difference | None = None
    cause: Cause | None = None
    missing: tuple[str, ...] = ()
    """Plugins that left traces in the log and are not loaded now; nothing was compared then."""
    erased: tuple[int, ...] = ()
    """Events whose data were erased, so that nothing can be compared."""
    drift: tuple[str, ...] = ()
    """What is not as recorded and changed no event: versions of plugins that had a part, the agent's contract."""
    beside: tuple[str, ...] = ()
    """Plugins that are not as recorded, and had no part, neither then nor now."""
    is_exact: bool = True
    """Equal byte for byte, hashes included; not so for logs of an older format, whose events say the same."""

    @property
    def verdict(self) -> Literal["equal", "different", "missing"]:
        """Whether the new log is the old one; `missing`: that cannot be told here."""
        return "missing" if self.missing or self.erased else "equal" if self.difference is None else "different"

    @property
    def is_equal(self) -> bool:
        """Whether the new log is the old one."""
        return self.verdict == "equal"

    def __str__(self) -> str:
        return finding(self)


def missing_text(session: str, missing: Sequence[str]) -> str:
    """Which plugins that had a part are not here."""
    verb = "is" if len(missing) == 1 else "are"
    return f"{', '.join(missing)} took part in {session} and {verb} not loaded now"


def erased_text(session: str, erased: Sequence[int]) -> str:
    """Which data are not there any more."""
    some = ", ".join(map(str, erased[:8])) + (", …" if len(erased) > 8 else "")
    return f"private data of {session} were erased (seq {some})"


def finding(found: Replayed, facts: str = "") -> str:
    """The finding in lines, without a newline at the end; `facts` are added to the line of an equal one."""
    return "\n".join(_lines(found, facts))


def _lines(found: Replayed, facts: str) -> Iterator[str]:
    if found.missing:
        yield f"no verdict: {missing_text(found.session, found.missing)}"
    elif found.erased:
        yield f"no verdict: {erased_text(found.session, found.erased)}"
    elif found.difference is not None:
        yield from _difference(found.difference)
        if found.cause is not None:
            yield f"  {one_line(str(found.cause))}"
    else:
        how = "byte for byte" if found.is_exact else "in what they say; the log has an older format"
        processes = f", in {counted(found.processes, 'process')}" if found.processes > 1 else ""
        yield f"equal: {counted(found.events, 'event')} {how}{processes}{facts}"
    for drift in found.drift:
        yield f"  drift: {one_line(drift)}"
    if found.beside:
        yield f"  without a part in it: {one_line('; '.join(found.beside))}"


def _difference(found: Difference) -> Iterator[str]:
    if found.is_stuck:
        there = "the log ends" if found.recorded is None else f"the log goes on with {_name(found.recorded)}"
        yield f"DIFFERENT at seq {found.seq}: nothing happens any more; {there}"
        return
    if found.now is None or found.recorded is None or not found.path:
        log = "nothing" if found.recorded is None else _name(found.recorded)
        now = "nothing" if found.now is None else _name(found.now)
        yield f"DIFFERENT at seq {found.seq}: another event"
        yield f"  log  {log}"
        yield f"  now  {now}"
        return
    character = "" if found.character is None else f", character {found.character}"
    yield f"DIFFERENT at seq {found.seq} {_name(found.recorded)}, path {found.path}{character}"
    yield f"  log  {_shown(found.old, found.character)}"
    yield f"  now  {_shown(found.new, found.character)}"


def _name(event: RecordedEvent) -> str:
    return f"{event.type} {event.place}" if event.place else event.type


def _shown(value: Any, character: int | None) -> str:
    if not isinstance(value, str) or character is None:
        text = "nothing" if value is None else json_text(freeze(value))
        return one_line(text if len(text) <= _MAX else f"{text[: _MAX - 1]}…")
    begin, end = max(0, character - _AROUND), character + _AROUND
    before, after = "…" if begin else "", "…" if end < len(value) else ""
    return f"{before}{one_line(value[begin:end])}{after}"


def replay_fact(found: Replayed) -> dict[str, Any]:
    """The finding as JSON."""
    return {
        "session": found.session,
        "verdict": found.verdict,
        "events": found.events,
        "processes": found.processes,
        "exact": found.is_exact,
        "missing": list(found.missing),
        "erased": list(found.erased),
        "drift": list(found.drift),
        "beside": list(found.beside),
        "difference": None if found.difference is None else _difference_fact(found.difference),
        "cause": None if found.cause is None else _cause_fact(found),
    }


def _difference_fact(found: Difference) -> dict[str, Any]:
    return {
        "seq": found.seq,
        "recorded": None if found.recorded is None else _name(found.recorded),
        "now": None if found.now is None else _name(found.now),
        "path": found.path or None,
        "character": found.character,
        "old": found.old,
        "new": found.new,
        "stuck": found.is_stuck,
    }


def _cause_fact(found: Replayed) -> dict[str, Any]:
    cause = found.cause
    assert cause is not None
    return {
        "kind": cause.kind,
        "name": cause.name,
        "owner": cause.owner,
        "old": cause.old,
        "new": cause.new,
        "change": cause.change,
        "steps": list(cause.steps),
        "text": str(cause),
    }
