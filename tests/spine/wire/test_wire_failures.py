"""What error answers mean, whoever wrote them; the vendors' own codes are tested with their protocol."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.llm.errors import CATEGORIES, ProviderError
from spine.wire import SHARED, failure_of, http_failure, read_error, scrub, status_category


def judged(status: int | None, body: object, headers: dict[str, str] | None = None) -> ProviderError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return failure_of(
        read_error(data), SHARED, status=status, headers=headers or {}, now=0.0, raw=data.decode("utf-8", "replace")
    )


BY_STATUS = [
    (400, "invalid_request", False),
    (401, "auth", False),
    (402, "billing", False),
    (403, "permission", False),
    (404, "not_found", False),
    (408, "timeout", True),
    (409, "conflict", True),
    (413, "request_too_large", False),
    (418, "invalid_request", False),
    (422, "invalid_request", False),
    (425, "server_error", True),
    (429, "rate_limit", True),
    (498, "overloaded", True),
    (500, "server_error", True),
    (502, "server_error", True),
    (503, "server_error", True),
    (504, "timeout", True),
    (522, "timeout", True),
    (524, "timeout", True),
    (529, "overloaded", True),
    (307, "protocol_error", False),
    (600, "protocol_error", False),
]


@pytest.mark.parametrize(("status", "category", "retryable"), BY_STATUS)
def test_a_body_that_says_nothing_leaves_it_to_the_status(status: int, category: str, retryable: bool) -> None:
    for body in (b"<html>nothing</html>", b"\x00\xff", b"[]", b"null", b'"x"', b'{"error": {}}', b'{"error": null}'):
        error = judged(status, body)
        assert (error.category, error.retryable, error.status) == (category, retryable, status), body
    assert status_category(status) == category


SAID = [
    (429, {"error": {"code": "insufficient_quota"}}, "billing"),
    (429, {"error": {"code": "team_spend_limit_hit", "type": "rate_limit_error"}}, "billing"),
    (429, {"error": {"message": "Insufficient balance, please recharge", "code": "rate_limit_exceeded"}}, "billing"),
    (400, {"error": {"message": "This model's maximum context length is 8 tokens"}}, "context_overflow"),
    (400, {"error": {"message": "max_tokens must be less than or equal to 4096"}}, "invalid_request"),
    (
        400,
        {"error": {"message": "string too long. Expected maximum length 64", "code": "string_above_max_length"}},
        "invalid_request",
    ),
    (400, {"message": "ThrottlingException: Too many tokens, maximum context length"}, "rate_limit"),
    (503, {"error": {"code": "slow_down"}}, "overloaded"),
    (429, {"error": {"code": "slow_down"}}, "rate_limit"),
    (500, {"error": {"code": 429, "message": "exhausted"}}, "rate_limit"),
    (400, {"error": "Incorrect API key provided"}, "auth"),
    (401, {"detail": "Unauthorized"}, "auth"),
    (422, {"message": {"detail": [{"msg": "Field required"}]}}, "invalid_request"),
    (
        400,
        {"error": {"message": "wrapped", "metadata": {"raw": '{"error":{"message":"prompt is too long: 9 > 8"}}'}}},
        "context_overflow",
    ),
    (401, {"html-message": '{"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}'}, "auth"),
    (None, {"error": {"message": "odd"}}, "server_error"),
    (500, [{"error": {"message": "a"}}, {"error": {"code": "insufficient_quota"}}], "billing"),
    (500, {"error": [{"message": "a", "code": "insufficient_quota"}]}, "billing"),
    (500, {"errors": [{"message": "a"}, {"message": "b", "code": "insufficient_quota"}]}, "billing"),
    (429, {"error": {"details": [{"violations": 5}, 7, {"violations": {"quotaId": "x"}}]}}, "rate_limit"),
    (400, {"code": "Arrearage", "message": "Access denied"}, "billing"),
    (403, {"message": "Sorry, your account balance is insufficient"}, "billing"),
    (429, {"code": "Throttling.RateQuota", "message": "Requests throttled"}, "rate_limit"),
    (400, {"message": "Too many tokens, please wait", "__type": "ThrottlingException"}, "rate_limit"),
    (429, {"errors": [{"code": 3040, "message": "Capacity temporarily exceeded, please try again."}]}, "overloaded"),
    (
        400,
        {"error": {"message": "The decoder prompt is longer than the maximum model length of 8"}},
        "context_overflow",
    ),
    (None, {"error": {"type": "overloaded_error"}}, "overloaded"),
    (400, {"error": {"message": "error 429 happened in line 529"}}, "invalid_request"),
    (400, {"error": {"message": "see https://example.com/rate limit exceeded: your billing limit page"}}, "billing"),
    (
        400,
        {"error": {"message": "invalid url https://example.com/insufficient-quota/maximum-context-length"}},
        "invalid_request",
    ),
]


@pytest.mark.parametrize(("status", "body", "category"), SAID)
def test_codes_beat_phrases_and_phrases_beat_the_status(status: int | None, body: object, category: str) -> None:
    assert judged(status, body).category == category


@pytest.mark.parametrize(
    ("status", "code", "hint", "retryable"),
    [
        (500, None, "false", False),
        (400, None, "true", True),
        (400, None, "TRUE", True),
        (429, None, "perhaps", True),
        (429, "insufficient_quota", "true", False),
        (401, None, "true", False),
    ],
)
def test_the_server_may_say_whether_to_retry_but_not_for_an_empty_purse(
    status: int, code: str | None, hint: str, retryable: bool
) -> None:
    assert judged(status, {"error": {"code": code}}, {"x-should-retry": hint}).retryable is retryable


def test_facts_are_kept() -> None:
    error = judged(
        429,
        {"error": {"message": "Slow", "code": "rate_limit_exceeded"}},
        {"retry-after": "3", "x-request-id": "req_1"},
    )
    failure = error.failure
    assert (failure.code, failure.retry_after_s, failure.request_id) == ("rate_limit_exceeded", 3.0, "req_1")
    assert failure.message == "the provider answered 429: Slow"
    assert failure.raw is not None
    assert "Slow" in failure.raw


SECRETS = [
    "Incorrect API key provided: sk-fake-fake-fake. Visit https://platform.example.com/account",
    "Your api key: topsecretvalue is invalid",
    "header Authorization: Bearer abc.def-ghi",
    "in organization org-AbCdEf123 of person@example.com",
    "token=topsecretvalue",
    "key " + "Ab1" * 20,
]


@pytest.mark.parametrize("text", SECRETS)
def test_keys_accounts_and_endpoints_are_scrubbed(text: str) -> None:
    error = judged(401, {"error": {"message": text}})
    for part in ("sk-fake", "platform.example", "topsecret", "abc.def", "org-AbC", "person@", "Ab1Ab1"):
        assert part not in error.message
        assert part not in (error.failure.raw or "")


FRAMED = {
    "an event": b'data: {"error":{"message":"no money","code":"insufficient_quota"}}\n\n',
    "an event without its end": b'event: error\ndata: {"error":{"message":"no money","code":"insufficient_quota"}}',
    "an event after others": b': hi\n\ndata: {"choices":[]}\n\n'
    b'data: {"error":\ndata: {"message":"no money","code":"insufficient_quota"}}\n\ndata: [DONE]\n\n',
    "CRLF": b'data: {"error":{"message":"no money","code":"insufficient_quota"}}\r\n\r\n',
    "a line": b'{"error":{"message":"no money","code":"insufficient_quota"}}\n{"done":true}\n',
    "the second line": b'{"status":"failed"}\r\n{"message":"no money","code":"insufficient_quota"}',
    "an array": b'[{"error":{"message":"no money","code":"insufficient_quota"}}]',
    "a byte order mark": b'\xef\xbb\xbf{"error":{"message":"no money","code":"insufficient_quota"}}',
    "a text": json.dumps('{"error":{"message":"no money","code":"insufficient_quota"}}').encode(),
}


@pytest.mark.parametrize("name", FRAMED)
def test_an_error_is_read_out_of_whatever_frames_it(name: str) -> None:
    error = http_failure(SHARED, 500, {}, FRAMED[name], now=0.0)
    assert error.category == "billing"
    assert error.message == "the provider answered 500: no money"
    assert error.failure.code == "insufficient_quota"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"data: [DONE]", ": data: [DONE]"),
        (b"error: it broke {", ": error: it broke {"),
        (b'{"error"', ': {"error"'),
        (b"null", ": null"),
        (b"[1]", ""),
        (b"<html>no</html>", ""),
    ],
)
def test_what_frames_no_error_is_its_own_words(body: bytes, words: str) -> None:
    assert http_failure(SHARED, 500, {}, body, now=0.0).message == f"the provider answered 500{words}"


def test_what_is_kept_is_bounded() -> None:
    code = "z" * 9999
    error = judged(500, {"error": {"message": "x y " * 100_000, "code": code}, "request_id": code})
    assert len(error.message) < 400
    assert len(error.failure.raw or "") <= 4096
    assert error.failure.code == error.failure.request_id == code[:200]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["error", "message", "code", "type", "details", "metadata", "raw", "reason", "status", "detail",
                         "violations", "headers", "innererror", "limit_source", "@type", "retryDelay"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON, st.sampled_from([None, 200, 400, 429, 500]))
def test_any_body_has_exactly_one_reading(body: object, status: int | None) -> None:
    error = judged(status, body)
    assert error.category in CATEGORIES
    assert scrub(error.message) is not None


@given(st.binary(max_size=60))
def test_any_bytes_have_a_reading(body: bytes) -> None:
    assert judged(400, body).status == 400
