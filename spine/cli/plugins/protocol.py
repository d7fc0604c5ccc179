"""The files of a new protocol plugin (floor 15), filled in by `spine.cli.plugins.new`.

Its provider writes a line of JSON for each piece of text, and a last one; whoever has another provider replaces that.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["PROTOCOL"]

_HOOKS: Final = '''\
"""The plugin {key}: the wire protocol "{key}_lines", and the provider "{key}" that speaks it."""

from spine.hooks import hookimpl
from spine.llm.catalogue import Provider

from {module}.protocol import {class}Protocol

__version__ = "0.1.0"


@hookimpl
def spine_register_protocols(registrar):
    """Other providers choose the protocol by its name, in spine.toml."""
    registrar.add({class}Protocol())
    registrar.add(Provider(id="{key}", protocol="{key}_lines", base_url="https://{name}.example/v1", auth="none"))
'''
_PROTOCOL: Final = '''\
"""The protocol: pure code without await, clock, key or network; `spine.wire.HttpAdapter` does the rest."""

from spine.llm.errors import unsupported
from spine.wire import SHARED, failure_of, read_error

from {module}.decode import Decoder
from {module}.encode import encode


class {class}Protocol:
    """A `WireProtocol`."""

    name = "{key}_lines"

    def check(self, request, traits):
        """Refuse what cannot be said, before anything is recorded."""
        if request.tools:
            raise unsupported("tools", provider=traits.provider, model=traits.model)

    def encode(self, request, traits):
        return encode(request, traits)

    def decoder(self, traits, headers):
        return Decoder()

    def classify(self, status, headers, body, *, now):
        """What an answer that is no success means; whether it is tried again is decided outside."""
        raw = body.decode("utf-8", "replace")
        return failure_of(read_error(body), SHARED, status=status, headers=headers, now=now, raw=raw)
'''
_ENCODE: Final = '''\
"""A request as the provider reads it."""

from spine.llm.protocols import Body
from spine.wire import to_json


def encode(request, traits):
    """Pure: the same request always gives the same bytes."""
    system = "\\n\\n".join(block.text for block in request.system)
    turns = [[message.role, message.text] for message in request.messages]
    return Body(path="/answer", content=to_json({"model": traits.model, "system": system, "turns": turns}))
'''
_DECODE: Final = '''\
"""An answer as the provider writes it: {"text": "…"} for each piece, then {"end": true, "tokens": 3}."""

from spine.llm.assemble import Assembler
from spine.llm.chunks import TextDelta, UsageReported
from spine.llm.errors import provider_error
from spine.llm.response import ModelResponse
from spine.llm.usage import Usage
from spine.wire import from_json


class Decoder:
    """Bytes, cut anywhere, to chunks; what came before an error is handed out, then `feed` raises it."""

    def __init__(self):
        self.is_done = False
        self.error = None
        self._rest = b""
        self._assembler = Assembler()

    def feed(self, data):
        if self.error is not None:
            raise self.error
        *lines, self._rest = (self._rest + data).split(b"\\n")
        chunks = []
        for line in lines:
            try:
                chunks.append(self._chunk(from_json(line)))
            except Exception as error:
                self.error = error
                break
        if self.error is not None and not chunks:
            raise self.error
        return tuple(chunks)

    def _chunk(self, event):
        if self.is_done:
            raise provider_error("protocol_error", "{key} went on after its last word")
        self.is_done = bool(event.get("end"))
        chunk = UsageReported(Usage(output_tokens=event["tokens"])) if self.is_done else TextDelta(0, event["text"])
        self._assembler.add(chunk)
        return chunk

    def finish(self):
        """The one response, or why there is none."""
        if self.error is not None:
            raise self.error
        if not self.is_done:
            raise provider_error("stream_truncated", "the answer of {key} ended without its last word")
        usage = self._assembler.usage or Usage()
        return ModelResponse(message=self._assembler.message(), stop_reason="end_turn", usage=usage)
'''
_CONFORMANCE: Final = '''\
"""How {key} writes an answer, for servers that misbehave: pytest --spine-conformance {module}.conformance:subject."""

from spine.testing import Conformance, Rendered, Say
from spine.wire import to_json

from {module}.protocol import {class}Protocol


def render(entry):
    """The lines of an answer; what cannot be said raises, and the cases that need it do not apply."""
    if any(type(part) is not Say for part in entry.parts) or entry.usage or entry.stop_reason:
        raise NotImplementedError("only text can be said, and no input is counted")
    lines = [to_json({"text": text}) + b"\\n" for part in entry.parts for text in part.pieces]
    return Rendered(frames=(*lines, to_json({"end": True, "tokens": None}) + b"\\n"), ends_at=len(lines))


def subject():
    return Conformance(name="{key} adapter", version="0.1.0", protocol={class}Protocol(), render=render)
'''
_TEST: Final = '''\
"""The protocol of {key}, without a network: every cut of an answer, the contract of every adapter, and an agent."""

import httpx
import pytest
from {module}.protocol import {class}Protocol
from spine import Agent, Runtime
from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.protocols import ProviderSettings
from spine.testing import AdapterContract
from spine.wire import HttpAdapter

ANSWER = '{"text": "Hello, "}\\n{"text": "wörld."}\\n{"end": true, "tokens": 4}\\n'.encode()
TRANSPORT = httpx.MockTransport(lambda request: httpx.Response(200, content=ANSWER))


def read(*pieces):
    decoder = {class}Protocol().decoder(Traits(), {})
    for piece in pieces:
        decoder.feed(piece)
    return decoder.finish().message.text


@pytest.mark.parametrize("at", range(len(ANSWER) + 1))
def test_an_answer_may_be_cut_anywhere(at):
    assert read(ANSWER[:at], ANSWER[at:]) == "Hello, wörld."


@pytest.mark.parametrize("at", range(len(ANSWER)))
def test_an_answer_without_its_last_word_is_an_error(at):
    with pytest.raises(ProviderError, match="last word"):
        read(ANSWER[:at])


class TestContract(AdapterContract):
    def answering(self):
        settings = ProviderSettings(
            provider="{key}",
            protocol="{key}_lines",
            base_url="https://{name}.example/v1",
            auth="none",
            traits=lambda model: Traits(provider="{key}", model=model),
            transport=TRANSPORT,
        )
        return HttpAdapter({class}Protocol(), settings)


@pytest.mark.anyio
async def test_an_agent_talks_with_it_once_it_is_installed():
    async with Runtime.open("memory:", clients={"{key}": httpx.AsyncClient(transport=TRANSPORT)}) as runtime:
        session = await runtime.session("s", Agent("{key}:any"))
        turn = await session.run("Hello.")
        assert (turn.text, turn.usage.output_tokens) == ("Hello, wörld.", 4)
'''
PROTOCOL: Final[Mapping[str, str]] = {
    "__init__.py": _HOOKS,
    "protocol.py": _PROTOCOL,
    "encode.py": _ENCODE,
    "decode.py": _DECODE,
    "conformance.py": _CONFORMANCE,
    "test": _TEST,
}
"""The files of the package, and its tests."""
