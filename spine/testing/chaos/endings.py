"""The faults of endings: an answer cut, ended twice, failed inside, cancelled, at each of its events (floor 14).

They are made from the answer as the protocol's author renders it, so they are the same for every protocol that says
where its answers end.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import anyio

from spine.testing.chaos.render import Render
from spine.testing.chaos.server import ANSWER, Fault, Peer, Play
from spine.testing.script import call, say

__all__ = ["ending_faults"]

CALLING: Final = say("I look. ") + call("look", at="the tall window")
_COMMENT: Final = b": nothing\n\n"


def _ending(name: str, play: Play, *expect: str, **more: Any) -> Fault:
    return Fault(name=f"endings/{name}", play=play, expect=frozenset(expect), **more)


async def _cut(peer: Peer, count: int) -> None:
    """A sound HTTP response whose body stops between two events."""
    await peer.head()
    await peer.body(*peer.good.frames[:count])
    await peer.end()


async def _reset_after(peer: Peer, count: int) -> None:
    await peer.head()
    await peer.body(*peer.good.frames[:count])
    await anyio.sleep(0.02)  # a reset may overtake what was sent before it
    await peer.reset()


async def _fail_after(peer: Peer, count: int) -> None:
    await peer.answer(*peer.good.frames[:count], peer.good.error or b"")


async def _stop_at(peer: Peer, count: int) -> None:
    """Send some events, say so, and fall silent."""
    await peer.head()
    await peer.body(*peer.good.frames[:count])
    peer.reached.set()
    await peer.wait()


async def _comment_after(peer: Peer) -> None:
    await peer.answer(*peer.good.frames, _COMMENT)


async def _twice(peer: Peer) -> None:
    await peer.answer(*peer.good.frames, *peer.good.frames)


async def _content_again(peer: Peer) -> None:
    await peer.answer(*peer.good.frames, *peer.good.frames[1 : peer.good.ends_at])


async def _ping_after(peer: Peer) -> None:
    await peer.answer(*peer.good.frames, peer.good.ping or b"")


async def _whole(peer: Peer) -> None:
    await peer.refuse("200 OK", peer.good.whole or b"")


async def _half_a_whole(peer: Peer) -> None:
    body = peer.good.whole or b""
    await peer.refuse("200 OK", body[: len(body) // 2])


async def _half_an_event(peer: Peer) -> None:
    """The body stops inside the event by which the answer would have been complete."""
    good = peer.good
    await peer.answer(*good.frames[: good.ends_at], good.frames[good.ends_at][:12])


def ending_faults(render: Render) -> tuple[Fault, ...]:
    """All of them, for answers of a protocol."""
    return (*_cuts(render), *_after_the_end(), *_cancelled(render))


def _cuts(render: Render) -> Iterator[Fault]:
    good = render(ANSWER)
    for count in range(len(good.frames)):
        is_whole = count > good.ends_at
        expect, name = ("answer" if is_whole else "stream_truncated"), f"after-{count}"
        if count == good.ends_at:
            name = "without-end"
        yield _ending(f"clean-eof-{name}", partial(_cut, count=count), expect)
        reset = "answer" if is_whole else "connection"
        yield _ending(f"reset-{name}", partial(_reset_after, count=count), reset, expect)
    for count in range(good.ends_at + 1):
        error = partial(_fail_after, count=count)
        yield _ending(f"error-inside-{count}", error, "overloaded", "server_error", needs="error")
    calling = _events_of_a_call(render)
    for count in range(1, calling + 1):
        play = partial(_cut, count=count)
        yield _ending(f"call-cut-after-{count}", play, "stream_truncated", entry=CALLING)
    stalled = partial(_stop_at, count=calling - 1)
    yield _ending("call-stalls", stalled, "timeout", entry=CALLING, deadlines={"idle_s": 0.25})
    yield _ending("half-an-event", _half_an_event, "stream_truncated")


def _events_of_a_call(render: Render) -> int:
    """How many events stand before the end of an answer with a call; 1 where the protocol has no calls."""
    try:
        return render(CALLING).ends_at
    except NotImplementedError:
        return 1


def _after_the_end() -> Iterator[Fault]:
    yield _ending("comment-after-the-end", _comment_after, "answer", needs="is_event_stream")
    yield _ending("ping-after-the-end", _ping_after, "answer", needs="ping")
    yield _ending("content-after-the-end", _content_again, "protocol_error")
    yield _ending("answer-twice", _twice, "protocol_error")
    yield _ending("whole", _whole, "answer", needs="whole")
    yield _ending("whole-cut", _half_a_whole, "stream_truncated", "protocol_error", needs="whole", retryable=True)


def _cancelled(render: Render) -> Iterator[Fault]:
    for count in range(len(render(ANSWER).frames)):
        play = partial(_stop_at, count=count)
        yield Fault(name=f"faults/64-cancel-after-{count}", play=play, expect=frozenset(("cancelled",)))
