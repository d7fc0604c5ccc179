"""The HTML form of a transcript (floor 6): one page that loads nothing, runs nothing and links nowhere.

All that is foreign becomes text nodes; the page's policy forbids scripts, images, frames, forms and every request, so
even a mistake here could not make it act. No attribute ever holds foreign text.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, tzinfo

from spine.projectors.blocks import Block, to_blocks
from spine.projectors.entries import Told
from spine.projectors.lines import Line, Mark
from spine.projectors.phrases import clock
from spine.projectors.visible import html_text

_STYLE = """
.spine-transcript{color-scheme:light dark;max-width:52rem;margin:0 auto;padding:1rem;color:CanvasText;background:Canvas;
font:16px/1.5 system-ui,sans-serif}
.spine-transcript h1{font-size:1.25rem;overflow-wrap:anywhere}
.spine-transcript h2{font-size:.8rem;letter-spacing:.05em;margin:0 0 .25rem;opacity:.7}
.spine-transcript section{margin:1.25rem 0;padding-left:.9rem;border-left:3px solid transparent}
.spine-transcript .input{border-color:#4a7bd0}
.spine-transcript .step{border-color:#4f9a5b}
.spine-transcript .turn,.spine-transcript .fact{border-color:#8a8a8a}
.spine-transcript pre,.spine-transcript p{margin:.3rem 0;white-space:pre-wrap;
overflow-wrap:anywhere;unicode-bidi:isolate}
.spine-transcript pre{font:inherit}
.spine-transcript .call,.spine-transcript .outcome,.spine-transcript .note{font:13px/1.5 ui-monospace,monospace}
.spine-transcript .outcome{margin-left:1rem;max-height:32rem;overflow:auto}
.spine-transcript .trouble,.spine-transcript .interrupted{color:#b3261e;font-weight:600}
.spine-transcript .waiting{color:#8a5a00;font-weight:600}
.spine-transcript .label,.spine-transcript time{font-size:.8rem;font-weight:400;opacity:.7}
.spine-transcript .aside{opacity:.75;font-style:italic}
@media (prefers-color-scheme:dark){.spine-transcript .trouble,.spine-transcript .interrupted{color:#ff8f85}
.spine-transcript .waiting{color:#f0b849}}
@media print{.spine-transcript{max-width:none;padding:0;font-size:11pt}.spine-transcript .outcome{max-height:none}
.spine-transcript h2{break-after:avoid}.spine-transcript p{break-inside:avoid}}
"""
_CLASSES: dict[Mark, str] = {
    "": "prose",
    ">": "call",
    "<": "outcome",
    "!": "trouble",
    "?": "waiting",
    "~": "interrupted",
    "+": "steering",
    "[": "note",
}


def to_html(transcript: Told, *, zone: tzinfo = UTC, source: str | None = None) -> str:
    """A whole page, nothing cut; readable in light and dark and on paper. Times are in `zone`."""
    return html_page(transcript.session or "transcript", html_main(transcript, zone, source))


def html_page(title: str, body: str, style: str = "") -> str:
    """A page with the transcript's style and `style`, whose policy forbids everything else. `body` is HTML."""
    style = _STYLE + style
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="format-detection" content="telephone=no, email=no, address=no, date=no">\n'
        f"<title>{html_text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def to_html_fragment(transcript: Told, *, zone: tzinfo = UTC) -> str:
    """The same as an element with its own style, for a notebook's cell."""
    return f"<style>{_STYLE}</style>\n{html_main(transcript, zone, None)}"


def html_main(transcript: Told, zone: tzinfo = UTC, source: str | None = None) -> str:
    """The transcript as an element, without its style."""
    # The classes keep notebooks from setting dollar signs as mathematics.
    blocks = "".join(piece for block in to_blocks(transcript, source=source) for piece in _block(block, zone))
    return f'<main class="spine-transcript tex2jax_ignore mathjax_ignore">\n{blocks}</main>\n'


def _block(block: Block, zone: tzinfo) -> Iterator[str]:
    if block.kind == "header":
        yield f"<h1>{html_text(block.heading or '')}</h1>\n"
        return
    yield f'<section class="{block.kind}">\n'
    if block.heading is not None:
        tag = "p" if block.kind == "turn" else "h2"
        time = "" if block.at is None else f" <time>{clock(block.at, zone)}</time>"
        yield f"<{tag}>{html_text(block.heading)}{time}</{tag}>\n"
    for line in block.lines:
        yield from _line(line)
    yield "</section>\n"


def _line(line: Line) -> Iterator[str]:
    if line.label is not None:
        yield f'<p class="label">{html_text(line.label)}</p>\n'
    name = _CLASSES[line.mark] + (" aside" if line.label == "thinking" else "")
    tag = "pre" if line.mark in ("", "<", "+") else "p"
    mark = f"<b>{html_text(line.mark)}</b> " if line.mark not in ("", "[") else ""
    # A parser drops a newline right after <pre>: the mark or the empty element keeps it.
    start = "<span></span>" if tag == "pre" and not mark else ""
    yield f'<{tag} class="{name}">{start}{mark}{html_text(line.text)}</{tag}>\n'
