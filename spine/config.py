"""Configuration (floor 12): the only reader of environment and files. Every value knows where it came from.

Precedence, first found wins: an argument or flag, `SPINE_*`, the nearest spine.toml from the working folder upwards
(or the one that `SPINE_CONFIG` names), the default. Keys of providers are looked for when a route is resolved, never
here and never at import.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from spine import late
from spine.errors import ConfigInvalid, KeyMissing
from spine.frozen import frozen
from spine.project_file import ProjectFile, read_project
from spine.stores.urls import without_secrets
from spine.tables import nearest
from spine.values import Secret

if TYPE_CHECKING:  # most commands read settings and ask for no model
    from spine.llm.catalogue import Catalogue, ModelEntry, Provider

__all__ = ["FILE_NAME", "Settings", "find_key", "load_settings", "make_store_folder", "store_url"]

FILE_NAME: Final = "spine.toml"
_VARIABLES: Final[Mapping[str, str]] = {"store": "SPINE_STORE", "model": "SPINE_MODEL", "agent": "SPINE_AGENT"}
_URL = re.compile(r"[a-z][a-z0-9+.-]+:")


@frozen(kw_only=True)
class Settings:
    """What the configuration says; `origins` maps each field to where it was found.

    The default value is an empty configuration: no file, no environment.
    """

    store: str | None = attrs.field(default=None, repr=lambda url: repr(url and without_secrets(url)))
    """A store's URL, perhaps with a password; relative paths of spine.toml are those of its folder."""
    model: str | None = None
    agent: str | None = None
    """`module:attribute`."""
    aliases: Mapping[str, str] = attrs.field(factory=dict)
    allow_plugins: tuple[str, ...] | None = None
    """None allows every plugin; an empty tuple none."""
    block_plugins: tuple[str, ...] = ()
    providers: "tuple[Provider, ...]" = ()
    models: "Mapping[str, ModelEntry]" = attrs.field(factory=dict)
    """What the file says about models, by `provider:name`."""
    keys: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Per provider, where its key lies: `{"env": …}`, `{"file": …}` or `{"command": …}`."""
    strict: bool = False
    installed_plugins: bool = True
    """Whether plugins found by entry point are loaded; tests turn it off, so that they do not depend on the machine."""
    path: Path | None = None
    """The spine.toml that was read; None when there is none."""
    origins: Mapping[str, str] = attrs.field(factory=dict)
    """`spine.toml:5`, `SPINE_MODEL`, `--store` or `default`, by field; for aliases and models `aliases.NAME`."""

    @property
    def folder(self) -> Path:
        """The project's folder: that of spine.toml, else the working folder."""
        return Path.cwd() if self.path is None else self.path.parent

    def blocks(self, plugin: str) -> str | None:
        """Who keeps a plugin from loading; None when nobody does."""
        if self.allow_plugins is not None and plugin not in self.allow_plugins:
            return self.origins.get("allow_plugins", "plugins.allow")
        return self.origins.get("block_plugins", "plugins.block") if plugin in self.block_plugins else None

    def extend(self, catalogue: "Catalogue") -> "Catalogue":
        """`catalogue` with the providers and models of the configuration, which win over every other entry."""
        extended = catalogue.with_providers(*self.providers)
        for name, entry in self.models.items():
            provider_id, _, model = name.partition(":")
            provider = extended.providers.get(provider_id)
            if provider is None:
                known = nearest(provider_id, extended.providers)
                where = self.origins.get(f"models.{name}", "models")
                raise ConfigInvalid(
                    f'{where}: no provider "{provider_id}" for model "{name}"{known}', hint="spine models"
                )
            models = {**provider.models, model: _merged(provider.models.get(model), entry)}
            extended = extended.with_providers(attrs.evolve(provider, models=models))
        return extended


def _merged(known: "ModelEntry | None", entry: "ModelEntry") -> "ModelEntry":
    """What the file says, and for the rest what was known."""
    if known is None:
        return entry
    return attrs.evolve(
        known,
        window=entry.window or known.window,
        max_output=entry.max_output or known.max_output,
        prices=entry.prices or known.prices,
        traits={**known.traits, **entry.traits},
    )


# ---------------------------------------------------------------------------------------------------------- loading


def load_settings(
    environ: Mapping[str, str] | None = None,
    *,
    arguments: Mapping[str, str | None] | None = None,
    folder: Path | None = None,
) -> Settings:
    """The effective configuration of this process.

    `arguments` are values by field (`store`, `model`, `agent`) that win over everything; None counts as not given.
    `folder` is where the search for spine.toml begins, by default the working folder. Raises `ConfigInvalid`.
    """
    environ = os.environ if environ is None else environ
    start = Path.cwd() if folder is None else folder
    path = _find_file(environ, start)
    project = ProjectFile(FILE_NAME, {}, {}) if path is None else _read(path, start)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for field, variable in _VARIABLES.items():
        given = (arguments or {}).get(field)
        found = [(f"--{field}", given), (variable, environ.get(variable)), (project.origin(field), project.get(field))]
        origins[field], values[field] = next(((where, value) for where, value in found if value), ("default", None))
    values["store"], origins["store"] = _store(values["store"], origins["store"], path, environ, start)
    values |= _plugins(project, environ, origins)
    values |= _from_file(project, origins)
    return Settings(**values, path=path, origins=origins)


