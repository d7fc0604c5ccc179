"""The pytest plugin, as other suites meet it: each test here writes a small suite and runs it."""

import sys

import pytest

pytest_plugins = "pytester"

HEAD = """
import pytest
from spine import Agent, tool
from spine.testing import call, say

pytestmark = pytest.mark.anyio

@tool(effect="read_only")
def weather(city: str) -> str:
    "Weather in a city."
    return "rain"

agent = Agent("demo:small", tools=[weather])
"""
SCENARIO = """\
scenario: says hello
agent: {model: "demo:small"}
inputs: [{user: Hi}]
model: [{say: Hello}]
expect: {transcript: snapshot}
"""


@pytest.fixture(autouse=True)
def plain_suite(pytester: pytest.Pytester) -> None:
    """No options of ours; warnings are errors."""
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = --strict-markers --strict-config -p no:randomly")


# -------------------------------------------------------------------------------------------------------- fixtures


def test_a_session_runs_on_the_script(pytester: pytest.Pytester) -> None:
    """On both event loops, with the clock that the test may move and the transcript as its snapshot."""
    pytester.makepyfile(
        HEAD
        + """
async def test_it(spine_runtime, spine_script, spine_clock, spine_snapshot):
    spine_script(call("weather", city="Oslo"), say("Take an umbrella."))
    session = await spine_runtime.session("oslo", agent)
    turn = await session.run("Do I need an umbrella?")
    assert turn.text == "Take an umbrella."
    assert [len(request.messages) for request in spine_script.adapter.requests] == [1, 3]
    before = spine_clock.now()
    spine_clock.advance(2)
    assert spine_clock.now() - before == 2_000_000
    assert session.transcript() == spine_snapshot
"""
    )
    pytester.runpytest("--snapshot-update").assert_outcomes(passed=2)
    (snapshot,) = pytester.path.rglob("__snapshots__/**/*.txt")
    module = next(pytester.path.glob("test_*.py")).stem
    assert snapshot.relative_to(pytester.path).as_posix() == f"__snapshots__/{module}/test_it.txt"
    assert snapshot.read_text() == (
        "oslo · demo:small\n\nUSER\n    Do I need an umbrella?\n\n"
        'ASSISTANT t1s1\n  > weather(city="Oslo")\n  < rain\n\n'
        "ASSISTANT t1s2\n    Take an umbrella.\n\n"
        "turn t1 completed: 2 steps, 1 tool call\n"
    )
    pytester.runpytest().assert_outcomes(passed=2)
    snapshot.write_text(snapshot.read_text().replace("rain", "snow"))
    pytester.runpytest().assert_outcomes(failed=2)


def test_snapshots_are_named_after_the_test_and_its_other_parameters(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEAD
        + """
@pytest.mark.parametrize("name", ["a", "b"])
async def test_it(name, spine_snapshot):
    assert name == spine_snapshot

def test_plain(spine_snapshot):
    assert "x" == spine_snapshot
"""
    )
    pytester.runpytest("--snapshot-update").assert_outcomes(passed=5)
    names = sorted(path.name for path in pytester.path.rglob("*.txt"))
    assert names == ["test_it[a].txt", "test_it[b].txt", "test_plain.txt"]


def test_entries_that_are_left_over_fail_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEAD
        + """
async def test_it(spine_runtime, spine_script):
    spine_script(say("one"), say("two"))
    session = await spine_runtime.session("x", agent)
    await session.run("Hi")
"""
    )
    result = pytester.runpytest("-k", "asyncio")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*ScriptMismatch: script left over: 1 of 2 entries not asked for*"])


def test_a_test_that_failed_is_not_blamed_for_its_script_as_well(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEAD
        + """
async def test_it(spine_script):
    spine_script(say("one"))
    assert False
"""
    )
    pytester.runpytest("-k", "asyncio").assert_outcomes(failed=1)


def test_a_script_that_runs_out_fails_loudly(pytester: pytest.Pytester) -> None:
    """Also when the test looks at nothing: the turn raises."""
    pytester.makepyfile(
        HEAD
        + """
async def test_it(spine_runtime):
    session = await spine_runtime.session("x", agent)
    await session.run("Hi", check=False)
"""
    )
    result = pytester.runpytest("-k", "asyncio")
    result.assert_outcomes(failed=1, errors=0)
    result.stdout.fnmatch_lines(["*ScriptMismatch: script exhausted: step t1s1 asked the model a first time*"])


