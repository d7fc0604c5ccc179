"""The one adapter for every protocol over HTTP (side room `wire`): encode, post, decode, chunks out.

One call of `stream` is one attempt; nothing is retried here. The key goes into one header and nowhere else.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol

import attrs

from spine.errors import ConfigInvalid, KeyMissing
from spine.late import load
from spine.llm.chunks import Chunk, ProviderEvent
from spine.llm.errors import Failure, ProviderError
from spine.llm.protocols import Body, Decoder, ProviderSettings, WireProtocol
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.masking import forms_of, masked, masked_end
from spine.values import Secret
from spine.wire.addresses import check_address
from spine.wire.capture import Capture
from spine.wire.failures import REQUEST_IDS
from spine.wire.limits import Deadlines, WireLimits
from spine.wire.names import rename_call, rename_calls

__all__ = ["HttpAdapter"]

_HEADERS = {
    "content-type": "application/json",
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",
    "user-agent": "agent-spine",
}

_OF_A_CUT = frozenset(("stream_truncated", "protocol_error"))
"""What a decoder makes of half a body."""


class Answer(Protocol):
    """One response, as `spine.wire.http` hands it out."""

    status: int
    headers: Mapping[str, str]
    cut: ProviderError | None

    async def next(self) -> bytes | None:
        """The next piece of the body; None at its end."""

    async def error_body(self) -> bytes:
        """The first bytes of an error answer."""

    def progressed(self) -> None:
        """A model event came out of the last piece."""

    def hurry(self, seconds: float) -> None:
        """Wait no longer than `seconds` for the rest."""


class HttpAdapter:
    """An `Adapter` made of a `WireProtocol` and a provider's settings.

    `clock` is monotonic seconds, `wall_clock` seconds since 1970 UTC (for delays that servers give as dates).
    Raises `ConfigInvalid` for an address no key is sent to and `KeyMissing` without the key that `auth` asks for.
    """

    def __init__(
        self,
        protocol: WireProtocol,
        settings: ProviderSettings,
        *,
        deadlines: Deadlines | None = None,
        limits: WireLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.protocol = protocol
        self.settings = settings
        self._clock = clock
        self._wall_clock = wall_clock
        self._url = _base_url(settings)
        self._secret_header = _secret_header(settings)
        self._captures = settings.options.get("capture") is True
        self._deadlines = deadlines or Deadlines()
        self._http = load("spine.wire.http").HttpClient(
            deadlines=self._deadlines,
            limits=limits or WireLimits(),
            client=settings.client,
            transport=settings.transport,
            clock=clock,
        )

    def check(self, request: ModelRequest) -> None:
        """Raise what the protocol says against a request, before anything is recorded."""
        self.protocol.check(request, self.settings.traits(request.route.model))

    def losses(self, request: ModelRequest) -> tuple[str, ...]:
        """What the target could not be told of a request that passed `check`, a sentence each."""
        return self.protocol.encode(request, self.settings.traits(request.route.model)).losses

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | ModelResponse, None]:
        """One attempt: the chunks as they arrive, then the one `ModelResponse`. Raises `ProviderError`.

        The response's metadata has `latency_s`, `request_id` when the server gave one, and `losses` when the target
        could not be told everything.
        """
        traits = self.settings.traits(request.route.model)
        body = self.protocol.encode(request, traits)
        started = self._clock()
        capture = self._capture(body) if self._captures else None
        request_id: str | None = None
        piece: bytes | None = None
        chunks: tuple[Chunk, ...] = ()
        try:
            async with self._post(body) as answer:
                request_id = self._request_id(answer)
                if capture is not None:
                    capture.answered(answer.status, answer.headers)
                if not 200 <= answer.status < 300:
                    raise await self._refused(answer, capture)
                decoder = self.protocol.decoder(traits, answer.headers)
                while (piece := await answer.next()) is not None:
                    if capture is not None:
                        capture.add(piece)
                    chunks = decoder.feed(piece)
                    if chunks:
                        if type(chunks[-1]) is not ProviderEvent:  # a ping in JSON is no progress
                            answer.progressed()
                        for chunk in _named(chunks, body):
                            yield chunk
                    if decoder.error is not None:
                        raise decoder.error
                    if decoder.is_done:
                        answer.hurry(self._deadlines.linger_s)
                for chunk in _named(_last_chunks(decoder, answer.cut), body):
                    yield chunk
                response = _finish(decoder, answer.cut)
            if capture is not None:
                yield capture.event()
            yield self._completed(response, body, request_id, self._clock() - started)
            return
        except ProviderError as error:
            failure, cause = self._told(error.failure, request_id), error.__cause__
            piece, chunks = None, ()
        if capture is not None:
            yield capture.event()
            capture = None
        # Raised here and anew: error trackers show the locals of every frame that an error or its context went through.
        raise ProviderError(failure) from _bare(cause)

    def _post(self, body: Body) -> Any:
        return self._http.post(
            f"{self._url}{body.path}",
            headers={**_HEADERS, **body.headers},
            content=body.content,
            secret_header=self._secret_header,
        )

    def _capture(self, body: Body) -> Capture:
        headers = {**_HEADERS, **body.headers}
        return Capture(self.protocol.name, self.settings.provider, headers, body, self.settings.secret)

    async def _refused(self, answer: Answer, capture: Capture | None) -> ProviderError:
        content = await answer.error_body()
        if capture is not None:
            capture.add(content)
        return self.protocol.classify(answer.status, answer.headers, content, now=self._wall_clock())

    def _completed(
        self, response: ModelResponse, body: Body, request_id: str | None, latency_s: float
    ) -> ModelResponse:
        message = rename_calls(response.message, body.names) if body.names else response.message
        metadata: dict[str, Any] = {**response.metadata, "latency_s": round(latency_s, 6)}
        if request_id is not None:
            metadata["request_id"] = request_id
        if body.losses:
            metadata["losses"] = body.losses
        return attrs.evolve(response, message=message, metadata=metadata)

    def _told(self, failure: Failure, request_id: str | None) -> Failure:
        """`failure` with the request's id, and without our key, should the provider have echoed it."""
        return attrs.evolve(
            failure,
            message=self._masked(failure.message),
            code=failure.code and self._masked(failure.code),
            request_id=self._masked(failure.request_id or "") or request_id,
            raw=failure.raw and self._masked(failure.raw),
        )

    def _masked(self, text: str) -> str:
        secrets = () if self.settings.secret is None else (self.settings.secret,)
        return masked_end(masked(text, secrets), forms_of(secrets)) if secrets else text

    def _request_id(self, answer: Answer) -> str | None:
        found = next((answer.headers[name] for name in REQUEST_IDS if name in answer.headers), None)
        return None if found is None else self._masked(found)

    async def aclose(self) -> None:
        """Close the connections; again is nothing."""
        await self._http.aclose()


