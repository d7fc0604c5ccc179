"""How the pages are written: one sentence a line, plain words, nothing about machines that built them."""

import re
from pathlib import Path

import pytest
from docs_markdown import PAGES, name_of, prose

_TWO_SENTENCES = re.compile(r"[a-z`)\"'][.!?] [A-Z`\"]")
_WORDS = (
    "blazing",
    "cutting-edge",
    "delightful",
    "easily",
    "effortless",
    "elegant",
    "world-class",
    "powerful",
    "revolutionary",
    "robust",
    "seamless",
    "simply",
    "state-of-the-art",
    "supercharge",
    "unleash",
)
_MACHINE = re.compile(r"/(?:home|root|Users|work|tmp)/\w|sk-[A-Za-z0-9]{8}|pypi\.org")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_prose_has_one_sentence_a_line(page: Path) -> None:
    """A change of one sentence is a change of one line."""
    for number, line in prose(page.read_text()):
        if not line.startswith("|"):
            assert not _TWO_SENTENCES.search(line), f"{name_of(page)}:{number}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_do_not_praise(page: Path) -> None:
    """No word says how good a thing is."""
    for number, line in prose(page.read_text()):
        found = [word for word in _WORDS if re.search(rf"\b{word}\b", line.lower())]
        assert not found, f"{name_of(page)}:{number}: {found[0]}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_hold_no_paths_of_a_machine_and_no_keys(page: Path) -> None:
    """What stands in a page works on any machine."""
    found = _MACHINE.search(page.read_text())
    assert found is None, f"{name_of(page)}: {found and found[0]}"


@pytest.mark.parametrize(
    ("line", "two"),
    [
        ("One sentence.", False),
        ("One sentence. Another one.", True),
        ("It takes `x`. It gives `y`.", True),
        ("In version 0.1.0 nothing changes, e.g. this.", False),
        ("- **A point.** Its sentence.", False),
    ],
)
def test_two_sentences_are_noticed(line: str, two: bool) -> None:
    """The rule looks at what ends a sentence and what begins one."""
    assert bool(_TWO_SENTENCES.search(line)) is two
