"""What a wire protocol and an adapter must do (floor 3): the room for plugin authors.

A provider reached over HTTP is a `WireProtocol`: pure code, no await; `spine.wire.HttpAdapter` does the rest. What is
not HTTP (a scripted model, a recording, a model in the process) is an `Adapter`.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import attrs

from spine.frozen import frozen
from spine.llm.catalogue import Traits
from spine.llm.chunks import Chunk
from spine.llm.errors import ProviderError
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.values import EMPTY_OBJECT, JsonObject, Secret

__all__ = ["Adapter", "AdapterFactory", "Body", "Decoder", "ListsLosses", "ProviderSettings", "WireProtocol"]


@frozen(kw_only=True)
class Body:
    """An encoded request. `path` is appended to the base URL; `headers` hold no secret; `losses` name, in one
    sentence each, what the target could not be told; `names` map tool names as written back to the registered ones,
    for those that the target's grammar refuses."""

    path: str
    content: bytes
    headers: Mapping[str, str] = attrs.field(factory=dict)
    losses: tuple[str, ...] = ()
    names: Mapping[str, str] = attrs.field(factory=dict)


class Decoder(Protocol):
    """Sans-IO: bytes of one response body in, chunks out, in the same way for every cut of the bytes."""

    @property
    def is_done(self) -> bool:
        """Whether the protocol's last word was seen: what may still come can only be a fault."""

    @property
    def error(self) -> ProviderError | None:
        """What ended the answer as a failure; None while it goes well."""

    def feed(self, data: bytes) -> tuple[Chunk, ...]:
        """Take the next bytes; `b""` says that the body has ended, and gives what was held back.

        Raises `ProviderError` for an error in the stream or broken grammar, and ever after. Chunks that came before
        it in the same piece are handed out first: then `error` is set, and the next call raises it.
        """

    def finish(self) -> ModelResponse:
        """The body ended (said by `feed(b"")` or here). Returns the one response, or raises `ProviderError`
        (`stream_truncated` without an end)."""


class WireProtocol(Protocol):
    """One provider protocol over HTTP. All of it is pure; nothing here reads a clock, a key or the network."""

    name: str
    """`openai_chat`, say; providers choose it by this name."""

    def check(self, request: ModelRequest, traits: Traits) -> None:
        """Raise `unsupported_capability` for what the target cannot do; called before anything is recorded or sent."""

    def encode(self, request: ModelRequest, traits: Traits) -> Body:
        """The HTTP body for a request."""

    def decoder(self, traits: Traits, headers: Mapping[str, str]) -> Decoder:
        """A fresh decoder for one 200 response with these (lower-case) headers, streamed or not."""

    def classify(self, status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> ProviderError:
        """Read an error answer. `now` in seconds since 1970 UTC, for delays given as dates."""


class Adapter(Protocol):
    """A way to ask a model; used by many sessions at once."""

    def check(self, request: ModelRequest) -> None:
        """Raise `unsupported_capability` for what this target cannot do; called before anything is recorded."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | ModelResponse]:
        """One wire attempt: any number of chunks, then exactly one `ModelResponse`.

        Raises `ProviderError` on failure. Closing the iterator closes the connection.
        """

    async def aclose(self) -> None:
        """Let go of connections; idempotent; called once by the runtime."""


class ListsLosses(Protocol):
    """What an adapter may do besides: say before the request what its target could not be told."""

    def losses(self, request: ModelRequest) -> tuple[str, ...]:
        """A sentence for each thing that would be left out or replaced; the request has passed `check`."""


@frozen(kw_only=True)
class ProviderSettings:
    """What an adapter factory gets: never the environment, never another provider's key."""

    provider: str
    protocol: str
    base_url: str | None = None
    secret: Secret | None = None
    auth: str = "bearer"
    """`bearer`, `header NAME` or `none`."""
    traits: Callable[[str], Traits]
    """Traits of a model by its name."""
    options: JsonObject = EMPTY_OBJECT
    """`allow_http: true` for plain HTTP to another machine; `capture: true` when what went over the wire is wanted, as
    a `ProviderEvent` of kind `WIRE` at the end of each attempt."""
    client: Any = None
    """An httpx-compatible async client to use instead of one of our own."""
    transport: Any = None
    """An httpx transport, for tests."""


AdapterFactory = Callable[[ProviderSettings], Adapter]
"""Makes the adapter of a provider; called when its first route is resolved."""
