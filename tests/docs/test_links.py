"""Links lead somewhere: files that exist, headings that are there."""

from pathlib import Path

import pytest
from docs_markdown import PAGES, ROOT, anchor, headings, links, name_of

INDEX = ROOT / "docs" / "README.md"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_of_this_project(page: Path) -> None:
    """Each link is relative, its file exists, and its fragment is a heading of that file."""
    for line, target in links(page.read_text()):
        place = f"{name_of(page)}:{line}"
        assert "://" not in target, f"{place}: {target} leads out of the project"
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_relative_to(ROOT), f"{place}: {target} leads out of the project"
        assert file.exists(), f"{place}: {target} does not exist"
        if fragment:
            assert fragment in map(anchor, headings(file.read_text())), f"{place}: no heading {target}"


def test_every_page_can_be_reached_from_the_index() -> None:
    """Nothing under docs/ is an island: the index leads to it, directly or through other pages."""
    reached, waiting = set(), [INDEX]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = ((page.parent / target.partition("#")[0]).resolve() for _, target in links(page.read_text()))
        waiting.extend(target for target in targets if target.suffix == ".md" and target in PAGES)
    missing = [name_of(page) for page in PAGES if page not in reached and page.is_relative_to(ROOT / "docs")]
    assert not missing


def test_headings_of_a_page_are_unique() -> None:
    """Two headings with one anchor would make a link ambiguous."""
    for page in PAGES:
        found = [anchor(heading) for heading in headings(page.read_text())]
        if page.name != "CHANGELOG.md":
            assert len(found) == len(set(found)), name_of(page)
