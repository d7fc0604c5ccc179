"""The text form of a transcript (floor 6): one format for terminal, snapshot, command line and documents.

Prose stands from column 4, column 2 belongs to the runtime, headings begin in column 0; so no prose, whatever it says,
can pass for a fact. No wrapping, no times, no ids that change, unless asked for.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, tzinfo

from spine.projectors.blocks import Block, to_blocks
from spine.projectors.entries import Told
from spine.projectors.lines import Line
from spine.projectors.phrases import clock, counted
from spine.projectors.visible import visible

SCREEN_OUTCOME_LINES = 40
SCREEN_OUTCOME_BYTES = 4_000
"""What a terminal shows of one outcome; a snapshot shows all."""
_PROSE = "    "


def to_text(
    transcript: Told,
    *,
    times: bool = False,
    zone: tzinfo = UTC,
    width: int | None = None,
    source: str | None = None,
    max_outcome_lines: int | None = None,
    max_outcome_bytes: int | None = None,
) -> str:
    """The transcript as text, without a newline at its end.

    `times` adds to each heading when it happened, in `zone`. `width` (columns, at least 20) folds longer prose and
    outcomes. `source` names in the header where the session was read from. An outcome beyond one of the limits is cut,
    with a line that says how much there is and how to see it.
    """
    blocks = []
    for block in to_blocks(transcript, source=source):
        lines = list(_heading(block, zone if times else None))
        for line in block.lines:
            cut = _cut(line, max_outcome_lines, max_outcome_bytes) if line.mark == "<" else None
            lines += text_lines(line if cut is None else Line("<", cut[0]), width)
            if cut is not None:
                lines.append(f"  < {cut[1]}; all of it: spine transcript {transcript.session} --json")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def text_lines(line: Line, width: int | None = None) -> Iterator[str]:
    """One line of a transcript as lines of text."""
    if line.mark == "[":
        yield f"  [{line.text}]"
        return
    if line.label is not None:
        yield f"  [{line.label}]"
    first = f"  {line.mark} " if line.mark else _PROSE
    is_free = line.mark in ("", "<", "+")
    rows: Iterable[str] = visible(line.text).split("\n")
    if width is not None and is_free:
        rows = (piece for row in rows for piece in _fold(row, max(width, 20) - len(_PROSE)))
    for row in rows:
        # An empty line keeps no indentation; it is no danger, for it says nothing.
        yield f"{first}{row}" if row else first.rstrip()
        first = _PROSE


def _heading(block: Block, zone: tzinfo | None) -> Iterator[str]:
    if block.heading is not None:
        at = "" if zone is None or block.at is None else f" · {clock(block.at, zone)}"
        yield f"{block.heading}{at}"


def _fold(row: str, width: int) -> Iterator[str]:
    while len(row) > width:
        space = row.rfind(" ", 1, width + 1)
        end = space if space > 0 and row[:space].strip() else width
        yield row[:end]
        row = row[end:].removeprefix(" ")
    yield row


def _cut(line: Line, max_lines: int | None, max_bytes: int | None) -> tuple[str, str] | None:
    """The part of an outcome to show and a sentence about the rest; None when it fits."""
    rows = line.text.split("\n")
    size = len(line.text.encode(errors="replace"))
    if (max_lines is None or len(rows) <= max_lines) and (max_bytes is None or size <= max_bytes):
        return None
    shown = "\n".join(rows[:max_lines])
    if max_bytes is not None:
        shown = shown.encode(errors="replace")[:max_bytes].decode(errors="ignore")
    shown = shown.removesuffix("\n")
    shown_size = len(shown.encode(errors="replace"))
    rows_shown = f"{shown.count(chr(10)) + 1:,} of {counted(len(rows), 'line')}, " if len(rows) > 1 else ""
    return shown, f"cut: {rows_shown}{shown_size:,} of {counted(size, 'byte')} shown"
