"""A small log made by hand with the parts that the loop uses: one request, with a section and a tool."""

from spine.codec import Codec
from spine.events import (
    CORE_EVENTS,
    AgentFact,
    ContentAdded,
    InputAccepted,
    InputDelivered,
    ModelRequested,
    RecordedEvent,
    SessionCreated,
    TurnStarted,
)
from spine.llm.request import ModelRequest, Route
from spine.messages import SystemBlock, user_message
from spine.requests import Selection, frame_content, frame_of, request_digest
from spine.tools import ToolDefinition
from spine.values import SessionId, StepId, digest

CODEC = Codec()
NAMES = {kind.data: kind.name for kind in CORE_EVENTS}


def recorded(facts: list[tuple[object, str | None]]) -> list[RecordedEvent]:
    """Facts with their places as recorded events; hashes are left empty."""
    return [
        RecordedEvent(
            session=SessionId("s"), seq=seq, type=NAMES[type(fact)], version=1, at=seq, place=place, origin=None,
            required=True, data=fact, prev_hash=b"", hash=b"",
        )
        for seq, (fact, place) in enumerate(facts, 1)
    ]  # fmt: skip


def requested_log() -> list[RecordedEvent]:
    """A session up to its first request."""
    step = StepId("t1s1")
    message = user_message("Go.")
    request = ModelRequest(
        route=Route("p", "m"),
        step=step,
        system=(SystemBlock(name="instructions", source="agent", text="Be brief."),),
        messages=(message,),
        tools=(ToolDefinition(name="look"),),
    )
    frame = frame_of(CODEC, request)
    contents = [*frame.contents, frame_content(frame, Selection("p", "proto", "m"))]
    added = [
        (ContentAdded(digest=c.digest, media_type=c.media_type, size=len(c.data), text=c.data.decode()), "t1s1")
        for c in contents
    ]
    facts: list[tuple[object, str | None]] = [
        (SessionCreated(agent=AgentFact(name="a", contract=digest(b"c"))), None),
        (InputAccepted(message=message), None),
        (TurnStarted(inputs=(2,)), "t1"),
        (InputDelivered(inputs=(2,)), "t1"),
        *added,
    ]
    requested = ModelRequested(digest=request_digest(CODEC, frame.digest, step, request.messages), frame=len(facts))
    return recorded([*facts, (requested, "t1s1")])
