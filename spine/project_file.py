"""spine.toml as values (floor 4): every key is known, every mistake is told with file, line and nearest key.

The shape of the file is the tables at the end. No key of a provider may stand in it: what would be one is refused
without being quoted.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final, NoReturn

import attrs

from spine.errors import ConfigInvalid
from spine.llm.catalogue import ModelEntry, Prices, Traits

__all__ = ["ProjectFile", "nearest", "read_project"]

FORMAT: Final = 1
MICROS: Final = 1_000_000
Path = tuple[str, ...]


@attrs.frozen
class ProjectFile:
    """What a spine.toml says. `values` has only the keys that stand there, checked; `lines` where each key stands."""

    name: str
    values: Mapping[str, Any]
    lines: Mapping[Path, int]

    def get(self, *path: str) -> Any:
        """The value of a key, None when it does not stand there."""
        value: Any = self.values
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def origin(self, *path: str) -> str:
        """`spine.toml:5`."""
        return _where(self.name, self.lines, path)


def read_project(text: str, name: str) -> ProjectFile:
    """Read the text of a spine.toml; `name` is how messages call the file.

    Raises `ConfigInvalid` for broken TOML, an unknown key, a value out of range, and a key of a provider.
    """
    try:
        document = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as exc:
        reason, _, place = str(exc).partition(" (at ")
        found = re.search(r"line (\d+), column (\d+)", place)
        where = f"{name}:{found[1]}:{found[2]}" if found else f"{name}:{len(text.splitlines())}"
        raise ConfigInvalid(f"{where}: this is no TOML: {reason}") from exc
    lines = _lines(text)
    return ProjectFile(name, _fields(_FILE)(_Place(name, lines), document), lines)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean "model"?`, or nothing when no known name is like it."""
    found = get_close_matches(name, tuple(known), 1)
    return f'; did you mean "{found[0]}"?' if found else ""


# ------------------------------------------------------------------------------------------------- where keys stand


def _lines(text: str) -> dict[Path, int]:
    """The line of each key and table. A statement ends where it parses for itself, so that values may span lines."""
    lines = text.splitlines()
    found: dict[Path, int] = {}
    prefix: Path = ()
    at = 0
    while at < len(lines):
        begin = at
        at, statement = _statement(lines, begin)
        if lines[begin].lstrip().startswith("["):
            prefix = next(reversed(list(_paths(statement))), ())
            found.setdefault(prefix, begin + 1)
        else:
            for path in _paths(statement):
                found.setdefault((*prefix, *path), begin + 1)
    return found


def _statement(lines: list[str], begin: int) -> tuple[int, dict[str, Any]]:
    for end in range(begin + 1, len(lines) + 1):
        try:
            return end, tomllib.loads("\n".join(lines[begin:end]))
        except tomllib.TOMLDecodeError:
            continue
    return len(lines), {}


def _paths(table: Mapping[str, Any]) -> Iterable[Path]:
    for key, value in table.items():
        yield (key,)
        inner = value[-1] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping):
            yield from ((key, *path) for path in _paths(inner))


def _where(name: str, lines: Mapping[Path, int], path: Path) -> str:
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return f"{name}:{lines[path[:end]]}"
    return name


# ---------------------------------------------------------------------------------------------------------- readers


@attrs.frozen
class _Place:
    """Where a value stands."""

    name: str
    lines: Mapping[Path, int]
    path: Path = ()

    def inner(self, key: str) -> "_Place":
        return _Place(self.name, self.lines, (*self.path, key))

    @property
    def key(self) -> str:
        return ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in self.path)

    def refuse(self, text: str, *, hint: str | None = None) -> NoReturn:
        raise ConfigInvalid(f"{_where(self.name, self.lines, self.path)}: {text}", hint=hint)


Reader = Callable[[_Place, Any], Any]


def _fields(shape: Mapping[str, Reader]) -> Reader:
    """A table whose keys are those of `shape`."""

    def read(place: _Place, value: Any) -> dict[str, Any]:
        for key in _table(place, value):
            if key not in shape:
                allowed = ", ".join(shape)
                place.inner(key).refuse(f'unknown key "{key}"; allowed here: {allowed}{nearest(key, shape)}')
        return {key: shape[key](place.inner(key), item) for key, item in value.items()}

    return read


def _named(reader: Reader) -> Reader:
    """A table whose keys are names."""
    return lambda place, value: {key: reader(place.inner(key), item) for key, item in _table(place, value).items()}


