"""What an error answer means (side room `wire`): one reading of the body, then tables, the same for every protocol.

Order of evidence: the server's explicit `x-should-retry` (for whether to retry), codes that mean one thing, phrases in
the error's own message, codes that mean little, a status inside the body, the HTTP status. So billing beats a rate
limit, and an overflow beats an invalid request. Numbers found in a text decide nothing. A plugin adds the codes and
phrases of its protocol's vendors as `Rules`. Nothing here quotes a prompt or a header, and what is kept is scrubbed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from spine.frozen import frozen
from spine.llm.errors import RETRYABLE, Category, ProviderError, provider_error
from spine.wire.bodies import error_object, from_json, to_json
from spine.wire.delays import retry_delay
from spine.wire.sse import EventStream

__all__ = [
    "ErrorReading",
    "Rules",
    "failure_of",
    "http_failure",
    "read_error",
    "scrub",
    "status_category",
    "stream_failure",
]

RAW_CHARS = 4096
MESSAGE_CHARS = 300
CODE_CHARS = 200
"""Of a code, and of a request's id."""
MOST_READ = 16
"""How many objects of one error body are read."""
NEVER_RETRYABLE = frozenset(("billing", "auth", "permission"))
REQUEST_IDS = ("x-request-id", "request-id", "x-ms-request-id", "apim-request-id")

_BLANKS = b" \t\r\n\xef\xbb\xbf"
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
"""How a line of an event stream begins."""
_BY_STATUS: dict[int, Category] = {
    400: "invalid_request",
    401: "auth",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "request_too_large",
    422: "invalid_request",
    425: "server_error",
    429: "rate_limit",
    498: "overloaded",
    504: "timeout",
    522: "timeout",
    524: "timeout",
    529: "overloaded",
}


_STATUSLESS: dict[str, Category] = {"invalid_request_error": "invalid_request"}
"""Codes that say less than a status, for errors in a stream, which have none."""
_STATUS = re.compile(r"[45][0-9]{2}")


def status_category(status: int) -> Category:
    """What an HTTP status alone says; anything that is no error status is a `protocol_error`."""
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    if 400 <= status < 500:
        return "invalid_request"
    return "server_error" if 500 <= status < 600 else "protocol_error"


# ------------------------------------------------------------------------------------------------------- reading


@frozen(kw_only=True)
class ErrorReading:
    """What an error body says: its own message, every code and type in it (lower case, most telling first), and a
    status that it names itself. `parsed` is the JSON body, None for text."""

    message: str = ""
    codes: tuple[str, ...] = ()
    status: int | None = None
    parsed: Any = None
    is_empty: bool = False


def read_error(body: bytes | Any) -> ErrorReading:
    """Read an error body: bytes of any kind, or a parsed JSON value found in a stream."""
    if not isinstance(body, bytes):
        return _read_parsed(body)
    text = body.strip(_BLANKS)
    if not text:
        return ErrorReading(is_empty=True)
    if text[:1] == b"<":
        return ErrorReading()  # a page of some proxy: its words are not the provider's
    value = _parsed(text)
    if isinstance(value, str):
        return read_error(value.encode())
    if isinstance(value, dict | list):
        return _read_parsed(value)
    readings = [_read_parsed(value) for value in _framed(text)]
    return _joined(readings) if readings else ErrorReading(message=text.decode("utf-8", "replace"))


def _parsed(text: bytes) -> Any:
    """The JSON value that a text is; None when it is none."""
    try:
        return from_json(text) if text[:1] in (b"{", b"[", b'"') else None
    except ProviderError:
        return None


def _framed(text: bytes) -> Iterator[dict[str, Any]]:
    """The objects in an event stream or, one a line, in plain text: gateways answer so when a stream was asked for."""
    is_stream = _FIELD.match(text) is not None
    events = EventStream()
    parts = [data for _, data in (*events.feed(text), *events.finish())] if is_stream else text.splitlines()
    for part in parts[:MOST_READ]:
        value = _parsed(part.strip())
        if isinstance(value, dict):
            yield value


def _joined(readings: list[ErrorReading]) -> ErrorReading:
    """Several objects as one error, those that say something first."""
    told = sorted(readings, key=lambda reading: not reading.message)
    return ErrorReading(
        message="; ".join(dict.fromkeys(reading.message for reading in told if reading.message)),
        codes=tuple(code for reading in told for code in reading.codes),
        status=next((reading.status for reading in told if reading.status is not None), None),
        parsed=told[0].parsed,
    )