def _find_file(environ: Mapping[str, str], start: Path) -> Path | None:
    named = environ.get("SPINE_CONFIG")
    if named:
        path = start / Path(named).expanduser()
        if not path.is_file():
            raise ConfigInvalid(f"SPINE_CONFIG names {named}, which is no file", hint="unset SPINE_CONFIG")
        return path
    folder = start.absolute()
    return next((found for each in (folder, *folder.parents) if (found := each / FILE_NAME).is_file()), None)


def _read(path: Path, start: Path) -> ProjectFile:
    name = os.path.relpath(path, start)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is no UTF-8"
        raise ConfigInvalid(f"{name} cannot be read: {reason}") from exc
    return read_project(text, name)


def _store(url: str | None, origin: str, path: Path | None, environ: Mapping[str, str], start: Path) -> tuple[str, str]:
    if url is not None:
        in_file = path is not None and origin.startswith(os.path.relpath(path, start))
        return (_rebased(store_url(url), path.parent, start) if in_file and path else store_url(url)), origin
    if path is not None:
        return _rebased("sqlite:spine.db", path.parent, start), "default"
    data = environ.get("XDG_DATA_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local/share")
    return f"sqlite:{os.path.join(data, 'spine', 'spine.db')}", "default"


def _rebased(url: str, folder: Path, start: Path) -> str:
    """A URL of a file in `folder` as one that works from `start`."""
    scheme, _, path = url.partition(":")
    if scheme != "sqlite" or os.path.isabs(path):
        return url
    found = os.path.relpath(folder / path, start)
    return f"sqlite:{os.path.normpath(folder / path) if found.startswith('..') else found}"


def _plugins(project: ProjectFile, environ: Mapping[str, str], origins: dict[str, str]) -> dict[str, Any]:
    listed = environ.get("SPINE_PLUGINS")  # "" is an answer too: no plugins
    allowed, blocked = project.get("plugins", "allow"), project.get("plugins", "block")
    origins["block_plugins"] = "default" if blocked is None else project.origin("plugins", "block")
    if listed is not None:
        origins["allow_plugins"] = "SPINE_PLUGINS"
        allowed = tuple(name.strip() for name in listed.split(",") if name.strip())
    else:
        origins["allow_plugins"] = "default" if allowed is None else project.origin("plugins", "allow")
    return {"allow_plugins": allowed, "block_plugins": blocked or ()}


def _from_file(project: ProjectFile, origins: dict[str, str]) -> dict[str, Any]:
    """Fields that only the file can set."""
    for table in ("aliases", "providers", "models"):
        for name in project.get(table) or ():
            origins[f"{table}.{name}"] = project.origin(table, name)
    origins["strict"] = "default" if project.get("strict") is None else project.origin("strict")
    providers: Mapping[str, Mapping[str, Any]] = project.get("providers") or {}
    return {
        "strict": bool(project.get("strict")),
        "aliases": project.get("aliases") or {},
        "models": project.get("models") or {},
        "providers": project.providers(),
        "keys": {id: table["key"] for id, table in providers.items() if "key" in table},
    }


# ------------------------------------------------------------------------------------------------------------- keys


def find_key(settings: Settings, provider: "Provider", environ: Mapping[str, str] | None = None) -> Secret | None:
    """The key of a provider; None when it wants none.

    Raises `KeyMissing` for a missing, blank or malformed one; no message quotes what was found.
    """
    if provider.auth == "none":
        return None
    lies = settings.keys.get(provider.id) or ({"env": provider.key_env} if provider.key_env else {})
    if not lies:
        raise KeyMissing(
            f'no key for provider "{provider.id}": {provider.source} does not say where it lies',
            hint='key = { env = "…" } in spine.toml, or auth = "none"',
        )
    environ = os.environ if environ is None else environ
    found: Secret = late.load("spine.keys").read_key(provider.id, lies, settings.folder, environ)
    return found


# ----------------------------------------------------------------------------------------------------------- stores


def store_url(text: str) -> str:
    """A store's URL; what has no scheme is the path of a SQLite file."""
    return text if _URL.match(text) else f"sqlite:{text}"


def make_store_folder(url: str) -> None:
    """Make the folder of a store's file, and those above it that are not there yet, for their owner alone."""
    scheme, _, rest = url.partition(":")
    folder = os.path.dirname(rest.partition("?")[0])
    if scheme == "sqlite" and folder:
        try:
            _make_private(folder)
        except OSError as exc:
            raise ConfigInvalid(f"the folder of {url} cannot be made: {exc.strerror}", hint="--store PATH") from exc


def _make_private(folder: str) -> None:
    # Not `os.makedirs`: its mode is that of the last one alone, and less what the umask takes away.
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder.rstrip(os.sep))
    if above:
        _make_private(above)
    try:
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)
    except FileExistsError:  # another process was first
        if not os.path.isdir(folder):
            raise
