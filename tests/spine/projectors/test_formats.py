"""The options of the text form, and the Markdown, HTML and JSON forms of one short session."""

import base64
import hashlib
import json
from datetime import UTC, timedelta, timezone
from inspect import cleandoc
from typing import Any

import pytest
from handwritten import AGENT, START, Log, call, result, started, transcript_of

from spine.events import SessionCreated, TurnCompleted, TurnFailed
from spine.llm.errors import Failure
from spine.messages import JsonBlock, ProviderState, TextBlock, ThinkingBlock
from spine.projectors import Transcript, to_html, to_json, to_markdown, to_text
from spine.projectors.phrases import clock
from spine.projectors.text import SCREEN_OUTCOME_BYTES, SCREEN_OUTCOME_LINES


def short_session() -> Transcript:
    log = Log("oslo")
    log.add(SessionCreated(agent=AGENT))
    log.turn("Do I need an umbrella?")
    log.step(ThinkingBlock(text="Look."), call("weather", city="Oslo"), frame=log.frame())
    log.add(started("weather", arguments={"city": "Oslo"}, effect="read_only"), "t1s1")
    log.add(result("weather", "12 °C, rain", duration_s=0.5), "t1s1")
    log.step("Yes, take *one*.", step="t1s2")
    log.add(TurnCompleted(), "t1")
    return transcript_of(log)


def with_outcome(text: str) -> Transcript:
    log = Log("s")
    log.step(call("f"))
    log.add(result("f", text), "t1s1")
    return transcript_of(log)


# ------------------------------------------------------------------------------------------------------------ text


def test_times_and_the_source_are_shown_when_asked_for() -> None:
    zone = timezone(timedelta(hours=5, minutes=45))
    assert to_text(short_session(), times=True, zone=zone, source="sqlite:oslo.db").split("\n\n")[:2] == [
        "oslo · scripted:demo · sqlite:oslo.db",
        "USER · 2026-11-29 19:47:12.009\n    Do I need an umbrella?",
    ]
    assert to_text(short_session(), times=True).endswith(
        "turn t1 completed: 2 steps, 1 tool call · 2026-11-29 14:02:24.009"
    )
    assert to_text(short_session()) == short_session().text


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (START, "2026-11-29 14:02:11.009"),
        (0, "1970-01-01 00:00:00.000"),
        (-1, "1969-12-31 23:59:59.999"),
        (2**31 * 1_000_000, "2038-01-19 03:14:08.000"),
        (253_402_300_799_999_999, "9999-12-31 23:59:59.999"),
        (253_402_300_800_000_000, "253402300800000000 µs"),
        (10**30, f"{10**30} µs"),
    ],
)
def test_any_time_can_be_shown(at: int, expected: str) -> None:
    assert clock(at) == expected


def test_the_end_of_the_calendar_in_another_zone() -> None:
    assert clock(253_402_300_799_999_999, timezone(timedelta(hours=14))).endswith("µs")
    assert clock(START, UTC, day=False) == "14:02:11.009"


CUTS: list[tuple[str, dict[str, Any], str]] = [
    ("a\nb\nc", {}, "  < a\n    b\n    c"),
    ("a\nb\nc", {"max_outcome_lines": 3, "max_outcome_bytes": 5}, "  < a\n    b\n    c"),
    ("a\nb\nc", {"max_outcome_lines": 2}, "  < a\n    b\n  < cut: 2 of 3 lines, 3 of 5 bytes shown; "),
    ("a\nb\nc", {"max_outcome_bytes": 4}, "  < a\n    b\n  < cut: 2 of 3 lines, 3 of 5 bytes shown; "),
    ("a" * 5000, {"max_outcome_bytes": 3}, "  < aaa\n  < cut: 3 of 5,000 bytes shown; "),
    ("ééé", {"max_outcome_bytes": 3}, "  < é\n  < cut: 2 of 6 bytes shown; "),
    ("\n" * 9, {"max_outcome_lines": 2}, "  <\n  < cut: 1 of 10 lines, 0 of 9 bytes shown; "),
    ("\ud800" * 3, {"max_outcome_bytes": 1}, "  < ?\n  < cut: 1 of 3 bytes shown; "),
]


