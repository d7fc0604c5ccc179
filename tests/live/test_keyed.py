"""The run for people with a key: what it refuses, what it finds, and the whole of it with a model on this machine."""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from scenarios.live import keyed
from scenarios.live.host import served_model
from scenarios.live.keyed import TASKS, main, places_of, run_tasks, worst_micros
from scenarios.live.weights import missing
from spine.config import Settings
from spine.llm.catalogue import Prices
from spine.values import Secret

KEY = secrets.token_urlsafe(24) + "/+="
PRICED = """\
version = 1

[providers.local]
protocol = "openai_chat"
base_url = "{address}/v1"
key = {{ env = "LIVE_TEST_KEY" }}

[models."local:smollm2"]
prices = {{ id = "here", currency = "USD", input = 1, output = 2 }}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a priced model that wants a key, at an address where nothing listens."""
    (tmp_path / "spine.toml").write_text(PRICED.format(address="http://127.0.0.1:9"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIVE_TEST_KEY", KEY)
    return tmp_path


@pytest.mark.parametrize(
    ("route", "found"),
    [("nosuch:model", "unknown provider"), ("local:unpriced", "price of local:unpriced is unknown")],
)
def test_without_a_provider_or_a_price_nothing_is_sent(
    route: str, found: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([route, "--yes"]) == 2
    assert found in capsys.readouterr().err
    assert [path.name for path in project.iterdir()] == ["spine.toml"]


def test_a_missing_key_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LIVE_TEST_KEY")
    assert main(["local:smollm2", "--yes"]) == 2
    assert "LIVE_TEST_KEY is not set" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["", "n", "yes please"])
def test_without_a_yes_nothing_is_sent(
    answer: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Route, price list and cap are told before it asks."""
    monkeypatch.setattr("builtins.input", lambda text: answer)
    assert main(["local:smollm2", "--max-cost", "0.02"]) == 2
    told = capsys.readouterr()
    assert told.out.splitlines() == ["route  local:smollm2", "prices here", "cap    0.020000 USD"]
    assert "nothing was sent" in told.err


async def test_no_task_is_started_that_could_go_over_the_cap(tmp_path: Path) -> None:
    prices = Prices(id="dear", input=1_000_000, output=1_000_000)
    assert worst_micros(prices) == 3 * 2_256
    results = await run_tasks("local:m", Settings(), tmp_path, prices, worst_micros(prices) - 1)
    assert [result.task for result in results] == list(TASKS)
    assert {result.status for result in results} == {"not started: it could go over the cap"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "leak",
    [
        KEY.encode(),
        quote(KEY, safe="").encode(),
        base64.b64encode(f"user:{KEY} and more".encode()),
        base64.b64encode(f"us:{KEY} and more".encode()),
        base64.b64encode(f"u:{KEY} and more".encode()),
    ],
    ids=["plain", "in a URL", "in Base64", "one further", "two further"],
)
def test_a_key_is_found_in_every_form(leak: bytes, tmp_path: Path) -> None:
    (tmp_path / "clean").write_bytes(b"nothing here")
    assert places_of(Secret(KEY), tmp_path) == []
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "dump").write_bytes(b"\x00" * 100 + leak + b"\xff")
    assert places_of(Secret(KEY), tmp_path) == ["dump"]


def test_a_report_that_would_hold_the_key_is_not_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def leaking(*_: object) -> list[keyed.Result]:
        return [keyed.Result(task="plain", status=f"echo {KEY}", verdict="ok", micros=1)]

    monkeypatch.setattr(keyed, "run_tasks", leaking)
    assert main(["local:smollm2", "--yes"]) == 1
    assert KEY not in capsys.readouterr().out + (project / "live-keyed.md").read_text()


# ---------------------------------------------------------------------------------------------------- the real model

ABSENT = missing()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The running model."""
    with served_model() as address:
        yield address


@pytest.mark.live
@pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
def test_five_tasks_with_a_real_model_leave_no_key(
    address: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every log verifies, the cost is counted, and the key is nowhere; the small model need not be clever."""
    (project / "spine.toml").write_text(PRICED.format(address=address))
    main(["local:smollm2", "--yes", "--max-cost", "1"])
    report = (project / "live-keyed.md").read_text()
    assert report.strip() in capsys.readouterr().out
    rows = {row.split(" | ")[0].strip("| "): row.strip("| ").split(" | ") for row in report.splitlines()[4:9]}
    assert list(rows) == list(TASKS)
    assert {row[2] for row in rows.values()} == {"ok"}
    assert [rows[task][1] for task in ("plain", "form", "stopped")] == ["ok", "ok", "ok"]
    assert float(rows["plain"][3]) > 0
    assert "The key was found nowhere." in report
