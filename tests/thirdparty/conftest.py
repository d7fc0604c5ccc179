"""The distributions in `dist/`, built and installed into a folder of their own, and programs that see that folder."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed both distributions, without index and without their dependencies."""
    sources = tmp_path_factory.mktemp("sources")
    target = tmp_path_factory.mktemp("site")
    shutil.copytree(HERE / "dist", sources, dirs_exist_ok=True)
    built = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)),
            *map(str, sorted(sources.iterdir())),
        ],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return target


@pytest.fixture(scope="session")
def run(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a Python program in the application's folder, with the installed distributions on its path."""
    folder = tmp_path_factory.mktemp("application")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SPINE_")}

    def run_(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env={**environ, "PYTHONPATH": str(site)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run_


@pytest.fixture(scope="session")
def facts(run: Run) -> Mapping[str, Any]:
    """What `program.py` saw: it uses the plugin in a session, unloads it, and prints facts."""
    done = run(str(HERE / "program.py"))
    assert done.returncode == 0, done.stderr
    seen: Mapping[str, Any] = json.loads(done.stdout)
    return seen
