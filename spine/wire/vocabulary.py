"""Words and codes that providers' errors share (side room `wire`): data for `failure_of`, extended by each protocol.

Sources: the providers' error pages and SDKs, read 2026-11-30, and answers on record. Phrases are anchored to what one
vendor was seen to write; a phrase that could stand in an innocent message does not belong here.
"""

import re
from collections.abc import Iterable, Mapping

import attrs

from spine.llm.errors import Category
from spine.wire.failures import Rules

__all__ = ["SHARED", "extended", "phrase_table"]


def phrase_table(*rows: tuple[Category, Iterable[str]]) -> tuple[tuple[re.Pattern[str], Category], ...]:
    """Rows of (category, patterns), in the order in which they are tried."""
    return tuple(
        (re.compile("|".join(f"(?:{pattern})" for pattern in patterns)), category) for category, patterns in rows
    )


def code_table(rows: Mapping[Category, str]) -> dict[str, Category]:
    """Rows of category: codes parted by spaces, turned around."""
    return {code: category for category, codes in rows.items() for code in codes.split()}


CODES = code_table(
    {
        "billing": "insufficient_quota credit_balance_exhausted billing_hard_limit_reached billing_not_active "
        "billing_error payment_required credit_limit insufficient_credits insufficient_balance insufficient_funds "
        "exceeded_current_quota_error arrearage",
        "context_overflow": "context_length_exceeded exceed_context_size_error context_window_exceeded "
        "model_context_window_exceeded too_many_prompt_tokens contextwindowexceedederror",
        "content_filter": "content_filter content_policy_violation invalid_prompt cyber_policy moderation "
        "responsibleaipolicyviolation contentpolicyviolationerror data_inspection_failed datainspectionfailed",
        "auth": "invalid_api_key authentication_error invalid_authentication_error incorrect_api_key_error "
        "api_key_invalid ip_not_authorized invalid_authentication unauthenticated authenticationerror invalidapikey",
        "permission": "unsupported_country_region_territory organization_on_hold",
        "not_found": "model_not_found deploymentnotfound not_found_error modelnotfound",
        "request_too_large": "request_too_large",
        "overloaded": "server_is_overloaded overloaded_error engine_overloaded_error model_overloaded "
        "capacity_exceeded over_capacity slow_down",
        "conflict": "conversation_locked conflict_error",
        "rate_limit": "ramp_limit_exceeded retry_info",
        "invalid_request": "string_above_max_length unsupported_parameter unsupported_value "
        "invalid_function_parameters invalid_encrypted_content invalid_image_url missing_required_parameter "
        "array_above_max_length integer_above_max_value",
    }
)
"""Codes and types that mean one thing, whatever the status."""

PATTERNS = phrase_table(
    (
        "billing",
        (
            r"^quota_id:.*perday",
            r"spend_limit",
            r"^(?:organization|project)_usage_limit",
            r"insufficient_(?:quota|balance|credit|fund)",
        ),
    ),
    ("rate_limit", (r"^quota_id:.*perminute", r"^limit_source:.*in_flight", r"^throttling")),
    ("billing", (r"^limit_source:",)),
)
"""The same for codes that come in families."""

HINTS = code_table(
    {
        "rate_limit": "rate_limit_exceeded rate_limit_error rate_limited rate_limit rate_limit_reached_error "
        "ratelimitreached ratelimiterror too_many_requests "
        "resource_exhausted tokens requests",
        "server_error": "server_error internal_error internal_server_error internalservererror api_error model_error "
        "internalerror upstream_error",
        "timeout": "timeout timeout_error request_timeout deadline_exceeded",
        "permission": "permission_error permission_denied permissiondenied permission-denied access_denied forbidden "
        "insufficient_permissions",
        "auth": "unauthorized",
        "not_found": "not_found resource_not_found",
    }
)
"""Codes that say little: a phrase beats them, they beat the status."""

