"""`spine replay` and `spine determinism` as somebody at a terminal has them: lines, JSON and exit status."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import pytest

from spine.config import Settings
from spine.runtime import Runtime
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter

AGENT = """
from datetime import date
from spine import Agent
WORDS = {"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"}
agent = Agent("lab:one", name="shop", instructions=f"Be kind. {WHAT}")
"""


def write_agent(folder: Path, what: str) -> None:
    folder.joinpath("kind.py").write_text(AGENT.replace("{WHAT}", what))
    sys.modules.pop("kind", None)


@pytest.fixture
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(folder))
    folder.joinpath("spine.toml").write_text('version = 1\nstore = "sqlite:x.db"\n[plugins]\nallow = []\n')
    write_agent(folder, "Always.")
    return folder


def record(folder: Path, what: str = "Always.") -> None:
    write_agent(folder, what)
    kind = import_module("kind")

    async def talk() -> None:
        with ScriptedAdapter(say("Hello."), say("Again.")) as model:
            settings = Settings(installed_plugins=False)
            async with Runtime.open(f"sqlite:{folder}/x.db", model=model, settings=settings) as runtime:
                session = await runtime.session("one", kind.agent, reference="kind:agent")
                await session.run("Hello?")
                await session.run("And now?")

    anyio.run(talk)


def test_a_session_that_nobody_changed_is_equal(project: Path, spine: Any) -> None:
    record(project)
    ran = spine("replay")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("equal: 17 events byte for byte, 0 connections, ")


def test_a_changed_prompt_is_shown_with_its_place_and_its_cause(project: Path, spine: Any) -> None:
    record(project)
    write_agent(project, "Never.")
    ran = spine("replay", "one")
    assert ran.exit_code == 1
    assert ran.stdout.split("\n")[:4] == [
        "DIFFERENT at seq 5 content.added t1s1, path $.text, character 9",
        "  log  Be kind. Always.",
        "  now  Be kind. Never.",
        "  from section instructions of agent shop (changed). It reaches requests t1s1, t2s1.",
    ]
    fact = json.loads(spine("replay", "one", "--json").stdout)
    assert fact["verdict"] == "different"
    assert fact["difference"]["seq"] == 5
    assert fact["cause"]["kind"] == "section"


def test_an_agent_that_is_gone_gives_no_verdict(project: Path, spine: Any) -> None:
    record(project)
    project.joinpath("kind.py").unlink()
    sys.modules.pop("kind", None)
    ran = spine("replay", "one")
    assert ran.exit_code == 3
    assert 'agent "kind:agent": there is no module "kind"' in ran.stderr


BAD_AGENTS = {
    "nowhere:agent": 'agent "nowhere:agent": there is no module "nowhere" in ',
    "kind:nobody": 'agent "kind:nobody": kind has no "nobody"; agents there: agent',
    "kind": 'agent "kind" is not of the form module:attribute',
}


@pytest.mark.parametrize("command", ["replay", "determinism"])
@pytest.mark.parametrize("named", BAD_AGENTS)
def test_an_agent_that_is_named_and_not_there_is_wrong_use(project: Path, spine: Any, named: str, command: str) -> None:
    """The same sentence as where a turn is run; that the log's own agent is gone is another thing."""
    record(project)
    ran, runs = spine(command, "one", "--agent", named), spine("run", "Hello?", "--agent", named)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert BAD_AGENTS[named] in ran.stderr
    assert (runs.exit_code, runs.stderr) == (2, ran.stderr)


def test_an_export_replays_without_its_store(project: Path, spine: Any) -> None:
    record(project)
    assert spine("export", "one", "-o", "one.jsonl").exit_code == 0
    project.joinpath("x.db").unlink()
    assert spine("replay", "one.jsonl").stdout.startswith("equal: 17 events byte for byte")


CASES = {
    "nothing": ("Always.", 0, []),
    "the order of a set": ("{' '.join(WORDS)}", 1, ["hash seed 1", "hash seed 2"]),
    "the day": ("{date.today()}", 1, ["clock, zone and locale moved"]),
}


@pytest.mark.parametrize("what", CASES)
def test_what_depends_on_where_it_runs_is_named(what: str, project: Path, spine: Any) -> None:
    text, status, names = CASES[what]
    record(project, text)
    ran = spine("determinism", "one", "--json")
    fact = json.loads(ran.stdout)
    differing = [trial["name"] for trial in fact["trials"] if trial["offender"] is not None]
    assert ran.exit_code == status
    assert set(names) <= set(differing)
    assert {trial["offender"] for trial in fact["trials"]} <= {None, "section instructions of agent shop"}


PLUGIN = """
from spine import Section
from spine.hooks import hookimpl

@hookimpl
def spine_register_prompts(registrar):
    registrar.add(Section("policy", render=lambda context: "{WHAT}", dynamic=True, order=50))
"""


@pytest.fixture
def with_plugin(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session in which a plugin had a part that lies beside the agent and is not installed."""
    monkeypatch.delitem(sys.modules, "courtesy", raising=False)
    project.joinpath("courtesy.py").write_text(PLUGIN.replace("{WHAT}", "Thank people."))
    kind = import_module("kind")

    async def talk() -> None:
        options: Any = {"plugins": ["courtesy"], "settings": Settings(installed_plugins=False)}
        with ScriptedAdapter(say("Hello.")) as model:
            async with Runtime.open(f"sqlite:{project}/x.db", model=model, **options) as runtime:
                await (await runtime.session("one", kind.agent, reference="kind:agent")).run("Hello?")

    anyio.run(talk)
    sys.modules.pop("courtesy")
    return project


COMMANDS_OF_REPLAY = [("replay",), ("replay", "--mode", "live-tools"), ("determinism",)]


@pytest.mark.parametrize("words", COMMANDS_OF_REPLAY, ids=" ".join)
def test_a_plugin_that_is_missing_gives_no_verdict_and_can_be_named(
    with_plugin: Path, spine: Any, words: tuple[str, ...]
) -> None:
    """Where it lies beside the agent, `--plugin` brings it; for whoever has no idea it says so."""
    ran = spine(*words, "one")
    assert ran.exit_code == 3
    assert "courtesy took part in one and is not loaded now" in ran.output
    assert ran.stdout == "" or "--plugin MODULE, or --hooks recorded" in ran.stderr
    assert spine(*words, "one", "--plugin", "courtesy").exit_code == 0


def test_what_if_goes_on_with_the_plugin_that_is_named(with_plugin: Path, spine: Any) -> None:
    ran = spine("what-if", "one", "--step", "t1s1", "--plugin", "courtesy")
    assert (ran.exit_code, "no difference" in ran.stdout) == (0, True), ran.output
    without = spine("what-if", "one", "--step", "t1s1")
    assert (without.exit_code, "section policy        gone" in without.stdout) == (1, True), without.output


def test_recorded_hooks_fit_no_real_part(with_plugin: Path, spine: Any) -> None:
    ran = spine("replay", "one", "--mode", "live-tools", "--hooks", "recorded")
    assert (ran.exit_code, "fits no live-tools" in ran.stderr) == (2, True)
