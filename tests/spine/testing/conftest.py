"""Scenarios written on the spot."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spine.testing.scenarios.run import ScenarioResult, run_scenario

RunText = Callable[..., ScenarioResult]


@pytest.fixture(params=["asyncio", "trio"])
def run_text(tmp_path: Path, request: pytest.FixtureRequest) -> RunText:
    """Run a scenario given as text, on either event loop; `update` and `keep_failed` as for `run_scenario`."""

    def run(text: str, name: str = "x", **options: bool) -> ScenarioResult:
        path = tmp_path / f"{name}.scenario.yaml"
        path.write_text(text, "utf-8")
        return run_scenario(path, **{"keep_failed": False, "backend": request.param, **options})

    return run
