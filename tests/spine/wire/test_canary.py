"""The key of a failing request is nowhere but in its one header: not in logs, errors, locals of tracebacks, or stores.

Each failure runs over a real connection with all loggers at DEBUG, those of the HTTP libraries included.
"""

import logging
import pickle
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from test_http_adapter import BRISK, DONE, HEL, STOP, collect, settings
from wire_server import HEAD, Server, piece, serving

import spine_openai_chat
from spine import Agent, Runtime, Secret, TurnFailed
from spine.config import Settings
from spine.errors import KeyMissing
from spine.llm.catalogue import Provider
from spine.llm.errors import ProviderError
from spine.llm.retry import RetryPolicy
from spine.wire import HttpAdapter
from spine_openai_chat.protocol import OpenAIChat

CANARY = "canary-7f3a-in-the-coal-mine"
ESCAPED = CANARY.replace("-", "\\u002d")
AUTHS = ("bearer", "header x-api-key")


def refusal(status: str, body: str, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n{body}".encode()


async def stall(stream: SocketStream) -> None:
    await stream.send(HEAD + piece(HEL))
    await anyio.sleep(3)


async def never_read(stream: SocketStream) -> None:
    await anyio.sleep(3)


FAILURES: dict[str, bytes | Callable[[SocketStream], Awaitable[None]]] = {
    "refused, the key in the body": refusal("401 X", f'{{"error":{{"message":"Incorrect API key: {CANARY}"}}}}'),
    "refused, the key in the headers": refusal("500 X", "broken", f"x-request-id: {CANARY}\r\nx-echo: {CANARY}\r\n"),
    "refused, the key in a plain page": refusal("403 X", f"<html>{CANARY} is not allowed</html>"),
    "moved": refusal("307 X", "", f"location: /v1?key={CANARY}\r\n"),
    "error in the stream": HEAD + piece(f'data: {{"error":{{"message":"no {CANARY}"}}}}\n\n'.encode()),
    "no grammar": HEAD + piece(f"data: {CANARY}\n\n".encode()),
    "closed at once": b"",
    "cut": HEAD + piece(HEL),
    "garbage": b"\x16\x03\x01",
    "silence in the answer": stall,
    "silence": never_read,
    "an answer": HEAD + piece(HEL + STOP + DONE) + b"0\r\n\r\n",
}


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All loggers at DEBUG; httpcore's see every header."""
    names = ("", "spine", "httpx", "httpcore", "httpcore.http11", "httpcore.connection", "anyio", "asyncio")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    with caplog.at_level(logging.DEBUG):
        yield caplog
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def told_by(error: BaseException) -> Iterator[str]:
    """Everything that a program, a debugger or an error tracker could make of an error."""
    yield "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    seen: BaseException | None = error
    while seen is not None:
        yield f"{seen} {seen!r} {seen.args!r} {vars(seen)!r}"
        request = getattr(seen, "_request", None)
        if request is not None:
            yield repr(request.headers.raw)
        frame = seen.__traceback__
        while frame is not None:
            yield repr(frame.tb_frame.f_locals)
            frame = frame.tb_next
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize("auth", AUTHS)
@pytest.mark.parametrize("name", FAILURES)
async def test_no_error_and_no_log_holds_the_key(
    name: str, auth: str, everything_logged: pytest.LogCaptureFixture
) -> None:
    async with serving(FAILURES[name]) as server:
        adapter = HttpAdapter(
            OpenAIChat(), settings(base_url=server.url, secret=Secret(CANARY), auth=auth), deadlines=BRISK
        )
        items, end = await collect(adapter)
        await adapter.aclose()
        assert was_sent(server) == 1
    told = [repr(items), repr(end), repr(adapter), repr(adapter.settings)]
    if isinstance(end, ProviderError):
        told += [*told_by(end), pickle.dumps(end.failure).decode("latin-1")]
    assert find_canary(told) == []
    logged = [f"{record.getMessage()} {record.args!r}" for record in everything_logged.records]
    assert [line for line in find_canary(logged) if not line.startswith("receive_response_headers")] == []
    assert any("httpcore" in record.name for record in everything_logged.records)


def was_sent(server: Server) -> int:
    """How often the key went out: the canary lives."""
    return server.requests[0].count(CANARY.encode())


def find_canary(texts: list[str]) -> list[str]:
    return [text[:300] for text in texts if CANARY in text or ESCAPED in text]


@pytest.mark.parametrize("after", [" x", "\n\nx", "é"], ids=repr)
def test_a_key_that_is_none_is_not_shown_either(after: str) -> None:
    with pytest.raises(KeyMissing) as caught:
        HttpAdapter(OpenAIChat(), settings(secret=Secret(CANARY + after)))
    assert find_canary([*told_by(caught.value)]) == []


@pytest.mark.parametrize("name", FAILURES)
async def test_no_store_and_no_turn_holds_the_key(
    name: str, tmp_path: Path, everything_logged: pytest.LogCaptureFixture
) -> None:
    """A whole session over SQLite, its files read to the last byte while it is open and after."""
    async with serving(FAILURES[name]) as server:
        told = await talk(server.url, tmp_path)
        assert was_sent(server) == 1
    assert find_canary([*told, *files(tmp_path)]) == []


async def talk(url: str, folder: Path) -> list[str]:
    """What a turn says of itself in every way there is."""
    lab = Provider(id="lab", protocol="openai_chat", base_url=url, key_env="LAB_KEY")
    async with Runtime.open(
        f"sqlite:{folder / 'spine.db'}",
        plugins=[spine_openai_chat],
        settings=Settings(installed_plugins=False, providers=(lab,)),
        secrets={"lab": Secret(CANARY)},
        retry=RetryPolicy(attempts=1),
    ) as runtime:
        session = await runtime.session("canary", Agent("lab:m"))
        told: list[str] = []
        try:
            with anyio.move_on_after(0.5):
                told.append(repr(await session.run("Hi")))
        except TurnFailed as error:
            told += [str(error), repr(error), repr(error.turn), *told_by(error)]
        return [*told, repr(list(session.log.read())), repr(session.transcript()), *files(folder)]


def files(folder: Path) -> list[str]:
    """All bytes of a store, its write-ahead log included."""
    return [path.read_bytes().decode("latin-1") for path in folder.iterdir()]
