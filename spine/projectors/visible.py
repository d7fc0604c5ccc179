"""Makes text harmless to look at (floor 6): what would act on a screen, or hide on it, is shown as an escape.

The only place where it is decided which characters are shown as themselves. The table is written out and not asked of
`unicodedata`, whose answers change with the version of Python: the same log must give the same bytes everywhere.
"""

import re
from functools import cache

_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\xad\u034f\u061c\u180b-\u180f\ufeff"  # soft hyphen, joiners without a shape, Mongolian selectors, BOM
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"  # number and verse signs (format characters)
    "\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # letters without ink
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"  # zero width, line separators, bidi
    "\ufe00-\ufe0d\ufdd0-\ufdef\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"  # selectors, noncharacters, lone surrogates
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # layout of hieroglyphs, shorthand, music
    "\U000e0000-\U000e0fff"  # tags, further selectors: invisible by definition
)
# ZWNJ and ZWJ spell words in these scripts and build emoji; anywhere else they are a place to hide.
_JOINED = "\u0620-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u2190-\u21ff\u2300-\u2bff\ufe0f\U0001f000-\U0001faff"
# The selectors of text and emoji style act on signs, digits and nothing else.
_STYLED = "0-9#*\xa9\xae\u2000-\ufe0d\ufe10-\U0010ffff"


_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
"""As `html.escape`, whose module brings a table of all entities and a pattern for them."""


@cache
def _escaped() -> re.Pattern[str]:
    # Made at the first text that needs it: that takes 3 ms, and most text is plain ASCII.
    return re.compile(
        f"[{_HIDDEN}]|(?<![{_JOINED}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}])|(?<![{_STYLED}])[\ufe0e\ufe0f]"
    )


def visible(text: str) -> str:
    """`text` with control, bidi and invisible format characters as `\\x1b`, `\\u202e`; newline and tab stay."""
    if text.isascii() and text.isprintable():
        return text
    return _escaped().sub(_escape, text)


def one_line(text: str) -> str:
    """`visible` text that cannot begin a line: newline and tab are escapes too."""
    if text.isascii() and text.isprintable():
        return text
    return _escaped().sub(_escape, text).replace("\n", "\\n").replace("\t", "\\t")


def html_text(text: str) -> str:
    """`visible` text as a text node of HTML: nothing in it acts or hides."""
    return visible(text).translate(_HTML)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
