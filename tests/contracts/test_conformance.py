"""The three protocols pass the conformance kit, and the kit finds what it is there to find."""

import gc
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from spine.errors import UsageError
from spine.llm.chunks import TextDelta
from spine.llm.errors import provider_error
from spine.llm.protocols import Adapter
from spine.llm.request import ModelRequest
from spine.testing.adapters.conformance import (
    BACKENDS,
    RETRYING,
    Conformance,
    ConformanceCase,
    ConformanceResult,
    Wire,
    cases,
    load_subject,
    report_card,
    run_case,
)
from spine.testing.chaos.render import render_chat
from spine.wire import BodyDecoder, WireLimits
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

REFERENCES = (
    "spine_anthropic.protocol:AnthropicMessages",
    "spine_openai_chat.protocol:OpenAIChat",
    "spine_openai_responses.protocol:OpenAIResponses",
)
PROTOCOLS = (AnthropicMessages, OpenAIChat, OpenAIResponses)
SUBJECTS = [Conformance(name=protocol.name, protocol=protocol()) for protocol in PROTOCOLS]


def sampled() -> list[tuple[str, Callable[[], list[str]]]]:
    """Every case of the kit once: over one of the protocols, on one event loop, with retries or without, in turns.

    `make chaos` tries each over all of them.
    """
    chosen: dict[str, Callable[[], list[str]]] = {}
    turns = itertools.cycle(
        (subject, backend, how) for subject in (0, 1, 2) for backend in BACKENDS for how in ("", RETRYING)
    )
    by_name: dict[str, dict[int, ConformanceCase]] = {}
    for place, subject in enumerate(SUBJECTS):
        for case in cases(subject):
            if case.why_not is None:
                by_name.setdefault(case.name, {})[place] = case
    for name, found in by_name.items():
        wanted, backend, how = next(turns)
        case = found.get(wanted) or next(iter(found.values()))
        chosen[name] = lambda case=case, backend=backend, how=how: case.once(backend, how)  # type: ignore[misc]
    return list(chosen.items())


@pytest.mark.parametrize("trial", [pytest.param(trial, id=name) for name, trial in sampled()])
def test_the_protocols_keep_the_promises_of_the_wire(trial: Callable[[], list[str]]) -> None:
    assert trial() == []


# ------------------------------------------------------------------------------------------- what is wrong is found


class Chat(OpenAIChat):
    """The Chat protocol, read by another decoder."""

    def __init__(self, decoder: type[BodyDecoder]) -> None:
        super().__init__()
        self._kind = decoder

    def decoder(self, *arguments: Any) -> BodyDecoder:
        found = super().decoder(*arguments)
        found.__class__ = self._kind
        return found


