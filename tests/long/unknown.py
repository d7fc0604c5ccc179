"""Commits whose answer is lost: each is settled before anything follows, nothing is stored twice, nothing is missing.

python unknown.py [--count 5000] [--stores sqlite,postgres] [--where FOLDER] [--seed 1]

SQLite loses the answer at a failpoint after COMMIT, or before the transaction; PostgreSQL by a loopback proxy that
breaks the connection: before the request, at the first bytes of the answer, or after the whole of it. Batches bring
events, contents, and requests of the inbox that they take out. Prints a line of figures for each store; exit status 1
when an event, a content or a request is missing, doubled or out of order.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from conditions import conditions, count
from losing_proxy import LOSSES, losing_proxy
from postgres_server import Missing, postgres_server

from spine.commits import Writer
from spine.errors import AppendOutcomeUnknown
from spine.store import Append, Store
from spine.stores.sqlite import SqliteStore
from spine.testing.stores.trials import FIRST, GENESIS, chain, content_of, writer
from spine_postgres import open_store


class Figures(NamedTuple):
    """What came of a run: answers that were lost, those of them that had been stored, and what was wrong afterwards."""

    unknown: int
    stored: int
    doubled: int
    missing: int
    seconds: float


class Forgetful:
    """A store that loses the answer to the next append when told to; `break_line` does it, else a failpoint here."""

    def __init__(self, inner: Store, rng: random.Random, break_line: Callable[[], object] | None = None) -> None:
        self._inner, self._rng, self._break_line = inner, rng, break_line
        self.waits, self.url = inner.waits, inner.url
        self.is_armed = False
        self.unknown = 0
        self.stored = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, batches: Sequence[Append]) -> Any:
        """As the inner store, but for the answer."""
        before = self._inner.head(FIRST)
        is_armed, self.is_armed = self.is_armed, False
        try:
            return self._lose(batches) if is_armed else self._inner.append(batches)
        except AppendOutcomeUnknown:
            self.unknown += 1
            self.stored += self._inner.head(FIRST) != before
            raise

    def _lose(self, batches: Sequence[Append]) -> Any:
        if self._break_line is not None:
            self._break_line()
            return self._inner.append(batches)
        if self._rng.random() < 0.5:
            self._inner.append(batches)
        raise AppendOutcomeUnknown("the failpoint after COMMIT")


def lose_answers(store: Forgetful, wanted: int, rng: random.Random) -> Figures:
    """Append until `wanted` answers were lost, and compare what the store holds with what was appended."""
    log, commits = writer(store), Writer(store)  # type: ignore[arg-type]
    log.append(b"first")
    appended, contents = [b"first"], []
    began = time.monotonic()
    while store.unknown < wanted:
        datas = [b"%d %d" % (len(appended), number) for number in range(rng.randint(1, 4))]
        content = content_of(b"content %d" % len(appended))
        store.put_inbox(FIRST, f"key {len(appended)}", "input", b"")
        (entry,) = store.inbox(FIRST)
        batch = log.batch(*datas, contents=(content,), consumed=(entry.number,))
        store.is_armed = rng.random() < 0.9
        commits.write_now(batch)
        log.follow(batch)
        appended += datas
        contents.append(content)
    held = Counter(row.data for row in store.read(FIRST))
    missing = sum((Counter(appended) - held).values()) + len(store.inbox(FIRST))
    missing += len(contents) - len(store.contents([each.digest for each in contents]))
    doubled = sum((held - Counter(appended)).values())
    is_whole = [row[-2:] for row in store.read(FIRST)] == [row[-2:] for row in chain(0, GENESIS, appended)]
    return Figures(store.unknown, store.stored, doubled, missing + (not is_whole), time.monotonic() - began)


def of_sqlite(wanted: int, rng: random.Random, folder: Path) -> Figures:
    """The failpoint after COMMIT of a file."""
    with closing(SqliteStore(folder / "unknown.db")) as store:
        return lose_answers(Forgetful(store, rng), wanted, rng)


def of_postgres(wanted: int, rng: random.Random, url: str) -> Figures:
    """The proxy before a server."""
    port = urlsplit(url).port
    assert port is not None
    with losing_proxy(port) as proxy:
        through = f"{url.replace(f':{port}/', f':{proxy.port}/')}?schema=unknown_{rng.randrange(10**9)}"
        with closing(open_store(through)) as store:
            return lose_answers(Forgetful(store, rng, lambda: proxy.lose(rng.choice(LOSSES))), wanted, rng)


def main() -> int:
    """Run the trials that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--where", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="spine-unknown-", dir=options.where) as folder:
        for name in options.stores.split(","):
            rng = random.Random(options.seed)
            if name == "sqlite":
                found = of_sqlite(options.count, rng, Path(folder))
            else:
                try:
                    with postgres_server() as url:
                        found = of_postgres(options.count, rng, url)
                except Missing as missing:
                    print(f"unknown: {name} left out: {missing}")
                    continue
            failed = failed or bool(found.doubled or found.missing)
            where = conditions(Path(folder), seed=options.seed, sync="full" if name == "sqlite" else "fsync off")
            print(
                f"unknown: {name} · {count(found.unknown)} answers lost, {count(found.stored)} of them stored, "
                f"{found.doubled} doubled, {found.missing} missing · {found.seconds:.0f} s · {where}"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
