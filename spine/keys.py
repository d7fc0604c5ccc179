"""Where the key of a provider lies, and what it is (floor 11): environment, file or command; never the configuration.

Loaded when a route is resolved. No message quotes what was found.
"""

import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from spine.errors import KeyMissing
from spine.values import Secret

__all__ = ["read_key"]

KEY_COMMAND_S: Final = 20.0
"""Seconds that a command may take to print a key."""


def read_key(id: str, lies: Mapping[str, str], folder: Path, environ: Mapping[str, str]) -> Secret:
    """The key of provider `id`; `lies` is one of `{"env": …}`, `{"file": …}`, `{"command": …}`, both in `folder`.

    Raises `KeyMissing` for a missing, blank or malformed one.
    """
    ((kind, name),) = lies.items()
    text, place = _READERS[kind](name, id, folder, environ)
    if " " in text or not text.isprintable() or not text.isascii():
        raise KeyMissing(
            f'the key for provider "{id}" in {place} has blanks or characters no key has', hint="spine config"
        )
    return Secret(text)


def _of_environment(name: str, id: str, folder: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    text = environ.get(name, "")
    if not text.strip():
        state = "set, but blank" if name in environ else "not set"
        raise KeyMissing(
            f'no key for provider "{id}": {name} is {state}', hint=f"export {name}=…, or without a key: spine demo"
        )
    return text, name


def _of_file(name: str, id: str, folder: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    try:
        text = (folder / Path(name).expanduser()).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is no text"
        raise KeyMissing(f'no key for provider "{id}": {name} cannot be read: {reason}', hint="spine config") from exc
    return _last_newline_off(text, id, name), name


def _of_command(name: str, id: str, folder: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    try:
        done = subprocess.run(
            shlex.split(name), cwd=folder, capture_output=True, timeout=KEY_COMMAND_S, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
        reason = f"no answer in {KEY_COMMAND_S:g} s" if isinstance(exc, subprocess.TimeoutExpired) else str(exc)
        raise KeyMissing(f'no key for provider "{id}": the command "{name}" failed: {reason}') from None
    if done.returncode:
        raise KeyMissing(f'no key for provider "{id}": the command "{name}" ended with status {done.returncode}')
    return _last_newline_off(done.stdout.decode(errors="replace"), id, f'the output of "{name}"'), f'"{name}"'


def _last_newline_off(text: str, id: str, place: str) -> str:
    if not text.strip():
        raise KeyMissing(f'no key for provider "{id}": {place} is blank', hint="spine config")
    return text.removesuffix("\n").removesuffix("\r")


_READERS: Final[Mapping[str, Callable[[str, str, Path, Mapping[str, str]], tuple[str, str]]]] = {
    "env": _of_environment,
    "file": _of_file,
    "command": _of_command,
}
