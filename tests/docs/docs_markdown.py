"""Reads this project's Markdown: code blocks with their directives, headings, links, generated regions.

Conventions that the pages follow:

- A block of Python, TOML or YAML whose first line is a comment with a path (`# shop/agent.py`) is a file.
- Any other block of Python is run; a block of `text` right after it is what it prints.
- A block of `console` has commands after `$ ` and below each what it prints.
- `<!-- not run: REASON -->` right before a block says why it is not run.
- `<!-- generated: NAME -->` to `<!-- end -->` is written by `python tests/docs/docs_regions.py`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
ANY = "…"

_FENCE = re.compile(r"^(```+)(\w*)\s*$")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|yaml))$")
_REGION = re.compile(r"<!-- generated: (.+?) -->\n(.*?)<!-- end -->", re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@attrs.frozen(kw_only=True)
class Block:
    """A fenced block. `line` is that of its fence, from 1; `follows` whether only blank lines part it from the last."""

    language: str
    text: str
    line: int
    not_run: str | None = None
    follows: bool = False

    @property
    def path(self) -> str | None:
        """The file that it is the text of; None when it is no file."""
        found = _FILE.match(self.text.partition("\n")[0])
        return found[1] if found and self.language in ("python", "toml", "yaml") else None


@attrs.frozen
class Command:
    """A line after `$ ` in a console block, and what the page says it prints."""

    text: str
    output: str
    line: int


def name_of(page: Path) -> str:
    """`docs/how-to/read-a-log.md`."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = text.splitlines()
    at, last_text, adjacent = 0, "", False
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            if lines[at].strip():
                last_text, adjacent = lines[at], False
            at += 1
            continue
        end = lines.index(fence[1], at + 1)
        found = _NOT_RUN.fullmatch(last_text.strip()) if not adjacent else None
        yield Block(
            language=fence[2],
            text="\n".join(lines[at + 1 : end]) + "\n",
            line=at + 1,
            not_run=found[1] if found else None,
            follows=adjacent,
        )
        at, last_text, adjacent = end + 1, "", True


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block."""
    pieces: list[tuple[str, list[str], int]] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            pieces.append((line[2:], [], number))
        else:
            assert pieces, f"line {number}: a console block begins with a command"
            pieces[-1][1].append(line)
    for text, output, number in pieces:
        yield Command(text, "\n".join(output), number)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside code blocks and comments, numbered from 1."""
    fence: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        found = _FENCE.match(line)
        if found and fence is None:
            fence = found[1]
        elif fence is not None:
            fence = None if line == fence else fence
        elif not line.startswith("<!--"):
            yield number, line


def headings(text: str) -> list[str]:
    """The headings of a page without their marks."""
    return [line.lstrip("#").strip() for _, line in prose(text) if re.match(r"#{1,6} ", line)]


def anchor(heading: str) -> str:
    """The fragment by which a heading is linked."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links(text: str) -> Iterator[tuple[int, str]]:
    """Targets of links, with their lines; code spans have none."""
    for number, line in prose(text):
        for target in _LINK.findall(re.sub(r"`[^`]*`", "", line)):
            yield number, target


def regions(text: str) -> dict[str, str]:
    """Generated text by name."""
    return {found[1]: found[2] for found in _REGION.finditer(text)}


def with_regions(text: str, render: "dict[str, str]") -> str:
    """The page with each region whose name is in `render` replaced."""

    def replace(found: re.Match[str]) -> str:
        return f"<!-- generated: {found[1]} -->\n{render.get(found[1], found[2])}<!-- end -->"

    return _REGION.sub(replace, text)


def matches(expected: str, actual: str) -> bool:
    """Whether a page's output is the real one.

    A line with nothing but `…` stands for any lines, `…` inside a line for any characters; blanks at line ends and
    blank lines at the end do not count.
    """
    lines = [line.rstrip() for line in expected.rstrip().splitlines()]
    parts = [
        r"(?:.*\n)*" if line == ANY else re.escape(line).replace(re.escape(ANY), r".*") + r"[^\S\n]*\n"
        for line in lines
    ]
    return re.fullmatch("".join(parts) + r"\s*", actual.rstrip() + "\n") is not None
