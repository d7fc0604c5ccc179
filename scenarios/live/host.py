"""A real model for the length of a `with` block: starts the server's process, and ends it whatever happens."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["ROOT", "served_model", "stop_process"]

ROOT: Final = Path(__file__).resolve().parents[2]
STOP_S: Final = 10.0


@contextmanager
def served_model() -> Iterator[str]:
    """The address of a server that is ready. Raises `RuntimeError` with its last words when it does not start."""
    server = subprocess.Popen(
        [sys.executable, "-m", "scenarios.live.server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()  # blocks until the model is loaded, or the process ended
        if not address:
            words = server.communicate()[1].strip()
            raise RuntimeError(f"the model's server ended with status {server.returncode}: {words[-2000:]}")
        yield address
    finally:
        stop_process(server)


def stop_process(server: subprocess.Popen[Any]) -> None:
    """Wait for a server to end once its stdin is closed; kill one that takes too long."""
    if server.stdin is not None and not server.stdin.closed:
        server.stdin.close()
    try:
        server.wait(STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    for pipe in (server.stdout, server.stderr):
        if pipe is not None:
            pipe.close()
