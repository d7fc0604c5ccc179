"""What a model saw, step by step (floor 13): each request rebuilt from the log alone, and where its parts come from."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from spine.errors import LogBroken, UsageError
from spine.events import ContentAdded, ModelRequested, Patch, RecordedEvent
from spine.llm.request import ModelRequest
from spine.messages import Message
from spine.projectors import refuse_unknown
from spine.projectors.json import plain
from spine.projectors.model_history import History, ModelHistory
from spine.rebuild import Rebuilder
from spine.requests import apply
from spine.stored import StoredLog
from spine.values import Digest, StepId, decode, short

__all__ = ["PatchView", "RequestView", "find_request", "kept_messages", "patch_views", "request_json", "request_views"]


@attrs.frozen(kw_only=True)
class RequestView:
    """The request of one step. `digest` is that of the rebuilt request, `recorded` that of the one sent."""

    step: StepId
    seq: int
    request: ModelRequest
    digest: Digest
    recorded: Digest
    event: RecordedEvent
    before: ModelRequest
    """As the runtime built it; the same object as `request` when no plugin changed it."""
    history: History
    erased: tuple[str, ...] = ()
    """Where it is not the one that was sent: erased data before it, `seq 2` or `content 1a2b3c4d`."""

    @property
    def seqs(self) -> tuple[int | None, ...]:
        """The event that each message comes from; None for one that a plugin wrote."""
        if isinstance(self.request.messages, History):
            return self.history.seqs
        left = list(zip(self.history, self.history.seqs, strict=True))
        found: list[int | None] = []
        for message in self.request.messages:
            at = next((i for i, (known, _) in enumerate(left) if known == message), None)
            found.append(None if at is None else left[at][1])
            left = left if at is None else left[at + 1 :]
        return tuple(found)

    @property
    def is_equal(self) -> bool:
        """Whether it is the request that was sent."""
        return self.digest == self.recorded

    @property
    def verdict(self) -> Literal["equal", "different", "erased"]:
        """Whether it is the request that was sent; `erased`: nobody can tell any more."""
        return "equal" if self.is_equal else "erased" if self.erased else "different"

    @property
    def data(self) -> ModelRequested:
        """The fact."""
        data: ModelRequested = self.event.data
        return data


@attrs.frozen(kw_only=True)
class PatchView:
    """What one plugin changed: the request before and after it."""

    patch: Patch
    before: ModelRequest
    after: ModelRequest


def kept_messages(old: Sequence[Message], new: Sequence[Message]) -> int:
    """How many messages both begin with; told at once for two views of one growing history."""
    start = old.same_start(new) if isinstance(old, History) and isinstance(new, History) else 0
    shortest = min(len(old), len(new))
    while start < shortest and (old[start] is new[start] or old[start] == new[start]):
        start += 1
    return start


def request_views(reader: StoredLog, until: int | None = None) -> Iterator[RequestView]:
    """Every request of a log, in order; of the events up to seq `until` when given.

    Raises `EventUnknown` at an event that must be known, and `LogBroken`.
    """
    rebuilder = Rebuilder(reader.codec, reader.content)
    unpatched = Rebuilder(reader.codec, reader.content)
    projector = ModelHistory()
    state = projector.initial()
    gone: Sequence[tuple[int, str]] | None = None
    for event in reader.read(until=until):
        refuse_unknown(event)
        rebuilt = rebuilder.add(event)
        bare = unpatched.add(_without_patches(event)) if rebuilt is None or event.data.patches else rebuilt
        if rebuilt is not None and bare is not None:
            gone = gone or (() if rebuilt.is_equal else _erased(reader))
            yield RequestView(
                step=StepId(event.place or ""),
                seq=event.seq,
                request=rebuilt.request,
                digest=rebuilt.digest,
                recorded=rebuilt.recorded,
                event=event,
                before=bare.request,
                history=state.view(),
                erased=() if rebuilt.is_equal else tuple(name for seq, name in gone if seq < event.seq),
            )
        if event.type in projector.types:
            projector.apply(state, event)


def _erased(reader: StoredLog) -> list[tuple[int, str]]:
    """What was erased, and from which event on it counts; a content may have been in any request."""
    facts = [event.data for event in reader.read(types=["content.erased"])]
    seqs = sorted({int(seq) for fact in facts for seq in fact.events})
    contents = dict.fromkeys(Digest(digest) for fact in facts for digest in fact.contents)
    return [*((seq, f"seq {seq}") for seq in seqs), *((0, f"content {short(digest)}") for digest in contents)]


def _without_patches(event: RecordedEvent) -> RecordedEvent:
    if not isinstance(event.data, ModelRequested):
        return event
    return attrs.evolve(event, data=attrs.evolve(event.data, patches=()))


def find_request(
    reader: StoredLog, step: str | None = None, until: int | None = None
) -> tuple[RequestView, RequestView | None]:
    """The request of a step (None: the last one up to seq `until`), and the request before it.

    Raises `UsageError` naming the steps there are.
    """
    earlier: RequestView | None = None
    last: RequestView | None = None
    steps = []
    for view in request_views(reader, until):
        earlier, last = last, view
        steps.append(view.step)
        if view.step == step:
            return view, earlier
    if step is None and last is not None:
        return last, earlier
    there = f"it has {_range(steps)}" if steps else "it asked no model yet"
    raise UsageError(f'no request of step "{step or "t1s1"}" in {reader.session}; {there}', hint="spine log")


def _range(steps: list[StepId]) -> str:
    return ", ".join(steps) if len(steps) <= 8 else f"{', '.join(steps[:3])}, … {steps[-1]}"


def patch_views(reader: StoredLog, view: RequestView) -> Iterator[PatchView]:
    """The changes that plugins made to a request, one after the other."""
    request = view.before
    for patch in view.data.patches:
        after = apply(reader.codec, request, patch.changes, lambda seq: _content_at(reader, seq))
        yield PatchView(patch=patch, before=request, after=after)
        request = after


def _content_at(reader: StoredLog, seq: int) -> bytes:
    event = next(iter(reader.read(after=seq - 1, until=seq)), None)
    if event is None or not isinstance(event.data, ContentAdded):
        raise LogBroken(f"seq {seq} is referred to as content and is none", seq=seq)
    return event.data.text.encode() if event.data.text is not None else reader.content(event.data.digest)


def frame_selection(reader: StoredLog, view: RequestView) -> Mapping[str, Any]:
    """What the request's route was resolved to: provider, protocol, model, digest of settings, price list."""
    if view.data.selection is not None:
        selected: Mapping[str, Any] = decode(_content_at(reader, view.data.selection))
        return selected
    selection: Mapping[str, Any] = decode(_content_at(reader, view.data.frame))["selection"]
    return selection


def frame_origins(reader: StoredLog, view: RequestView) -> Mapping[str, Any] | None:
    """Whose the parts of the step were, as `spine.origins` records it; None in a log that does not say it."""
    origins = decode(_content_at(reader, view.data.frame)).get("origins")
    if isinstance(origins, int):
        origins = decode(_content_at(reader, origins)).get("origins")
    return origins if isinstance(origins, dict) else None


def head_json(view: RequestView) -> dict[str, Any]:
    """Which request it is, and whether it was rebuilt as it was recorded, for programs."""
    return {
        "step": view.step,
        "seq": view.seq,
        "digest": view.digest,
        "recorded": view.recorded,
        "equal": view.is_equal,
        "erased": list(view.erased),
    }


def request_json(view: RequestView) -> dict[str, Any]:
    """A request for programs, and where each message comes from. Opaque state of providers is left out."""
    request = view.request
    messages = [{"role": message.role, **plain(message)} for message in request.messages]
    return {
        **head_json(view),
        "request": {**plain(request), "route": str(request.route), "messages": messages},
        "message_seqs": list(view.seqs),
        "patches": plain(view.data.patches),
        "estimate": view.data.estimate,
        "trimmed": list(view.data.trimmed),
    }
