"""spine.toml as values (floor 5): every key is known, every mistake is told with file, line and nearest key.

The shape of the file is the table at the end. What concerns providers and models is read by `spine.project_models`.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn

from spine import late
from spine.errors import ConfigInvalid
from spine.frozen import frozen
from spine.tables import KeyPath, Place, Reader, fields, flag, matching, named, names, text, where

__all__ = ["ProjectFile", "read_project"]

FORMAT: Final = 1


@frozen
class ProjectFile:
    """What a spine.toml says. `values` has only the keys that stand there, checked; `lines` where each key stands."""

    name: str
    values: Mapping[str, Any]
    lines: Mapping[KeyPath, int]

    def get(self, *path: str) -> Any:
        """The value of a key, None when it does not stand there."""
        value: Any = self.values
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def origin(self, *path: str) -> str:
        """`spine.toml:5`."""
        return where(self.name, self.lines, path)

    def providers(self) -> tuple[Any, ...]:
        """The providers of the file (`spine.llm.catalogue.Provider`), each whole. Raises `ConfigInvalid`."""
        tables: Mapping[str, Any] = self.get("providers") or {}
        return tuple(_models().make_provider(id, table, self.origin("providers", id)) for id, table in tables.items())


def read_project(content: str, name: str) -> ProjectFile:
    """Read the content of a spine.toml; `name` is how messages call the file.

    Raises `ConfigInvalid` for broken TOML, an unknown key, a value out of range, and a key of a provider.
    """
    tomllib = _tomllib()
    try:
        document = tomllib.loads(content, parse_float=Decimal)
    except tomllib.TOMLDecodeError as exc:
        reason, _, place = str(exc).partition(" (at ")
        found = re.search(r"line (\d+), column (\d+)", place)
        at = f"{name}:{found[1]}:{found[2]}" if found else f"{name}:{len(content.splitlines())}"
        raise ConfigInvalid(f"{at}: this is no TOML: {reason}") from exc
    lines = _lines(content)
    return ProjectFile(name, fields(_FILE)(Place(name, lines), document), lines)


# ------------------------------------------------------------------------------------------------- where keys stand


def _lines(content: str) -> dict[KeyPath, int]:
    """The line of each key and table. A statement ends where it parses for itself, so that values may span lines."""
    lines = content.splitlines()
    found: dict[KeyPath, int] = {}
    prefix: KeyPath = ()
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
    tomllib = _tomllib()
    for end in range(begin + 1, len(lines) + 1):
        try:
            return end, tomllib.loads("\n".join(lines[begin:end]))
        except tomllib.TOMLDecodeError:
            continue
    return len(lines), {}


def _paths(table: Mapping[str, Any]) -> Iterable[KeyPath]:
    for key, value in table.items():
        yield (key,)
        inner = value[-1] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping):
            yield from ((key, *path) for path in _paths(inner))


# ---------------------------------------------------------------------------------------------------------- readers


def _tomllib() -> Any:
    """Most processes find no file that it should read."""
    return late.load("tomllib")


def _models() -> Any:
    """Most files name no provider and no model, and most commands ask for neither."""
    return late.load("spine.project_models")


def _format(place: Place, value: Any) -> int:
    if value != FORMAT or type(value) is not int:
        place.refuse(f"version is {value}, this installation reads version {FORMAT}", hint="pip install -U agent-spine")
    return FORMAT


def _provider(place: Place, value: Any) -> Any:
    return _models().read_provider(place, value)


def _model(place: Place, value: Any) -> Any:
    return _models().read_model(place, value)


def _not_yet(place: Place, value: Any) -> NoReturn:
    place.refuse(f"[{place.key}] is not available in this version; tools come from agents and plugins")


_FILE: Final[Mapping[str, Reader]] = {
    "version": _format,
    "store": text,
    "model": matching(r"\S+", "provider:name, or an alias"),
    "agent": matching(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "module:attribute"),
    "strict": flag,
    "aliases": named(matching(r"[^:\s]+:\S+", "provider:name")),
    "plugins": fields({"allow": names, "block": names}),
    "providers": named(_provider),
    "models": named(_model),
    "mcp": named(_not_yet),
}
"""Every key that may stand in spine.toml, and how it is read."""
