"""T10, T11, T12: a streamed answer over loopback to neutral chunks and its message, in each of the three protocols.

The server is a process of its own, so that its work is not counted; it sends every event as a chunk of HTTP.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import attrs
import httpx

from benchmarks.decoding import chat_stream
from benchmarks.figures import Figure
from benchmarks.workload import Sizes
from spine.llm.catalogue import Traits
from spine.llm.protocols import ProviderSettings, WireProtocol
from spine.llm.request import ModelRequest, Route
from spine.messages import user_message
from spine.testing import say
from spine.testing.chaos.render import RENDERS
from spine.values import StepId
from spine.wire import HttpAdapter
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

__all__ = ["measure_loopback"]

_REQUEST = ModelRequest(route=Route("bench", "m"), step=StepId("t1s1"), messages=(user_message("Speak."),))
_SERVER = """
import socket, sys
body = sys.stdin.buffer.read().split(b"\\0")
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with peer, peer.makefile("rb") as lines:
        size = 0
        while (line := lines.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                size = int(line[15:])
        lines.read(size)
        peer.sendall(b"HTTP/1.1 200 OK\\r\\nconnection: close\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n")
        for event in body:
            peer.sendall(b"%x\\r\\n%s\\r\\n" % (len(event), event))
        peer.sendall(b"0\\r\\n\\r\\n")
"""


@attrs.frozen
class _Stream:
    """What one protocol's server sends."""

    key: str
    protocol: WireProtocol
    events: Sequence[bytes]


def _streams(chunks: int) -> list[_Stream]:
    entry = say(chunks=[f" word{number % 97}" for number in range(chunks)])
    return [
        _Stream("T10", OpenAIChat(), chat_stream(chunks)),
        _Stream("T11", AnthropicMessages(), RENDERS["anthropic_messages"](entry).frames),
        _Stream("T12", OpenAIResponses(), RENDERS["openai_responses"](entry).frames),
    ]


@contextlib.contextmanager
def _serving(events: Sequence[bytes]) -> Iterator[str]:
    """The URL of a process that sends these events to whoever asks, until the block is left."""
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(b"\0".join(events))
            server.stdin.close()
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.kill()


def measure_loopback(sizes: Sizes) -> list[Figure]:
    """What a chunk costs, from the socket to the message; the floor is httpx and json."""
    figures = []
    for stream in _streams(sizes.chunks):
        with _serving(stream.events) as url:
            ours, floor = anyio.run(_measure, stream, url, sizes.repeats)
        figures.append(Figure(stream.key, ours, floor))
    return figures


async def _measure(stream: _Stream, url: str, repeats: int) -> tuple[float, float]:
    settings = ProviderSettings(
        provider="bench",
        protocol=stream.protocol.name,
        base_url=url,
        auth="none",
        traits=lambda model: Traits(provider="bench", protocol=stream.protocol.name, model=model),
    )
    adapter, ours, floor = HttpAdapter(stream.protocol, settings), [], []
    async with httpx.AsyncClient(trust_env=False) as client:
        for _ in range(repeats):
            ours.append(await _timed(_ask(adapter), len(stream.events)))
            floor.append(await _timed(_bare(client, url), len(stream.events)))
    await adapter.aclose()
    return statistics.median(ours), statistics.median(floor)


async def _timed(work: Any, events: int) -> float:
    started = time.process_time()
    assert await work > 0
    return (time.process_time() - started) / events * 1e6


async def _ask(adapter: HttpAdapter) -> int:
    last: Any = None
    async with aclosing(adapter.stream(_REQUEST)) as stream:
        async for item in stream:
            last = item
    return len(last.message.text)


async def _bare(client: httpx.AsyncClient, url: str) -> int:
    rest, size = b"", 0
    async with client.stream("POST", url, content=b"{}") as response:
        async for piece in response.aiter_raw():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    size += len(json.loads(line[6:]))
    return size
