"""A log to be replayed (floor 13): its events by number, and what a replayed world looks up in it.

Everything is read once. Rows stay as they were stored, because equality is judged over stored bytes.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from spine.errors import EventUnknown, LogBroken, SessionUnknown
from spine.events import (
    HookFailed,
    ModelRequested,
    RecordedEvent,
    SessionCreated,
    SessionForked,
    SessionResumed,
    ToolCompleted,
    ToolProgress,
    ToolResolved,
    ToolRevised,
    TurnStarted,
    UnknownEvent,
)
from spine.exports import needed_contents
from spine.messages import ArtifactRefBlock
from spine.recorded import is_erased
from spine.requests import FRAME_TYPE
from spine.store import Append, Content, Owner, Row, Store
from spine.stored import StoredLog
from spine.values import EMPTY_OBJECT, CallId, Digest, decode

__all__ = ["Recording"]

_OF_CALL: Final = (ToolProgress, ToolCompleted, ToolResolved, ToolRevised)
_READER: Final = Owner(id="replay", host="", pid=0, started=0)


class Recording:
    """The old log. Numbers are seqs, from 1."""

    def __init__(self, reader: StoredLog) -> None:
        """Raises `SessionUnknown`, `LogBroken`, and `EventUnknown` at an event that must be known to go on."""
        self.reader = reader
        self.session = reader.session
        self.rows: tuple[Row, ...] = tuple(reader.rows())
        self.events: tuple[RecordedEvent, ...] = tuple(reader.read())
        if not self.events:
            raise SessionUnknown(f'session "{reader.session}" has no event to replay')
        for event in self.events:
            if isinstance(event.data, UnknownEvent) and (event.required or event.origin is None):
                raise EventUnknown(
                    f'{reader.session}: seq {event.seq} has the required type "{event.type}", which is not known here',
                    seq=event.seq,
                )

    @property
    def length(self) -> int:
        """How many events it has."""
        return len(self.events)

    @cached_property
    def erased(self) -> tuple[int, ...]:
        """Seqs of events whose data were erased."""
        return tuple(row.seq for row in self.rows if is_erased(row.data))

    def at(self, seq: int) -> RecordedEvent | None:
        """The event of that number, None beyond the end."""
        return self.events[seq - 1] if 0 < seq <= len(self.events) else None

    @property
    def created(self) -> SessionCreated:
        """How the session began. Raises `LogBroken` when its first event is another one."""
        data = self.events[0].data
        if not isinstance(data, SessionCreated):
            raise LogBroken(f"{self.session} does not begin with session.created", seq=1)
        return data

    # -------------------------------------------------------------------------------------------------- processes

    def borders(self, given: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The first seq of each process but the first: where a new owner went on, and those that are `given`."""
        found = {event.seq for event in self.events[1:] if isinstance(event.data, SessionResumed)}
        return tuple(sorted({*found, *(seq for seq in given if 1 < seq <= self.length)} - set(range(self.begin + 1))))

    @cached_property
    def begin(self) -> int:
        """The last seq that is given and not replayed: a fork's parent, and what closed its open calls; mostly 0."""
        forks = [event.seq for event in self.events if isinstance(event.data, SessionForked)]
        if not forks:
            return 0
        last = forks[-1]
        # The fork's closing batch has one time and comes before anything that is asked of the child.
        while (event := self.at(last + 1)) is not None and event.at == self.events[forks[-1] - 1].at:
            if isinstance(event.data, TurnStarted) or event.type == "input.accepted":
                break
            last += 1
        return last

    def is_new_process(self, seq: int) -> bool:
        """Whether the turn that begins at `seq` says, by the origins in its first frame, that its process was new."""
        for event in self.events[seq:]:
            if isinstance(event.data, ModelRequested | TurnStarted):
                return False
            if event.type == "content.added" and event.data.media_type == FRAME_TYPE:
                return isinstance(decode(self.content(event.data.digest)).get("origins"), dict)
        return False

    def versions(self, after: int) -> Mapping[str, str]:
        """Version of each plugin of the process that went on after seq `after`, by name."""
        owners = (event.data for event in reversed(self.events[: after + 1]))
        found = next(
            (data.versions for data in owners if isinstance(data, SessionCreated | SessionResumed)), EMPTY_OBJECT
        )
        return {name: str(version) for name, version in found.items() if name != "spine"}

    def seed(self, store: Store, until: int) -> None:
        """Put the first `until` events into an empty store, contents included."""
        if not until:
            return
        rows = self.rows[:until]
        wanted = list(dict.fromkeys(digest for row in rows for digest in needed_contents(row)))
        contents = tuple(self.reader.store.contents(wanted).values())
        claim = store.claim(self.session, _READER, now=0, lease_us=1)
        batch = Append(self.session, claim.token, 0, self.reader.genesis, rows, contents)
        (verdict,) = store.append((batch,))
        if verdict is not None:
            raise verdict
        store.release(self.session, _READER)

    # --------------------------------------------------------------------------------------------------- contents

    def content(self, digest: Digest) -> bytes:
        """A content of the session."""
        return self._inline.get(digest) or self.reader.content(digest)

    @cached_property
    def _inline(self) -> dict[Digest, bytes]:
        added = (event.data for event in self.events if event.type == "content.added")
        return {data.digest: data.text.encode() for data in added if data.text is not None}

    def content_at(self, seq: int) -> bytes:
        """The content that the `content.added` of that seq brought."""
        event = self.at(seq)
        if event is None or event.type != "content.added":
            raise LogBroken(f"seq {seq} is referred to as content and is none", seq=seq)
        return self.content(event.data.digest)

    def overflow(self, completed: RecordedEvent) -> Content | None:
        """What was kept whole beside the log because the result of a call was cut."""
        data: ToolCompleted | ToolRevised = completed.data
        last = data.result.content[-1] if data.result.content else None
        if not isinstance(last, ArtifactRefBlock):
            return None
        known = {event.data.digest for event in self.events[: completed.seq] if event.type == "content.added"}
        return Content(last.digest, last.media_type, self.content(last.digest)) if last.digest in known else None

    def before(self, event: RecordedEvent) -> int:
        """The length that the log had when `event` was about to be appended, with the content it brought along."""
        previous = self.at(event.seq - 1)
        kept = self.overflow(event)
        is_its_own = (
            kept is not None
            and previous is not None
            and previous.type == "content.added"
            and previous.data.digest == kept.digest
        )
        return event.seq - 2 if is_its_own else event.seq - 1

    # ------------------------------------------------------------------------------------------------ looking ahead

    def of_call(self, call: CallId, after: int, until: int) -> Iterator[RecordedEvent]:
        """What is recorded of one call with `after < seq <= until`."""
        for event in self.events[after:until]:
            if isinstance(event.data, _OF_CALL) and event.data.call == call:
                yield event

    def following(self, seq: int, until: int, kind: Any) -> Iterator[RecordedEvent]:
        """Events of a class with `seq <= number <= until`."""
        return (event for event in self.events[seq - 1 : until] if isinstance(event.data, kind))

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """Plugins that changed or added something, as `name@version`, sorted."""
        found: set[str] = set()
        for event in self.events:
            found.update(patch.plugin for patch in getattr(event.data, "patches", ()))
            found.add(event.origin or "")
            found.add(event.data.plugin if isinstance(event.data, HookFailed) else "")
        for frame in self.frames.values():
            found.update(block.get("source", "") for block in frame["request"].get("system", ()))
        for origins in self.origins:
            found.update(item["owner"] for kind in ("tools", "sections") for item in origins.get(kind, ()))
        return tuple(sorted(owner for owner in found if "@" in owner))

    @property
    def contributors(self) -> tuple[str, ...]:
        """Names of the plugins without which the log cannot be made again."""
        return tuple(dict.fromkeys(owner.partition("@")[0] for owner in self.owners))

    @property
    def declarers(self) -> frozenset[str]:
        """Names of the plugins whose own events are in the log."""
        return frozenset(event.origin.partition("@")[0] for event in self.events if event.origin)

    @cached_property
    def origins(self) -> tuple[Any, ...]:
        """What frames say of whose the parts of their steps were."""
        return tuple(frame["origins"] for frame in self.frames.values() if isinstance(frame.get("origins"), dict))

    def chain(self, hook: str) -> tuple[str, ...]:
        """The plugins that were asked in a step hook, first asked first, as the first origins tell."""
        told = (tuple(origins["hooks"][hook]) for origins in self.origins if hook in origins.get("hooks", {}))
        return next(told, ())

    def sections_of(self, owner: str) -> dict[str, Any]:
        """The sections of a plugin as frames have them, by name."""
        names = {i["name"] for origins in self.origins for i in origins.get("sections", ()) if i["owner"] == owner}
        blocks = (block for frame in self.frames.values() for block in frame["request"].get("system", ()))
        return {block["name"]: block for block in blocks if block["name"] in names or block.get("source") == owner}

    def tools_of(self, owner: str) -> dict[str, Any]:
        """What origins say of a plugin's tools, by name."""
        items = (item for origins in self.origins for item in origins.get("tools", ()))
        return {item["name"]: item for item in items if item["owner"] == owner}

    # ---------------------------------------------------------------------------------------------------- requests

    @cached_property
    def frames(self) -> dict[int, Any]:
        """The stored frame of each request, as JSON, by the seq of its `model.requested`."""
        requested = (event for event in self.events if isinstance(event.data, ModelRequested))
        return {event.seq: decode(self.content_at(event.data.frame)) for event in requested}

    def route_after(self, seq: int) -> str | None:
        """`provider:model` of the first request after seq, or else of the last one; None when there was none."""
        routes = [(number, frame["request"]["route"]) for number, frame in self.frames.items()]
        return next((route for number, route in routes if number > seq), routes[-1][1] if routes else None)

    @cached_property
    def protocols(self) -> dict[str, str]:
        """The protocol that answered each route."""
        chosen = [
            decode(self.content_at(event.data.selection))
            for event in self.events
            if isinstance(event.data, ModelRequested) and event.data.selection is not None
        ]
        selections = [frame["selection"] for frame in self.frames.values()] + chosen
        return {f"{each['provider']}:{each['model']}": each["protocol"] for each in selections}

    @cached_property
    def was_given_adapter(self) -> bool:
        """Whether the origins name no adapter: one that was given to the runtime answered everything."""
        return bool(self.origins) and not any("adapter" in origins for origins in self.origins)
