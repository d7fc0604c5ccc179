"""The only file that knows httpx (side room `wire`): one POST, its response in pieces, its failures translated.

Rules it guards: redirects are never followed, proxies and certificates never come from the environment, every wait has
a deadline, every size a limit, and the response is closed on every way out. No cancel scope is open while a caller's
code runs: deadlines that are near are put around awaiting the next piece, the others are checks of the clock between
pieces, because a scope per piece costs as much as httpx itself.
"""

import contextlib
import ipaddress
import time
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from typing import Any, cast

import anyio
import httpx

from spine.llm.errors import Category, ProviderError, provider_error
from spine.values import Secret
from spine.wire.addresses import is_forbidden
from spine.wire.limits import Deadlines, WireLimits

__all__ = ["Answer", "HttpClient"]

CLOSING_S = 2.0
ERROR_BODY_S = 10.0
MOST_UNWOUND = 10_000
_FOREVER = float("inf")
_TRANSLATED: Mapping[str, tuple[Category, str]] = {
    "ConnectTimeout": ("timeout", "no connection in time"),
    "PoolTimeout": ("timeout", "no free connection in time"),
    "WriteTimeout": ("timeout", "the provider stopped reading the request"),
    "ReadTimeout": ("timeout", "the provider fell silent"),
    "TimeoutException": ("timeout", "the provider did not answer in time"),
    "ConnectError": ("connection", "no connection could be made"),
    "ProxyError": ("connection", "the proxy refused the connection"),
    "RemoteProtocolError": ("connection", "the provider broke off, or did not speak HTTP"),
    "NetworkError": ("connection", "the connection broke"),
    "UnsupportedProtocol": ("invalid_request", "the address is no http or https URL"),
    "InvalidURL": ("invalid_request", "the address is no valid URL"),
    "LocalProtocolError": ("invalid_request", "the request is not valid HTTP"),
    "DecodingError": ("protocol_error", "the response does not decode as its content-encoding says"),
}
"""httpx's errors by name: a client that was handed in may be of a package that only looks like httpx, with errors of
its own. Their words name hosts and addresses and are left to `__cause__`."""
_ROOTS = frozenset(("HTTPError", "InvalidURL", "StreamError"))
"""What all errors of such a package descend from."""
_PASSING = frozenset(("timeout", "connection", "stream_truncated"))


def _translate(exc: Exception, *, in_body: bool = False) -> ProviderError:
    name = next((kind.__name__ for kind in type(exc).__mro__ if kind.__name__ in _TRANSLATED), "")
    if in_body and name == "RemoteProtocolError":
        return provider_error("stream_truncated", "the provider broke off in the middle of its answer")
    if not name:
        return provider_error("protocol_error", f"the HTTP exchange failed ({type(exc).__name__})")
    category, words = _TRANSLATED[name]
    return provider_error(category, words, retryable=category in _PASSING or name == "DecodingError")


def _is_http(exc: Exception) -> bool:
    """Whether an error is one of an HTTP exchange; any other is a fault of somebody's code and goes on."""
    return any(kind.__name__ in _ROOTS for kind in type(exc).__mro__)


async def _check_peer(event: str, info: Mapping[str, Any]) -> None:
    """Refuse what a name led to, before a byte is sent: it may lead elsewhere than when anybody looked."""
    if event != "connection.connect_tcp.complete":
        return
    stream = info["return_value"]
    try:
        peer = stream.get_extra_info("server_addr")
    except OSError:  # it broke off already
        return
    if peer and is_forbidden(ipaddress.ip_address(peer[0].partition("%")[0])):
        await stream.aclose()
        raise provider_error("connection", "the address leads to a link-local or metadata server", retryable=False)


