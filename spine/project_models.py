"""Providers and models of spine.toml (floor 4): addresses, where keys lie, traits, windows, prices.

Loaded when a file has such tables. No key may stand in the file: what would be one is refused without being quoted.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal, get_args, get_origin

import attrs

from spine.errors import ConfigInvalid
from spine.llm.catalogue import ModelEntry, Prices, Provider, Traits
from spine.llm.providers import CATALOGUE
from spine.tables import Place, Reader, fields, flag, kind_of, matching, names, text

__all__ = ["make_provider", "read_model", "read_provider"]

MICROS: Final = 1_000_000
_OF_ROUTE: Final = frozenset(("provider", "protocol", "model", "window", "max_output"))


# -------------------------------------------------------------------------------------------------------- providers


def make_provider(id: str, table: Mapping[str, Any], source: str) -> Provider:
    """A new provider, or one of the catalogue with some fields replaced; `table` as `read_provider` returns it."""
    changes = {name: table[name] for name in ("protocol", "base_url", "auth", "allow_http", "traits") if name in table}
    known = CATALOGUE.providers.get(id)
    if known is not None:
        changes["traits"] = {**known.traits, **changes.get("traits", {})}
        changes.setdefault("auth", "bearer" if "key" in table and known.auth == "none" else known.auth)
        return attrs.evolve(known, **changes, source=source)
    for name in ("protocol", "base_url"):
        if name not in table:
            hint = f"{name} = …" if name == "base_url" else f'{name} = "openai_chat"'
            raise ConfigInvalid(f'{source}: provider "{id}" has no {name}; protocol and address are needed', hint=hint)
    changes.setdefault("auth", "bearer" if "key" in table else "none")
    return Provider(id=id, **changes, source=source)


def _key(place: Place, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        # Whatever it is, it may be the key itself: it is never quoted.
        provider = place.path[-2]
        variable = re.sub(r"\W", "_", provider).upper() + "_KEY"
        place.refuse(
            f'a key of provider "{provider}" is written into the file; name where it lies: env, file or command',
            hint=f'key = {{ env = "{variable}" }}',
        )
    found: dict[str, str] = fields({"env": _variable, "file": text, "command": text})(place, value)
    if len(found) != 1:
        place.refuse(f"{place.key} names one of env, file and command, found {' and '.join(found) or 'none'}")
    return found


def _variable(place: Place, value: Any) -> str:
    name = text(place, value)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        # It may be the key itself: it is never quoted.
        place.refuse(f"{place.key} is the name of a variable: letters, digits and _", hint="spine config")
    return name


def _address(place: Place, value: Any) -> str:
    address = text(place, value)
    if not re.match(r"https?://[^/\s]", address):
        place.refuse(f"{place.key} begins with https:// (or http:// on this machine)")
    if "@" in address.split("/")[2]:
        place.refuse(
            f"{place.key} holds a name or a key before the @; a key lies in the environment, a file, a command"
        )
    return address


def _plain(place: Place, value: Any) -> Any:
    return value


_BY_TYPE: Final[Mapping[Any, Reader]] = {
    bool: flag,
    str: text,
    str | None: text,
    tuple[str, ...] | None: names,
}


def _traits(place: Place, value: Any) -> dict[str, Any]:
    known = [field for field in attrs.fields(Traits) if field.name not in _OF_ROUTE]
    read: dict[str, Any] = fields({field.name: _trait(field.type) for field in known})(place, value)
    return read


def _trait(kind: Any) -> Reader:
    """Reads a trait: one of a few words, or what its type says."""
    words = get_args(kind) if get_origin(kind) is Literal else ()
    return matching("|".join(words), " or ".join(words)) if words else _BY_TYPE.get(kind, _plain)


read_provider: Final = fields(
    {
        "protocol": text,
        "base_url": _address,
        "auth": matching(r"bearer|none|header [A-Za-z0-9-]+", "bearer, none, or header NAME"),
        "key": _key,
        "allow_http": flag,
        "traits": _traits,
    }
)
"""`[providers.NAME]`."""


# ----------------------------------------------------------------------------------------------------------- models


def _tokens(place: Place, value: Any) -> int:
    if type(value) is not int or value < 1:
        place.refuse(
            f"{place.key} is a number of tokens over 0, found {value if type(value) is int else kind_of(value)}"
        )
    return value


def _per_million(place: Place, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite() or value < 0:
        place.refuse(f"{place.key} is an amount of money per million tokens, found {kind_of(value)}")
    micros = Decimal(value) * MICROS
    if micros != micros.to_integral_value():
        place.refuse(f"{place.key} has more than six decimals")
    return int(micros)


_PRICES: Final[Mapping[str, Reader]] = {
    "id": text,
    "currency": matching(r"[A-Z]{3}", "USD"),
    "input": _per_million,
    "output": _per_million,
    "cache_read": _per_million,
    "cache_write": _per_million,
}


def _prices(place: Place, value: Any) -> Prices:
    found: dict[str, Any] = fields(_PRICES)(place, value)
    for name in ("id", "input", "output"):
        if name not in found:
            place.refuse(f"{place.key} has no {name}; prices need id (a name for this list), input and output")
    return Prices(**found)


_MODEL: Final = fields({"window": _tokens, "output": _tokens, "capabilities": _traits, "prices": _prices})


def read_model(place: Place, value: Any) -> ModelEntry:
    """`[models."PROVIDER:NAME"]`."""
    if ":" not in place.path[-1]:
        place.refuse(f'model "{place.path[-1]}" is not of the form provider:name')
    found = _MODEL(place, value)
    return ModelEntry(
        window=found.get("window"),
        max_output=found.get("output"),
        prices=found.get("prices"),
        traits=found.get("capabilities", {}),
    )