def test_the_runtime_depends_on_nothing_outside(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPINE_STORE", "nonsense")
    monkeypatch.setenv("SPINE_PLUGINS", "nonsense")
    (pytester.path / "spine.toml").write_text("nonsense")
    pytester.makepyfile(
        HEAD
        + """
async def test_it(spine_runtime):
    assert spine_runtime.plugins == ()
    assert spine_runtime.store.url == "memory:"
"""
    )
    pytester.runpytest().assert_outcomes(passed=2)


# ----------------------------------------------------------------------------------------------------------- guard


CONNECTING = """
import socket
import pytest

def connect():
    with socket.socket() as made:
        made.settimeout(0.01)
        made.connect(("192.0.2.1", 443))

def test_plain():
    with pytest.raises(OSError):
        connect()

@pytest.mark.live
def test_live(spine_script):
    with pytest.raises(OSError):
        connect()
"""


def test_the_guard_acts_in_tests_with_a_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CONNECTING + "\ndef test_guarded(spine_clock):\n    connect()\n")
    result = pytester.runpytest()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*NetworkBlocked: test opened a connection to 192.0.2.1:443 from *"])


def test_the_guard_acts_everywhere_when_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nspine_block_network = true")
    pytester.makepyfile(CONNECTING)
    pytester.runpytest().assert_outcomes(passed=1, failed=1)


def test_the_guard_covers_the_fixtures_of_a_guarded_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        CONNECTING + "\n@pytest.fixture\ndef early():\n    connect()\n\ndef test_late(early, spine_clock):\n    pass\n"
    )
    pytester.runpytest("-k", "test_late").assert_outcomes(errors=1)


# ------------------------------------------------------------------------------------------------------- scenarios