class _Content(httpx.AsyncByteStream):
    """A request's body without a generator, which httpx would leave suspended when a connection breaks under it."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._left: Iterator[bytes] = iter(())

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._left = iter((self._content,))
        return self

    async def __anext__(self) -> bytes:
        for piece in self._left:
            return piece
        raise StopAsyncIteration


class Answer:
    """One response: `status`, `headers` with lower-case names, and its body in pieces.

    `cut` is None while the body goes well; a body that ended too early has the reason here.
    """

    def __init__(
        self, response: httpx.Response, *, started: float, clock: Callable[[], float], client: "HttpClient"
    ) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = {key.lower(): value for key, value in response.headers.items()}
        self._clock = clock
        self._limits = client.limits
        self._deadlines = deadlines = client.deadlines
        self.cut: ProviderError | None = None
        self._is_over = False
        self._is_watched = client.is_own
        self._idle_s = _FOREVER if deadlines.idle_s is None else deadlines.idle_s
        self._total_at = _FOREVER if deadlines.total_s is None else started + deadlines.total_s
        self._now = clock()
        self.progressed()
        self._left = self._limits.response_bytes
        self._inflate: zlib._Decompress | None = None
        self._source = self._open(response)
        self._pull = self._source.__anext__

    def _open(self, response: httpx.Response) -> AsyncIterator[bytes]:
        if response.is_stream_consumed:  # a mock transport's response with its content at hand, decoded already
            return response.aiter_bytes()
        coding = self.headers.get("content-encoding", "identity").strip().lower() or "identity"
        if coding in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(47)  # either header
        elif coding != "identity":
            raise provider_error("protocol_error", "the response is compressed although that was not asked for")
        # Not `aiter_raw`, which puts two more layers around each piece and only counts and re-cuts it there.
        return cast(AsyncIterable[bytes], response.stream).__aiter__()

    def progressed(self) -> None:
        """A model event came out of the last piece."""
        progress_s = self._deadlines.progress_s
        self._progress_at = _FOREVER if progress_s is None else self._now + progress_s

    def hurry(self, seconds: float) -> None:
        """Nothing more is needed: wait `seconds` longer at most, however long the provider keeps the response open."""
        self._total_at = min(self._total_at, self._now + seconds)

    async def next(self) -> bytes | None:
        """The next piece of the body, never empty; None at its end, also when it ended badly: see `cut`.

        `cut` may be timeout, connection, stream_truncated, or protocol_error over a limit.
        """
        try:
            while True:
                wait = min(self._total_at, self._progress_at) - self._clock()
                if self._is_watched and (self._idle_s < wait or wait == _FOREVER):
                    piece = await self._pull()  # httpx's own read timeout watches the idle time
                else:
                    piece = await self._bounded(wait)
                self._now = self._clock()
                if self._inflate is not None:
                    piece = self._inflated(piece)
                self._left -= len(piece)
                if self._left < 0:
                    raise self._too_long()
                if piece:
                    return piece
        except StopAsyncIteration:
            self._is_over = True
            if self._inflate is not None and not self._inflate.eof:
                self.cut = provider_error("stream_truncated", "the compressed response ends too early")
        except ProviderError as error:
            self.cut = error
        except Exception as exc:
            if not _is_http(exc):
                raise
            self.cut = _translate(exc, in_body=True)
            self.cut.__cause__ = exc
        return None

    async def unwind(self) -> None:
        """Run what httpx left suspended to its end: it closes connections, not the generators it reads them with."""
        if self._is_over:
            return
        with anyio.CancelScope(shield=True) as scope, contextlib.suppress(Exception):
            scope.cancel()
            for _ in range(MOST_UNWOUND):
                if await anext(self._source, None) is None:
                    break

    async def _bounded(self, wait: float) -> bytes:
        with anyio.move_on_after(max(min(wait, self._idle_s), 0.0)):
            return await self._pull()
        raise self._too_late(was_idle=self._idle_s < wait)

    def _too_long(self) -> ProviderError:
        return provider_error("protocol_error", f"the response is longer than {self._limits.response_bytes} bytes")

    def _too_late(self, *, was_idle: bool) -> ProviderError:
        if was_idle:
            return provider_error("timeout", f"no byte came for {self._deadlines.idle_s:g} s")
        if self._progress_at < self._total_at:
            return provider_error("timeout", f"no model event came for {self._deadlines.progress_s:g} s")
        return provider_error("timeout", "the answer was not complete in the time allowed for all of it")

    def _inflated(self, piece: bytes) -> bytes:
        assert self._inflate is not None
        try:
            return self._inflate.decompress(piece, max(self._left + 1, 1))
        except zlib.error as exc:
            raise provider_error(
                "protocol_error", "the response does not decode as its content-encoding says", retryable=True
            ) from exc

    async def error_body(self) -> bytes:
        """The first bytes of an error answer; what ends it early is not worth another error."""
        pieces: list[bytes] = []
        size = 0
        self.hurry(min(self._idle_s, ERROR_BODY_S))
        while size < self._limits.error_bytes and (piece := await self.next()) is not None:
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)[: self._limits.error_bytes]


class HttpClient:
    """Connections to one provider: made on first use, closed once. A `client` from outside is used and left open."""

    def __init__(
        self,
        *,
        deadlines: Deadlines,
        limits: WireLimits,
        client: Any = None,
        transport: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deadlines = deadlines
        self.limits = limits
        self.is_own = client is None and transport is None
        """Whether httpx's own network stands below: then its read timeout watches over idle connections."""
        self._given = client
        self._transport = transport
        self._own: httpx.AsyncClient | None = None
        self._clock = clock

    @contextlib.asynccontextmanager
    async def post(
        self, url: str, *, headers: Mapping[str, str], content: bytes, secret_header: tuple[str, Secret] | None = None
    ) -> AsyncIterator[Answer]:
        """Send one request and hand out its response, which is closed on every exit.

        `secret_header` is taken out of the request object afterwards, so no exception that refers to it holds the key.
        Raises `ProviderError`; a redirect is a `protocol_error`.
        """
        client = self._client()
        started = self._clock()
        request = self._request(client, url, headers, content, secret_header)
        try:
            response = await self._send(client, request)
            try:
                answer = self._answer(request, response, started)
                try:
                    yield answer
                finally:
                    await answer.unwind()
            finally:
                with anyio.move_on_after(CLOSING_S, shield=True):
                    await response.aclose()
        finally:
            if secret_header:
                request.headers.pop(secret_header[0], None)

    def _request(
        self,
        client: httpx.AsyncClient,
        url: str,
        headers: Mapping[str, str],
        content: bytes,
        secret_header: tuple[str, Secret] | None,
    ) -> httpx.Request:
        """Made apart: no frame that an error goes through later has the key among its locals."""
        sent = {**headers, **({secret_header[0]: secret_header[1].reveal()} if secret_header else {})}
        try:
            request = client.build_request("POST", url, headers=sent, content=content, timeout=self._timeout())
        except Exception as exc:
            if not (isinstance(exc, ValueError | TypeError) or _is_http(exc)):
                raise
            raise provider_error("invalid_request", "the request could not be written as HTTP") from exc
        if self._given is None:
            request.stream = _Content(content)
            request.extensions["trace"] = _check_peer
        return request

    async def _send(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        first_byte_s = self.deadlines.first_byte_s
        try:
            with anyio.move_on_after(first_byte_s):
                return await client.send(request, stream=True, follow_redirects=False)
        except Exception as exc:
            if not _is_http(exc):
                raise
            raise _translate(exc) from exc
        raise provider_error("timeout", f"no answer began within {first_byte_s:g} s")

    def _answer(self, request: httpx.Request, response: httpx.Response, started: float) -> Answer:
        if 300 <= response.status_code < 400:
            raise provider_error(
                "protocol_error",
                f"the provider answered {response.status_code}, a redirect; redirects are not followed with a key",
                status=response.status_code,
            )
        timeouts = request.extensions.get("timeout")
        if isinstance(timeouts, dict):
            timeouts["read"] = self.deadlines.idle_s  # read anew by httpcore when the body begins
        return Answer(response, started=started, clock=self._clock, client=self)

    def _timeout(self) -> tuple[float | None, float | None, float | None, float | None]:
        """Connect, read, write, pool: plain numbers, which a client of any package takes."""
        deadlines = self.deadlines
        return deadlines.connect_s, deadlines.first_byte_s, deadlines.idle_s, deadlines.connect_s

    def _client(self) -> httpx.AsyncClient:
        if self._given is not None:
            return self._given  # type: ignore[no-any-return]
        if self._own is None:
            self._own = httpx.AsyncClient(
                transport=self._transport,
                trust_env=False,
                follow_redirects=False,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            )
        return self._own

    async def aclose(self) -> None:
        """Close the connections that are ours; again is nothing."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()
