"""The Markdown form of a transcript (floor 6): for issues, notes and reviews.

Everything foreign stands in code, where Markdown does nothing: no link, image, mention or tag in it becomes active.
"""

import re
from collections.abc import Iterable

from spine.projectors.blocks import Block, to_blocks
from spine.projectors.entries import Told
from spine.projectors.text import text_lines

_TICKS = re.compile("`+")
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ")


def to_markdown(transcript: Told, *, source: str | None = None) -> str:
    """The transcript as CommonMark, nothing cut, with a newline at its end."""
    return "\n\n".join(part for block in to_blocks(transcript, source=source) for part in _parts(block)) + "\n"


def _parts(block: Block) -> Iterable[str]:
    heading = block.heading
    if heading is not None:
        is_plain = block.kind in ("input", "step") and _PLAIN.issuperset(heading)
        yield f"{_LEVELS[block.kind]}{heading if is_plain else _code(heading)}"
    if block.lines:
        yield _fenced("\n".join(row for line in block.lines for row in text_lines(line)))


_LEVELS = {"header": "# ", "input": "## ", "step": "## ", "turn": "", "fact": ""}


def _code(text: str) -> str:
    ticks = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _fenced(text: str) -> str:
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)
