"""The command line in a folder of its own, in this process, with nothing of this machine's configuration."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from model_server import ModelServer

from spine.cli import cli
from spine.testing.demo import run_demo

SHOP = '''
from spine import Agent, tool

@tool(effect="read_only")
def lookup_order(order_id: str) -> dict:
    """Find an order."""
    return {"item": "mug", "state": "delivered"}

@tool(effect="idempotent", approval="ask", approval_reason="refunds need a person")
def refund(order_id: str, amount_cents: int) -> str:
    """Pay an order back."""
    return f"refunded {amount_cents}"

@tool(effect="read_only")
def breaks(text: str) -> str:
    """Fail."""
    raise ValueError(text)

agent = Agent("lab:tiny", name="refunds", instructions="Be brief.", tools=[lookup_order, refund, breaks])
not_an_agent = 7
'''

Spine = Callable[..., Result]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder; what was imported from it is forgotten afterwards, and nothing else."""
    for name in [name for name in os.environ if name.startswith("SPINE_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TZ", "UTC")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    path = list(sys.path)
    yield work
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def spine() -> Spine:
    """Run a command: `spine("log", "--json", input="piped")`."""
    runner = CliRunner()

    def run(*arguments: object, input: str | bytes | None = None) -> Result:
        return runner.invoke(cli, [str(argument) for argument in arguments], input=input)

    return run


@pytest.fixture(scope="session")
def demo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration's store, made once."""
    path = tmp_path_factory.mktemp("demo") / "spine.db"
    run_demo(f"sqlite:{path}")
    return path


@pytest.fixture
def demo(demo_file: Path, folder: Path) -> Path:
    """A project whose store holds the demonstration."""
    (folder / "spine.toml").write_text("version = 1\n")
    shutil.copy(demo_file, folder / "spine.db")
    return folder


@pytest.fixture
def shop(folder: Path) -> Callable[[ModelServer], Path]:
    """Make a project whose agent asks a server of the test."""

    def make(server: ModelServer) -> Path:
        (folder / "shop.py").write_text(SHOP)
        (folder / "spine.toml").write_text(
            f'agent = "shop:agent"\n[providers.lab]\nprotocol = "openai_chat"\nbase_url = "{server.url}"\n'
        )
        return folder

    return make
