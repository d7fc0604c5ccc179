"""From a request to chunks over HTTP: what is sent, how it fails, and that every connection is closed."""

import contextlib
import gzip
import json
import os
import time
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import httpx
import pytest
from anyio.abc import SocketStream
from wire_server import END, HEAD, piece, read_request, serving

from spine.errors import ConfigInvalid, KeyMissing
from spine.llm.catalogue import Traits
from spine.llm.chunks import TextDelta, ToolCallStarted
from spine.llm.errors import ProviderError
from spine.llm.protocols import ProviderSettings
from spine.llm.request import ModelRequest, Route
from spine.llm.response import ModelResponse
from spine.messages import Message, Origin, TextBlock, ThinkingBlock, user_message
from spine.testing.chaos.server import resolving
from spine.tools import ToolDefinition
from spine.values import Secret
from spine.wire import Deadlines, HttpAdapter, WireLimits
from spine_openai_chat.protocol import OpenAIChat

KEY = "key-of-the-lab-0123456789"
REQUEST = ModelRequest(route=Route("lab", "m"), step="t1s1", messages=(user_message("Hi"),))  # type: ignore[arg-type]
PATIENT = Deadlines(connect_s=5, first_byte_s=5, idle_s=5, progress_s=5, total_s=10, linger_s=0.1)
"""Where no deadline is to be met, however busy the machine is."""
BRISK = Deadlines(connect_s=2, first_byte_s=0.3, idle_s=0.25, progress_s=0.45, total_s=0.8, linger_s=0.1)


def event(delta: Any, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c1", "model": "m-1", "choices": [choice], **more}).encode() + b"\n\n"


HEL, LO, STOP, DONE = event({"content": "Hel"}), event({"content": "lo"}), event({}, "stop"), b"data: [DONE]\n\n"
ANSWER = HEL + LO + STOP + DONE


def settings(**fields: Any) -> ProviderSettings:
    defaults: dict[str, Any] = {
        "provider": "lab",
        "protocol": "openai_chat",
        "base_url": "https://lab.example.com/v1/",
        "secret": Secret(KEY),
        "traits": lambda model: Traits(provider="lab", protocol="openai_chat", model=model),
    }
    return ProviderSettings(**{**defaults, **fields})


@contextlib.asynccontextmanager
async def adapting(
    deadlines: Deadlines = BRISK, limits: WireLimits | None = None, **fields: Any
) -> AsyncIterator[HttpAdapter]:
    adapter = HttpAdapter(OpenAIChat(), settings(**fields), deadlines=deadlines, limits=limits)
    try:
        yield adapter
    finally:
        await adapter.aclose()


def mock(answer: httpx.Response | Callable[[httpx.Request], httpx.Response]) -> httpx.MockTransport:
    return httpx.MockTransport(answer if callable(answer) else lambda _: answer)


async def collect(adapter: HttpAdapter, request: ModelRequest = REQUEST) -> tuple[list[Any], Any]:
    """Chunks, and the response or the error."""
    found: list[Any] = []
    try:
        async with contextlib.aclosing(adapter.stream(request)) as stream:
            async for item in stream:
                found.append(item)
    except ProviderError as failed:
        return found, failed
    assert isinstance(found[-1], ModelResponse)
    return found[:-1], found[-1]


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.text for chunk in chunks if type(chunk) is TextDelta)