def _table(place: _Place, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        place.refuse(f"{place.key} is a table, found {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    kinds = {str: "text", bool: "a boolean", int: "a number", Decimal: "a number", list: "a list"}
    return kinds.get(type(value), "a table" if isinstance(value, Mapping) else "a date")


def _text(place: _Place, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        place.refuse(f"{place.key} is a text that is not blank, found {_kind(value)}")
    return value


def _matching(pattern: str, form: str) -> Reader:
    def read(place: _Place, value: Any) -> str:
        text = _text(place, value)
        if not re.fullmatch(pattern, text):
            place.refuse(f'{place.key} is "{text}"; it must be of the form {form}')
        return text

    return read


def _flag(place: _Place, value: Any) -> bool:
    if not isinstance(value, bool):
        place.refuse(f"{place.key} is true or false, found {_kind(value)}")
    return value


def _names(place: _Place, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        place.refuse(f"{place.key} is a list of names, found {_kind(value)}")
    return tuple(value)


def _tokens(place: _Place, value: Any) -> int:
    if type(value) is not int or value < 1:
        place.refuse(f"{place.key} is a number of tokens over 0, found {value if type(value) is int else _kind(value)}")
    return value


def _format(place: _Place, value: Any) -> int:
    if value != FORMAT or type(value) is not int:
        place.refuse(f"version is {value}, this installation reads version {FORMAT}", hint="pip install -U agent-spine")
    return FORMAT


def _plain(place: _Place, value: Any) -> Any:
    return value


def _key(place: _Place, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        # Whatever it is, it may be the key itself: it is never quoted.
        provider = place.path[-2]
        variable = re.sub(r"\W", "_", provider).upper() + "_KEY"
        place.refuse(
            f'a key of provider "{provider}" is written into the file; name where it lies: env, file or command',
            hint=f'key = {{ env = "{variable}" }}',
        )
    found: dict[str, str] = _fields({"env": _text, "file": _text, "command": _text})(place, value)
    if len(found) != 1:
        place.refuse(f"{place.key} names one of env, file and command, found {' and '.join(found) or 'none'}")
    return found


def _address(place: _Place, value: Any) -> str:
    text = _text(place, value)
    if not re.match(r"https?://[^/\s]", text):
        place.refuse(f"{place.key} begins with https:// (or http:// on this machine)")
    if "@" in text.split("/")[2]:
        place.refuse(
            f"{place.key} holds a name or a key before the @; a key lies in the environment, a file, a command"
        )
    return text


def _prices(place: _Place, value: Any) -> Prices:
    found: dict[str, Any] = _fields(_PRICES)(place, value)
    for name in ("id", "input", "output"):
        if name not in found:
            place.refuse(f"{place.key} has no {name}; prices need id (a name for this list), input and output")
    return Prices(**found)


def _per_million(place: _Place, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite() or value < 0:
        place.refuse(f"{place.key} is an amount of money per million tokens, found {_kind(value)}")
    micros = Decimal(value) * MICROS
    if micros != micros.to_integral_value():
        place.refuse(f"{place.key} has more than six decimals")
    return int(micros)


def _not_yet(place: _Place, value: Any) -> NoReturn:
    place.refuse(f"[{place.key}] is not available in this version; tools come from agents and plugins")


_BY_TYPE: Final[Mapping[Any, Reader]] = {
    bool: _flag,
    str: _text,
    str | None: _text,
    tuple[str, ...] | None: _names,
}
_OF_ROUTE: Final = frozenset(("provider", "protocol", "model", "window", "max_output"))


def _traits(place: _Place, value: Any) -> dict[str, Any]:
    known = [field for field in attrs.fields(Traits) if field.name not in _OF_ROUTE]
    read: dict[str, Any] = _fields({field.name: _BY_TYPE.get(field.type, _plain) for field in known})(place, value)
    return read


def _model(place: _Place, value: Any) -> ModelEntry:
    if ":" not in place.path[-1]:
        place.refuse(f'model "{place.path[-1]}" is not of the form provider:name')
    found = _fields(_MODEL)(place, value)
    return ModelEntry(
        window=found.get("window"),
        max_output=found.get("output"),
        prices=found.get("prices"),
        traits=found.get("capabilities", {}),
    )


_ROUTE: Final = _matching(r"[^:\s]+:\S+", "provider:name")
_MODEL_NAME: Final = _matching(r"\S+", "provider:name, or an alias")
_PRICES: Final[Mapping[str, Reader]] = {
    "id": _text,
    "currency": _matching(r"[A-Z]{3}", "USD"),
    "input": _per_million,
    "output": _per_million,
    "cache_read": _per_million,
    "cache_write": _per_million,
}
_MODEL: Final[Mapping[str, Reader]] = {
    "window": _tokens,
    "output": _tokens,
    "capabilities": _traits,
    "prices": _prices,
}
_PROVIDER: Final[Mapping[str, Reader]] = {
    "protocol": _text,
    "base_url": _address,
    "auth": _matching(r"bearer|none|header [A-Za-z0-9-]+", "bearer, none, or header NAME"),
    "key": _key,
    "traits": _traits,
}
_FILE: Final[Mapping[str, Reader]] = {
    "version": _format,
    "store": _text,
    "model": _MODEL_NAME,
    "agent": _matching(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "module:attribute"),
    "strict": _flag,
    "aliases": _named(_ROUTE),
    "plugins": _fields({"allow": _names, "block": _names}),
    "providers": _named(_fields(_PROVIDER)),
    "models": _named(_model),
    "mcp": _named(_not_yet),
}
"""Every key that may stand in spine.toml, and how it is read."""
