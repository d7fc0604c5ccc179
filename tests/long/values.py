"""Values of every kind: each comes back exactly as it was, or is refused by a typed error; alike on every store.

python values.py [--count 1000000] [--stores memory,sqlite,postgres] [--where FOLDER] [--workers 2] [--seed 1]

Texts have NUL, controls, characters beyond the BMP and lone surrogates; integers go to 2^4096, floats are random bits,
nesting goes to 100,000. Half of the values are frozen as Python values, half are read as foreign JSON text, in which
keys may stand twice and numbers may be none. What must become of a value is known from how it was made. What is kept
goes into all stores, and its bytes are compared there. Prints one line of figures; exit status 1 at any difference.
"""

import argparse
import json
import math
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from children import in_workers
from conditions import conditions, count
from postgres_server import Missing, postgres_server

from spine.errors import ValueRefused
from spine.store import Store
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing.stores.trials import ALICE, writer
from spine.values import MAX_DEPTH, SessionId, decode, encode, freeze, load
from spine_postgres import open_store

BATCH = 500
ALPHABETS: Sequence[tuple[int, int]] = (
    *([(0x20, 0x7E)] * 4),
    (0x00, 0x1F),
    (0x7F, 0x7FF),
    (0x800, 0xD7FF),
    (0xE000, 0xFFFF),
    (0x10000, 0x10FFFF),
)
SURROGATES = (0xD800, 0xDFFF)
NO_JSON = (
    '{"a":1,"a":2}',
    "[NaN]",
    "[Infinity]",
    "-Infinity",
    "1e999",
    "[1,]",
    "{'a':1}",
    "[01]",
    '"\n"',
    "",
    "[1",
    "+1",
)


class Made(NamedTuple):
    """A value to try, and what must come back of it; `is_bad` when it must be refused."""

    value: Any
    expected: Any
    is_bad: bool


class Maker:
    """Makes values out of random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def text(self, *, may_be_broken: bool) -> tuple[str, str]:
        """A text, and what is kept of it: each lone surrogate becomes U+FFFD."""
        rng, letters, kept = self._rng, [], []
        if may_be_broken and rng.random() < 0.01:
            return chr(rng.randint(*SURROGATES)), "\ufffd"
        for _ in range(rng.choice((0, 1, 3, 12))):
            if may_be_broken and rng.random() < 0.02:
                letters.append(chr(rng.randint(*SURROGATES)))
                kept.append("\ufffd")
            else:
                letters.append(chr(rng.randint(*rng.choice(ALPHABETS))))
                kept.append(letters[-1])
        return "".join(letters), "".join(kept)

    def leaf(self, *, is_python: bool) -> Made:
        """A value without parts."""
        rng = self._rng
        match rng.randrange(6):
            case 0:
                atom = rng.choice((None, True, False, 0, -1, 1.0, -0.0, 5e-324, 1.7976931348623157e308))
                return Made(atom, atom, False)
            case 1:
                whole = rng.choice((1, -1)) * rng.getrandbits(rng.choice((8, 53, 63, 64, 65, 128, 4096)))
                return Made(whole, whole, False)
            case 2:
                number = struct.unpack("d", rng.randbytes(8))[0]
                return Made(number, number, not math.isfinite(number))
            case 3 if is_python and rng.random() < 0.02:
                return Made(rng.choice((b"x", object(), {1: 2}, {None: 1}, {1, 2}, 1j)), None, True)
            case _:
                text, kept = self.text(may_be_broken=is_python)
                return Made(text, kept, False)

    def value(self, depth: int, *, is_python: bool) -> Made:
        """A value of up to `depth` levels."""
        rng = self._rng
        if depth == 0 or rng.random() < 0.4:
            return self.leaf(is_python=is_python)
        parts = [self.value(depth - 1, is_python=is_python) for _ in range(rng.randrange(4))]
        is_bad = any(part.is_bad for part in parts)
        if rng.random() < 0.5:
            kind = tuple if is_python and rng.random() < 0.5 else list
            return Made(kind(part.value for part in parts), [part.expected for part in parts], is_bad)
        keys = dict(self.text(may_be_broken=is_python) for _ in parts)
        kept = dict(zip(keys.values(), (part.expected for part in parts), strict=False))
        pairs = dict(zip(keys, (part.value for part in parts), strict=False))
        is_bad = any(part.is_bad for part in parts[: len(pairs)])
        return Made(pairs, kept, is_bad or len(kept) < len(pairs))

    def deep(self) -> Made:
        """A value of one branch, at the limit of nesting or far beyond it."""
        levels = self._rng.choice((MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 1_000, 100_000))
        value: Any = 1
        for _ in range(levels):
            value = [value] if self._rng.random() < 0.5 else {"k": value}
        return Made(value, value, levels > MAX_DEPTH)


def made(rng: random.Random) -> Iterator[tuple[str, Callable[[], Any], Made]]:
    """Values for ever: their kind, what takes them in, and what must become of them."""
    maker = Maker(rng)
    while True:
        chance = rng.random()
        if chance < 0.0005:
            deep = maker.deep()
            yield "deep", lambda deep=deep: freeze(deep.value), deep
        elif chance < 0.01:
            text = rng.choice(NO_JSON)
            yield "no JSON", lambda text=text: freeze(load(text)), Made(text, None, True)
        elif chance < 0.5:
            each = maker.value(4, is_python=True)
            yield "Python", lambda each=each: freeze(each.value), each
        else:
            each = maker.value(4, is_python=False)
            text = json.dumps(each.value, ensure_ascii=rng.random() < 0.5)
            data = text.encode() if rng.random() < 0.5 else text
            yield "JSON text", lambda data=data: freeze(load(data)), each


def same(one: Any, other: Any) -> bool:
    """Whether two decoded values are the same, of the same types, whatever the order of keys."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(each, other[key]) for key, each in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other and (one != 0 or str(one) == str(other)))


