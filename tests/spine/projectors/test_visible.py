"""Which characters are shown as themselves, and which as escapes."""

import sys
import unicodedata
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.projectors.visible import html_text, one_line, visible

KEPT = [
    "",
    "plain text, with ünïcödé",
    "tab\tand\nnewline",
    "日本語 العربية עברית हिन्दी",
    "\xa0 and other\u3000spaces\u2009stay",
    "e\u0301 combining",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian writes words with a non-joiner
    "\u0915\u094d\u200d\u0937",  # Hindi with a joiner
    "👩\u200d🚀 👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f⃣ ☺\ufe0e",
    "back\\slash \\x1b",
    "\ue000 private",
]
ESCAPED = [
    ("\x00", "\\x00"),
    ("\x1b[31m", "\\x1b[31m"),
    ("\r\n", "\\x0d\n"),
    ("\x7f\x80\x9f", "\\x7f\\x80\\x9f"),
    ("\x85", "\\x85"),
    ("\u202egnp", "\\u202egnp"),
    ("\u2028\u2029", "\\u2028\\u2029"),
    ("a\u200bb", "a\\u200bb"),
    ("a\u200db", "a\\u200db"),
    ("👩\u200d\u200d👩", "👩\\u200d\\u200d👩"),
    ("👩\u200d", "👩\\u200d"),
    ("\u200c", "\\u200c"),
    ("a\ufe0f", "a\\ufe0f"),
    ("☺\ufe0f\ufe0f", "☺\ufe0f\\ufe0f"),
    ("\ufe0e", "\\ufe0e"),
    ("x\ufe01", "x\\ufe01"),
    ("\ufeff", "\\ufeff"),
    ("\U000e0041", "\\U000e0041"),
    ("\U000e01ef", "\\U000e01ef"),
    ("\ud800", "\\ud800"),
    ("\xad\u034f\u3164", "\\xad\\u034f\\u3164"),
    ("\ufffe\ufdd0", "\\ufffe\\ufdd0"),
]


@pytest.mark.parametrize("text", KEPT)
def test_what_people_write_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(("text", "shown"), ESCAPED)
def test_what_acts_or_hides_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(f"before {text}") == f"before {shown}" or "\ufe0f" in text


def test_every_control_and_format_character_is_escaped_on_its_own() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\n\t":
            assert visible(f"a{character}b") != f"a{character}b", hex(code)
        elif category[0] in "LNPS" and character not in "\u115f\u1160\u3164\uffa0":
            assert visible(character) == character, hex(code)


def test_one_line_is_one_line() -> None:
    assert one_line("a\nb\tc\r\u2028d\\n") == "a\\nb\\tc\\x0d\\u2028d\\n"
    assert one_line("plain") == "plain"


@given(st.text())
def test_what_was_shown_is_shown_the_same_again(text: str) -> None:
    assert visible(visible(text)) == visible(text)
    assert one_line(visible(text)) == one_line(text)
    assert len(one_line(text).splitlines()) <= 1


@pytest.mark.parametrize("text", ["", "plain", "<b>&amp;\"'</b>", "a\x1b[0m<i>", "\u202e'"])
def test_text_for_html_is_visible_and_escaped_as_the_standard_library_does_it(text: str) -> None:
    assert html_text(text) == escape(visible(text), quote=True)
