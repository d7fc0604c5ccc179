"""A server that misbehaves, on raw sockets: what it does is a `Fault`, told as a function of one connection (floor 14).

Everything is written byte by byte by the fault itself, so it can be wrong in ways that no HTTP library allows. It
listens on loopback, on either event loop, and knows who is still connected: `gone` tells that clients let go.
"""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final
from unittest import mock

import anyio
import attrs
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSStream

from spine.testing.chaos.render import Rendered
from spine.testing.script import Entry, say

__all__ = ["ANSWER", "ChaosServer", "Fault", "Peer", "chaos_server", "resolving"]

GONE_S: Final = 1.0
"""How long a client may take to close a connection that it needs no more."""
ANSWER: Final = say("It is raining in Oslo.")
"""What servers say when nothing else is wanted."""
_BROKEN: Final = (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError, ssl.SSLError)
_END: Final = b"0\r\n\r\n"


class Peer:
    """One connection, from the server's side. `good` is the answer that a sound server would give."""

    def __init__(self, stream: ByteStream, good: Rendered, reached: anyio.Event) -> None:
        self.good = good
        self.place = 0
        """How many requests met the fault before this one."""
        self.reached = reached
        """Set it when the client should cancel now."""
        self.request = b""
        """The last request read, head and body."""
        self.is_closed = False
        self._stream = stream
        self._unread = b""

    async def read(self) -> bytes:
        """Read one request. Raises what anyio raises when the client is gone."""
        while b"\r\n\r\n" not in self._unread:
            self._unread += await self._stream.receive()
        head, _, body = self._unread.partition(b"\r\n\r\n")
        sizes = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        size = int(sizes[0]) if sizes else 0
        while len(body) < size:
            body += await self._stream.receive()
        self.request, self._unread = head + b"\r\n\r\n" + body[:size], body[size:]
        return self.request

    async def send(self, *pieces: bytes) -> None:
        """Send bytes as they are."""
        for piece in pieces:
            await self._stream.send(piece)

    async def head(self, status: str = "200 OK", *lines: str, chunked: bool = True) -> None:
        """Send the head of a response; with `chunked`, pieces of a body may follow."""
        more = ("transfer-encoding: chunked",) if chunked else ()
        await self.send("\r\n".join((f"HTTP/1.1 {status}", *lines, *more, "", "")).encode("latin-1"))

    async def body(self, *pieces: bytes) -> None:
        """Send pieces of a body, each as a chunk of its own."""
        await self.send(*(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece))

    async def end(self) -> None:
        """End a body, the connection stays open."""
        await self.send(_END)

    async def answer(self, *pieces: bytes) -> None:
        """A whole response of status 200 with these pieces, or with the good answer."""
        await self.head("200 OK", "content-type: text/event-stream")
        await self.body(*(pieces or self.good.frames))
        await self.end()

    async def refuse(self, status: str, body: bytes = b"", *lines: str) -> None:
        """A whole response that is no stream."""
        await self.head(status, "content-type: application/json", f"content-length: {len(body)}", *lines, chunked=False)
        await self.send(body)

    async def wait(self) -> None:
        """Do nothing until the client is gone."""
        while True:
            await self._stream.receive()

    async def close(self) -> None:
        """Close the connection in order."""
        self.is_closed = True
        await self._stream.aclose()

    async def reset(self) -> None:
        """Break the connection off: the client sees a reset."""
        raw: Any = self._stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.close()


Play = Callable[[Peer], Awaitable[None]]


@attrs.frozen(kw_only=True)
class Fault:
    """One way in which a server, or what stands between, behaves.

    `expect` are the outcomes that are right: categories of errors, `answer`, or `cancelled` for a fault that sets
    `Peer.reached`, at which the client cancels. A fault hits the first attempt only, or the first few `hits`,
    unless it `repeats`; later ones are answered well. `reads` False: it strikes before the request is read. `deadlines`
    are those of `spine.wire.Deadlines` that end it; it may take a second longer than the longest of them, or
    `within_s` altogether. `retryable` None: as its category says. `is_bomb`: the memory it takes is watched. `text`
    None: an answer says what `entry` says. `needs` names the member of a `Rendered` it is made of.
    """

    name: str
    play: Play
    expect: frozenset[str]
    entry: Entry = ANSWER
    text: str | None = None
    deadlines: Mapping[str, float] = attrs.field(factory=dict)
    within_s: float | None = None
    reads: bool = True
    hits: int = 1
    repeats: bool = False
    retryable: bool | None = None
    retry_after_s: float | None = None
    is_bomb: bool = False
    needs: str | None = None
    address: "Callable[[ChaosServer], str] | None" = None
    """The base URL to call instead of the server's own."""
    secure: Callable[[], contextlib.AbstractContextManager[ssl.SSLContext]] | None = None
    """What the server speaks TLS with."""
    next_step: str | None = None
    """What the first attempt of the step after the tool's result comes to; None when it is answered."""
    around: "Callable[[ChaosServer], contextlib.AbstractContextManager[Any]]" = contextlib.nullcontext
    """What else must be so while it is tried; it is told the server."""


@attrs.define
class ChaosServer:
    """A server that plays a fault. `plays` counts the requests (or connections, if it reads none) that met it."""

    port: int
    plays: int = 0
    is_open: int = 0
    """Connections whose client is still there."""
    requests: list[bytes] = attrs.Factory(list)
    reached: anyio.Event = attrs.Factory(anyio.Event)
    """The fault is where the client is to cancel."""

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def gone(self) -> bool:
        """Whether all clients are gone, or go within a second."""
        with anyio.move_on_after(GONE_S):
            while self.is_open:
                await anyio.sleep(0.002)
        return not self.is_open


@contextlib.asynccontextmanager
async def chaos_server(fault: Fault, good: Rendered, later: Rendered) -> AsyncIterator[ChaosServer]:
    """Serve `fault` on loopback until the block is left; `later` is what attempts after the first are answered."""
    with fault.secure() if fault.secure else contextlib.nullcontext() as context:
        async with _serving(fault, good, later, context) as server:
            yield server


@contextlib.asynccontextmanager
async def _serving(
    fault: Fault, good: Rendered, later: Rendered, context: ssl.SSLContext | None
) -> AsyncIterator[ChaosServer]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server = ChaosServer(listener.extra(SocketAttribute.local_port))

    async def handle(stream: ByteStream) -> None:
        server.is_open += 1
        try:
            async with stream:
                spoken = await TLSStream.wrap(stream, server_side=True, ssl_context=context) if context else stream
                await _serve(server, fault, Peer(spoken, good, server.reached), later)
        except _BROKEN:
            pass
        finally:
            server.is_open -= 1

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield server
        tasks.cancel_scope.cancel()


async def _serve(server: ChaosServer, fault: Fault, peer: Peer, later: Rendered) -> None:
    while not peer.is_closed:
        is_hit = fault.repeats or server.plays < fault.hits
        peer.place = server.plays
        if fault.reads or not is_hit:
            server.requests.append(await peer.read())
        server.plays += 1
        if is_hit:
            await fault.play(peer)
        else:
            await peer.answer(*later.frames)
        if not fault.reads and not peer.is_closed:
            await peer.wait()


_resolving = threading.Lock()


@contextlib.contextmanager
def resolving(host: str, *addresses: str) -> Iterator[None]:
    """While the block runs, `host` resolves to these IPv4 addresses; to none when there are none. No name server is
    asked."""
    real = socket.getaddrinfo

    def found(name: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if name not in (host, host.encode()):
            return real(name, port, *rest, **more)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    with _resolving, mock.patch("socket.getaddrinfo", found):
        yield