class Gullible(BodyDecoder):
    """Takes the end of the body for the end of the answer."""

    def finish(self) -> Any:
        self.feed(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n')
        return super().finish()


class Careless(BodyDecoder):
    """Takes a piece for a text."""

    def feed(self, data: bytes) -> Any:
        return super().feed(data.decode("utf-8", "replace").encode())


class Shouting(BodyDecoder):
    """Changes the text."""

    def feed(self, data: bytes) -> Any:
        return super().feed(data.replace(b"raining", b"RAINING"))


class Surprised(BodyDecoder):
    """Raises what nobody expects."""

    def feed(self, data: bytes) -> Any:
        if b"chunk" not in data and data:
            raise KeyError("choices")
        return super().feed(data)


class Wrong:
    """An adapter with a fault of its own around a good one."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._good: Any = Conformance(name="x", protocol=OpenAIChat()).make(wire)

    def check(self, request: ModelRequest) -> None:
        """Takes everything."""

    async def aclose(self) -> None:
        await self._good.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        async with aclosing(self._good.stream(request)) as stream:
            async for item in stream:
                yield item


class Quoting(Wrong):
    """Says the key when it fails."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        yield TextDelta(0, "x")
        raise provider_error("auth", f"the key {self._wire.secret.reveal()} is wrong")


class Retrying(Wrong):
    """Tries again by itself."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        for _ in range(2):
            try:
                async with aclosing(self._good.stream(request)) as stream:
                    async for item in stream:
                        yield item
                return
            except Exception:
                continue


class Holding(Wrong):
    """Keeps its connections."""

    async def aclose(self) -> None:
        """Forgets to."""


class Leaking(Wrong):
    """Starts something and leaves it."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        import asyncio

        self._kept = asyncio.get_running_loop().create_task(asyncio.sleep(30))
        async for item in super().stream(request):
            yield item


class Waiting(Wrong):
    """Has a deadline of its own, which nobody gave it."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        await anyio.sleep(4)
        async for item in super().stream(request):
            yield item


class Mistaken(Wrong):
    """Calls every failure the same."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        try:
            async for item in super().stream(request):
                yield item
        except Exception:
            raise provider_error("server_error", "something went wrong", retryable=False) from None


def reading(decoder: type[BodyDecoder]) -> Conformance:
    return Conformance(name="wrong", protocol=Chat(decoder))


def adapting(adapter: Callable[[Wire], Adapter]) -> Conformance:
    return Conformance(name="wrong", adapter=adapter, protocol_name="openai_chat")


FOUND = {
    "ends without an end": (
        reading(Gullible),
        "endings/clean-eof-without-end",
        "expected ProviderError stream_truncated, got a ModelResponse with end_turn",
    ),
    "depends on the cuts": (reading(Careless), "decoding/cut-at-every-byte", "expected the content"),
    "changes the text": (reading(Shouting), "endings/whole", "expected the text 'It is raining in Oslo.', got"),
    "reads another text": (reading(Shouting), "decoding/reads-text", "expected the content"),
    "raises anything": (reading(Surprised), "decoding/every-prefix", "KeyError came out"),
    "says the key": (adapting(Quoting), "faults/04-silence", "the key stands in what is told"),
    "retries by itself": (adapting(Retrying), "faults/19-fails-once", "expected ProviderError server_error, got"),
    "keeps connections": (adapting(Holding), "faults/65-buffered-whole", "the connection is still open"),
    "leaves tasks": (adapting(Leaking), "faults/65-buffered-whole", "1 tasks are left"),
    "takes its time": (adapting(Waiting), "faults/24-200-with-html", "s are allowed"),
    "mistakes categories": (adapting(Mistaken), "faults/17-status-401", "expected ProviderError auth, got"),
    "mistakes what may be tried again": (adapting(Mistaken), "faults/17-status-500", "expected retryable True"),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", FOUND)
def test_what_is_wrong_with_an_adapter_is_found(name: str) -> None:
    subject, case_name, words = FOUND[name]
    (case,) = (case for case in cases(subject) if case.name == case_name)
    problems = case.once("asyncio")
    gc.collect()  # what a wrong adapter leaves behind is told of here, not in another test
    assert any(words in problem for problem in problems), problems


def test_an_adapter_without_a_decoder_is_read_over_the_network() -> None:
    subject = adapting(Wrong)
    wanted = {"decoding/byte-by-byte", "decoding/bom", "decoding/not-streamed"}
    assert [run_case(case).problems for case in cases(subject) if case.name in wanted] == [()] * 3


# ------------------------------------------------------------------------------------------------------- the card


def test_the_card_counts_and_says_how_to_try_again() -> None:
    results = [
        ConformanceResult("decoding/crlf"),
        ConformanceResult("decoding/pings", (), "the protocol has no ping"),
        ConformanceResult("endings/clean-eof-without-end", ("expected this, got that", "and more")),
    ]
    assert report_card(Conformance(name="acme adapter", version="0.1.0", protocol=OpenAIChat()), results) == (
        "acme adapter 0.1.0 · protocol openai_chat                 passed  failed  not applicable\n"
        "decoding     every cut, CRLF, BOM, comments, usage tail        1       0               1\n"
        "endings      missing, twice, after the end, error inside       0       1               0\n"
        "faults       stalls, drips, cancel at each chunk, bombs        0       0               0\n"
        "FAILED endings/clean-eof-without-end: expected this, got that. Again: add -k clean-eof-without-end"
    )


def test_what_a_protocol_cannot_say_is_not_applicable() -> None:
    def render(entry: Any) -> Any:
        if "think" in str(entry):
            raise NotImplementedError("it has no reasoning")
        return render_chat(entry)

    subject = Conformance(
        name="acme", protocol=OpenAIChat(), render=render, excused={"decoding/bom": "its gateway refuses one"}
    )
    apart = {case.name: case.why_not for case in cases(subject) if case.why_not is not None}
    assert apart["decoding/reads-reasoning"] == "the protocol cannot say it: it has no reasoning"
    assert apart["decoding/pings"] == "the protocol has no ping"
    assert apart["decoding/bom"] == "its gateway refuses one"
    assert set(apart) >= {"endings/ping-after-the-end", "faults/38-pings-for-ever"}
    assert len(apart) == 5


def test_a_factory_gives_a_subject_or_a_known_protocol() -> None:
    for reference in REFERENCES:
        assert load_subject(reference).version == "0.1.0"
    assert load_subject(f"{__name__}:own").name == "own"


def own() -> Conformance:
    return Conformance(name="own", protocol=OpenAIChat(WireLimits()))


class Foreign(OpenAIChat):
    """A protocol that the kit does not know."""

    name = "foreign"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("spine_acme", "names no factory"),
        ("spine_acme:x", "cannot be loaded"),
        ("spine_openai_chat:nothing", "cannot be loaded"),
        ("builtins:dict", "must give a Conformance"),
        (f"{__name__}:Foreign", "none is known for protocol"),
    ],
)
def test_what_is_no_subject_is_refused(reference: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_subject(reference)


def test_a_subject_needs_something_to_try() -> None:
    with pytest.raises(UsageError, match="neither a protocol nor an adapter"):
        Conformance(name="nothing")
