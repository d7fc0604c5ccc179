"""A project folder whose providers are the running model, and `spine` commands in it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from scenarios.live.host import ROOT

__all__ = ["PROVIDERS", "Finished", "Project", "write_project"]

COMMAND_S: Final = 180.0
_PROVIDER: Final = """
[providers.{name}]
protocol = "{protocol}"
base_url = "{address}/v1"
auth = "none"
"""
PROVIDERS: Final[Mapping[str, str]] = {
    "local": "openai_chat",
    "local_responses": "openai_responses",
    "local_messages": "anthropic_messages",
}
"""Provider to its protocol."""


@attrs.frozen
class Finished:
    """A command that ended; `pieces` is how many reads its stdout took, more than one when it streamed."""

    status: int
    out: str
    err: str
    pieces: int = 1


@attrs.frozen
class Project:
    """A folder with a spine.toml; commands run in it as a person would run them."""

    folder: Path

    def spine(self, *words: str, status: int = 0, interrupt: bool = False) -> Finished:
        """Run `spine` with these words. Raises `AssertionError` with its output when it ends with another status.

        With `interrupt` it gets one SIGINT as soon as it has printed something.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "spine", *words],
            cwd=self.folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            pieces = _read_pieces(process, interrupt)
            _, err = process.communicate(timeout=COMMAND_S)
        finally:
            process.kill()
            process.wait()
        done = Finished(process.returncode, b"".join(pieces).decode(), err.decode(), len(pieces))
        assert done.status == status, f"spine {' '.join(words)} ended with {done.status}\n{done.out}\n{done.err}"
        return done

    def events(self, session: str) -> list[dict[str, Any]]:
        """The events of a session, as `spine log --json` prints them."""
        return [json.loads(line) for line in self.spine("log", session, "--json").out.splitlines()]


def _read_pieces(process: subprocess.Popen[bytes], interrupt: bool) -> list[bytes]:
    assert process.stdout is not None
    pieces = []
    while piece := os.read(process.stdout.fileno(), 65536):
        pieces.append(piece)
        if interrupt and len(pieces) == 1:
            process.send_signal(signal.SIGINT)
    return pieces


def _environment() -> Mapping[str, str]:
    """This environment without what would configure the runtime, and with this checkout's modules."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPINE_")}
    return {**kept, "PYTHONPATH": str(ROOT)}


def write_project(folder: Path, address: str) -> Project:
    """Make `folder` a project whose providers all lead to the model at `address`, each over a protocol of its own."""
    providers = (
        _PROVIDER.format(name=name, protocol=protocol, address=address) for name, protocol in PROVIDERS.items()
    )
    (folder / "spine.toml").write_text("".join(["version = 1\n", *providers]), "utf-8")
    return Project(folder)