PHRASES = phrase_table(
    ("rate_limit", (r"throttlingexception", r"^throttl")),
    ("request_too_large", (r"^request too large for", r"payload too large", r"request entity too large")),
    (
        "billing",
        (
            r"insufficient (?:account )?(?:balance|credits?|funds|quota)",
            r"balance is (?:insufficient|not enough)",
            r"余额不足|欠费",
            r"key limit exceeded",
            r"(?:enable|activate) billing",
            r"credit balance is too low",
            r"exceeded your current quota",
            r"spend(?:ing)? limit",
            r"billing (?:hard )?limit",
            r"used all available credits",
            r"requires more credits",
            r"credit limit exceeded",
            r"no (?:remaining |prepaid )*credits",
            r"out of credits",
            r"account is (?:suspended|in arrears)",
            r"reached your specified api usage limits",
            r"issue with billing",
            r"payment required",
            r"budget limit exceeded",
        ),
    ),
    (
        "context_overflow",
        (
            r"maximum context length",
            r"exceeds? (?:the )?(?:maximum |available |model'?s? )*context (?:window|length|size|limit)",
            r"(?:context window|context length|context limit) (?:is |was )?exceed",
            r"exceed(?:s|ed)? context limit",
            r"longer than the (?:model's context length|maximum model length)",
            r"inputs`? must have less than \d+ tokens",
            r"contextwindowexceedederror",
            r"greater than the context length",
            r"prompt is too long",
            r"input is too long for",
            r"maximum prompt length is \d",
            r"prompt exceeds max length",
            r"maximum allowed input length",
            r"exceeds the maximum number of tokens allowed",
            r"reduce the length of the messages",
            r"`?inputs`? tokens \+ `?max_new_tokens`? must be",
            r"exceeded model token limit",
            r"input tokens exceeds? \d",
            r"too many (?:input|prompt) tokens",
            r"prompt token count of \d+ exceeds",
            r"range of input length should be",
            r"context window exceeds limit",
        ),
    ),
    (
        "content_filter",
        (
            r"content management policy",
            r"content[ -]filter(?:ing)? policy",
            r"rejected as a result of our safety system",
            r"(?:was|been|input was) flagged",
            r"requires moderation",
            r"data may contain inappropriate content",
        ),
    ),
    (
        "auth",
        (
            r"incorrect api key",
            r"invalid (?:x-)?api[- ]key",
            r"api key not valid",
            r"api key (?:is invalid|expired)",
            r"authentication fails",
        ),
    ),
    (
        "permission",
        (r"(?:location|country|region)[^.]{0,40} not supported", r"not available in your (?:country|region)"),
    ),
    (
        "not_found",
        (r"model\b.{0,120} does not exist", r"is not a valid model", r"model\b.{0,120} not found", r"no such model"),
    ),
)

TROUBLE_PHRASES = phrase_table(
    (
        "overloaded",
        (
            r"overloaded",
            r"experiencing high (?:demand|traffic|load)",
            r"over capacity",
            r"capacity temporarily exceeded",
            r"worker local total request limit",
            r"too busy",
            r"at capacity",
            r"capacity exceeded",
            r"no available model provider",
            r"not ready yet",
        ),
    ),
    ("rate_limit", (r"rate[- ]limit(?:ed|s)?\b", r"too many requests", r"requests rate limit")),
    ("timeout", (r"\btimed? ?out\b",)),
)

SHARED = Rules(codes=CODES, patterns=PATTERNS, phrases=PHRASES, trouble_phrases=TROUBLE_PHRASES, hints=HINTS)
"""What all vendors say."""


def extended(
    codes: Mapping[Category, str], *, phrases: tuple[tuple[re.Pattern[str], Category], ...] = (), rules: Rules = SHARED
) -> Rules:
    """`rules` with more decisive codes (category: codes parted by spaces) and with phrases that are tried first."""
    return attrs.evolve(rules, codes={**rules.codes, **code_table(codes)}, phrases=(*phrases, *rules.phrases))
