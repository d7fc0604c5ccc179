"""What an error of a Chat Completions server means: the vendors' codes beside the shared ones.

Sources: the vendors' error pages (Groq, Mistral, Z.ai, DashScope), read 2026-11-30, and answers on record.
"""

from spine.wire import extended, phrase_table

RULES = extended(
    {
        # Groq; the model wrote a call that does not parse, a new sample may do better
        "server_error": "tool_use_failed json_validate_failed",
        "billing": "blocked_api_access 1113 1308 1309 1310 1311 1312 1313 1314 1315 1316 1317 1318 1319 1320 1321",
        "overloaded": "3505 1305",
        "context_overflow": "3051 1261",
        "rate_limit": "1300 1302",
        "not_found": "1211",
        "content_filter": "1301",
        "invalid_request": "3230 invalid_request_message_order invalid_message",
    },
    phrases=phrase_table(
        # Groq answers 413 and "rate_limit_exceeded" when one request is larger than the budget of a minute
        ("request_too_large", (r"request too large for model",)),
        ("context_overflow", (r"too large for model with \d+ maximum context length",)),
        ("auth", (r"must be a member of an organization",)),
    ),
)
