"""spine.proof.report: one page that loads nothing, runs nothing, and holds what somebody must answer for."""

import base64
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from spine.codec import Codec
from spine.log import LogReader
from spine.proof.charts import Series, bars
from spine.proof.course import course_of
from spine.proof.report import report_html
from spine.proof.verify import verify
from spine.store import Row
from spine.stores.memory import MemoryStore
from spine.values import SessionId, decode, encode

Rechained = Callable[[Callable[[list[Row]], list[Row]]], LogReader]

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202e\x1b[2J"
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)


def page_of(reader: LogReader) -> str:
    return report_html(reader, course_of(reader), verify(reader), source="memory:")


class Page(HTMLParser):
    """Collects the tags, their attributes, and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def demo_page(demo_store: MemoryStore) -> str:
    return page_of(LogReader(demo_store, Codec(), SessionId("refund-1017")))


def test_the_page_holds_everything_that_must_be_answered_for(demo: LogReader, demo_page: str) -> None:
    page = Page(demo_page)
    assert page.open == []
    for part in (
        "It holds.",
        f"{demo.head[0]}:{demo.head[1].hex()}",
        "27 events without gap",
        "refunded 12.90 EUR, reference R-88",
        "My mug from order 1017 arrived broken.",
        "refund: refunds need a person",
        "demo (session.approve)",
        "t1s3 compared with t1s2",
        "agent refunds  session  idempotent, approval ask",
        "as in t1s1",
        "4,717 tokens in (2,816 from cache)",
    ):
        assert part in page.text, part
    assert page.tags.count("details") == 3
    assert page.tags.count("svg") == 2  # no price, so no chart of money


def test_the_page_loads_runs_and_links_nothing(demo_page: str, careful: LogReader) -> None:
    for html in (demo_page, page_of(careful)):
        page = Page(html)
        assert not {"script", "img", "link", "iframe", "form", "object", "embed", "base"} & set(page.tags)
        assert not [
            name for name, _ in page.attributes if name.startswith("on") or name in ("style", "src", "xlink:href")
        ]
        assert all(value and value.startswith("#") for name, value in page.attributes if name == "href")
        (style,) = re.findall("<style>(.*?)</style>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = next(
            value for name, value in page.attributes if name == "content" and value and "default-src" in value
        )
        assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_hostile_text_stays_text(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        changed = []
        for row in rows:
            data = decode(row.data)
            if row.type == "input.accepted":
                data = {**data, "message": {"role": "user", "content": [HOSTILE], "kind": HOSTILE}}
            if row.type == "approval.decided":
                data = {**data, "by": HOSTILE, "reason": HOSTILE}
            if row.type == "session.created":
                data = {**data, "title": HOSTILE, "versions": {HOSTILE: HOSTILE}}
                data["agent"] = {**data["agent"], "name": HOSTILE}
            changed.append(row._replace(data=encode(data)))
        return changed

    html = page_of(rechained(edit))
    page = Page(html)
    assert not {"script", "img"} & set(page.tags)
    assert page.text.count("<script>alert(1)</script>") >= 6
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "It does not hold." in page.text  # what was sent was something else


def test_a_session_without_a_request_has_a_page(rechained: Rechained) -> None:
    page = Page(page_of(rechained(lambda rows: rows[:2])))
    assert "No call asked for one." in page.text
    assert page.tags.count("details") == 0


def test_bars_are_as_high_as_their_values() -> None:
    chart = bars("Tokens", ["a", "b", "c"], [Series("in", (10, 5, None)), Series("out", (10, 0, None))], str)
    heights = [float(height) for height in re.findall('height="([0-9.]+)"', chart)]
    assert heights == [60, 60, 30, 0, 4]
    assert "<title>b: in 5, out 0</title>" in chart
    assert "<title>c: in unknown, out unknown</title>" in chart
    assert bars("Tokens", ["a"], [Series("in", (None,))], str) == ""
    assert bars("Tokens", [], [], str) == ""


@pytest.mark.skipif(BROWSER is None, reason="no headless browser here: apt-get install chromium-headless-shell")
def test_a_browser_shows_it_and_asks_for_nothing(demo_page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(demo_page, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={tmp_path}/p"]
    shown = subprocess.run(
        [BROWSER or "", *flags, "--dump-dom", f"file://{tmp_path}/report.html"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert Page(shown.stdout).tags.count("section") == Page(demo_page).tags.count("section")
    assert shown.stdout.count("<rect") == demo_page.count("<rect")
    assert "Content Security Policy" not in shown.stderr
    assert "CONSOLE" not in shown.stderr
