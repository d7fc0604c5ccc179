"""Cuts every recorded answer into pieces and says whether anything depends on the cuts: `python cut_wire.py [COUNT]`.

Each answer is decoded whole, byte by byte, in two random partitions, and cut once at COUNT places (64 unless said; at
every byte when it has no more than that): next to line ends, inside characters of several bytes, and at random.
Chunks, response and error must be equal.

Beside that, each is cut at every byte of it. Decoding all of it again for each cut would take days, and is not needed:
what stands above the layer of bytes is handed whole events and sees no cut. So that layer alone reads each event
between its two neighbours, once for each place where it may be cut; a body that is one JSON value is read whole.
Exit status 1 when something differs.
"""

import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from unittest import mock

from wire_trials import SHARED, bytewise, recorded, run

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.protocols import Decoder, WireProtocol
from spine.wire import BodyDecoder, Draft, WireLimits
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

PROTOCOLS: dict[str, WireProtocol] = {p.name: p for p in (AnthropicMessages(), OpenAIChat(), OpenAIResponses())}
COUNT = 64
WORST = re.compile(rb"[\r\n]|[\x80-\xff]|\\u")
"""Where a cut is most likely to tell: in line ends, in long characters, in escapes."""
BLANK_LINE = re.compile(rb"\r?\n\r?\n")
SHOWN = 10


def cuts(body: bytes, count: int, rng: random.Random) -> Sequence[int]:
    """Places to cut once, in order; all of them when there are no more than `count`."""
    if len(body) <= count:
        return range(1, len(body))
    worst = [place for match in WORST.finditer(body) for place in (match.start(), match.end())]
    chosen = rng.sample(worst, min(len(worst), count // 2))
    chosen += rng.sample(range(1, len(body)), min(len(body) - 1, count - len(chosen)))
    return sorted({place for place in chosen if 0 < place < len(body)})


def splits(body: bytes, count: int, rng: random.Random) -> Iterator[tuple[str, list[bytes]]]:
    """What each split is called, and its pieces."""
    yield "byte by byte", bytewise(body)
    for largest in (40, 3000):
        pieces, start = [], 0
        while start < len(body):
            end = start + rng.randint(1, largest)
            pieces.append(body[start:end])
            start = end
        yield f"pieces of up to {largest} bytes", pieces
    for place in cuts(body, count, rng):
        yield f"cut at {place}", [body[:place], body[place:]]


def outcome(make: Callable[[], Decoder], pieces: list[bytes]) -> tuple[list[Any], Any]:
    """All chunks, and the response or the failure."""
    chunks, end = run(make, *pieces)
    return chunks, end.failure if isinstance(end, ProviderError) else end


def compare(protocol: WireProtocol, id: str, body: bytes, count: int) -> tuple[int, list[str]]:
    """How many splits of an answer were compared with the whole, and those that differ."""

    def make() -> Decoder:
        return protocol.decoder(Traits(provider="lab", protocol=protocol.name, model="m"), {})

    whole, compared, different = outcome(make, [body]), 0, []
    for name, pieces in splits(body, count, random.Random(id)):
        compared += 1
        if outcome(make, pieces) != whole:
            different.append(f"{id} {name}")
    return compared, different


class Parts:
    """A `spine.wire.Reading` that notes what it is handed."""

    is_done = False

    def __init__(self) -> None:
        self.draft = DRAFT
        self.told: list[Any] = []
        self.event = lambda name, data: self.told.append((name, data))
        self.whole = self.told.append

    def ended(self) -> None:
        self.told.append("ended")

    def response(self) -> Any:
        raise AssertionError("nobody asks")


DRAFT = Draft("cuts", Traits(provider="lab", protocol="cuts", model="m"), WireLimits())
LIMITS = WireLimits()


def handed(*pieces: bytes) -> Any:
    """What the layer of bytes hands on, and the error it ends with."""
    parts = Parts()
    decoder = BodyDecoder(parts, LIMITS)  # type: ignore[arg-type]
    try:
        for piece in (*pieces, b""):
            decoder.feed(piece)
    except ProviderError as error:
        return parts.told, error.failure
    return parts.told, decoder.error and decoder.error.failure


def windows(body: bytes) -> Iterator[tuple[bytes, range]]:
    """Each event between its neighbours, and the places inside it; together the places are all those of the body."""
    ends = [0, *(match.end() for match in BLANK_LINE.finditer(body)), len(body)]
    if body.lstrip()[:1] in (b"{", b"["):
        ends = [0, len(body)]
    for place in range(1, len(ends)):
        start, end = ends[max(place - 2, 0)], ends[min(place + 1, len(ends) - 1)]
        yield body[start:end], range(ends[place - 1] - start + 1, min(ends[place] - start, end - start - 1) + 1)


def compare_bytes(id: str, body: bytes) -> tuple[int, list[str]]:
    """How many places an answer was cut at, and those where the cut shows."""
    compared, different = 0, []
    for number, (window, places) in enumerate(windows(body)):
        whole = handed(window)
        compared += len(places)
        different += [
            f"{id} event {number} cut at {place}" for place in places if handed(window[:place], window[place:]) != whole
        ]
    return compared, different


def _share(task: tuple[str, int, int, int]) -> tuple[int, int, int, list[str]]:
    """Answers, splits, cuts at every byte, and differences of every `shares`-th record of a protocol."""
    name, count, first, shares = task
    answers, compared, cut, different = 0, 0, 0, []
    for record in recorded(name)[first::shares]:
        if record["response"]["status"] == 200:
            body = record["response"]["body"].encode()
            found, wrong = compare(PROTOCOLS[name], record["id"], body, count)
            with mock.patch("spine.wire.decoder.from_json", bytes):  # JSON is parsed whole or not at all
                places, shown = compare_bytes(record["id"], body)
            answers, compared, cut = answers + 1, compared + found, cut + places
            different += [*wrong, *shown]
    return answers, compared, cut, different


def main(count: int) -> int:
    """Compare all recorded answers and print a line for each protocol; the exit status."""
    if not (SHARED / "wire").exists():
        print("cuts: the recorded answers are not there, nothing compared")
        return 0
    status, shares = 0, os.cpu_count() or 1
    with ProcessPoolExecutor(shares) as pool:
        for name in PROTOCOLS:
            started = time.monotonic()
            results = list(pool.map(_share, [(name, count, first, shares) for first in range(shares)]))
            answers, compared, cut = (sum(result[place] for result in results) for place in (0, 1, 2))
            different = [line for result in results for line in result[3]]
            splits = f"{compared:,} splits and {cut:,} cuts at every byte compared"
            figures = f"{answers:,} answers, {splits}, {len(different)} different"
            print(f"cuts  {name}: {figures}, {time.monotonic() - started:.0f} s", flush=True)
            for line in different[:SHOWN]:
                print(f"      {line}")
            status = status or int(bool(different))
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT))
