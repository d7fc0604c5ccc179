"""Cuts every recorded answer into pieces and says whether anything depends on the cuts: `python cut_wire.py [COUNT]`.

Each answer is decoded whole, byte by byte, in two random partitions, and cut once at COUNT places (64 unless said; at
every byte when it has no more than that): next to line ends, inside characters of several bytes, and at random.
Chunks, response and error must be equal. Exit status 1 when something differs.
"""

import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from wire_trials import SHARED, bytewise, recorded, run

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.protocols import Decoder, WireProtocol
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

PROTOCOLS: dict[str, WireProtocol] = {p.name: p for p in (AnthropicMessages(), OpenAIChat(), OpenAIResponses())}
COUNT = 64
WORST = re.compile(rb"[\r\n]|[\x80-\xff]|\\u")
"""Where a cut is most likely to tell: in line ends, in long characters, in escapes."""
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


def _share(task: tuple[str, int, int, int]) -> tuple[int, int, list[str]]:
    """Answers, splits and differences of every `shares`-th record of a protocol."""
    name, count, first, shares = task
    answers, compared, different = 0, 0, []
    for record in recorded(name)[first::shares]:
        if record["response"]["status"] == 200:
            found, wrong = compare(PROTOCOLS[name], record["id"], record["response"]["body"].encode(), count)
            answers, compared = answers + 1, compared + found
            different.extend(wrong)
    return answers, compared, different


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
            answers, compared = (sum(result[place] for result in results) for place in (0, 1))
            different = [line for result in results for line in result[2]]
            figures = f"{answers:,} answers, {compared:,} splits compared, {len(different)} different"
            print(f"cuts  {name}: {figures}, {time.monotonic() - started:.0f} s", flush=True)
            for line in different[:SHOWN]:
                print(f"      {line}")
            status = status or int(bool(different))
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT))
