"""T13, T14, T20: our own cost on the wire: bytes in memory to chunks and message, and a history to a request body."""

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import anyio

from benchmarks.figures import Figure
from benchmarks.floors import read_stream
from benchmarks.timing import Meter, cpu_per_call
from benchmarks.workload import Sizes, open_runtime, open_session, script
from spine.llm.catalogue import Traits
from spine.llm.request import ModelRequest, Route
from spine.llm.response import ModelResponse
from spine.values import StepId
from spine_openai_chat.protocol import OpenAIChat

__all__ = ["chat_stream", "decode", "measure_body", "measure_chunks", "measure_fragments"]

PIECE = 4096
_TRAITS = Traits(provider="bench", protocol="openai_chat", model="m")
_HEAD = {
    "id": "chatcmpl-0a1b2c3d4e5f",
    "object": "chat.completion.chunk",
    "created": 1796057878,
    "model": "m",
    "service_tier": "default",
    "system_fingerprint": "fp_0123456789",
}


def _event(delta: object, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: " + json.dumps({**_HEAD, "choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"


def _ending(finish: str) -> list[bytes]:
    usage = {"prompt_tokens": 1512, "completion_tokens": 24, "total_tokens": 1536}
    tail = json.dumps({**_HEAD, "choices": [], "usage": usage}, separators=(",", ":")).encode()
    return [_event({}, finish), b"data: " + tail + b"\n\n", b"data: [DONE]\n\n"]


def chat_stream(chunks: int) -> list[bytes]:
    """A streamed text answer of `chunks` pieces, each event as it comes over the wire."""
    texts = [_event({"content": f" word{number % 97}"}) for number in range(chunks)]
    return [_event({"role": "assistant", "content": ""}), *texts, *_ending("stop")]


def call_stream(fragments: int) -> list[bytes]:
    """A streamed tool call whose arguments come in `fragments` pieces."""
    name = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}
    pieces = ['{"word":"', *["abcd"] * (fragments - 2), '"}']
    calls = [_event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces]
    return [_event({"role": "assistant", "tool_calls": [name]}), *calls, *_ending("tool_calls")]


def decode(pieces: Sequence[bytes]) -> ModelResponse:
    """The pieces of one body through a fresh decoder, chunk by chunk, to its response."""
    decoder = OpenAIChat().decoder(_TRAITS, {})
    for piece in pieces:
        for _ in decoder.feed(piece):
            pass
    decoder.feed(b"")
    return decoder.finish()


def measure_chunks(sizes: Sizes) -> list[Figure]:
    """T13: what a chunk costs, fed event by event and in pieces of 4 KiB."""
    events = chat_stream(sizes.chunks)
    pieces = list(_cut(b"".join(events), PIECE))
    assert decode(events).message.text == decode(pieces).message.text == read_stream(events)
    ours, cut, floor = [], [], []
    for _ in range(sizes.repeats):
        floor.append(_us_a_chunk(partial(read_stream, events), len(events)))
        ours.append(_us_a_chunk(partial(decode, events), len(events)))
        cut.append(_us_a_chunk(partial(decode, pieces), len(events)))
    bare = statistics.median(floor)
    return [Figure("T13", statistics.median(ours), bare), Figure("T13 pieces", statistics.median(cut), bare)]


def _us_a_chunk(work: Callable[[], object], events: int) -> float:
    return cpu_per_call(work, calls=1, repeats=1) / events * 1e6


def _cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def measure_fragments(sizes: Sizes) -> list[Figure]:
    """T14: one call of many argument fragments over as many fragments in small calls; taken in turns."""
    count, each = sizes.small_calls
    large, small = call_stream(sizes.fragments), call_stream(each)
    ratios = []
    for _ in range(sizes.repeats):
        long = cpu_per_call(partial(decode, large), calls=3, repeats=1)
        short = cpu_per_call(partial(decode, small), calls=3 * count, repeats=1) * count
        ratios.append((long / len(large)) / (short / (count * len(small))))
    return [Figure("T14", statistics.median(ratios), 1.0)]


# ------------------------------------------------------------------------------------------------------- encoding


async def _long_request(steps: int) -> ModelRequest:
    async with open_runtime("memory:", script(steps)) as runtime:
        session = await open_session(runtime, steps)
        await session.run("go")
        return ModelRequest(route=Route("bench", "m"), step=StepId("t2s1"), messages=session.history())


def measure_body(sizes: Sizes) -> list[Figure]:
    """T20: the body of a request late in a long session, each message's bytes seen in an earlier request."""
    request = anyio.run(_long_request, sizes.long_turn)
    protocol = OpenAIChat()
    size = len(protocol.encode(request, _TRAITS).content)
    parts = [b"x" * (size // len(request.messages))] * len(request.messages)
    floor = cpu_per_call(lambda: b",".join(parts), calls=20)
    with Meter() as meter:
        protocol.encode(request, _TRAITS)
    calls = max(1, int(0.05 / max(meter.cpu_s, 1e-4)))
    return [Figure("T20", cpu_per_call(lambda: protocol.encode(request, _TRAITS), calls=calls) * 1e3, floor * 1e3)]
