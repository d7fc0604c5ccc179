"""Runs the blocks of a page in order, in one folder and one namespace, and compares what they print.

`spine` commands run in this process, which is fast; whatever needs a shell, or is no command of ours, is a process.
"""

import io
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
from docs_markdown import Block, blocks, commands, matches, name_of

from spine.cli import cli

NAMESPACE = "docs_page"
_SHELL = frozenset("|<>&;*$`")
_TIMEOUT_S = 20.0


@attrs.define
class PageRun:
    """One page being run. `skipped` counts blocks that need what is not there."""

    page: Path
    folder: Path
    namespace: dict[str, Any]
    printed: str | None = None
    """What the last block of Python printed, until it was compared."""

    def block(self, block: Block) -> None:
        """Run one block."""
        if block.not_run is not None:
            return
        if block.path is not None:
            self._write(block, block.path)
        elif block.language in _RUNNERS:
            self._settle(block)
            _RUNNERS[block.language](self, block)
        elif block.language == "text" and block.follows and self.printed is not None:
            self._compare(block, block.text, self.printed, block.line)
            self.printed = None

    def _settle(self, block: Block) -> None:
        if self.printed:
            what = "no block of text shows what the block above prints"
            pytest.fail(f"{self._place(block.line)}: {what}:\n{self.printed}", pytrace=False)

    def end(self) -> None:
        """After the last block."""
        if self.printed:
            what = "no block of text shows what the last block prints"
            pytest.fail(f"{name_of(self.page)}: {what}:\n{self.printed}", pytrace=False)

    def _write(self, block: Block, path: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text)

    def _python(self, block: Block) -> None:
        code = compile("\n" * block.line + block.text, f"{self.page.name}", "exec")
        with _captured() as printed:
            exec(code, self.namespace)
        self.printed = printed()

    def _console(self, block: Block) -> None:
        for command in commands(block):
            actual = run_command(command.text)
            self._compare(block, command.output, actual, command.line)

    def _compare(self, block: Block, expected: str, actual: str, line: int) -> None:
        if not matches(expected, actual):
            pytest.fail(f"{self._place(line)} shows\n{expected.rstrip()}\n\nand gets\n{actual.rstrip()}", pytrace=False)

    def _place(self, line: int) -> str:
        return f"{name_of(self.page)}:{line}"


_RUNNERS: Mapping[str, Callable[[PageRun, Block], None]] = {"python": PageRun._python, "console": PageRun._console}


def run_command(text: str) -> str:
    """What a command prints on a terminal, answers and messages together."""
    words = shlex.split(text)
    if words[0] == "spine" and not _SHELL & set(text):
        return _run_here(words[1:])
    return _run_process(text)


def _run_here(arguments: list[str]) -> str:
    with _captured() as printed, suppress(SystemExit):
        cli.main(arguments)
    return printed()


def _run_process(text: str) -> str:
    done = subprocess.run(
        ["bash", "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=False,
        env=_environment(),
    )
    return done.stdout.decode()


def _environment() -> dict[str, str]:
    tools = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join((tools, os.environ.get("PATH", ""))),
        "PYTEST_ADDOPTS": "-p no:hypothesispytest -p no:cacheprovider",  # half of a small run's time
    }


@contextmanager
def _in_utc() -> Iterator[None]:
    """Local times on the screen are the same everywhere."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@contextmanager
def _captured() -> Iterator[Callable[[], str]]:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    with redirect_stdout(stream), redirect_stderr(stream):
        yield lambda: raw.getvalue().decode()
    stream.detach()


@contextmanager
def _prepared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """An empty home and working folder, no configuration and no keys; modules of the page are forgotten afterwards."""
    for name in list(os.environ):
        if name.startswith("SPINE_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    given = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), "COLUMNS": "120"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    before, module = set(sys.modules), ModuleType(NAMESPACE)
    sys.modules[NAMESPACE] = module
    try:
        yield vars(module)
    finally:
        for name in set(sys.modules) - before:
            place = getattr(sys.modules[name], "__file__", None)
            if name == NAMESPACE or (place and Path(place).is_relative_to(folder)):
                del sys.modules[name]


def run_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every block of a page."""
    with _in_utc(), _prepared(folder, monkeypatch) as namespace:
        run = PageRun(page=page, folder=folder, namespace=namespace)
        for block in blocks(page.read_text()):
            run.block(block)
        run.end()
