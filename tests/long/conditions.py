"""Under which conditions a figure was taken: what every line of the long runs ends with."""

import platform
import sqlite3
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def conditions(path: Path | None = None, *, seed: int | None = None, sync: str | None = None, **more: str) -> str:
    """Seed, commit, Python, SQLite, and the file system that `path` is on, as one line."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    parts = [
        None if seed is None else f"seed {seed}",
        f"commit {commit.stdout.strip() or 'unknown'}",
        f"Python {platform.python_version()}",
        f"SQLite {more.pop('sqlite', sqlite3.sqlite_version)}",
        None if path is None else file_system(path),
        None if sync is None else f"sync {sync}",
        *(f"{key} {value}" for key, value in more.items()),
    ]
    return " · ".join(part for part in parts if part)


def file_system(path: Path) -> str:
    """The type of file system that a folder lies on, as the kernel calls it."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown file system"
    whole = path.resolve()
    above = [(len(mount[1]), mount[2]) for mount in mounts if whole.is_relative_to(mount[1])]
    return max(above)[1] if above else "unknown file system"


def count(number: int) -> str:
    """A number with thousands apart."""
    return f"{number:,}"
