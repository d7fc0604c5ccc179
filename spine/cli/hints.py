"""Commands to paste that mean the store of the command which suggests them (floor 15)."""

import shlex

from spine.config import load_settings
from spine.stores.urls import without_secrets

__all__ = ["in_store"]


def in_store(command: str, url: str) -> str:
    """`command`, with `--store` when the configuration alone would lead to another store than `url`."""
    if without_secrets(load_settings().store or "") == url:
        return command
    return f"{command} --store {shlex.quote(url.removeprefix('sqlite:'))}"
