"""The faults of networks, and of HTTP itself, the same for every protocol (floor 14).

Names begin with the number that the fault has in the list of what must be tried; one number may be several faults.
"""

import gzip
import socket
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import anyio

from spine.testing.chaos.certificates import EXPIRED, secured
from spine.testing.chaos.server import ChaosServer, Fault, Peer, Play, resolving
from spine.testing.script import call, call_text, say

__all__ = ["fault", "network_faults", "refusing", "sending"]

SHORT_S: Final = 0.25
"""A deadline that is meant to be reached."""
TRANSIENT: Final = frozenset(("connection", "stream_truncated", "protocol_error"))
_ANSWER: Final = frozenset(("answer",))
_BROKEN: Final = (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError)
HOST: Final = "chaos.localhost"
_HERE: Final = ("127.0.0.1", "localhost")
BLACK_HOLE: Final = "127.0.0.2"
LONG: Final = b"yyyyyyyy"
FLOOD_BYTES: Final = 200_000_000


def fault(number: str, play: Play, *expect: str, **more: Any) -> Fault:
    """A `Fault` in the group of faults."""
    return Fault(name=f"faults/{number}", play=play, expect=frozenset(expect), **more)


def sending(*pieces: bytes, closes: bool = True) -> Play:
    """Send bytes as they are, and close."""

    async def play(peer: Peer) -> None:
        await peer.send(*pieces)
        await (peer.close() if closes else peer.wait())

    return play


def answering(make: Callable[[Peer], tuple[bytes, ...]]) -> Play:
    """A sound HTTP response whose body is made from the good answer."""

    async def play(peer: Peer) -> None:
        await peer.answer(*make(peer))

    return play


def refusing(status: str, body: bytes = b"", *lines: str) -> Play:
    """A whole response with this status."""

    async def play(peer: Peer) -> None:
        await peer.refuse(status, body, *lines)

    return play


async def _nothing(peer: Peer) -> None:
    await peer.close()


# --------------------------------------------------------------------------------------------- before the headers


async def _silence(peer: Peer) -> None:
    await peer.wait()


async def _reset(peer: Peer) -> None:
    await peer.reset()


async def _early_hints(peer: Peer) -> None:
    for _ in range(1000):
        await peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
    await peer.answer()


async def _flooding_headers(peer: Peer, line: bytes, count: int) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n")
    for _ in range(count):
        await peer.send(line)
    await peer.wait()