def test_scenarios_are_tests(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("cases")
    (folder / "hello.scenario.yaml").write_text(SCENARIO)
    result = pytester.runpytest("-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "cases/hello.scenario.yaml::hello FAILED*",
            "FAIL  hello.scenario.yaml * there is no hello.transcript.txt yet; write it with --snapshot-update",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    pytester.runpytest("--snapshot-update").assert_outcomes(passed=1)
    assert (folder / "hello.transcript.txt").is_file()
    pytester.runpytest("cases/hello.scenario.yaml").assert_outcomes(passed=1)


def test_scenarios_are_guarded(pytester: pytest.Pytester) -> None:
    (pytester.path / "hello.scenario.yaml").write_text(
        SCENARIO.replace('{model: "demo:small"}', '{model: "demo:small", tools: ["reach:reach"]}').replace(
            "{say: Hello}", "{call: {reach: {}}}, {say: Hello}"
        )
    )
    (pytester.path / "reach.py").write_text(
        "import socket\nfrom spine import tool\n@tool\nasync def reach() -> str:\n"
        "    'Reach out.'\n    with socket.socket() as made:\n        made.connect(('192.0.2.1', 1))\n    return ''\n"
    )
    pytester.runpytest("--snapshot-update").assert_outcomes(passed=1)
    assert "NetworkBlocked" in (pytester.path / "hello.transcript.txt").read_text()


# ------------------------------------------------------------------------------------------------- free unless used


MODEL = """
from spine.hooks import hookimpl
from spine.llm.chunks import TextDelta
from spine.llm.response import ModelResponse
from spine.messages import Message, TextBlock

class Real:
    def __init__(self, settings): pass
    def check(self, request): pass
    async def stream(self, request):
        yield TextDelta(0, "Good day")
        message = Message(role="assistant", content=(TextBlock(text="Good day"),))
        yield ModelResponse(message=message, stop_reason="end_turn")
    async def aclose(self): pass

@hookimpl
def spine_register_adapters(registrar):
    registrar.add(Real, provider="demo")
"""


def test_scenarios_are_recorded_with_the_real_model(pytester: pytest.Pytester) -> None:
    """`--spine-record` writes what it answers into the file, which then holds without it."""
    pytester.makepyfile(real=MODEL)
    text = SCENARIO.replace("inputs:", "plugins: [real]\ninputs:").replace(
        "model: [{say: Hello}]", "model:\n  - say: Hello"
    )
    path = pytester.path / "hello.scenario.yaml"
    path.write_text(text)
    pytester.runpytest("--spine-record").assert_outcomes(passed=1)
    assert "say: Good day" in path.read_text()
    assert "Good day" in (pytester.path / "hello.transcript.txt").read_text()
    pytester.runpytest().assert_outcomes(passed=1)


UNFIT = """\
scenario: says hello in so many steps
agent: {model: "demo:small"}
inputs: [{user: Hi}]
model: [{say: Hello}]
expect: {turns: [{status: completed, steps: %d}]}
"""


@pytest.mark.parametrize(("steps", "outcome"), [(1, "passed"), (2, "failed")])
def test_scenarios_are_played_once_for_every_place_of_death(
    pytester: pytest.Pytester, steps: int, outcome: str
) -> None:
    """`--spine-crash-sweep` plays them with crashes, and other tests as ever."""
    (pytester.path / "hello.scenario.yaml").write_text(UNFIT % steps)
    pytester.makepyfile("def test_other(): pass")
    result = pytester.runpytest("--spine-crash-sweep")
    assert result.parseoutcomes() == ({"passed": 2} if outcome == "passed" else {"passed": 1, "failed": 1})
    assert ("without a crash" in str(result.stdout)) == (outcome == "failed")


@pytest.mark.parametrize("option", ["--snapshot-update", "--spine-record"])
def test_a_crash_sweep_writes_nothing(pytester: pytest.Pytester, option: str) -> None:
    result = pytester.runpytest("--spine-crash-sweep", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--spine-crash-sweep compares no transcript*"])


@pytest.mark.parametrize(
    "options", [("-n", "2"), ("-p", "randomly", "-p", "no:cacheprovider")], ids=["xdist", "randomly"]
)
def test_it_works_beside_plugins_that_part_or_shuffle_a_suite(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    """Scenarios and tests with fixtures, on several processes and in any order."""
    name = "xdist" if options[0] == "-n" else "pytest_randomly"
    pytest.importorskip(name, reason=f"{name} is not installed")
    pytester.makeini("[pytest]\nfilterwarnings = error")
    for number in range(4):
        (pytester.path / f"s{number}.scenario.yaml").write_text(SCENARIO.replace("expect: {transcript: snapshot}", ""))
    pytester.makepyfile(
        HEAD
        + """
@pytest.mark.parametrize("number", range(4))
async def test_it(spine_runtime, spine_script, number):
    spine_script(say(f"number {number}"))
    assert (await (await spine_runtime.session("s", agent)).run("Which?")).text == f"number {number}"
"""
    )
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=12)


def test_the_plugin_costs_other_suites_nothing(pytester: pytest.Pytester) -> None:
    """A suite that uses none of it loads neither runtime nor codec nor YAML."""
    pytester.makepyfile(
        """
import sys

def test_it():
    ours = {name for name in sys.modules if name.partition(".")[0] == "spine"}
    assert ours <= {"spine", "spine.errors", "spine.late", "spine.testing", "spine.testing.pytest_plugin"}, ours
    assert not {"cattrs", "yaml", "msgspec", "httpx"} & set(sys.modules)
"""
    )
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1)


WITHOUT_SYRUPY = """
import sys, pytest

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "syrupy":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
sys.exit(pytest.main(["-q", "-p", "spine.testing.pytest_plugin", "-p", "anyio"]))
"""


def test_a_suite_without_syrupy_still_runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `spine_snapshot` needs it."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(HEAD + "\nasync def test_it(spine_runtime):\n    pass\n")
    done = pytester.run(sys.executable, "-c", WITHOUT_SYRUPY)
    done.assert_outcomes(passed=2)


# ----------------------------------------------------------------------------------------------------- conformance


def test_a_report_card_counts_what_other_processes_tried(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist", reason="xdist is not installed")
    words = ("--spine-conformance", "spine_openai_chat.protocol:OpenAIChat", "-k", "reads-text", "-n", "2")
    result = pytester.runpytest_subprocess(*words)
    assert result.parseoutcomes()["passed"] == 8
    result.stdout.fnmatch_lines(["decoding * 8 *0 *0"])


def test_an_adapter_gets_its_report_card_and_nothing_else_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_other(): raise AssertionError")
    result = pytester.runpytest("--spine-conformance", "spine_openai_chat.protocol:OpenAIChat", "-k", "reads-text")
    result.assert_outcomes(passed=8, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(
        ["openai_chat adapter 0.1.0 · protocol openai_chat *passed  failed  not applicable", "decoding *8       0 *0"]
    )


def test_what_an_adapter_does_wrong_is_a_line_of_its_card(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        shouting="""
from spine.testing import Conformance, Rendered
from spine.testing.chaos.render import render_chat
from spine_openai_chat.protocol import OpenAIChat

def render(entry):
    good = render_chat(entry)
    frames = tuple(frame.replace(b"raining", b"snowing") for frame in good.frames)
    return Rendered(frames=frames, ends_at=good.ends_at)

def subject():
    return Conformance(name="shouting", version="2", protocol=OpenAIChat(), render=render)
"""
    )
    pytester.syspathinsert()
    result = pytester.runpytest("--spine-conformance", "shouting:subject", "-k", "reads-text-in-one or not-streamed")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1, skipped=3, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(
        [
            "decoding *0       1 *3",
            "FAILED decoding/reads-text-in-one-piece: expected the content *raining*snowing* Again: add -k reads-*",
        ]
    )


def test_a_reference_that_leads_nowhere_is_wrong_use(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--spine-conformance", "nobody:nothing")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['*"nobody:nothing" cannot be loaded: No module named*'])
