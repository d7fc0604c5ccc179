"""Nothing that anybody wrote acts on whoever looks at it, passes for a fact, or disappears: every view, every field."""

import re
import time
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from handwritten import AGENT, Log, call, committed, message, requested, result, revision, started
from payloads import ANSI, BIDI, CORPUS, HIDDEN, HTML, MARKDOWN, OSC

from spine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    FieldChange,
    HistoryCompacted,
    HookFailed,
    InputAccepted,
    InputDelivered,
    MessageInterrupted,
    ModelAttemptFailed,
    Patch,
    SessionCreated,
    SessionForked,
    SessionResumed,
    StepFailed,
    ToolResolved,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    UnknownEvent,
)
from spine.llm.errors import Failure
from spine.llm.usage import Cost, Usage
from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    Message,
    RefusalBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    user_message,
)
from spine.projectors import SessionTranscript, Transcript, fold, log_lines, to_html, to_json, to_markdown, to_text
from spine.projectors.html import to_html_fragment
from spine.projectors.visible import one_line, visible
from spine.values import CallId, Digest, JsonObject, SessionId

PAYLOADS = [(family, text) for family, texts in CORPUS.items() for text in texts]
HARMLESS = "harmless"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def everywhere(text: str) -> Log:
    """A log with `text` in every field that somebody outside can fill."""
    log = Log("s")
    log.add(SessionCreated(agent=AGENT, title=text))
    log.add(SessionForked(parent=SessionId(text), seq=1, hash=text))
    log.add(SessionResumed(agent=AGENT, changes=(text,)))
    media = (
        ImageBlock(media_type=text, url=text, data="", artifact=Digest(text)),
        AudioBlock(media_type=text, transcript=text),
        DocumentBlock(name=text, url=text),
        ArtifactRefBlock(digest=Digest(text), media_type=text, size=1),
        ExtensionBlock(kind=text, data={text: text}),
    )
    for kind in ("user", text):
        content = (TextBlock(text=text), *media, TextBlock(text=text))
        seq = log.add(InputAccepted(message=Message(role="user", content=content, kind=kind)))
        log.add(InputDelivered(inputs=(seq,), place="turn" if kind == "user" else "step"), "t1")
    log.add(requested(), "t1s1")
    failure = Failure(category="limit", message=text)
    log.add(ModelAttemptFailed(attempt=1, failure=failure), "t1s1")
    log.add(MessageInterrupted(message=message(TextBlock(text=text)), note=text), "t1s1")
    used = Usage(input_tokens=1, output_tokens=1)
    calls = (
        call(text, "t1s2c1", **{text: text}),
        ToolCallBlock(id=CallId("t1s2c2"), name=text, arguments_text=text),
    )
    blocks = (ThinkingBlock(text=text), text, RefusalBlock(text=text), *media, *calls)
    log.add(requested(), "t1s2")
    log.add(committed(*blocks, route=text, usage=used, cost=Cost(micros=1, currency=text, prices=text)), "t1s2")
    patches = (Patch(plugin=text, changes=(FieldChange(field="arguments", value={}),)),)
    log.add(
        ApprovalRequested(
            id=text,
            call=CallId("t1s2c1"),
            hash=Digest(text),
            name="f",
            arguments={text: text},
            patches=patches,
            reason=text,
        ),
        "t1s2",
    )
    log.add(ApprovalDecided(id=text, decision="denied", by=text, channel=text, reason=text), "t1s2")
    log.add(started("f", "t1s2c1", arguments={"other": text}, patches=patches), "t1s2")
    log.add(ToolResolved(call=CallId("t1s2c1"), decision="asked", reason=text), "t1s2")
    log.add(result(text, text, {text: text}, *media, text, call_id="t1s2c1"), "t1s2")
    log.add(result(text, text, call_id="t1s2c2", status="error"), "t1s2")
    log.add(revision(text, text), "t1s2")
    log.add(HookFailed(hook=text, plugin=text, error=text), "t1s2")
    log.add(StepFailed(failure=failure), "t1s2")
    log.add(HistoryCompacted(summary=user_message(text), until=1), "t1")
    log.add(CancelRequested(cause=text, by=text), "t9")
    log.add(TurnCancelled(cause=text), "t1")
    log.add(TurnStarted(overrides={text: text}), "t2")
    log.add(TurnFailed(failure=failure), "t2")
    log.add(TurnCompleted(), "t3")
    log.add(UnknownEvent(JsonObject({text: text})), type="crm.seen", origin=text)
    return log


def told(text: str) -> Transcript:
    return fold(SessionTranscript(), everywhere(text).events)


def test_the_corpus_is_large_enough() -> None:
    sizes = {family: len(set(texts)) for family, texts in CORPUS.items()}
    assert min(sizes[family] for family in ("ansi", "osc", "bidi", "hidden", "html")) >= 100, sizes
    assert sizes["html"] >= 180
    assert sizes["ansi"] >= 180


@pytest.mark.parametrize("family", CORPUS)
def test_text_and_log_hold_no_character_that_acts(family: str) -> None:
    for payload in CORPUS[family]:
        log = everywhere(payload)
        text = to_text(fold(SessionTranscript(), log.events))
        assert not ACTING.search(text), payload
        for line in log_lines(log.events):
            assert not ACTING.search(line.what), payload
            assert "\n" not in line.what
            assert "\t" not in line.what


