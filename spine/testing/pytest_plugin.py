"""The pytest plugin: scenarios as tests, conformance, the `spine_*` fixtures (floor 15, apart from everything else).

The only file that knows pytest. Free unless used: whatever is more than a name is loaded by the test that wants it. The
network guard acts in tests that use one of the fixtures and in scenarios, elsewhere only with `spine_block_network`.
"""

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from spine.errors import UsageError
from spine.late import load

_FIXTURES: Final = frozenset(("spine_clock", "spine_script", "spine_runtime", "spine_snapshot"))
_failed = pytest.StashKey[bool]()
_subjects = pytest.StashKey[dict[str, Any]]()
"""By reference: what is tried."""
_RESULT: Final = "spine_conformance"
"""The property of a report that says how a case went; reports come from other processes, too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`spine_block_network`: the guard for the whole suite."""
    text = "every test that opens a connection to another machine fails, not only those with a script"
    parser.addini("spine_block_network", text, type="bool", default=False)
    help = "try an adapter: run the conformance kit on what module:factory gives, and nothing else; may be repeated"
    group = parser.getgroup("spine")
    record = "ask the real models that scenarios name anew, and write their answers into the files"
    group.addoption("--spine-record", action="store_true", help=record)
    sweep = "play each scenario once for every place where its process can die, instead of comparing its transcript"
    group.addoption("--spine-crash-sweep", action="store_true", help=sweep)
    group.addoption("--spine-conformance", action="append", default=[], metavar="MODULE:FACTORY", help=help)


def pytest_configure(config: pytest.Config) -> None:
    """The marker that lifts the guard; options that cannot hold together are refused."""
    writes = config.getoption("--spine-record") or config.getoption("--snapshot-update", False)
    if config.getoption("--spine-crash-sweep") and writes:
        raise pytest.UsageError("--spine-crash-sweep compares no transcript, so nothing can be written with it")
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
        """Play it as the options say; with `--snapshot-update` its transcript is written anew."""
        result = self._result()
        if getattr(result, "skipped", None) is not None:
            pytest.skip(result.skipped)
        if not result.is_ok:
            raise ScenarioFailed(str(result))

    def _result(self) -> Any:
        if self.config.getoption("--spine-record"):
            return load("spine.testing.scenarios.recording").record_scenario(self.path)
        if self.config.getoption("--spine-crash-sweep"):
            return load("spine.testing.scenarios.sweep").sweep_scenario(self.path)
        update = bool(self.config.getoption("--snapshot-update", False))
        return load("spine.testing.scenarios.run").run_scenario(self.path, update=update)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """What differs, without a traceback."""
        failed = isinstance(excinfo.value, ScenarioFailed)
        return str(excinfo.value) if failed else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """File and name."""
        return self.path, 0, f"scenario {self.name}"


class ScenarioFailed(Exception):
    """A scenario does not hold; the message is what `spine scenario run` prints."""


# ----------------------------------------------------------------------------------------------------- conformance


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool | None:
    """With `--spine-conformance`, its cases are the tests, and there are no others."""
    references = session.config.getoption("--spine-conformance")
    if not references:
        return None
    kit = load("spine.testing.adapters.conformance")
    items: list[pytest.Item] = []
    for reference in references:
        try:
            subject = kit.load_subject(reference)
        except UsageError as exc:
            raise pytest.UsageError(exc.message) from exc
        session.config.stash.setdefault(_subjects, {})[reference] = subject
        prefix = f"{subject.name}: " if len(references) > 1 else ""
        for case in kit.cases(subject):
            name = f"{prefix}{case.name}"
            items.append(ConformanceItem.from_parent(session, name=name, nodeid=name, case=case, subject=reference))
    report = pytest.CollectReport(nodeid="conformance", outcome="passed", longrepr=None, result=[*items])
    session.config.hook.pytest_collectreport(report=report)  # so that the terminal counts them
    session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
    session.items = items
    session.testscollected = len(items)
    session.config.hook.pytest_collection_finish(session=session)
    return True


class ConformanceItem(pytest.Item):
    """One case of the kit."""

    def __init__(self, *, case: Any, subject: str, **more: Any) -> None:
        super().__init__(**more)
        self._case = case
        self._subject = subject

    def runtest(self) -> None:
        """Try it, and keep how it went for the card."""
        result = load("spine.testing.adapters.conformance").run_case(self._case)
        told = {"name": result.name, "problems": list(result.problems), "why_not": result.why_not}
        self.user_properties.append((_RESULT, (self._subject, told)))
        if result.why_not is not None:
            pytest.skip(result.why_not)
        if result.problems:
            raise ConformanceFailed("\n".join(result.problems))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """What does not hold, without a traceback."""
        failed = isinstance(excinfo.value, ConformanceFailed)
        return str(excinfo.value) if failed else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands: nowhere on disk."""
        return self.path, 0, self.name


class ConformanceFailed(Exception):
    """A case does not hold; the message has a line for each problem."""


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The report card of each subject."""
    for reference, subject in config.stash.get(_subjects, {}).items():
        kit = load("spine.testing.adapters.conformance")
        told = [told for name, told in _results(terminalreporter) if name == reference]
        results = [kit.ConformanceResult(**each | {"problems": tuple(each["problems"])}) for each in told]
        terminalreporter.section("conformance")
        terminalreporter.write_line(kit.report_card(subject, results))


def _results(terminalreporter: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                yield from (value for name, value in report.user_properties if name == _RESULT)


# ----------------------------------------------------------------------------------------------------------- guard


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Block the network around a guarded test and its fixtures."""
    if not _is_guarded(item):
        return (yield)
    with load("spine.testing.network").blocked_network():
        return (yield)


def _is_guarded(item: pytest.Item) -> bool:
    if item.get_closest_marker("live") is not None or item.config.getoption("--spine-record"):
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
