"""How long a server asks us to wait before the next attempt (side room `wire`): pure, the clock is an argument.

Forms seen in the wild, the first that names a usable delay wins: `retry-after-ms`, `retry-after` in seconds or as an
HTTP date, Google's RetryInfo, the reset of an exhausted budget (OpenAI, Anthropic, Together, OpenRouter), and prose in
the message ("Please try again in 1.898s"). Garbage, negative numbers, NaN and infinity count as nothing said.
No cap here: what to do with a day is the retry policy's decision.
"""

import datetime
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from spine.wire.bodies import error_object

__all__ = ["delay_in_text", "retry_delay"]

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_GO_DURATION = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{1,9})?(?:ms|s|m|h|d))+")
_GO_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_PROSE = re.compile(
    r"(?:try again|retry)(?: again)?(?: your request)?(?: in| after) (?:about )?"
    r"((?:[0-9]{1,15}(?:\.[0-9]{1,9})?\s?"
    r"(?:ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)(?![a-z]) ?)+)",
    re.IGNORECASE,
)
_PROSE_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s?(ms|mi(?:ll|n)|[smhd])", re.IGNORECASE)
_PROSE_UNITS = {"ms": 0.001, "mill": 0.001, "min": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_HTTP_DATE = re.compile(
    r"(?:[A-Za-z]{3,9}, )?(?P<day>[0-9]{1,2})[ -](?P<month>[A-Za-z]{3})[ -](?P<year>[0-9]{4}) "
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}) (?:GMT|UTC|(?P<zone>[+-][0-9]{4}))"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_RESETS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
)


def retry_delay(
    headers: Mapping[str, str], *, now: float | None, message: str = "", body: Any = None, limited: bool = True
) -> float | None:
    """The delay in seconds, never negative; None when the server named none.

    `headers` have lower-case names, `body` is the parsed error body. Budget resets count only when `limited`: a
    server that broke tells its budgets too. A date in the past gives 0; without `now` (None or NaN) dates say nothing.
    """
    if now is not None and math.isnan(now):
        now = None
    asked = _asked(headers, now)
    if asked is not None:
        return asked
    details = _in_details(body)
    if details is not None:
        return details
    if limited:
        resets = [*_exhausted(headers, now), *_exhausted(_nested_headers(body), now)]
        if resets:
            return max(resets)
    return delay_in_text(message)


def delay_in_text(message: str) -> float | None:
    """The delay in a sentence such as "Please try again in 28m48s", in seconds."""
    found = _PROSE.search(message)
    if found is None:
        return None
    parts = _PROSE_PART.findall(found.group(1))
    return sum(float(number) * _PROSE_UNITS[unit.lower()] for number, unit in parts)


def _asked(headers: Mapping[str, str], now: float | None) -> float | None:
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    seconds = _seconds(value)
    return seconds if seconds is not None else _until_http_date(value, now)


def _seconds(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _until_http_date(text: str, now: float | None) -> float | None:
    """RFC 9110's preferred form, and its near relations; the standard library's reader costs 5 ms to import."""
    found = _HTTP_DATE.fullmatch(text)
    if now is None or found is None or found["month"].lower() not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(found[name]) for name in ("day", "year", "hour", "minute", "second"))
    zone = found["zone"]
    offset = datetime.timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[3:])) if zone else datetime.timedelta()
    try:
        month = _MONTHS.index(found["month"].lower()) + 1
        moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.timezone(offset))
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - now)


def _exhausted(headers: Mapping[str, str], now: float | None) -> Iterable[float]:
    """The resets of budgets of which nothing remains."""
    for remaining, reset in _RESETS:
        if headers.get(remaining, "").strip() in ("0", "0.0"):
            delay = _until_reset(headers.get(reset, "").strip(), now)
            if delay is not None:
                yield delay


def _until_reset(text: str, now: float | None) -> float | None:
    """Seconds, a Go duration, a moment as RFC 3339, or one in seconds or milliseconds since 1970."""
    number = _seconds(text)
    if number is not None:
        if number < 1e9:
            return number
        return None if now is None else max(0.0, (number / 1000 if number > 1e11 else number) - now)
    if len(text) <= 64 and _GO_DURATION.fullmatch(text):
        return sum(float(amount) * _UNITS[unit] for amount, unit in _GO_PART.findall(text))
    return _until_instant(text, now)


def _until_instant(text: str, now: float | None) -> float | None:
    if now is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0.0, moment.timestamp() - now)


def _in_details(body: Any) -> float | None:
    """Google's `RetryInfo.retryDelay`, wherever the list of details stands in the error."""
    for detail in _details(body):
        if isinstance(detail, dict) and str(detail.get("@type", "")).endswith("RetryInfo"):
            text = str(detail.get("retryDelay", ""))
            if text.endswith("s"):
                return _seconds(text[:-1])
    return None


def _details(body: Any) -> list[Any]:
    error = error_object(body)
    details = error.get("details")
    return details if isinstance(details, list) else []


def _nested_headers(body: Any) -> dict[str, str]:
    """Rate-limit headers that a gateway repeats inside its error body (`error.metadata.headers`), lower-cased."""
    metadata = error_object(body).get("metadata")
    headers = metadata.get("headers") if isinstance(metadata, dict) else None
    return {str(key).lower(): str(value) for key, value in headers.items()} if isinstance(headers, dict) else {}
