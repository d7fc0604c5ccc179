"""A loopback server that answers with exactly the bytes a test says, on either event loop."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import attrs
from anyio.abc import SocketAttribute, SocketStream

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def piece(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@attrs.define
class Server:
    """Where it listens, what it was sent, and when clients went away."""

    url: str
    requests: list[bytes] = attrs.Factory(list)
    gone: anyio.Event = attrs.Factory(anyio.Event)


Answering = Callable[[SocketStream], Awaitable[None]]


async def read_request(stream: SocketStream) -> bytes:
    """Head and body of one request."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += await stream.receive()
    return head + b"\r\n\r\n" + body


@contextlib.asynccontextmanager
async def serving(answer: Answering | bytes) -> AsyncIterator[Server]:
    """Answer each connection with these bytes, or let `answer` write to it; then close it."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    server = Server(f"http://127.0.0.1:{port}/v1")

    async def handle(stream: SocketStream) -> None:
        async with stream:
            try:
                server.requests.append(await read_request(stream))
                if isinstance(answer, bytes):
                    await stream.send(answer)
                else:
                    await answer(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                server.gone.set()

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield server
        tasks.cancel_scope.cancel()