def _read_parsed(body: Any) -> ErrorReading:
    if isinstance(body, list):
        readings = [_read_parsed(item) for item in body[:MOST_READ] if isinstance(item, dict)]
        return _joined(readings) if readings else ErrorReading(parsed=body)
    error = error_object(body)
    messages = [text for text in (_message(error), *_nested_texts(error, body)) if text]
    codes = [code.lower() for code in _codes(error, body)]
    status = next((int(code) for code in codes if _STATUS.fullmatch(code)), None)
    for text in messages[1:] if len(messages) > 1 else messages:
        inner = _inner(text)
        if inner is not None:
            messages.append(inner.message)
            codes = [*inner.codes, *codes]
    return ErrorReading(message="; ".join(dict.fromkeys(messages)), codes=tuple(codes), status=status, parsed=body)


def _message(error: Mapping[str, Any]) -> str:
    """The error's own words; where a server puts an object, its `msg` and `detail` members or its JSON."""
    for key in ("message", "error", "detail", "errors", "html-message", "msg", "error_message"):
        value = error.get(key)
        if isinstance(value, str) and value:
            return value
        if value and not isinstance(value, bool | int | float):
            return _text_of(value)
    return ""


def _text_of(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("detail"), list):
        value = value["detail"]
    if isinstance(value, list):
        texts = (item.get("msg") or item.get("message") for item in value if isinstance(item, dict))
        found = "; ".join(text for text in texts if isinstance(text, str))
        if found:
            return found
    return to_json(value).decode()[:MESSAGE_CHARS]


def _nested_texts(error: Mapping[str, Any], outer: Any) -> Iterator[str]:
    """Where gateways put what the provider behind them said."""
    metadata = error.get("metadata")
    if isinstance(metadata, dict):
        for key in ("raw", "error", "message"):
            if isinstance(metadata.get(key), str):
                yield metadata[key]
    if isinstance(outer, dict) and outer is not error and isinstance(outer.get("message"), str):
        yield outer["message"]


def _inner(text: str) -> ErrorReading | None:
    """The reading of an error that stands as JSON inside a message."""
    start = text.find("{")
    if start < 0 or len(text) > RAW_CHARS * 4:
        return None
    try:
        parsed = from_json(text[start : text.rfind("}") + 1].encode("utf-8", "replace"))
    except ProviderError:
        return None
    error = error_object(parsed)
    message = _message(error)
    return ErrorReading(message=message, codes=tuple(c.lower() for c in _codes(error, parsed))) if message else None


def _codes(error: Mapping[str, Any], outer: Any) -> Iterator[str]:
    details = error.get("details")
    if isinstance(details, dict):
        yield from _values(details, "error_code", "code")
    yield from _detail_codes(details)
    inner = error.get("innererror")
    if isinstance(inner, dict):
        yield from _values(inner, "code")
    metadata = error.get("metadata")
    if isinstance(metadata, dict):
        yield from (f"limit_source:{source}" for source in _values(metadata, "limit_source"))
        yield from _values(metadata, "error_type", "code")
        if isinstance(metadata.get("reasons"), list) and "flagged_input" in metadata:
            yield "moderation"
    yield from _values(error, "code", "error_code", "type", "error_type", "__type", "status")
    for item in (*_objects(error.get("error")), *_objects(error.get("errors"))):
        yield from _values(item, "code", "type")
    if outer is not error and isinstance(outer, dict):
        yield from _values(outer, "code", "error_type", "status")


def _detail_codes(details: Any) -> Iterator[str]:
    """Google's details: reasons, and quota ids, whose period tells a limit from an empty purse."""
    for detail in _objects(details):
        yield from _values(detail, "reason")
        yield from (f"quota_id:{violation.get('quotaId', '')}" for violation in _objects(detail.get("violations")))
        if "retryDelay" in detail:
            yield "retry_info"


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _values(source: Mapping[str, Any], *keys: str) -> Iterator[str]:
    for key in keys:
        value = source.get(key)
        if isinstance(value, str) and value:
            yield value
        elif isinstance(value, int) and not isinstance(value, bool):
            yield str(value)


# -------------------------------------------------------------------------------------------------------- judging


@frozen(kw_only=True)
class Rules:
    """What one protocol's vendors say.

    `codes` and `patterns` of codes are decisive. `phrases` are searched in the message, in order; then
    `trouble_phrases`, if the status speaks of trouble at all (none, 429, 498 and above). `hints` are codes that a
    phrase may overrule. Patterns see lower-case text without URLs.
    """

    codes: Mapping[str, Category] = attrs.field(factory=dict)
    patterns: tuple[tuple[re.Pattern[str], Category], ...] = ()
    phrases: tuple[tuple[re.Pattern[str], Category], ...] = ()
    trouble_phrases: tuple[tuple[re.Pattern[str], Category], ...] = ()
    hints: Mapping[str, Category] = attrs.field(factory=dict)


