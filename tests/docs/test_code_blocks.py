"""Every block of code on every page runs and prints what the page says, but for those marked with a reason."""

import re
import shlex
from pathlib import Path

import click
import pytest
from docs_commands import tree
from docs_markdown import PAGES, ROOT, blocks, commands, name_of, prose
from docs_run import run_page

WITH_CODE = [page for page in PAGES if any(b.language in ("python", "console") for b in blocks(page.read_text()))]
LANGUAGES = ("python", "console", "text", "toml", "yaml", "json", "sql")


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_code_of_a_page_does_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who types a page from top to bottom sees its outputs."""
    run_page(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    """Blocks name their language, and text is only where something printed it or nothing runs."""
    for block in blocks(page.read_text()):
        assert block.language in LANGUAGES, f"{name_of(page)}:{block.line}: language {block.language!r}"


def _spine_commands() -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.language == "console":
                for command in commands(block):
                    for part in re.split(r"[|&]+", command.text):
                        words = shlex.split(part.split(">")[0])
                        if words[:1] == ["spine"]:
                            found.append((f"{name_of(page)}:{command.line}", words))
        for number, line in prose(page.read_text()):
            spans = re.findall(r"`(spine [^`]+)`", line)
            found.extend((f"{name_of(page)}:{number}", shlex.split(span)) for span in spans)
    return found


def test_shown_commands_and_options_exist() -> None:
    """Also a command that is not run, or stands in a sentence, has the name and the options that the page gives it."""
    known = {name: command for name, command, _ in tree()}
    for place, words in _spine_commands():
        name = "spine"
        for word in words[1:]:
            if f"{name} {word}" in known:
                name = f"{name} {word}"
            elif isinstance(known[name], click.Group) and not word.startswith("-"):
                pytest.fail(f"{place}: {name} has no command {word}")
            elif word.startswith("-"):
                options = {option for param in known[name].params for option in (*param.opts, *param.secondary_opts)}
                option = word.partition("=")[0]
                assert option in options | {"--help", "-h"}, f"{place}: {name} has no option {option}"


def test_shown_make_targets_exist() -> None:
    """`make …` in a page names a target of the Makefile."""
    makefile = ROOT / "Makefile"
    targets = set(re.findall(r"^([a-z-]+):", makefile.read_text(), re.MULTILINE))
    for page in PAGES:
        for target in re.findall(r"^\$ make ([a-z-]+)", page.read_text(), re.MULTILINE):
            assert target in targets, f"{name_of(page)}: make {target}"
