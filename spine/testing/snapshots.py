"""Transcripts as snapshots: one text file for each test (floor 14); the only file that knows syrupy.

A test that runs on several event loops has one snapshot: the transcript must be the same on all of them.
"""

import re
from pathlib import Path
from typing import Any, Final

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

__all__ = ["TranscriptExtension"]

_BACKENDS: Final = re.compile(r"\[(asyncio|trio)\]|(?<=\[)(asyncio|trio)-|-(asyncio|trio)(?=\])")


class TranscriptExtension(SingleFileSnapshotExtension):
    """`__snapshots__/test_refunds/test_a_denied_refund_is_explained.txt`, readable as it is."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    def serialize(self, data: Any, **_: Any) -> str:
        """The text of a transcript, or of anything else."""
        return f"{data}\n"

    @classmethod
    def get_snapshot_name(cls, *, test_location: Any, index: Any = 0) -> str:
        """The test's name without the event loop."""
        name = super().get_snapshot_name(test_location=test_location, index=index)
        return _BACKENDS.sub("", str(name))

    @classmethod
    def matches_test_location(cls, *, test_location: Any, snapshot_location: str) -> bool:
        """Whether a file is one of the test's snapshots, under the name above or with an index."""
        path, name = Path(snapshot_location), cls.get_snapshot_name(test_location=test_location)
        is_named = path.stem == name or path.stem.startswith((f"{name}.", f"{name}["))
        return is_named and path.parent.name == test_location.basename