@contextmanager
def _black_hole(server: ChaosServer) -> Iterator[None]:
    """An address where connections are neither made nor refused: a listener whose queue is full."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind((BLACK_HOLE, server.port))
        listener.listen(0)
        for _ in range(2):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((BLACK_HOLE, server.port))
        sockets.enter_context(resolving(HOST, BLACK_HOLE, "127.0.0.1"))
        yield


async def _read_and_answer(peer: Peer) -> None:
    await peer.read()
    await peer.answer()


def _closed_port(server: ChaosServer) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def _by_name(server: ChaosServer) -> str:
    return f"http://{HOST}:{server.port}/v1"


def _before_headers() -> Iterator[Fault]:
    first_byte = {"deadlines": {"first_byte_s": SHORT_S}}
    early = partial(fault, reads=False)
    yield fault("01-refused", _nothing, "connection", address=_closed_port, repeats=True)
    yield early("02-accept-then-close", _nothing, "connection")
    yield early("03-accept-then-reset", _reset, "connection")
    yield fault("03-reset-after-the-request", _reset, "connection")
    yield fault("04-silence", _silence, "timeout", **first_byte)
    yield fault("05-half-a-status-line", sending(b"HTTP/1."), "connection")
    yield fault("06-garbage", sending(b"\x00\x01\x02 what is this\r\n\r\n"), "connection")
    yield fault("07-http-0.9", sending(b"<p>hello</p>"), "connection")
    yield fault("08-early-hints-for-long", _early_hints, "answer")
    yield fault(
        "09-headers-without-end", sending(b"HTTP/1.1 200 OK\r\nx: y\r\n", closes=False), "timeout", **first_byte
    )
    for name, line, count in (
        ("10-header-of-10-mb", b"y" * 100_000, 100),
        ("11-headers-10000", b"x: y\r\n", 10_000),
    ):
        play = partial(_flooding_headers, line=line, count=count)
        yield fault(name, play, "connection", "protocol_error", "timeout", is_bomb=True, **first_byte)
    length = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\n{}   "
    yield fault("12-two-content-lengths", sending(length.encode()), *TRANSIENT)
    yield fault("13-tls-on-a-plain-port", sending(b"\x15\x03\x01\x00\x02\x02\x50"), "connection")
    secure: dict[str, Any] = {"address": lambda server: server.url.replace("http:", "https:"), "reads": False}
    yield fault(
        "13-plain-bytes-on-a-tls-port",
        sending(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        "connection",
        **secure,
        repeats=True,
    )
    for flaw, given in (
        ("self-signed", secured(*_HERE, is_trusted=False)),
        ("expired", secured(*_HERE, days=EXPIRED)),
        ("of-another-host", secured("models.example", "127.0.0.9")),
    ):
        yield fault(f"14-certificate-{flaw}", _read_and_answer, "connection", **secure, repeats=True, secure=given)
    named: dict[str, Any] = {"address": _by_name, "reads": False}
    yield fault(
        "15-name-does-not-resolve", _nothing, "connection", **named, repeats=True, around=lambda server: resolving(HOST)
    )
    yield fault("16-first-address-is-a-black-hole", _read_and_answer, "answer", **named, around=_black_hole)


# ---------------------------------------------------------------------------------------------------- the transport


def _cut_at(count: int, then: Callable[[Peer], Awaitable[None]], *, clean: bool = False) -> Play:
    async def play(peer: Peer) -> None:
        await peer.head()
        await peer.body(*peer.good.frames[:count])
        if clean:
            await peer.end()
        else:
            await anyio.sleep(0.02)  # a reset may overtake what was sent before it
            await then(peer)

    return play


async def _sized(peer: Peer, more: int) -> None:
    body = peer.good.body
    await peer.head("200 OK", f"content-length: {len(body) + more}", chunked=False)
    await peer.send(body)
    await peer.close()


async def _wrong_chunk_size(peer: Peer) -> None:
    await peer.head()
    await peer.body(*peer.good.frames[: peer.good.ends_at])
    await peer.send(b"zz\r\n")
    await peer.close()


async def _byte_by_byte(peer: Peer) -> None:
    body = peer.good.body
    await peer.head("200 OK", f"content-length: {len(body)}", chunked=False)
    for place in range(len(body)):
        await peer.send(body[place : place + 1])
        if place % 64 == 0:
            await anyio.sleep(0)


async def _drip(peer: Peer) -> None:
    await peer.head()
    for place in range(400):
        await peer.body(peer.good.body[place : place + 1] or b":")
        await anyio.sleep(0.02)


def _stall_after(count: int) -> Play:
    return _cut_at(count, Peer.wait)


async def _for_ever(peer: Peer, frame: Callable[[Peer], bytes], pause_s: float = 0.01) -> None:
    await peer.head()
    await peer.body(*peer.good.frames[:2])
    while True:
        await peer.body(frame(peer))
        await anyio.sleep(pause_s)


async def _flood(peer: Peer, piece: bytes, count: int) -> None:
    """A body that does not end before somebody ends it."""
    await peer.head()
    await peer.body(*peer.good.frames[:1])
    for _ in range(count):
        await peer.body(piece)
    await peer.wait()


async def _encoded(peer: Peer, coding: str, encode: Callable[[bytes], bytes]) -> None:
    await peer.head("200 OK", f"content-encoding: {coding}")
    body = encode(peer.good.body)
    await peer.body(*(body[start : start + 65536] for start in range(0, len(body), 65536)))
    await peer.end()


def _bomb(body: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    block = b"x" * 1_000_000
    return b"".join((packer.compress(b"data: "), *(packer.compress(block) for _ in range(100)), packer.flush()))


async def _trailers(peer: Peer) -> None:
    await peer.head("200 OK", "trailer: x-late")
    await peer.body(*peer.good.frames)
    await peer.send(b"0\r\nx-late: yes\r\n\r\n")


def _transport() -> Iterator[Fault]:
    late = _cut_at(2, Peer.close)
    yield fault("31-no-last-chunk", late, "stream_truncated")
    yield fault("32-wrong-chunk-size", _wrong_chunk_size, "stream_truncated")
    yield fault("33-content-length-too-long", partial(_sized, more=100), "answer")
    yield fault("33-content-length-too-short", partial(_sized, more=-40), "answer", "stream_truncated")
    yield fault("34-a-byte-a-segment", _byte_by_byte, "answer", within_s=3)
    yield fault("35-drip", _drip, "timeout", deadlines={"total_s": 0.6})
    yield fault("36-stall-after-the-headers", _stall_after(0), "timeout", deadlines={"idle_s": SHORT_S})
    yield fault("36-stall-in-the-answer", _stall_after(2), "timeout", deadlines={"idle_s": SHORT_S})
    yield fault("36-stall-before-the-end", _stall_before_end, "timeout", deadlines={"idle_s": SHORT_S})
    comment = partial(_for_ever, frame=lambda peer: b": still here\n\n")
    yield fault("37-comments-for-ever", comment, "timeout", deadlines={"progress_s": 0.4}, needs="is_event_stream")
    ping = partial(_for_ever, frame=lambda peer: peer.good.ping or b"")
    yield fault("38-pings-for-ever", ping, "timeout", deadlines={"progress_s": 0.4}, needs="ping")
    yield fault("44-trailers", _trailers, "answer")


async def _stall_before_end(peer: Peer) -> None:
    await peer.head()
    await peer.body(*peer.good.frames[: peer.good.ends_at])
    await peer.wait()


async def _arguments_for_long(peer: Peer) -> None:
    """The first piece of a call's arguments, made longer and sent again and again."""
    place = next(place for place, frame in enumerate(peer.good.frames) if LONG in frame)
    await peer.head()
    await peer.body(*peer.good.frames[:place])
    piece = peer.good.frames[place].replace(LONG, LONG * 10_000)
    for _ in range(10_000_000 // len(piece) + 1):
        await peer.body(piece)
    await peer.wait()


def _bombs() -> Iterator[Fault]:
    bomb = partial(fault, is_bomb=True, within_s=4, retryable=False)
    events = partial(bomb, needs="is_event_stream")
    line = partial(_flood, piece=b"x" * 65536, count=FLOOD_BYTES // 65536)
    yield bomb("40-line-of-200-mb", line, "protocol_error")
    tiny = partial(_flood, piece=b":\n\n" * 21_845, count=FLOOD_BYTES // 65535)
    yield events("41-events-without-end", tiny, "protocol_error")
    event = b"data: " + b"x" * 60_000 + b"\n"
    yield events("42-event-of-64-mb", partial(_flood, piece=event, count=1100), "protocol_error")
    arguments = call_text("look", f'{{"text":"{LONG.decode() * 8}"}}')
    yield events("53-arguments-of-10-mb", _arguments_for_long, "protocol_error", entry=arguments)
    zipped = partial(_encoded, coding="gzip", encode=_bomb)
    yield bomb("43-gzip-bomb", zipped, "protocol_error")


def _encodings() -> Iterator[Fault]:
    for name, coding, encode, expect in (
        ("gzip", "gzip", gzip.compress, "answer"),
        ("deflate", "deflate", zlib.compress, "answer"),
        ("gzip-cut", "gzip", lambda body: gzip.compress(body[: len(body) // 2])[:-9], "stream_truncated"),
        ("gzip-that-is-none", "gzip", bytes, "protocol_error"),
        ("brotli", "br", bytes, "protocol_error"),
        ("zstd", "zstd", bytes, "protocol_error"),
        ("gzip-twice", "gzip, gzip", bytes, "protocol_error"),
    ):
        play = partial(_encoded, coding=coding, encode=encode)
        retryable = True if name == "gzip-that-is-none" else None
        yield fault(f"43-{name}", play, expect, retryable=retryable)


# ------------------------------------------------------------------------------------------- how connections are used


async def _close_after(peer: Peer) -> None:
    await peer.head("200 OK", "connection: close")
    await peer.body(*peer.good.frames)
    await peer.end()
    await peer.close()


async def _full_answer_first(peer: Peer) -> None:
    """Answer before the request is read."""
    await peer.answer()
    await peer.wait()


async def _refuse_first(peer: Peer) -> None:
    await peer.refuse("413 Too Large", b"{}")
    await peer.wait()


async def _buffered(peer: Peer) -> None:
    await anyio.sleep(0.2)
    await peer.answer(peer.good.body)


async def _close_when_used_again(peer: Peer) -> None:
    """Keep the connection, take the next request over it, and close without a word."""
    await peer.answer()
    await peer.read()
    await peer.close()


async def _linger(peer: Peer) -> None:
    """Say everything and keep the response open."""
    await peer.head()
    await peer.body(*peer.good.frames)
    await peer.wait()


def _connections() -> Iterator[Fault]:
    again = say("One moment. ") + call("look")
    yield fault("60-closed-when-used-again", _close_when_used_again, "answer", entry=again, next_step="connection")
    yield fault("61-connection-close", _close_after, "answer")
    yield fault("62-answer-before-the-request-was-read", _full_answer_first, "answer", reads=False)
    yield fault("63-413-while-still-sending", _refuse_first, "request_too_large", reads=False)
    yield fault("65-buffered-whole", _buffered, "answer")
    yield fault("66-response-kept-open", _linger, "answer")


def network_faults() -> tuple[Fault, ...]:
    """All of them, in the order of their numbers."""
    parts = (_before_headers, _transport, _bombs, _encodings, _connections)
    return tuple(each for part in parts for each in part())
