"""An export opened for commands that look (floor 15); loaded when a path is given in place of a session."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from spine.cli.files import input_file
from spine.cli.screen import note
from spine.codec import Codec
from spine.exports import ExportReader

__all__ = ["opened"]


@contextmanager
def opened(path: str, codec: Codec, *, check: bool) -> Iterator[ExportReader]:
    """Read an export (`-`: from stdin). With `check`: raise `LogBroken` for a broken chain, note a missing end."""
    with input_file(path) as (file, name), closing(ExportReader(file, codec, name)) as reader:
        if check:
            reader.check()
            if reader.torn is not None:
                note(f"{path}: {reader.torn}")
        yield reader
