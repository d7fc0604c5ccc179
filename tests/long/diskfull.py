"""A disk that is full or fails, at every call that SQLite makes of it, in every canonical turn; then it is free again.

python diskfull.py [--turns pay,blob] [--step 8192]

For each turn and each N, the N-th write, sync, truncation or deletion fails: once (EIO), or it and all that follow
until the process has seen its turn fail (ENOSPC). The runtime must answer with a typed error, keep no half batch, and
the same process must open the session again and finish the turn, with every acknowledged event. As root, the same on a
real file system of 2 MB that is filled up and emptied. Prints one line of figures.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import apsw
from children import Server
from conditions import conditions, count
from crash_folder import Folder
from crash_process import acknowledged, judge, judge_next, live
from crash_turns import TURNS
from disk import Op, on_disk

from spine.errors import SpineError, StoreError
from spine.testing.failpoints import Failpoints

ERRORS = {"ENOSPC": apsw.FullError, "EIO": apsw.IOError}
FAULTS = (("ENOSPC", "on"), ("EIO", "once"))
"""A disk stays full until somebody frees it; an error of the device may be the only one."""


class Failing:
    """A disk whose N-th operation fails, `once` or from there `on` until it is mended."""

    def __init__(self, number: int, fault: str, way: str) -> None:
        self.number, self.fault, self.way = number, fault, way
        self.count = 0
        self.is_mended = False

    def __call__(self, op: Op) -> None:
        """Count, and fail."""
        self.count += 1
        is_due = self.count == self.number or (self.way == "on" and self.count > self.number)
        if is_due and not self.is_mended:
            raise ERRORS[self.fault](f"injected {self.fault}")


def be_process(name: str, folder: Folder, *, is_next: bool) -> Any:
    """A turn to its end; a turn that failed because the disk did is no end."""

    async def main() -> Any:
        return await live(name, folder, Failpoints(), is_next=is_next)

    return anyio.run(main)


def suffer(name: str, folder: Folder, disk: Failing) -> str:
    """Run into the fault; what the caller saw: the error's class, `nothing`, or what should not have come out."""
    try:
        be_process(name, folder, is_next=False)
    except StoreError as error:
        return type(error).__name__
    except SpineError as error:
        return f"UNTYPED {type(error).__name__}: {error.message}"
    except Exception as error:
        return f"UNTYPED {type(error).__name__}: {error}"
    return "nothing"


def trial(name: str, path: str, number: int, fault: str, way: str, whole: Any) -> dict[str, Any]:
    """One fault, and the same process afterwards."""
    disk, folder = Failing(number, fault, way), Folder(Path(path))
    with on_disk(disk):
        seen = suffer(name, folder, disk)
        reached, disk.is_mended = disk.count >= number, True
        end = be_process(name, folder, is_next=True)
        problems = judge(name, folder, end, whole, same_end=True) if end["status"] == whole["status"] else []
        problems += anyio.run(judge_next, name, folder)
    if seen.startswith("UNTYPED"):
        problems.append(seen)
    last = acknowledged(folder)[-1:]
    return {"seen": seen, "reached": reached, "problems": problems, "acknowledged": last[0][0] if last else 0}


def sweep(turns: list[str], where: Path, share: int) -> tuple[Counter[str], list[str]]:
    """Every fault at every operation of every turn."""
    counts: Counter[str] = Counter()
    told: list[str] = []
    server = Server(lambda request: request[0](*request[1:]))
    for name in turns:
        with tempfile.TemporaryDirectory(dir=where) as path:
            whole, operations = server.ask((measure, name, path))
        for number in range(1, operations + 1, share):
            for fault, way in FAULTS:
                with tempfile.TemporaryDirectory(dir=where) as path:
                    _try(server, (trial, name, path, number, fault, way, whole), counts, told)
    server.close()
    return counts, told