@pytest.mark.parametrize("family", CORPUS)
def test_text_keeps_its_shape_whatever_is_in_it(family: str) -> None:
    expected = shape(to_text(told(HARMLESS)))
    for payload in CORPUS[family]:
        assert shape(to_text(told(payload))) == expected, payload


def shape(text: str) -> list[str]:
    """The marks of all lines that are not prose: what could be taken for a fact."""
    marks = []
    for line in text.split("\n"):
        if line and not line.startswith("    "):
            marks.append(line[:3] if line.startswith("  ") else line.split(" ")[0])
    return marks


@pytest.mark.parametrize(("family", "payload"), [(f, p) for f, p in PAYLOADS if "\n" not in p][::7])
def test_what_was_written_stays_readable(family: str, payload: str) -> None:
    text = to_text(told(payload))
    assert f"\n    {visible(payload)}\n" in text
    assert f"resumed with changes\n  ! {one_line(payload)}\n" in text
    assert unescaped(visible(payload)) == payload
    page = page_text(to_html(told(payload)))
    assert visible(payload) in page


def unescaped(text: str) -> str:
    pattern = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
    return pattern.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), text)


# ------------------------------------------------------------------------------------------------------------ HTML


class Page(HTMLParser):
    """The elements of a page in order, with their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.text: list[str] = []
        self.other: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def unknown_decl(self, data: str) -> None:
        self.other.append(data)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)


def page_of(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    return page


def page_text(html: str) -> str:
    return "".join(page_of(html).text)


@pytest.mark.parametrize("render", [to_html, to_html_fragment])
@pytest.mark.parametrize("family", CORPUS)
def test_a_page_has_the_same_elements_whatever_is_in_it(family: str, render: Callable[[Transcript], str]) -> None:
    expected = page_of(render(told(HARMLESS)))
    assert expected.other == []
    for payload in CORPUS[family]:
        page = page_of(render(told(payload)))
        assert page.elements == expected.elements, payload
        assert page.other == [], payload
        assert not ACTING.search("".join(page.text)), payload


def test_a_page_loads_runs_and_links_nothing() -> None:
    html = to_html(told(HTML[0]))
    elements = page_of(html).elements
    allowed = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "h1",
        "h2",
        "section",
        "p",
        "pre",
        "b",
        "time",
        "span",
    }
    assert {tag for tag, _ in elements} <= allowed
    names = {name for _, attributes in elements for name, _ in attributes}
    assert names <= {"lang", "charset", "http-equiv", "content", "name", "class"}
    policy = next(value for _, attributes in elements for name, value in attributes if name == "content")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in policy
    assert "unsafe" not in policy
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


# -------------------------------------------------------------------------------------------------------- Markdown


@pytest.mark.parametrize("family", CORPUS)
def test_markdown_holds_what_is_foreign_in_code(family: str) -> None:
    expected = outside_of_code(to_markdown(told(HARMLESS)))
    for payload in CORPUS[family]:
        assert outside_of_code(to_markdown(told(payload))) == expected, payload


def outside_of_code(markdown: str) -> list[str]:
    """The lines outside of fences (by the rule of CommonMark), code spans replaced by nothing."""
    lines, fence = [], ""
    for line in markdown.split("\n"):
        stripped = line.lstrip(" ")
        ticks = stripped[: len(stripped) - len(stripped.lstrip("`"))]
        if fence:
            closes = len(line) - len(stripped) <= 3 and len(ticks) >= len(fence) and not stripped.strip("` \t")
            fence = "" if closes else fence
        elif len(ticks) >= 3 and "`" not in stripped[len(ticks) :]:
            fence = ticks
        else:
            lines.append(without_code_spans(line))
    assert not fence, "a fence was left open"
    assert not any("harmless" in line or "evil" in line for line in lines)
    return lines


def without_code_spans(line: str) -> str:
    rest = ""
    while line:
        text, ticks, after = partition_ticks(line)
        end = re.search(f"(?<!`){ticks}(?!`)", after) if ticks else None
        rest += text + ("" if end else ticks)
        line = after[end.end() :] if end else after
    return rest


def partition_ticks(line: str) -> tuple[str, str, str]:
    found = re.search("`+", line)
    return (line[: found.start()], found[0], line[found.end() :]) if found else (line, "", "")


# ------------------------------------------------------------------------------------------------------------ JSON


def test_json_cuts_and_changes_nothing() -> None:
    for payload in (*ANSI, *OSC, *BIDI, *HIDDEN, *HTML, *MARKDOWN):
        entries = to_json(told(payload))["entries"]
        given = next(entry for entry in entries if entry["type"] == "input")
        assert given["data"]["message"]["content"][0] == {"type": "text", "text": payload}


# ----------------------------------------------------------------------------------------------------------- speed


@pytest.mark.parametrize(
    "text",
    [
        "\u202e" * 200_000,
        "a\u200d" * 200_000,
        "\u200d\u200c" * 200_000,
        "\x1b]8;;" * 100_000,
        "\ufe0f" * 200_000,
        "`" * 300_000,
    ],
    ids=["bidi", "joiners", "joiners alone", "osc", "selectors", "ticks"],
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    log = Log()
    log.turn(text)
    transcript = fold(SessionTranscript(), log.events)
    began = time.perf_counter()
    for render in (to_text, to_html, to_markdown):
        render(transcript)
    assert time.perf_counter() - began < 5
