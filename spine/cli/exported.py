"""An export opened for commands that look (floor 15); loaded when a path is given in place of a session."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from spine.cli.screen import note
from spine.codec import Codec
from spine.exports import ExportReader

__all__ = ["opened"]


@contextmanager
def opened(path: str, codec: Codec, *, check: bool) -> Iterator[ExportReader]:
    """Read the export at `path`. With `check`: raise `LogBroken` for a broken chain, note a missing end."""
    with closing(ExportReader(path, codec)) as reader:
        if check:
            reader.check()
            if reader.torn is not None:
                note(f"{path}: {reader.torn}")
        yield reader
