"""The catalogue of facts: stable names, frozen classes, one envelope."""

import re
from typing import Any

import attrs
import pytest

from spine.events import CORE_EVENTS, EventType, RecordedEvent, SessionRenamed
from spine.values import SessionId

NAMES = {
    "session.created", "session.resumed", "session.forked", "session.renamed", "input.accepted", "input.delivered",
    "turn.started", "turn.completed", "turn.failed", "turn.cancelled", "turn.suspended", "content.added",
    "model.requested", "model.attempt_started", "model.attempt_failed", "model.chunks", "message.committed",
    "message.interrupted", "tool.started", "tool.progress", "tool.completed", "tool.revised", "tool.resolved",
    "step.failed", "hook.failed", "cancel.requested", "approval.requested", "approval.decided", "history.compacted",
    "wire.captured", "content.erased",
}  # fmt: skip


def test_the_names_of_core_events_are_these() -> None:
    """A name is for ever: removing or renaming one breaks old logs."""
    assert {kind.name for kind in CORE_EVENTS} == NAMES
    assert len(CORE_EVENTS) == len(NAMES) == len({kind.data for kind in CORE_EVENTS})


def test_only_what_changes_nothing_may_be_skipped() -> None:
    """Progress, captured bytes and erasures are the only core events that a reader may pass over."""
    passed = {"tool.progress", "wire.captured", "content.erased"}
    assert {kind.name for kind in CORE_EVENTS if not kind.required} == passed


@pytest.mark.parametrize("kind", CORE_EVENTS, ids=lambda kind: kind.name)
def test_an_event_is_a_frozen_fact_in_the_past_tense_with_a_docstring(kind: EventType) -> None:
    """Its class is named after it, frozen, and takes keywords only."""
    words = [word.capitalize() for word in re.split(r"[._]", kind.name)]
    assert kind.data.__name__ == "".join(words)
    assert kind.data.__doc__
    assert attrs.has(kind.data)
    with pytest.raises(TypeError):
        kind.data("x", "y", "z")
    assert all(v in kind.upcasters for v in range(1, kind.version))


PLACES: dict[Any, tuple[Any, Any]] = {None: (None, None), "t1": ("t1", None), "t12s3": ("t12", "t12s3")}


@pytest.mark.parametrize(("place", "expected"), PLACES.items())
def test_an_envelope_tells_turn_and_step(place: Any, expected: tuple[Any, Any]) -> None:
    """From where the event happened."""
    event = RecordedEvent(
        session=SessionId("s"), seq=1, type="session.renamed", version=1, at=0, place=place, origin=None,
        required=True, data=SessionRenamed(title="x"), prev_hash=b"", hash=b"",
    )  # fmt: skip
    assert (event.turn, event.step) == expected
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.seq = 2  # type: ignore[misc]
