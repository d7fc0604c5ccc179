"""Configuration (floor 12): the only reader of environment and files. Every value knows where it came from."""

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from spine.errors import ConfigInvalid, KeyMissing
from spine.llm.catalogue import Provider
from spine.values import Secret


@attrs.frozen(kw_only=True)
class Settings:
    """What the configuration says; `origins` maps each field to where it was found."""

    store: str | None = None
    model: str | None = None
    agent: str | None = None
    aliases: Mapping[str, str] = attrs.field(factory=dict)
    allow_plugins: tuple[str, ...] | None = None
    block_plugins: tuple[str, ...] = ()
    providers: tuple[Provider, ...] = ()
    keys: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Per provider, where its key lies: `{"env": …}`, `{"file": …}` or `{"command": …}`."""
    strict: bool = False
    installed_plugins: bool = True
    """Whether plugins found by entry point are loaded; tests turn it off, so that they do not depend on the machine."""
    path: Path | None = None
    origins: Mapping[str, str] = attrs.field(factory=dict)

    def blocks(self, plugin: str) -> str | None:
        """Who keeps a plugin from loading; None when nobody does."""
        if self.allow_plugins is not None and plugin not in self.allow_plugins:
            return self.origins.get("allow_plugins", "plugins.allow")
        return self.origins.get("block_plugins", "plugins.block") if plugin in self.block_plugins else None


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The effective configuration of this process."""
    environ = os.environ if environ is None else environ
    plugins = environ.get("SPINE_PLUGINS")
    return Settings(
        store=environ.get("SPINE_STORE"),
        model=environ.get("SPINE_MODEL"),
        allow_plugins=None if plugins is None else tuple(name for name in plugins.split(",") if name),
        origins={"allow_plugins": "SPINE_PLUGINS"},
    )


def find_key(settings: Settings, provider: Provider, environ: Mapping[str, str] | None = None) -> Secret | None:
    """The key of a provider; None when it wants none. Raises `KeyMissing` for a missing, blank or malformed one."""
    environ = os.environ if environ is None else environ
    if provider.auth == "none":
        return None
    variable = settings.keys.get(provider.id, {}).get("env") or provider.key_env
    text = environ.get(variable, "") if variable else ""
    if not text.strip():
        raise KeyMissing(
            f'no key for provider "{provider.id}": {variable or "no variable named"} is not set',
            hint=f"export {variable}=…, or without a key: spine demo",
        )
    if text != text.strip() or not text.isprintable() or not text.isascii():
        raise KeyMissing(f'the key for provider "{provider.id}" in {variable} has blanks or characters no key has')
    return Secret(text)


def bad_url(url: str) -> ConfigInvalid:
    """The error of a store URL that names no known kind of store."""
    return ConfigInvalid(f'store "{url}" is not of the form memory: or sqlite:PATH')
