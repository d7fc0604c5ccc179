"""Stores' URLs for people (side room, floors 0-1): what may hold a password is never shown whole."""

import re
from typing import Final

__all__ = ["without_secrets"]

_PASSWORD: Final = re.compile(r"^([a-z][a-z0-9+.-]*://[^:/?#@]*):.*@", re.DOTALL | re.IGNORECASE)
"""Up to the last `@`: whoever forgot to write a `/` or an `@` of their password as %XX must not find it in a log."""
_PARAMETER: Final = re.compile(r"(?<=[?&])(?:ssl)?password=[^&]*&?", re.IGNORECASE)


def without_secrets(url: str) -> str:
    """`url` without a password; a URL that has none comes back as it is."""
    return _PARAMETER.sub("", _PASSWORD.sub(r"\1@", url)).rstrip("?&") if "://" in url else url
