"""Files that commands read and write (floor 15): what is written appears under its name only when it is whole."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

from spine.errors import UsageError

__all__ = ["input_file", "output_file"]


@contextlib.contextmanager
def output_file(path: str | None) -> Iterator[IO[bytes]]:
    """Stdout; or a file that appears under its name only when it is whole, where a link points to."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # A device or a pipe is written to; putting a file in its place would take it away from everybody else.
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            yield file
        return
    target = os.path.realpath(path)
    with _beside(target, path) as temporary:
        try:
            yield temporary
            temporary.flush()
            os.fsync(temporary.fileno())
            os.replace(temporary.name, target)
        except BaseException:
            os.unlink(temporary.name)
            raise


def _beside(target: str, path: str) -> IO[bytes]:
    try:
        return tempfile.NamedTemporaryFile(dir=os.path.dirname(target), prefix=".spine-", delete=False)
    except OSError as exc:
        folder = os.path.dirname(path) or "."
        raise UsageError(
            f"{path} cannot be written: nothing can be made in the folder {folder}: {exc.strerror}", hint="-o FILE"
        ) from exc


@contextlib.contextmanager
def input_file(path: str) -> Iterator[tuple[str, str]]:
    """The path of a file to read, and its name; `-` is stdin, which is kept in a file of its own while it is read."""
    if path != "-":
        yield path, path
        return
    with tempfile.NamedTemporaryFile(prefix="spine-stdin-") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        yield kept.name, "stdin"
