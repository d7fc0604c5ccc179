"""Requests rebuilt from stored events alone: equal when nothing was touched, told apart when something was."""

from typing import Any

import attrs
import pytest
from handmade import requested_log

from spine.codec import Codec
from spine.errors import LogBroken
from spine.events import ContentAdded, InputAccepted, ModelRequested, RecordedEvent
from spine.messages import user_message
from spine.rebuild import Rebuilder
from spine.values import digest

CODEC = Codec()


def rebuilt_from(events: list[RecordedEvent], contents: dict[Any, bytes] | None = None) -> Any:
    def content(wanted: Any) -> bytes:
        try:
            return (contents or {})[wanted]
        except KeyError:
            raise LogBroken(f"content {wanted} is missing", seq=0) from None

    rebuilder = Rebuilder(CODEC, content)
    found = [rebuilder.add(event) for event in events]
    return [each for each in found if each is not None]


def changed(events: list[RecordedEvent], kind: str, **fields: Any) -> list[RecordedEvent]:
    return [
        attrs.evolve(event, data=attrs.evolve(event.data, **fields)) if event.type == kind else event
        for event in events
    ]


def test_an_untouched_request_is_equal_to_the_one_that_was_sent() -> None:
    """With its history, sections and tools."""
    (rebuilt,) = rebuilt_from(requested_log())
    assert rebuilt.is_equal
    assert [message.text for message in rebuilt.request.messages] == ["Go."]
    assert [block.text for block in rebuilt.request.system] == ["Be brief."]
    assert [tool.name for tool in rebuilt.request.tools] == ["look"]
    assert rebuilt.request.step == "t1s1"


def test_a_changed_input_or_frame_gives_another_digest() -> None:
    """Any fact that the request rests on."""
    events = requested_log()
    (other,) = rebuilt_from(changed(events, "input.accepted", message=user_message("Stop.")))
    assert not other.is_equal
    (other,) = rebuilt_from(changed(events, "model.requested", digest=digest(b"x")))
    assert not other.is_equal


BROKEN: dict[str, Any] = {
    "a frame that is none": {"frame": 1},
    "a frame beyond the log": {"frame": 99},
}


@pytest.mark.parametrize("fields", BROKEN.values(), ids=BROKEN)
def test_a_reference_to_nothing_is_broken_at_its_seq(fields: dict[str, Any]) -> None:
    """A seq that added no content."""
    events = changed(requested_log(), "model.requested", **fields)
    with pytest.raises(LogBroken):
        rebuilt_from(events)


def test_a_request_outside_a_step_is_broken() -> None:
    """It has no place to be."""
    events = [attrs.evolve(e, place=None) if isinstance(e.data, ModelRequested) else e for e in requested_log()]
    with pytest.raises(LogBroken, match="stands in no step"):
        rebuilt_from(events)


def test_content_beside_the_log_is_asked_for_by_digest() -> None:
    """A text that does not stand inline is fetched, and missed when it is not there."""
    events = requested_log()
    section = next(e for e in events if isinstance(e.data, ContentAdded) and e.data.text == "Be brief.")
    beside = [attrs.evolve(e, data=attrs.evolve(e.data, text=None)) if e is section else e for e in events]
    (rebuilt,) = rebuilt_from(beside, {section.data.digest: b"Be brief."})
    assert rebuilt.is_equal
    with pytest.raises(LogBroken, match="is missing"):
        rebuilt_from(beside)
    assert isinstance(events[1].data, InputAccepted)