@pytest.mark.parametrize(("text", "limits", "expected"), CUTS)
def test_a_long_outcome_is_cut_with_its_size_and_how_to_see_it(text: str, limits: Any, expected: str) -> None:
    if "cut: " in expected:
        expected += "all of it: spine transcript s --json"
    assert to_text(with_outcome(text), **limits).partition("> f()\n")[2] == expected


def test_a_screen_shows_ordinary_outcomes_whole() -> None:
    limits = {"max_outcome_lines": SCREEN_OUTCOME_LINES, "max_outcome_bytes": SCREEN_OUTCOME_BYTES}
    assert to_text(short_session(), **limits) == short_session().text


def test_only_outcomes_are_cut() -> None:
    log = Log("s")
    log.turn("line\n" * 100)
    log.step("line\n" * 100)
    whole = transcript_of(log)
    assert to_text(whole, max_outcome_lines=1, max_outcome_bytes=1) == whole.text


@pytest.mark.parametrize(
    ("text", "width", "rows"),
    [
        ("one two three four five six", 20, ["one two three", "four five six"]),
        ("a" * 40, 20, ["a" * 16, "a" * 16, "a" * 8]),
        ("short", 20, ["short"]),
        ("          word " + "a" * 20, 20, ["          word", "a" * 16, "a" * 4]),
        (" " * 20 + "x", 20, [" " * 16, " " * 3 + "x"]),
        ("one two", 1, ["one two"]),
        ("a\n" + "b " * 10, 20, ["a", "b b b b b b b b", "b b "]),
    ],
)
def test_prose_is_folded_at_a_width_and_stays_prose(text: str, width: int, rows: list[str]) -> None:
    log = Log("s")
    log.turn(text)
    assert to_text(transcript_of(log), width=width).split("\n")[3:] == [f"    {row}" for row in rows]


def test_facts_are_never_folded() -> None:
    log = Log("s")
    log.step(call("f", text="word " * 40))
    log.add(result("f", "word " * 8), "t1s1")
    text = to_text(transcript_of(log), width=24)
    assert f'  > f(text="{"word " * 40}")' in text.split("\n")
    assert text.endswith("  < word word word word\n    word word word word ")


# -------------------------------------------------------------------------------------------------------- Markdown


def test_markdown_sets_prose_and_facts_in_code() -> None:
    assert to_markdown(short_session(), source="oslo.db") == cleandoc("""
        # `oslo · scripted:demo · oslo.db`

        ## USER

        ```text
            Do I need an umbrella?
        ```

        ## ASSISTANT t1s1

        ```text
          [thinking]
            Look.
          > weather(city="Oslo")
          < 12 °C, rain
        ```

        ## ASSISTANT t1s2

        ```text
            Yes, take *one*.
        ```

        `turn t1 completed: 2 steps, 1 tool call`
        """) + "\n"  # fmt: skip


def test_markdown_fences_are_longer_than_what_they_hold() -> None:
    log = Log("s")
    log.turn("```\n````\nx")
    log.add(TurnFailed(failure=Failure(category="limit", message="a `` b")), "t`1")
    markdown = to_markdown(transcript_of(log))
    assert "`````text\n    ```\n    ````\n    x\n`````" in markdown
    assert "``turn t`1 failed (limit)``" in markdown


# ------------------------------------------------------------------------------------------------------------ HTML


def test_a_page_is_whole_and_its_style_is_the_only_one_allowed() -> None:
    html = to_html(short_session())
    assert html.startswith("<!DOCTYPE html>\n")
    assert html.endswith("</body>\n</html>\n")
    assert "<title>oslo</title>" in html
    style = html.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in html
    for needed in ("color-scheme:light dark", "prefers-color-scheme:dark", "@media print"):
        assert needed in style


