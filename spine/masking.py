"""Secrets out of texts (floor 1): looked for as they are and as JSON writes them, replaced by the same word."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from spine.values import Json, Secret, freeze

__all__ = ["MASK", "SHORTEST_SECRET", "forms_of", "masked", "masked_end", "masked_json", "open_end"]

MASK: Final = "[secret]"
CUT: Final = "…"
"""What stands where a text was cut."""
SHORTEST_SECRET: Final = 4
"""What is shorter is no secret that could be looked for."""


def masked(text: str, secrets: Iterable[Secret]) -> str:
    """`text` without the secrets; the longest are replaced first, so that one that holds another leaves nothing."""
    for form in forms_of(secrets):
        text = text.replace(form, MASK)
    return text


def forms_of(secrets: Iterable[Secret]) -> tuple[str, ...]:
    """Every form in which a secret is looked for, the longest first."""
    return tuple(sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True))


def masked_json(value: Json, secrets: Collection[Secret]) -> Json:
    """A JSON value with every text in it masked, keys included."""
    match value:
        case str():
            return masked(value, secrets)
        case Mapping():
            return freeze({masked(key, secrets): masked_json(member, secrets) for key, member in value.items()})
        case tuple() | list():
            return tuple(masked_json(member, secrets) for member in value)
        case _:
            return value


def masked_end(text: str, forms: Iterable[str]) -> str:
    """A text that may have been cut, without the beginning of a secret at its end."""
    kept = text.removesuffix(CUT)
    size = open_end(kept, forms)
    return text if size < SHORTEST_SECRET else f"{kept[: len(kept) - size]}{MASK}{text[len(kept) :]}"


def open_end(text: str, forms: Iterable[str]) -> int:
    """How many characters at the end of `text` are the beginning of one of `forms`."""
    return max((_overlap(text, form) for form in forms), default=0)


def _overlap(text: str, form: str) -> int:
    for size in range(min(len(text), len(form) - 1), 0, -1):
        if text.endswith(form[:size]):
            return size
    return 0


def _forms(secret: Secret) -> set[str]:
    plain = secret.reveal().strip()
    if len(plain) < SHORTEST_SECRET:
        return set()
    return {plain, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
