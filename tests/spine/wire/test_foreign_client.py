"""A client of a package that only looks like httpx may be handed in: `httpx2`, say, with its own classes and errors."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from test_http_adapter import (
    ANSWER,
    BRISK,
    DONE,
    HEL,
    KEY,
    PATIENT,
    RAW,
    REQUEST,
    STOP,
    adapting,
    collect,
    settings,
    text_of,
)
from wire_server import END, HEAD, piece, serving

from spine.llm.errors import ProviderError
from spine.wire import Deadlines, HttpAdapter
from spine_openai_chat.protocol import OpenAIChat

httpx2 = pytest.importorskip("httpx2", reason="httpx2 is not installed")


def client(**options: Any) -> Any:
    """One that would follow redirects and wait long, were it asked."""
    return httpx2.AsyncClient(trust_env=False, follow_redirects=True, timeout=60, **options)


@contextlib.asynccontextmanager
async def lending(server: Any = None, deadlines: Deadlines = BRISK, **options: Any) -> AsyncIterator[HttpAdapter]:
    """An adapter with such a client."""
    fields = {} if server is None else {"base_url": server.url}
    async with client(**options) as foreign, adapting(deadlines, client=foreign, **fields) as adapter:
        yield adapter


def mock(answer: Any) -> Any:
    return httpx2.MockTransport(answer)


async def test_an_answer_is_read_piece_by_piece() -> None:
    foreign = client()
    async with serving(HEAD + piece(ANSWER[:30]) + piece(ANSWER[30:]) + END) as server, foreign:
        adapter = HttpAdapter(OpenAIChat(), settings(base_url=server.url, client=foreign))
        chunks, response = await collect(adapter)
        await adapter.aclose()
        assert not foreign.is_closed
    assert (text_of(chunks), response.stop_reason) == ("Hello", "end_turn")
    assert f"authorization: bearer {KEY}".encode() in server.requests[0].lower()
    assert b"accept-encoding: identity" in server.requests[0].lower()


@pytest.mark.parametrize("name", RAW)
async def test_what_servers_and_proxies_do_is_the_same_error(name: str) -> None:
    raw, category = RAW[name]
    async with serving(raw) as server, lending(server, PATIENT) as adapter:
        with anyio.fail_after(10):
            _, error = await collect(adapter)
    assert isinstance(error, ProviderError)
    assert error.category == category


ERRORS = {
    "ConnectTimeout": ("timeout", True),
    "ReadTimeout": ("timeout", True),
    "PoolTimeout": ("timeout", True),
    "ConnectError": ("connection", True),
    "WriteError": ("connection", True),
    "RemoteProtocolError": ("connection", True),
    "UnsupportedProtocol": ("invalid_request", False),
    "DecodingError": ("protocol_error", True),
    "TooManyRedirects": ("protocol_error", False),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_its_errors_are_translated(name: str) -> None:
    def answer(request: Any) -> Any:
        raise getattr(httpx2, name)("failed at https://lab.example.com")

    async with lending(transport=mock(answer)) as adapter:
        error = (await collect(adapter))[1]
    assert (error.category, error.retryable) == ERRORS[name]
    assert type(error.__cause__) is getattr(httpx2, name)
    assert "authorization" not in error.__cause__.request.headers


async def test_an_error_that_is_none_of_http_is_not_hidden() -> None:
    def answer(request: Any) -> Any:
        raise ZeroDivisionError

    async with lending(transport=mock(answer)) as adapter:
        with pytest.raises(ZeroDivisionError):
            await collect(adapter)


async def test_redirects_are_not_followed_and_silence_has_a_deadline() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
    async with serving(moved) as server, lending(server) as adapter:
        assert (await collect(adapter))[1].status == 307
        assert len(server.requests) == 1

    async def stall(stream: Any) -> None:
        await stream.send(HEAD + piece(HEL))
        await anyio.sleep(5)

    async with serving(stall) as server, lending(server) as adapter:
        with anyio.fail_after(3):
            chunks, error = await collect(adapter)
    assert (text_of(chunks), error.category) == ("Hel", "timeout")


async def test_leaving_early_closes_the_connection() -> None:
    async def answer(stream: Any) -> None:
        while True:
            await stream.send(HEAD + piece(HEL))
            await anyio.sleep(0.01)

    async with serving(answer) as server, lending(server, Deadlines()) as adapter:
        stream = adapter.stream(REQUEST)
        await anext(stream)
        await stream.aclose()
        with anyio.fail_after(2):
            await server.gone.wait()


async def test_its_mock_transport_serves_as_well() -> None:
    transport = mock(lambda request: httpx2.Response(200, content=HEL + STOP + DONE))
    async with lending(transport=transport) as adapter:
        chunks, response = await collect(adapter)
    assert (text_of(chunks), response.message.text) == ("Hel", "Hel")