class Pieces(httpx.AsyncByteStream):
    """A body in pieces; an exception among them is raised."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for item in self.pieces:
            if isinstance(item, Exception):
                raise item
            await anyio.lowlevel.checkpoint()
            yield item

    async def aclose(self) -> None:
        self.closed = True


# ----------------------------------------------------------------------------------------------- what is sent


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [("bearer", "authorization", f"Bearer {KEY}"), ("header X-Lab-Key", "x-lab-key", KEY), ("none", None, None)],
)
async def test_the_key_goes_into_one_header_only(auth: str, header: str | None, value: str | None) -> None:
    seen: list[tuple[httpx.Request, dict[str, str]]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request, dict(request.headers)))
        return httpx.Response(200, content=ANSWER)

    async with adapting(transport=mock(answer), auth=auth) as adapter:
        await collect(adapter)
    ((request, headers),) = seen
    assert str(request.url) == "https://lab.example.com/v1/chat/completions"
    assert headers["accept-encoding"] == "identity"
    assert json.loads(request.content)["messages"] == [{"role": "user", "content": "Hi"}]
    assert [name for name, sent in headers.items() if KEY in sent] == ([header] if header else [])
    assert header is None or headers[header] == value
    assert KEY not in json.dumps(dict(request.headers)), "the request object still holds the key"


@pytest.mark.parametrize("secret", [None, Secret(""), Secret("  "), Secret("a b"), Secret("a\nb"), Secret("clé")])
def test_a_missing_or_malformed_key_is_found_before_any_request(secret: Secret | None) -> None:
    with pytest.raises(KeyMissing, match='provider "lab"'):
        HttpAdapter(OpenAIChat(), settings(secret=secret))


@pytest.mark.parametrize("fields", [{"base_url": None}, {"base_url": "http://lab.example.com"}, {"auth": "query"}])
def test_a_wrong_setting_is_found_before_any_request(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid, match='provider "lab"'):
        HttpAdapter(OpenAIChat(), settings(**fields))


def test_plain_http_may_be_allowed_in_the_options() -> None:
    HttpAdapter(OpenAIChat(), settings(base_url="http://10.0.0.7/v1", options={"allow_http": True}))


# ---------------------------------------------------------------------------------------------- what comes back


async def test_chunks_as_they_arrive_then_one_response() -> None:
    body = Pieces(HEL[:30], HEL[30:], LO, b"", STOP + DONE)
    headers = {"x-request-id": "req_7"}
    async with adapting(transport=mock(httpx.Response(200, headers=headers, stream=body))) as adapter:
        chunks, response = await collect(adapter)
    assert text_of(chunks) == response.message.text == "Hello"
    assert response.stop_reason == "end_turn"
    assert response.metadata["request_id"] == "req_7"
    assert response.metadata["latency_s"] >= 0
    assert "losses" not in response.metadata
    assert body.closed


async def test_a_whole_json_answer_gives_chunks_too() -> None:
    body = {"id": "c1", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    async with adapting(transport=mock(httpx.Response(200, json=body))) as adapter:
        chunks, response = await collect(adapter)
    assert text_of(chunks) == response.message.text == "Hello"


async def test_tools_have_their_registered_names_in_chunks_and_message() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        name = json.loads(request.content)["tools"][0]["function"]["name"]
        assert name != "files.list"
        item = {"index": 0, "id": "a", "function": {"name": name, "arguments": "{}"}}
        return httpx.Response(200, content=event({"tool_calls": [item]}) + event({}, "tool_calls"))

    async with adapting(transport=mock(answer)) as adapter:
        chunks, response = await collect(adapter, REQUEST.evolve(tools=(ToolDefinition(name="files.list"),)))
    assert [c.name for c in chunks if type(c) is ToolCallStarted] == ["files.list"]
    assert [c.name for c in response.message.tool_calls] == ["files.list"]


async def test_what_was_lost_on_the_way_stands_in_the_response() -> None:
    origin = Origin(protocol="anthropic_messages", route="anthropic:a")
    foreign = Message(role="assistant", content=(ThinkingBlock(text="hm"), TextBlock(text="x")), origin=origin)
    async with adapting(transport=mock(httpx.Response(200, content=ANSWER))) as adapter:
        _, response = await collect(adapter, REQUEST.evolve(messages=(foreign,)))
    assert response.metadata["losses"] == ("thinking of another model was left out",)


async def test_check_asks_the_protocol_with_the_models_traits() -> None:
    def traits(model: str) -> Traits:
        return Traits(provider="lab", model=model, tools=model != "m")

    async with adapting(traits=traits) as adapter:
        adapter.check(REQUEST)
        with pytest.raises(ProviderError, match='"lab:m" does not support tools'):
            adapter.check(REQUEST.evolve(tools=(ToolDefinition(name="f"),)))


# --------------------------------------------------------------------------------------------------- failures


async def test_an_error_answer_is_classified_with_its_delay() -> None:
    body = {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}
    answer = httpx.Response(429, headers={"retry-after": "2", "request-id": "req_9"}, json=body)
    async with adapting(transport=mock(answer)) as adapter:
        chunks, error = await collect(adapter)
    assert chunks == []
    assert (error.category, error.status, error.retry_after_s) == ("rate_limit", 429, 2.0)
    assert error.failure.request_id == "req_9"


async def test_a_delay_given_as_a_date_is_read_with_the_wall_clock() -> None:
    answer = httpx.Response(503, headers={"retry-after": "Thu, 01 Oct 2026 12:00:20 GMT"}, content=b"busy")
    adapter = HttpAdapter(OpenAIChat(), settings(transport=mock(answer)), wall_clock=lambda: 1_790_856_000.0)
    assert (await collect(adapter))[1].retry_after_s == 20.0


async def test_our_key_is_cut_out_of_what_the_provider_echoes() -> None:
    answer = httpx.Response(401, json={"error": {"message": f"bad thing {KEY} here", "code": "invalid_api_key"}})
    async with adapting(transport=mock(answer)) as adapter:
        error = (await collect(adapter))[1]
    assert KEY not in error.message + str(error) + repr(error.failure)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 300, 304])
async def test_redirects_are_not_followed(status: int) -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(status, headers={"location": "https://evil.example/v1"})

    async with adapting(transport=mock(answer)) as adapter:
        error = (await collect(adapter))[1]
    assert (error.category, error.retryable, error.status) == ("protocol_error", False, status)
    assert len(asked) == 1


BEFORE: list[tuple[type[Exception], str, bool]] = [
    (httpx.ConnectError, "connection", True),
    (httpx.ConnectTimeout, "timeout", True),
    (httpx.ReadTimeout, "timeout", True),
    (httpx.WriteTimeout, "timeout", True),
    (httpx.PoolTimeout, "timeout", True),
    (httpx.ReadError, "connection", True),
    (httpx.WriteError, "connection", True),
    (httpx.CloseError, "connection", True),
    (httpx.ProxyError, "connection", True),
    (httpx.RemoteProtocolError, "connection", True),
    (httpx.LocalProtocolError, "invalid_request", False),
    (httpx.UnsupportedProtocol, "invalid_request", False),
    (httpx.DecodingError, "protocol_error", True),
    (httpx.TooManyRedirects, "protocol_error", False),
]


@pytest.mark.parametrize(("kind", "category", "retryable"), BEFORE, ids=lambda value: getattr(value, "__name__", value))
async def test_errors_of_the_transport_are_translated(kind: type[Exception], category: str, retryable: bool) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise kind("failed at https://lab.example.com with secrets")

    async with adapting(transport=mock(answer)) as adapter:
        error = (await collect(adapter))[1]
    assert (error.category, error.retryable, error.status) == (category, retryable, None)
    assert "example.com" not in error.message
    assert isinstance(error.__cause__, kind)


INSIDE: list[tuple[Exception, str]] = [
    (httpx.ReadTimeout("x"), "timeout"),
    (httpx.ReadError("x"), "connection"),
    (httpx.RemoteProtocolError("x"), "stream_truncated"),
]


@pytest.mark.parametrize(("exc", "category"), INSIDE, ids=lambda value: type(value).__name__)
async def test_a_break_in_the_body_is_what_it_is_and_the_text_before_it_was_seen(exc: Exception, category: str) -> None:
    body = Pieces(HEL, exc)
    async with adapting(transport=mock(httpx.Response(200, stream=body))) as adapter:
        chunks, error = await collect(adapter)
    assert text_of(chunks) == "Hel"
    assert (error.category, error.retryable) == (category, True)
    assert error.__cause__ is exc
    assert body.closed


@pytest.mark.parametrize("exc", [exc for exc, _ in INSIDE], ids=lambda value: type(value).__name__)
async def test_a_break_after_the_answers_end_takes_nothing_from_it(exc: Exception) -> None:
    async with adapting(transport=mock(httpx.Response(200, stream=Pieces(HEL, STOP, exc)))) as adapter:
        _, response = await collect(adapter)
    assert response.message.text == "Hel"


async def test_an_error_in_the_stream_ends_it_at_once() -> None:
    async def answer(stream: SocketStream) -> None:
        await stream.send(HEAD + piece(HEL + b'data: {"error": {"message": "overloaded"}}\n\n'))
        await anyio.sleep(5)

    async with serving(answer) as server, adapting(base_url=server.url, deadlines=Deadlines()) as adapter:
        with anyio.fail_after(2):
            chunks, error = await collect(adapter)
    assert text_of(chunks) == "Hel"
    assert (error.category, error.status) == ("overloaded", None)


async def test_an_error_in_the_stream_has_the_requests_id() -> None:
    answer = httpx.Response(200, headers={"x-request-id": "req_3"}, content=b'data: {"error": {"message": "x"}}\n\n')
    async with adapting(transport=mock(answer)) as adapter:
        assert (await collect(adapter))[1].failure.request_id == "req_3"


# ------------------------------------------------------------------------------------------ sizes and encodings


def compressed(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


async def over_a_wire(body: bytes, encoding: str, limits: WireLimits | None = None) -> tuple[list[Any], Any]:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %s\r\nconnection: close\r\n\r\n" % encoding.encode()
    async with serving(head + body) as server, adapting(base_url=server.url, limits=limits) as adapter:
        return await collect(adapter)


@pytest.mark.parametrize(
    ("encoding", "body"), [("gzip", gzip.compress(ANSWER)), ("deflate", zlib.compress(ANSWER)), ("identity", ANSWER)]
)
async def test_a_body_that_was_compressed_all_the_same_is_read(encoding: str, body: bytes) -> None:
    assert (await over_a_wire(body, encoding))[1].message.text == "Hello"


@pytest.mark.parametrize(
    ("encoding", "body", "category"),
    [
        ("gzip", ANSWER, "protocol_error"),
        ("gzip", gzip.compress(HEL + LO)[:-9], "stream_truncated"),
        ("br", ANSWER, "protocol_error"),
        ("zstd", ANSWER, "protocol_error"),
        ("gzip, gzip", ANSWER, "protocol_error"),
        ("gzip", gzip.compress(b"data: " + b"x" * 3_000_000), "protocol_error"),
        ("identity", b"data: " + b"x" * 3_000_000, "protocol_error"),
    ],
)
async def test_broken_compression_and_bombs_are_protocol_errors(encoding: str, body: bytes, category: str) -> None:
    assert (await over_a_wire(body, encoding, WireLimits(response_bytes=1_000_000)))[1].category == category


async def test_of_a_large_error_answer_only_the_beginning_is_read() -> None:
    sent = 0

    async def answer(stream: SocketStream) -> None:
        nonlocal sent
        await stream.send(b"HTTP/1.1 500 X\r\ncontent-length: 100000000\r\n\r\n")
        while True:
            await stream.send(b"x" * 65536)
            sent += 65536

    async with serving(answer) as server, adapting(base_url=server.url) as adapter:
        error = (await collect(adapter))[1]
        with anyio.fail_after(2):
            await server.gone.wait()
    assert (error.category, error.status) == ("server_error", 500)
    assert sent < 50_000_000
    assert len(error.failure.raw) <= 4096


# ---------------------------------------------------------------------------------------------------- the network


RAW: dict[str, tuple[bytes, str]] = {
    "closed at once": (b"", "connection"),
    "half a status line": (b"HTTP/1.", "connection"),
    "garbage": (b"\x16\x03\x01\x02\x00 what is this\r\n\r\n", "connection"),
    "header that never ends": (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000, "connection"),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", "stream_truncated"),
    "no bytes": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "stream_truncated"),
    "cut in the answer": (HEAD + piece(HEL), "stream_truncated"),
    "cut in an event": (HEAD + piece(HEL + LO[:20]), "stream_truncated"),
    "wrong chunk size": (HEAD + b"zz\r\n" + HEL, "stream_truncated"),
    "shorter than it says": (b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n" + HEL, "stream_truncated"),
    "clean end without an end": (HEAD + piece(HEL) + END, "stream_truncated"),
    "a page": (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<html>log in</html>", "protocol_error"),
}


@pytest.mark.parametrize("name", RAW)
async def test_what_servers_and_proxies_do_is_one_typed_error(name: str) -> None:
    raw, category = RAW[name]
    async with serving(raw) as server, adapting(PATIENT, base_url=server.url) as adapter:
        with anyio.fail_after(10):
            _, error = await collect(adapter)
    assert isinstance(error, ProviderError)
    assert error.category == category


async def test_a_port_where_nobody_listens_is_a_connection_error() -> None:
    async with serving(b"") as server:
        url = server.url
    async with adapting(base_url=url) as adapter:
        assert (await collect(adapter))[1].category == "connection"


async def test_a_name_that_leads_where_nothing_is_sent_is_left_before_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spine.wire.http.is_forbidden", lambda address: str(address) == "127.0.0.1")
    async with serving(HEAD + piece(ANSWER) + END) as server:
        with resolving("models.localhost", "127.0.0.1"):
            async with adapting(base_url=server.url.replace("127.0.0.1", "models.localhost")) as adapter:
                error = (await collect(adapter))[1]
        assert (error.category, error.retryable) == ("connection", False)
        with anyio.fail_after(1):
            await server.gone.wait()
        assert server.requests == []


async def silent(stream: SocketStream) -> None:
    await anyio.sleep(5)


async def trickling_head(stream: SocketStream) -> None:
    for _ in range(100):
        await stream.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await anyio.sleep(0.05)


async def stalled(stream: SocketStream) -> None:
    await stream.send(HEAD + piece(HEL))
    await anyio.sleep(5)


async def commenting(stream: SocketStream) -> None:
    await stream.send(HEAD + piece(HEL))
    for _ in range(100):
        await stream.send(piece(b": ping\n\n"))
        await anyio.sleep(0.05)


async def pinging(stream: SocketStream) -> None:
    await stream.send(HEAD + piece(HEL))
    for _ in range(100):
        await stream.send(piece(b'data: {"type": "ping"}\n\n'))
        await anyio.sleep(0.05)


async def endless(stream: SocketStream) -> None:
    await stream.send(HEAD)
    for _ in range(100):
        await stream.send(piece(HEL))
        await anyio.sleep(0.05)


STALLS = {
    "no answer": (silent, 0.3, "no answer began within 0.3 s"),
    "answers that are none": (trickling_head, 0.3, "no answer began within 0.3 s"),
    "silence in the answer": (stalled, 0.25, "silent"),
    "comments for ever": (commenting, 0.45, "no model event came for 0.45 s"),
    "pings for ever": (pinging, 0.45, "no model event came for 0.45 s"),
    "text for ever": (endless, 0.8, "not complete in the time allowed"),
}


@pytest.mark.parametrize("name", STALLS)
async def test_every_wait_has_a_deadline(name: str) -> None:
    answer, seconds, words = STALLS[name]
    async with serving(answer) as server, adapting(base_url=server.url) as adapter:
        started = time.monotonic()
        with anyio.fail_after(4):
            _, error = await collect(adapter)
        took = time.monotonic() - started
    assert (error.category, error.retryable) == ("timeout", True)
    assert words in error.message
    assert seconds * 0.8 < took < seconds + 1


async def test_a_mock_that_stalls_meets_the_same_idle_deadline() -> None:
    class Stalling(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield HEL
            await anyio.sleep(5)

    async with adapting(transport=mock(lambda _: httpx.Response(200, stream=Stalling()))) as adapter:
        with anyio.fail_after(3):
            chunks, error = await collect(adapter)
    assert text_of(chunks) == "Hel"
    assert error.message == "no byte came for 0.25 s"


async def test_slow_events_within_the_idle_time_finish_normally() -> None:
    async def answer(stream: SocketStream) -> None:
        await stream.send(HEAD)
        for _ in range(4):
            await anyio.sleep(0.12)
            await stream.send(piece(HEL))
        await stream.send(piece(STOP) + END)

    async with serving(answer) as server, adapting(base_url=server.url) as adapter:
        assert (await collect(adapter))[1].message.text == "Hel" * 4


async def test_a_server_that_keeps_the_response_open_after_done_holds_nobody_up() -> None:
    async def answer(stream: SocketStream) -> None:
        await stream.send(HEAD + piece(ANSWER))
        await anyio.sleep(5)

    async with serving(answer) as server, adapting(Deadlines(linger_s=0.2), base_url=server.url) as adapter:
        with anyio.fail_after(1.5):
            assert (await collect(adapter))[1].message.text == "Hello"


async def test_connections_are_used_again() -> None:
    connections = 0

    async def answer(stream: SocketStream) -> None:
        nonlocal connections
        connections += 1
        await stream.send(HEAD + piece(ANSWER) + END)
        while True:
            await read_request(stream)
            await stream.send(HEAD + piece(ANSWER) + END)

    async with serving(answer) as server, adapting(base_url=server.url) as adapter:
        for _ in range(3):
            assert (await collect(adapter))[1].message.text == "Hello"
        assert connections == 1


async def test_the_environments_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setitem(os.environ, name, "http://127.0.0.1:9")
    async with serving(HEAD + piece(ANSWER) + END) as server, adapting(base_url=server.url) as adapter:
        assert (await collect(adapter))[1].message.text == "Hello"


# --------------------------------------------------------------------------------------------------- lifetimes


async def endless_quickly(stream: SocketStream) -> None:
    await stream.send(HEAD)
    while True:
        await stream.send(piece(HEL))
        await anyio.sleep(0.01)


@pytest.mark.parametrize("after", [0, 1, 3])
async def test_cancelling_closes_the_connection(after: int) -> None:
    async with serving(endless_quickly) as server, adapting(Deadlines(), base_url=server.url) as adapter:
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                seen = 0
                async with contextlib.aclosing(adapter.stream(REQUEST)) as stream:
                    async for _ in stream:
                        seen += 1
                        if seen > after:
                            tasks.cancel_scope.cancel()
                            await anyio.lowlevel.checkpoint()

            tasks.start_soon(run)
        with anyio.fail_after(1):
            await server.gone.wait()


async def test_leaving_the_stream_early_closes_the_connection() -> None:
    async with serving(endless_quickly) as server, adapting(Deadlines(), base_url=server.url) as adapter:
        async with contextlib.aclosing(adapter.stream(REQUEST)) as stream:
            async for _ in stream:
                break
        with anyio.fail_after(1):
            await server.gone.wait()


async def test_the_callers_own_cancel_scope_is_not_touched() -> None:
    """A deadline of the adapter never cancels code of the consumer, however slow that is."""
    body = Pieces(HEL, STOP)
    async with adapting(
        attrs.evolve(BRISK, total_s=None, progress_s=None), transport=mock(httpx.Response(200, stream=body))
    ) as adapter:
        with anyio.CancelScope() as scope:
            async with contextlib.aclosing(adapter.stream(REQUEST)) as stream:
                async for _ in stream:
                    await anyio.sleep(0.28)
        assert not scope.cancelled_caught


async def test_closing_twice_is_closing_once_and_a_given_client_stays_open() -> None:
    async with httpx.AsyncClient(transport=mock(httpx.Response(200, content=ANSWER))) as client:
        adapter = HttpAdapter(OpenAIChat(), settings(client=client))
        assert (await collect(adapter))[1].message.text == "Hello"
        await adapter.aclose()
        await adapter.aclose()
        assert not client.is_closed