def _named(chunks: tuple[Chunk, ...], body: Body) -> tuple[Chunk, ...]:
    """`chunks` with the registered names of the tools; nearly always there is nothing to map back."""
    return tuple(rename_call(chunk, body.names) for chunk in chunks) if body.names else chunks


def _last_chunks(decoder: Decoder, cut: ProviderError | None) -> tuple[Chunk, ...]:
    try:
        return decoder.feed(b"")
    except ProviderError as error:
        raise _reason(error, cut) from (cut or error).__cause__


def _finish(decoder: Decoder, cut: ProviderError | None) -> ModelResponse:
    """The response; a connection that broke after the answer's marker took nothing from it."""
    try:
        return decoder.finish()
    except ProviderError as error:
        raise _reason(error, cut) from (cut or error).__cause__


def _reason(error: ProviderError, cut: ProviderError | None) -> ProviderError:
    """What ended the answer: what the connection did, unless the answer itself had said it failed."""
    return cut if cut is not None and error.category in _OF_A_CUT else error


def _bare(cause: BaseException | None) -> BaseException | None:
    """`cause` without tracebacks: the frames of HTTP libraries hold the header with the key, ours what was received."""
    link, seen = cause, set[int]()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return cause


def _base_url(settings: ProviderSettings) -> str:
    if not settings.base_url:
        raise ConfigInvalid(f'provider "{settings.provider}" has no base_url', hint="spine config")
    return check_address(
        settings.base_url, provider=settings.provider, allow_http=settings.options.get("allow_http") is True
    )


def _secret_header(settings: ProviderSettings) -> tuple[str, Secret] | None:
    """Name and value of the one header with the key."""
    kind, _, name = settings.auth.partition(" ")
    if settings.auth == "none":
        return None
    if settings.auth != "bearer" and not (kind == "header" and name):
        raise ConfigInvalid(
            f'auth of provider "{settings.provider}" is "{settings.auth}"; it may be bearer, header NAME or none'
        )
    key = _key(settings.secret, settings.provider)
    return (name.lower(), key) if kind == "header" else ("authorization", Secret(f"Bearer {key.reveal()}"))


def _key(secret: Secret | None, provider: str) -> Secret:
    if secret is None or not secret.reveal().strip():
        raise KeyMissing(f'no key for provider "{provider}"')
    key = Secret(secret.reveal().strip())
    if not _is_key(key):
        raise KeyMissing(f'the key for provider "{provider}" holds characters that no key has (spaces, line ends)')
    return key


def _is_key(secret: Secret) -> bool:
    text = secret.reveal()
    return text.isascii() and text.isprintable() and " " not in text
