"""What a projector is, and the one way to run it over events (floor 6).

A projector is a pure fold: no clock, environment, randomness, locale or network. Feeding events one by one gives the
same as feeding them all at once, at every prefix of a log.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, overload

from spine.errors import EventUnknown
from spine.events import RecordedEvent, UnknownEvent
from spine.garbage import collector_paused

S = TypeVar("S")
V = TypeVar("V", covariant=True)


class Projector(Protocol[S]):
    """Folds events into a state. What people read of it is made from the state by a separate pure function.

    One that has the attribute `skips_replaced_chunks`, true, makes the same with and without the pieces of an answer
    that is recorded whole, and need not be shown them.
    """

    @property
    def name(self) -> str:
        """Stable name, for `session.project(name)` and for reports."""
        ...

    @property
    def types(self) -> frozenset[str]:
        """The event types it reads; no others need to be passed."""
        ...

    def initial(self) -> S:
        """The state of a session in which nothing happened."""
        ...

    def apply(self, state: S, event: RecordedEvent) -> S:
        """The state after `event`. May change the given state and return it: one state belongs to one fold."""
        ...


class ViewingProjector(Projector[S], Protocol[S, V]):
    """A projector whose state is its own affair: what anybody reads is the value that `view` makes of it."""

    def view(self, state: S) -> V:
        """The value for the events folded so far; pure, and independent of what is folded later."""
        ...


@overload
def fold(projector: ViewingProjector[S, V], events: Iterable[RecordedEvent]) -> V: ...
@overload
def fold(projector: Projector[S], events: Iterable[RecordedEvent]) -> S: ...
def fold(projector: Projector[Any], events: Iterable[RecordedEvent]) -> Any:
    """What a projector makes of `events`, which begin at the first event of a log: its view, or else its state.

    Raises `EventUnknown` at an event that may not be skipped (see `refuse_unknown`).
    """
    return fold_all((projector,), events)[0]


def fold_all(projectors: Sequence[Projector[Any]], events: Iterable[RecordedEvent]) -> list[Any]:
    """`fold` for several projectors in one reading: for each of them its view, or else its state."""
    states = [projector.initial() for projector in projectors]
    readers: dict[str, list[tuple[int, Callable[[Any, RecordedEvent], Any]]]] = {}
    for at, projector in enumerate(projectors):
        for name in projector.types:
            readers.setdefault(name, []).append((at, projector.apply))
    with collector_paused():
        for event in events:
            if type(event.data) is UnknownEvent:
                refuse_unknown(event)
            else:
                for at, apply in readers.get(event.type, ()):
                    states[at] = apply(states[at], event)
        views = [_view(projector, state) for projector, state in zip(projectors, states, strict=True)]
        states.clear()  # the collector need not look through what nobody is given
        return views


def _view(projector: Projector[Any], state: Any) -> Any:
    view = getattr(projector, "view", None)
    return state if view is None else view(state)


def refuse_unknown(event: RecordedEvent) -> None:
    """Raise `EventUnknown` for an unknown event of the core, or one that its plugin declared required.

    Any other unknown event is skipped, as is an erased one of a known plugin's: returns without effect, as for every
    known event.
    """
    data = event.data
    if type(data) is not UnknownEvent or not ((event.required and not data.is_erased) or event.origin is None):
        return
    owner = "the core" if event.origin is None else f"plugin {event.origin}"
    raise EventUnknown(
        f'{event.session} can be projected up to seq {event.seq - 1}: seq {event.seq} has the type "{event.type}" '
        f"version {event.version} of {owner}, not known here; log, verify and export work",
        seq=event.seq,
        hint="pip install -U agent-spine" if event.origin is None else f"pip install spine-{event.type.split('.')[0]}",
    )
