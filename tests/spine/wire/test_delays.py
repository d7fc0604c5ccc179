"""Every form in which servers name a delay, and what is no delay."""

import pytest

from spine.wire.delays import delay_in_text, retry_delay

NOON = 1_796_040_000.0  # 2026-11-30T12:00:00Z
HEADERS = [
    ({"retry-after": "2"}, 2.0),
    ({"retry-after": "1.5"}, 1.5),
    ({"retry-after": " 7 "}, 7.0),
    ({"retry-after-ms": "750", "retry-after": "1"}, 0.75),
    ({"retry-after-ms": "0", "retry-after": "1"}, 0.0),
    ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
    ({"retry-after": "Mon, 30 Nov 2026 12:00:20 GMT"}, 20.0),
    ({"retry-after": "Mon, 30 Nov 2026 12:00:20 -0000"}, 20.0),
    ({"retry-after": "Mon, 30 Nov 2026 14:30:20 +0230"}, 20.0),
    ({"retry-after": "30 Nov 2026 10:30:20 -0130"}, 20.0),
    ({"retry-after": "Monday, 30-Nov-2026 12:00:20 GMT"}, 20.0),
    ({"retry-after": "Mon, 31 Nov 2026 12:00:20 GMT"}, None),
    ({"retry-after": "Mon, 30 Foo 2026 12:00:20 GMT"}, None),
    ({"retry-after": "Mon, 30 Nov 2026 12:00:20 +9900"}, None),
    ({"retry-after": "Mon, 30 Nov 2026 12:00:20"}, None),
    ({"retry-after": "Mon, 30 Nov 2026 11:59:00 GMT"}, 0.0),
    ({"retry-after": "86400"}, 86400.0),
    *[({"retry-after": text}, None) for text in ("soon", "-5", "nan", "inf", "1e3", "0x10", "5, 10", "1_000", "", "٣")],
    ({"retry-after": "9" * 400}, None),
    (
        {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "4.5s", "x-ratelimit-reset-requests": "9s"},
        4.5,
    ),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h2m3s"}, 3723.0),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "7m12s"}, 432.0),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "40ms"}, 0.04),
    (
        {
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "2s",
        },
        2.0,
    ),
    ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1s"}, None),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "later"}, None),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1d2h"}, 93_600.0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}, 1.0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2026-11-30T12:00:25"}, 25.0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOON) + 9)}, 9.0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((int(NOON) + 9) * 1000)}, 9.0),
    (
        {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:25Z"},
        25.0,
    ),
    ({"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "2026-11-30T11:00:25Z"}, 0.0),
    ({"anthropic-ratelimit-tokens-remaining": "7", "anthropic-ratelimit-tokens-reset": "2026-11-30T12:00:25Z"}, None),
    ({}, None),
]
BODIES = [
    ([{"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "46s"}]}}], 46.0),
    ({"error": {"details": [{"@type": "x/RetryInfo", "retryDelay": "0.5s"}]}}, 0.5),
    ({"error": {"details": [{"@type": "x/RetryInfo", "retryDelay": "soon"}, {}, 3]}}, None),
    ({"error": {"metadata": {"headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1796040043000"}}}}, 43.0),
    ({"error": {"details": "text", "metadata": 3}}, None),
    ([], None),
    ("text", None),
]
TEXTS = [
    ("Rate limit reached. Please try again in 120ms.", 0.12),
    ("Please try again in 1.898s. Visit the page.", 1.898),
    ("Please try again in 28m48s.", 1728.0),
    ("Please retry after 12 seconds.", 12.0),
    ("Please retry in 46.2s.", 46.2),
    ("try again in 2 minutes", 120.0),
    ("Retry in 1 hour", 3600.0),
    ("Please wait a moment and try again.", None),
    ("Please retry in a few seconds.", None),
    ("retry with fewer than 12 tokens", None),
    ("Try again in 5 months", None),
    ("", None),
]


@pytest.mark.parametrize(("headers", "expected"), HEADERS)
def test_headers(headers: dict[str, str], expected: float | None) -> None:
    assert retry_delay(headers, now=NOON) == pytest.approx(expected)


@pytest.mark.parametrize(("body", "expected"), BODIES)
def test_error_bodies(body: object, expected: float | None) -> None:
    assert retry_delay({}, now=NOON, body=body) == pytest.approx(expected)


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_prose(text: str, expected: float | None) -> None:
    assert delay_in_text(text) == pytest.approx(expected)


def test_a_header_beats_the_body_and_the_body_beats_prose() -> None:
    body = {"error": {"details": [{"@type": "x/RetryInfo", "retryDelay": "46s"}]}}
    assert retry_delay({"retry-after": "2"}, now=NOON, body=body, message="try again in 9s") == 2.0
    assert retry_delay({}, now=NOON, body=body, message="try again in 46.2s") == 46.0


def test_budgets_count_only_when_the_answer_is_about_limits() -> None:
    headers = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "4s"}
    assert retry_delay(headers, now=NOON, limited=False) is None


@pytest.mark.parametrize("now", [None, float("nan")])
def test_without_a_clock_dates_say_nothing(now: float | None) -> None:
    assert retry_delay({"retry-after": "Mon, 30 Nov 2026 12:00:20 GMT"}, now=now) is None
    for reset in (str(int(NOON) + 9), "2026-11-30T12:00:25Z"):
        assert retry_delay({"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}, now=now) is None
    assert retry_delay({"retry-after": "3"}, now=now) == 3.0


def test_hostile_prose_takes_no_time() -> None:
    assert delay_in_text("try again in " + "1s " * 20_000) is not None
    assert delay_in_text("retry " * 50_000 + "in " + "9" * 50_000) is None
