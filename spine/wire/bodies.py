"""JSON bodies in and out (side room `wire`): what protocol plugins read and write with.

`from_json` is the only door for JSON text of a provider; it takes what real servers send (duplicate keys, NaN, lone
surrogates) and gives plain dicts and lists that may be frozen without another look.
"""

import json
import math
from typing import Any

import msgspec

from spine.llm.errors import ProviderError, provider_error
from spine.values import JsonObject, clean_text, encode, freeze_object

__all__ = ["JsonObject", "clean_text", "error_object", "freeze_object", "from_json", "join_body", "to_json"]

_read = msgspec.json.Decoder().decode
to_json = encode
"""Canonical JSON of a value that was frozen before or is as plain: UTF-8, keys sorted."""


def from_json(data: bytes) -> Any:
    """Read a provider's JSON. Raises `protocol_error` (retryable: a broken answer is seldom broken twice)."""
    try:
        return _read(data)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError):
        return _read_leniently(data)


def _read_leniently(data: bytes) -> Any:
    """Python's own reader takes NaN, huge floats and half surrogate pairs; what no event may hold is replaced."""
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=lambda _: None, parse_float=_finite)
        return _clean(value)
    except (ValueError, RecursionError):
        problem = _broken()
    raise problem  # not from the reader's error, which holds the whole text


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


def _broken() -> ProviderError:
    return provider_error("protocol_error", "the provider sent JSON that does not parse", retryable=True)


def join_body(fields: dict[str, Any], key: str, items: list[bytes]) -> bytes:
    """The JSON object of `fields` with one array member `key` added, whose items are encoded already.

    Each item begins with the comma that parts it from the one before; the first one's is dropped.
    """
    head = to_json(fields)
    opening = head[:-1] + (b"," if len(head) > 2 else b"") + to_json(key) + b":["
    first = [items[0][1:], *items[1:]] if items else []
    return b"".join((opening, *first, b"]}"))


def error_object(body: Any) -> dict[str, Any]:
    """The object that describes the error in a parsed error body, whichever way it is wrapped; empty if none does."""
    if isinstance(body, list):
        body = body[0] if body else None
    if not isinstance(body, dict):
        return {}
    error = body.get("error")
    return error if isinstance(error, dict) else body