def test_a_page_shows_each_kind_of_line_in_its_own_class() -> None:
    html = to_html(short_session())
    assert '<section class="input">\n<h2>USER <time>2026-11-29 14:02:12.009</time></h2>\n' in html
    assert '<pre class="prose"><span></span>Do I need an umbrella?</pre>' in html
    assert '<p class="label">thinking</p>\n<pre class="prose aside"><span></span>Look.</pre>' in html
    assert '<p class="call"><b>&gt;</b> weather(city=&quot;Oslo&quot;)</p>' in html
    assert '<pre class="outcome"><b>&lt;</b> 12 °C, rain</pre>' in html
    assert "<p>turn t1 completed: 2 steps, 1 tool call <time>" in html


def test_in_a_notebook_a_transcript_draws_itself_inside_its_own_element() -> None:
    html = short_session()._repr_html_()
    style, _, main = html.partition("</style>\n")
    rules = [rule for line in style.removeprefix("<style>").split("}") for rule in line.split("{")[0].split(",")]
    selectors = [rule.strip() for rule in rules if rule.strip() and not rule.strip().startswith("@media")]
    assert all(selector.startswith(".spine-transcript") for selector in selectors), selectors
    assert main.startswith('<main class="spine-transcript tex2jax_ignore mathjax_ignore">')
    assert "<html" not in html


# ------------------------------------------------------------------------------------------------------------ JSON


def test_json_has_everything_and_is_plain() -> None:
    value = to_json(short_session())
    assert json.loads(json.dumps(value)) == value
    assert {name: value[name] for name in ("session", "title", "routes")} == {
        "session": "oslo",
        "title": None,
        "routes": ["scripted:demo"],
    }
    given, first, _, end = value["entries"]
    assert given == {
        "type": "input",
        "seq": 2,
        "at": "2026-11-29T14:02:12.009000Z",
        "place": "turn",
        "data": {
            "message": {
                "role": "user",
                "kind": "user",
                "content": [{"type": "text", "text": "Do I need an umbrella?"}],
            }
        },
    }
    assert first["parts"] == [
        {"type": "thinking", "text": "Look."},
        {
            "type": "call",
            "id": "t1s1c1",
            "name": "weather",
            "arguments": {"city": "Oslo"},
            "status": "ok",
            "content": [{"type": "text", "text": "12 °C, rain"}],
            "revised_by": [],
            "facts": [
                {
                    "type": "tool.started",
                    "seq": 10,
                    "at": "2026-11-29T14:02:20.009000Z",
                    "data": {
                        "call": "t1s1c1",
                        "name": "weather",
                        "arguments": {"city": "Oslo"},
                        "effect": "read_only",
                    },
                },
                {
                    "type": "tool.completed",
                    "seq": 11,
                    "at": "2026-11-29T14:02:21.009000Z",
                    "data": {
                        "result": {
                            "type": "tool_result",
                            "call_id": "t1s1c1",
                            "name": "weather",
                            "content": [{"type": "text", "text": "12 °C, rain"}],
                        },
                        "duration_s": 0.5,
                    },
                },
            ],
        },
    ]
    assert (end["type"], end["turn"]) == ("turn.completed", "t1")
    assert end["figures"] == {"steps": 2, "attempts": 2, "tool_calls": 1, "answers": 2, "unreported": 2,
                              "cost_unknown": ["scripted:demo did not report its usage"]}  # fmt: skip


def test_json_cuts_nothing_and_leaves_out_opaque_state() -> None:
    assert to_json(with_outcome("x" * 100_000))["entries"][0]["parts"][0]["content"][0]["text"] == "x" * 100_000
    log = Log("s")
    state = ProviderState(protocol="p", provider="q", model="m", data="opaque")
    log.step(TextBlock(text="Hm.", provider_state=state), JsonBlock(value={}), call("f"))
    parts = to_json(transcript_of(log))["entries"][0]["parts"]
    assert parts[:2] == [{"type": "text", "text": "Hm."}, {"type": "json", "value": {}}]
    assert parts[2]["arguments"] == {}
    assert (parts[2]["status"], parts[2]["content"]) == (None, [])
