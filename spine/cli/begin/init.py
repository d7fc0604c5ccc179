"""`init` (floor 15): a project that is green before it has a key.

The files are small on purpose: each shows one thing, and what a comment says in it works.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from spine.cli.options import options
from spine.cli.screen import out
from spine.errors import UsageError

__all__ = ["COMMANDS", "TEMPLATES"]

_CONFIG: Final = """\
# Which model and agent the commands use; `spine config` prints where each value comes from.
version = 1
model = "openai:gpt-5-mini"     # provider:name; `spine models` lists them and the keys they want
agent = "agent:agent"
# store = "sqlite:spine.db"     # the default: beside this file
"""
_AGENT: Final = '''\
"""The agent {name}: a frozen value that is safe to import and holds nothing that runs."""

from spine import Agent, tool


@tool(effect="read_only")
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


agent = Agent(
    "openai:gpt-5-mini",
    name="{name}",
    instructions="Be brief. Count with the tool, never by yourself.",
    tools=[count_words],
)
'''
_SCENARIO: Final = """\
# A session with a scripted model; run by `spine scenario run` and by pytest, without a key.
scenario: words are counted by the tool
agent: agent:agent
inputs:
  - user: How many words has "to be or not to be"?
model:
  - expect: {last_role: user, tools: [count_words], system_contains: Be brief}
    call: {count_words: {text: to be or not to be}}
  - expect: {last_role: tool, contains: "6"}
    say: Six.
expect:
  turns: [{status: completed, steps: 2, tool_calls: 1}]
  calls: [count_words]
  # transcript: snapshot        # keeps what a person saw beside this file; written with --snapshot-update
"""
_TEST: Final = '''\
"""The agent {name}, with a scripted model: no key, no network."""

from agent import agent, count_words
from spine.testing import call, say


def test_words_are_counted():
    assert count_words("to be or not to be") == 6


async def test_the_answer_rests_on_the_tool(spine_runtime, spine_script):
    spine_script(call("count_words", text="one two"), say("Two."))
    session = await spine_runtime.session("words", agent)
    turn = await session.run("How many words has this: one two?")
    assert turn.text == "Two."
    assert [each.outcome.status for each in turn.tool_calls] == ["ok"]
'''
_PYTEST: Final = """\
[pytest]
pythonpath = .
anyio_mode = auto
"""
_IGNORE: Final = """\
*.db
*.db-shm
*.db-wal
.failed/
__pycache__/
"""
TEMPLATES: Final[Mapping[str, str]] = {
    "spine.toml": _CONFIG,
    "agent.py": _AGENT,
    "scenarios/words.scenario.yaml": _SCENARIO,
    "tests/test_agent.py": _TEST,
    "pytest.ini": _PYTEST,
    ".gitignore": _IGNORE,
}
"""Path in the project to its text; `{name}` is the project's name where a file holds Python."""


@click.command()
@click.argument("name")
@options()
def init(name: str) -> None:
    """Start a project in a new folder NAME."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", name):
        raise UsageError(f'"{name}" is no name for a project; letters, digits, - and _, a letter first')
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already and is not empty; nothing was changed", hint="spine init OTHER")
    for path, text in TEMPLATES.items():
        _write(folder / path, text.replace("{name}", name) if path.endswith(".py") else text)
    out(f"{folder}{os.sep}: {', '.join(TEMPLATES)}")
    out(f'Try: cd {name} && pytest -q    then: spine run "Count the words of this sentence"')


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


COMMANDS: Final = {"init": init}