class Trial:
    """The values of one worker, and what was found of them."""

    def __init__(self, stores: dict[str, Store], rng: random.Random) -> None:
        self._stores = stores
        self._rng = rng
        self.found: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, wanted: int) -> None:
        """Try as many values."""
        values, datas, session = made(self._rng), [], 0
        for _ in range(wanted):
            kind, take_in, each = next(values)
            self.found[kind] += 1
            data = self._encoded(kind, take_in, each)
            if data is not None:
                datas.append(data)
            if len(datas) == BATCH:
                self._store(SessionId(f"s{session}-{self._rng.getrandbits(32)}"), datas)
                datas, session = [], session + 1
        self._store(SessionId(f"last-{self._rng.getrandbits(32)}"), datas)

    def _encoded(self, kind: str, take_in: Callable[[], Any], each: Made) -> bytes | None:
        try:
            data = encode(take_in())
        except ValueRefused as refused:
            self.found["refused"] += 1
            if not each.is_bad:
                self._tell(f"{kind}: refused: {refused}", each)
            return None
        if each.is_bad:
            self._tell(f"{kind}: taken", each)
        elif kind != "deep" and not same(decode(data), each.expected):
            self._tell(f"{kind}: changed to {data[:80]!r}", each)
        elif encode(freeze(load(data))) != data:
            self._tell(f"{kind}: not canonical: {data[:80]!r}", each)
        return data

    def _tell(self, what: str, each: Made) -> None:
        self.wrong.append(f"{what}: {each.value!r}"[:300] if what[:4] != "deep" else what)

    def _store(self, session: SessionId, datas: list[bytes]) -> None:
        for name, store in self._stores.items():
            writer(store, session, ALICE).append(*datas)
            held = [row.data for row in store.read(session)]
            self.found["stored"] += len(held)
            self.found["lost"] += len(datas) - len(held)
            if held != datas:
                self.wrong.append(f"{name}: what {session} holds is not what it was given")


def work(names: Sequence[str], url: str | None, folder: Path, number: int, wanted: int, seed: int) -> Any:
    """One worker's share."""
    makers: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(folder / f"values{number}.db", durability="relaxed"),
        "postgres": lambda: open_store(f"{url}?schema=values_{number}"),
    }
    with ExitStack() as stack:
        stores = {name: stack.enter_context(closing(makers[name]())) for name in names}
        trial = Trial(stores, random.Random(f"{seed} {number}"))
        trial.run(wanted)
    return {"found": trial.found, "wrong": trial.wrong}


def main() -> int:
    """Try what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--stores", default="memory,sqlite,postgres")
    parser.add_argument("--where", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    names, url, began = given.stores.split(","), None, time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spine-values-", dir=given.where)))
        if "postgres" in names:
            try:
                url = stack.enter_context(postgres_server())
            except Missing as missing:
                print(f"values: postgres left out: {missing}")
                names.remove("postgres")
        share = -(-given.count // given.workers)
        results = in_workers([lambda n=n: work(names, url, folder, n, share, given.seed) for n in range(given.workers)])
        where = conditions(folder, seed=given.seed)
    found = sum((Counter(result["found"]) for result in results), Counter())
    wrong = [each for result in results for each in result["wrong"]]
    print(*wrong[:20], sep="\n", end="\n" if wrong else "")
    refused, stored, lost = (found.pop(key, 0) for key in ("refused", "stored", "lost"))
    tried = " · ".join(f"{kind} {count(number)}" for kind, number in sorted(found.items()))
    print(
        f"values: {count(found.total())} tried ({tried}), {count(refused)} refused, {count(stored)} read back from "
        f"{', '.join(names)} · lost {lost}, wrong {len(wrong)} · {time.monotonic() - began:.0f} s · {where}"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
