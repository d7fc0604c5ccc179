"""The prefix law: what a projector holds after each event is a fold of the stored prefix, everywhere the same bytes.

python prefix_law.py [--count 1000000] [--workers 2] [--seed 1]

Sessions are generated and played by the real loop, on asyncio and on trio. In processes that differ in hash seed,
locale and time zone, every prefix of every log is folded from nothing and compared with the fold that took one event
more each time; one digest over all of it must be the same in every process. Prints one line of figures.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import attrs
from conditions import conditions, count
from generated_sessions import NAME, play

from spine.codec import Codec
from spine.log import LogReader
from spine.projectors.model_history import ModelHistory
from spine.projectors.status import Status
from spine.projectors.transcript import SessionTranscript
from spine.projectors.usage import SessionUsage

HERE = Path(__file__).parent
PLACES: tuple[dict[str, str], ...] = (
    {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC", "LOOP": "asyncio"},
    {"PYTHONHASHSEED": "1", "LC_ALL": "C.UTF-8", "TZ": "Asia/Kathmandu", "LOOP": "trio"},
    {"PYTHONHASHSEED": "random", "LC_ALL": "POSIX", "TZ": "America/St_Johns", "LOOP": "asyncio"},
    {"PYTHONHASHSEED": "4242", "LC_ALL": "C.UTF-8", "TZ": "Pacific/Apia", "LOOP": "trio"},
)


def shown(codec: Codec, name: str, projector: Any, state: Any) -> bytes:
    """What a projector would show now, as bytes."""
    match name:
        case "history":
            return repr([codec.to_json(message) for message in state.view()]).encode()
        case "transcript":
            return projector.view(state).text.encode("utf-8", "surrogatepass")
        case "usage":
            return repr(projector.view(state)).encode()
        case _:
            return repr(attrs.asdict(state, recurse=False)).encode("utf-8", "surrogatepass")


PROJECTORS: dict[str, Any] = {
    "history": ModelHistory,
    "status": Status,
    "transcript": SessionTranscript,
    "usage": SessionUsage,
}


def compare(store: Any, digest: Any, stride: int) -> tuple[int, list[str]]:
    """Prefixes of one log that were compared, and what differed; each `stride`-th of them is folded from nothing."""
    codec = Codec()
    events = list(LogReader(store, codec, NAME).read())
    wrong = []
    for name, kind in PROJECTORS.items():
        growing, state = kind(), kind().initial()
        for k, event in enumerate(events, 1):
            if event.type in growing.types:
                state = growing.apply(state, event)
            bytes_now = shown(codec, name, growing, state)
            digest.update(hashlib.sha256(bytes_now).digest())
            if (k + len(events)) % stride == 0 or k == len(events):
                fresh, again = kind(), kind().initial()
                for each in events[:k]:
                    if each.type in fresh.types:
                        again = fresh.apply(again, each)
                if shown(codec, name, fresh, again) != bytes_now:
                    wrong.append(f"{name} at prefix {k}")
    for event in events:
        digest.update(event.hash)
    return len(events), wrong


def be_process(seeds: range, stride: int) -> None:
    """Compare the sessions of these seeds and print digest, prefixes and differences as JSON."""
    digest, prefixes, wrong = hashlib.sha256(), 0, []
    for seed in seeds:
        store = anyio.run(play, seed, backend=os.environ["LOOP"])
        found, differences = compare(store, digest, stride)
        prefixes += found
        wrong += [f"seed {seed}: {difference}" for difference in differences]
    print(json.dumps({"digest": digest.hexdigest(), "prefixes": prefixes, "wrong": wrong[:10]}))


def main(arguments: list[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="prefixes to compare at least, over all places")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--stride", type=int, default=1, help="fold only each so many-th prefix from nothing")
    parser.add_argument("--where", type=Path, help="not used; taken like the other long runs do")
    parser.add_argument("--part", type=lambda text: range(*map(int, text.split(":"))))
    given = parser.parse_args(arguments)
    if given.part is not None:
        be_process(given.part, given.stride)
        return 0
    began, logs, prefixes, differences, lost, wrong = time.monotonic(), 0, 0, 0, 0, []
    size, start = 20, given.seed * 1_000_000
    while prefixes < given.count:
        part = f"{start}:{start + size}"
        for result in _everywhere(part, given):
            prefixes += result["prefixes"]
            wrong += result["wrong"]
            differences += result["differs"]
            lost += result["lost"]
        logs, start = logs + size, start + size
        size = min(400, size * 2)
    for line in wrong[:20]:
        print(f"  {line}")
    print(
        f"prefix-law: {count(prefixes)} prefixes of {count(logs)} logs in {len(PLACES)} places (hash seeds, locales, "
        f"time zones, asyncio and trio) x {len(PROJECTORS)} projectors · differences from a fold from nothing "
        f"{len(wrong)}, between places {differences} · lost {lost} · {time.monotonic() - began:.0f} s · "
        + conditions(seed=given.seed)
    )
    return 1 if wrong or differences or lost else 0


def _everywhere(part: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    command = [sys.executable, str(HERE / "prefix_law.py"), "--part", part, "--stride", str(given.stride)]
    results: list[dict[str, Any]] = []
    for first in range(0, len(PLACES), given.workers):
        running = [
            subprocess.Popen(command, env={**os.environ, **place}, stdout=subprocess.PIPE)
            for place in PLACES[first : first + given.workers]
        ]
        for process in running:
            out, _ = process.communicate()
            if process.returncode:
                raise SystemExit(f"a process ended with {process.returncode}")
            results.append(json.loads(out))
    most = max(result["prefixes"] for result in results)
    return [
        {**result, "differs": result["digest"] != results[0]["digest"], "lost": most - result["prefixes"]}
        for result in results
    ]


if __name__ == "__main__":
    sys.exit(main())
