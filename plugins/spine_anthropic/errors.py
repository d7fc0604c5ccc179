"""What an error of a Messages server means: its own words beside the shared ones.

Sources: Anthropic's page on errors and the `details.error_code` values of its SDK (read 2026-11-30), answers on record
and in public reports. Its types mean what the shared tables say; only these sentences hide behind another type.
"""

from spine.wire import extended, phrase_table

RULES = extended(
    {},
    phrases=phrase_table(
        ("billing", (r"extra usage is required",)),  # 429, rate_limit_error: a plan without long contexts
        ("permission", (r"organization has been disabled",)),  # 400, invalid_request_error
    ),
)