def failure_of(
    reading: ErrorReading,
    rules: Rules,
    *,
    status: int | None,
    headers: Mapping[str, str],
    now: float | None,
    raw: str = "",
) -> ProviderError:
    """The error that an answer means. `status` None says that it came inside a 200 answer, where nobody has a clock."""
    category = _category(reading, rules, status)
    limited = category in ("rate_limit", "overloaded")
    delay = retry_delay(headers, now=now, message=reading.message, body=reading.parsed, limited=limited)
    return provider_error(
        category,
        _sentence(reading, status),
        code=next((code[:CODE_CHARS] for code in _telling(reading)), None),
        retryable=_retryable(category, headers),
        retry_after_s=delay,
        status=status,
        request_id=_request_id(headers, reading),
        raw=scrub(raw)[:RAW_CHARS] or None,
    )


def _category(reading: ErrorReading, rules: Rules, status: int | None) -> Category:
    for code in reading.codes:
        if code in rules.codes:
            return _by_status_of(code, rules.codes[code], status)
        for pattern, category in rules.patterns:
            if pattern.search(code):
                return category
    words = _URL.sub(" ", reading.message[: RAW_CHARS * 4]).lower()
    is_trouble = status is None or status == 429 or status >= 498
    for pattern, category in (*rules.phrases, *(rules.trouble_phrases if is_trouble else ())):
        if pattern.search(words):
            return category
    for code in reading.codes:
        if code in rules.hints:
            return rules.hints[code]
    if status == 413 and reading.is_empty:
        return "context_overflow"  # Cerebras: no body at all
    if reading.status is not None:
        return status_category(reading.status)
    if status is not None:
        return status_category(status)
    return next((_STATUSLESS[code] for code in reading.codes if code in _STATUSLESS), "server_error")


def _by_status_of(code: str, category: Category, status: int | None) -> Category:
    """`slow_down` is the caller's pace with 429, the server's with anything else."""
    return "rate_limit" if code == "slow_down" and status == 429 else category


def _retryable(category: Category, headers: Mapping[str, str]) -> bool:
    hint = headers.get("x-should-retry", "").strip().lower()
    if hint in ("true", "false") and category not in NEVER_RETRYABLE:
        return hint == "true"
    return category in RETRYABLE


def _telling(reading: ErrorReading) -> Iterator[str]:
    return (code for code in reading.codes if ":" not in code and code != "retry_info")


def _request_id(headers: Mapping[str, str], reading: ErrorReading) -> str | None:
    found = next((headers[name] for name in REQUEST_IDS if name in headers), None)
    if not found and isinstance(reading.parsed, dict):
        found = reading.parsed.get("request_id")
    return found[:CODE_CHARS] if found and isinstance(found, str) else None


def _sentence(reading: ErrorReading, status: int | None) -> str:
    where = "the provider ended its answer with an error" if status is None else f"the provider answered {status}"
    words = scrub(" ".join(reading.message.split()))
    if not words:
        return where
    return f"{where}: {words[:MESSAGE_CHARS]}{'…' if len(words) > MESSAGE_CHARS else ''}"


def http_failure(
    rules: Rules, status: int, headers: Mapping[str, str], body: bytes, *, now: float | None
) -> ProviderError:
    """The error that an answer with an error status means."""
    raw = body.decode("utf-8", "replace")
    return failure_of(read_error(body), rules, status=status, headers=headers, now=now, raw=raw)


def stream_failure(rules: Rules, payload: Any) -> ProviderError:
    """The error that an object inside a 200 answer means."""
    raw = to_json(payload).decode()
    return failure_of(read_error(payload), rules, status=None, headers={}, now=None, raw=raw)


# ------------------------------------------------------------------------------------------------------ scrubbing

_URL = re.compile(r"https?://[^\s\"'<>)\]}]+", re.IGNORECASE)
_SCRUBBED = (
    (_URL, "[url]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), r"\1 [secret]"),
    (
        re.compile(r"(?i)\b(api[ _-]?key|token|password|secret)( provided)?( is)?([\"']?\s*[:=]\s*[\"']?)[^\s\"',;]+"),
        r"\1\2\3\4[secret]",
    ),
    (re.compile(r"\b(?:sk|pk|rk|xai|gsk|key|hf|AIza|ghp|glpat)[-_][\w*.-]{6,}"), "[secret]"),
    (re.compile(r"\bAIza[\w-]{20,}"), "[secret]"),
    (re.compile(r"\b(?:org|proj|team|user|acct)[-_][A-Za-z0-9]{4,}"), "[id]"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "[id]"),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}"), "[mail]"),
    (re.compile(r"\b[A-Za-z0-9+/_-]{40,}={0,2}"), "[long]"),
)


def scrub(text: str) -> str:
    """`text` without what looks like a key, an account, an address or an endpoint."""
    text = text[: RAW_CHARS * 4]
    for pattern, put in _SCRUBBED:
        text = pattern.sub(put, text)
    return text