def _try(server: Server, request: tuple[Any, ...], counts: Counter[str], told: list[str]) -> None:
    try:
        found = server.ask(request)
    except RuntimeError as error:
        found = {"seen": "", "reached": True, "problems": [str(error).splitlines()[-1]], "acknowledged": 0}
    counts["tried"] += found["reached"]
    counts["acknowledged"] += found["acknowledged"]
    counts["nothing" if found["seen"] == "nothing" else "typed"] += found["reached"]
    for problem in found["problems"]:
        counts["lost" if problem.startswith("LOST") else "problems"] += 1
        told.append(f"{request[1]}: {request[4]} {request[5]} at operation {request[3]}: {problem}")


def measure(name: str, path: str) -> tuple[Any, int]:
    """How a turn ends on a disk that does not fail, and how many operations that takes."""
    disk = Failing(0, "EIO", "once")
    with on_disk(disk):
        end = be_process(name, Folder(Path(path)), is_next=False)
    return end, disk.count


# ----------------------------------------------------------------------------------------------- a real file system


@contextlib.contextmanager
def small_disk() -> Iterator[Path | None]:
    """A file system of 2 MB; None where this process may not mount one."""
    with tempfile.TemporaryDirectory(prefix="spine-small-") as name:
        command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", name]
        try:
            mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            mounted = False
        try:
            yield Path(name) if mounted else None
        finally:
            if mounted:
                subprocess.run(["umount", name], check=True)


def fill(path: Path, leave: int) -> None:
    """Fill the file system but for so many bytes."""
    descriptor, size = os.open(path / "ballast", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 0
    with contextlib.suppress(OSError):
        while True:
            size += os.write(descriptor, bytes(4096))
    os.ftruncate(descriptor, max(0, size - leave))
    os.close(descriptor)


def on_small_disk(path: Path, leaves: range) -> tuple[Counter[str], list[str]]:
    """A turn on a disk with a little room, then with enough of it, in the same process."""
    counts: Counter[str] = Counter()
    told = []
    outside = Path(tempfile.mkdtemp(prefix="spine-outside-"))
    for leave in leaves:
        folder = Folder(path / f"trial-{leave}")
        folder.path.mkdir()
        (folder.path / "world").symlink_to(outside / f"world-{leave}")
        fill(path, leave)
        seen = suffer("blob", folder, Failing(0, "EIO", "once"))
        (path / "ballast").unlink()
        counts["tmpfs"] += 1
        counts["tmpfs full"] += seen != "nothing"
        try:
            end = be_process("blob", folder, is_next=True)
            problems = judge("blob", folder, end, end, same_end=True)
        except Exception as error:
            problems = [f"{type(error).__name__}: {error}"]
        problems += [seen] if seen.startswith("UNTYPED") else []
        told += [f"2 MB disk with {leave} bytes left: {problem}" for problem in problems]
        shutil.rmtree(folder.path)
    shutil.rmtree(outside)
    return counts, told


def main(arguments: list[str] | None = None) -> int:
    """Fail and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=lambda text: text.split(","), default=list(TURNS))
    parser.add_argument("--where", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--share", type=int, default=1, help="only each so many-th operation")
    parser.add_argument("--step", type=int, default=8192, help="bytes between two sizes of the room that is left")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    counts, told = sweep(given.turns, given.where, given.share)
    with small_disk() as path:
        small, words = (Counter[str](), []) if path is None else on_small_disk(path, range(0, 600_000, given.step))
    for line in (told + words)[:20]:
        print(f"  {line}")
    bad = counts["problems"] + len(words)
    each = "" if given.share == 1 else f"{given.share}th "
    real = f"{small['tmpfs']} turns on a disk of 2 MB ({small['tmpfs full']} filled it)" if small else "no mount here"
    print(
        f"diskfull: {count(counts['tried'])} faults at every {each}operation of {len(given.turns)} turns, "
        f"{count(counts['typed'])} seen as typed errors, {count(counts['nothing'])} without effect · {real} · "
        f"acknowledged {count(counts['acknowledged'])}, lost {counts['lost']} · otherwise wrong {bad} · "
        f"{time.monotonic() - began:.0f} s · "
        + conditions(given.where, sync="full", writer=f"SQLite {apsw.sqlite_lib_version()}")
    )
    return 1 if bad or counts["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
