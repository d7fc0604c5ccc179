"""The pytest plugin: scenarios as tests, and the `spine_*` fixtures (floor 15, apart from everything else).

The only file that knows pytest. Free unless used: whatever is more than a name is loaded by the test that wants it. The
network guard acts in tests that use one of the fixtures and in scenarios, elsewhere only with `spine_block_network`.
"""

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from spine.late import load

_FIXTURES: Final = frozenset(("spine_clock", "spine_script", "spine_runtime", "spine_snapshot"))
_failed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`spine_block_network`: the guard for the whole suite."""
    text = "every test that opens a connection to another machine fails, not only those with a script"
    parser.addini("spine_block_network", text, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """The marker that lifts the guard."""
    config.addinivalue_line("markers", "live: talks to a real model; the network guard does not act")


# ------------------------------------------------------------------------------------------------------- scenarios


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """`NAME.scenario.yaml` is a file with one test."""
    is_scenario = file_path.name.endswith(".scenario.yaml")
    return ScenarioFile.from_parent(parent, path=file_path) if is_scenario else None


class ScenarioFile(pytest.File):
    """A scenario file."""

    def collect(self) -> Iterator["ScenarioItem"]:
        """Its one test."""
        yield ScenarioItem.from_parent(self, name=self.path.name.removesuffix(".scenario.yaml"))


class ScenarioItem(pytest.Item):
    """A scenario, run as a test."""

    def runtest(self) -> None:
        """Run it; with `--snapshot-update` its transcript is written anew."""
        update = bool(self.config.getoption("--snapshot-update", False))
        result = load("spine.testing.scenario_run").run_scenario(self.path, update=update)
        if not result.is_ok:
            raise ScenarioFailed(str(result))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """What differs, without a traceback."""
        failed = isinstance(excinfo.value, ScenarioFailed)
        return str(excinfo.value) if failed else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """File and name."""
        return self.path, 0, f"scenario {self.name}"


class ScenarioFailed(Exception):
    """A scenario does not hold; the message is what `spine scenario run` prints."""


# ----------------------------------------------------------------------------------------------------------- guard


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Block the network around a guarded test and its fixtures."""
    if not _is_guarded(item):
        return (yield)
    with load("spine.testing.network").blocked_network():
        return (yield)


def _is_guarded(item: pytest.Item) -> bool:
    if item.get_closest_marker("live") is not None:
        return False
    uses = not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
    return uses or isinstance(item, ScenarioItem) or bool(item.config.getini("spine_block_network"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Remember that a test failed: its script was not played to the end, which is no second failure."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


# -------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture
def spine_clock() -> Any:
    """A `FakeClock`: waits take no time."""
    return load("spine.testing.fixtures").FakeClock()


@pytest.fixture
def spine_script(spine_clock: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Call it with entries (`say`, `call`, …): the model of `spine_runtime` plays them, and all must be used."""
    script = load("spine.testing.fixtures").Script(spine_clock)
    yield script
    if not request.node.stash.get(_failed, False):
        script.check_used()


@pytest.fixture
async def spine_runtime(spine_clock: Any, spine_script: Any) -> AsyncIterator[Any]:
    """A `Runtime` in memory with the script as its model: no files, no environment, no installed plugins."""
    async with load("spine.testing.fixtures").offline_runtime(spine_script.adapter, spine_clock) as runtime:
        yield runtime


@pytest.fixture
def spine_snapshot(snapshot: Any) -> Any:
    """`assert session.transcript() == spine_snapshot`: a text file for each test, written by `--snapshot-update`."""
    return snapshot.use_extension(load("spine.testing.snapshots").TranscriptExtension)
