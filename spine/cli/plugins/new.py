"""`plugins new` (floor 15): a small distribution with one plugin, whose own tests pass before a line of it is changed.

Each kind is a dict of files. `{name}` is what the user called it, `{key}` the same as an identifier (the plugin's name
whether it is installed or loaded as a module), `{module}` its package, `{class}` a name for its class.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from spine.cli.options import options
from spine.cli.plugins.protocol import PROTOCOL
from spine.cli.screen import out
from spine.errors import UsageError

__all__ = ["KINDS", "new"]

_PROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "spine-{name}"
version = "0.1.0"
description = "What {name} brings to agents"
requires-python = ">=3.11"
dependencies = ["agent-spine>=0.1"]

[project.optional-dependencies]
test = ["agent-spine[testing]"]

[project.entry-points.spine]
{key} = "{module}"

[tool.hatch.build.targets.wheel]
packages = ["{module}"]

[tool.pytest.ini_options]
anyio_mode = "auto"
"""
_IGNORE: Final = """\
__pycache__/
.pytest_cache/
dist/
"""

# ------------------------------------------------------------------------------------------------------------- tool

_TOOL_HOOKS: Final = '''\
"""The plugin {key}: a tool, a prompt section that goes with it, and a rule about its calls."""

from spine import Section
from spine.hooks import Deny, hookimpl

from {module}.tools import lookup

__version__ = "0.1.0"


@hookimpl
def spine_register_tools(registrar):
    """Agents name it "{key}.lookup", or "{key}.*"."""
    registrar.add(lookup)


@hookimpl
def spine_register_prompts(registrar):
    registrar.add(Section("{key}", order=50, render="Look things up before you answer."))


@hookimpl
async def spine_pre_execute(call, call_next):
    if call.name == "{key}.lookup" and call.arguments["key"] == "everything":
        return Deny("one key at a time")
    return await call_next(call)
'''
_TOOL: Final = '''\
"""The tools, as functions: annotations and docstring become what the model is told."""

from spine import tool

ENTRIES = {"mug": "order 1017, broken", "plate": "order 1018, on its way"}


@tool(name="{key}.lookup", effect="read_only")
def lookup(key: str) -> str:
    """Look up what is known about one thing."""
    return ENTRIES.get(key, "nothing is known")
'''
_TOOL_TEST: Final = '''\
"""The plugin {key}, with a scripted model: no key, no network."""

import {module}
import pytest
from {module}.tools import lookup
from spine import Agent
from spine.testing import call, say


@pytest.fixture
async def session(spine_runtime):
    spine_runtime.load_plugin({module})
    return await spine_runtime.session("s", Agent("openai:gpt-5-mini", tools=["{key}.*"]))


async def test_the_tool_needs_no_model():
    outcome = await lookup.invoke({"key": "mug"})
    assert outcome.content[0].text == "order 1017, broken"


async def test_wrong_arguments_are_told_to_the_model():
    outcome = await lookup.invoke({"key": 1017})
    assert outcome.status == "error"
    assert "key" in outcome.content[0].text


async def test_an_agent_that_names_the_tool_may_call_it(session, spine_script):
    spine_script(call("{key}.lookup", key="plate"), say("It is on its way."))
    turn = await session.run("Where is my plate?")
    assert [each.outcome.status for each in turn.tool_calls] == ["ok"]


async def test_the_section_stands_in_the_request_under_its_owner(session, spine_script):
    model = spine_script(say("Hello."))
    await session.run("Hello?")
    assert [(block.name, block.source) for block in model.requests[0].system] == [("{key}", "{key}@0.1.0")]


async def test_what_the_rule_forbids_is_not_run(session, spine_script):
    spine_script(call("{key}.lookup", key="everything"), say("I may not."))
    turn = await session.run("Tell me everything.")
    assert [each.outcome.status for each in turn.tool_calls] == ["denied"]
'''

# ------------------------------------------------------------------------------------------------------------- hook

_HOOK: Final = '''\
"""The plugin {key}: changes requests and results of any agent it is installed with; each change is in the log."""

from spine.hooks import hookimpl
from spine.messages import TextBlock

__version__ = "0.1.0"
MAX_OUTPUT_TOKENS = 512


@hookimpl
async def spine_pre_step(request, call_next):
    """Short answers; recorded as a patch of this plugin."""
    return await call_next(request.evolve(max_output_tokens=MAX_OUTPUT_TOKENS))


@hookimpl
async def spine_post_execute(outcome, call_next):
    """What the model sees of a result; the result itself stays in the log as it was."""
    blocks = [_without_mail(block) if isinstance(block, TextBlock) else block for block in outcome.content]
    return await call_next(outcome.evolve(content=tuple(blocks)))


def _without_mail(block):
    words = ["[address]" if "@" in word else word for word in block.text.split(" ")]
    return TextBlock(text=" ".join(words))
'''
_HOOK_TEST: Final = '''\
"""The plugin {key}, with a scripted model: no key, no network."""

import {module}
import pytest
from spine import Agent, tool
from spine.testing import call, say


@tool(effect="read_only")
def customer() -> str:
    """Who asks."""
    return "Ann ann@example.org"


@pytest.fixture
async def session(spine_runtime):
    spine_runtime.load_plugin({module})
    return await spine_runtime.session("s", Agent("openai:gpt-5-mini", tools=[customer]))


async def test_every_request_asks_for_a_short_answer(session, spine_script):
    model = spine_script(say("Hello."))
    await session.run("Hello?")
    assert model.requests[0].max_output_tokens == {module}.MAX_OUTPUT_TOKENS


async def test_the_change_is_in_the_log_under_the_plugin(session, spine_script):
    spine_script(say("Hello."))
    await session.run("Hello?")
    (requested,) = session.log.read(types=("model.requested",))
    assert [patch.plugin for patch in requested.data.patches] == ["{key}@0.1.0"]


async def test_the_model_sees_no_addresses(session, spine_script):
    model = spine_script(call("customer"), say("It is Ann."))
    await session.run("Who am I?")
    (result,) = model.requests[1].messages[-1].content
    assert result.content[0].text == "Ann [address]"
'''

# ---------------------------------------------------------------------------------------------------------- adapter

_ADAPTER_HOOKS: Final = '''\
"""The plugin {key}: a model that is no HTTP server, under the provider "{key}"."""

from spine.hooks import hookimpl

from {module}.model import {class}Model

__version__ = "0.1.0"


@hookimpl
def spine_register_adapters(registrar):
    """Called when a route "{key}:…" is first used; the runtime closes what it made."""
    registrar.add({class}Model, provider="{key}")
'''
_ADAPTER: Final = '''\
"""The model: repeats the last message. Replace `_answer` by something that thinks."""

from spine.llm.chunks import TextDelta
from spine.llm.errors import provider_error
from spine.llm.response import ModelResponse
from spine.llm.usage import Usage
from spine.messages import Message, TextBlock


class {class}Model:
    """An adapter: zero or more chunks, then exactly one response."""

    def __init__(self, settings=None):
        self.settings = settings

    def check(self, request):
        """Refuse what it cannot do, before anything is recorded."""
        if request.tools:
            raise provider_error("unsupported_capability", "{key} calls no tools", retryable=False)

    async def stream(self, request):
        text = ""
        for word in _answer(request):
            text += word
            yield TextDelta(0, word)
        message = Message(role="assistant", content=(TextBlock(text=text),))
        yield ModelResponse(message=message, stop_reason="end_turn", usage=Usage(output_tokens=len(text.split())))

    async def aclose(self):
        """Let go of what it holds; called once."""


def _answer(request):
    yield "You said: "
    yield request.messages[-1].text
'''
_ADAPTER_TEST: Final = '''\
"""The model of {key} keeps the contract of every adapter, and answers."""

import pytest
from {module}.model import {class}Model
from spine import Agent, Runtime
from spine.testing import AdapterContract


class TestContract(AdapterContract):
    def answering(self):
        return {class}Model()


@pytest.mark.anyio
async def test_an_agent_talks_with_it_once_it_is_installed():
    async with Runtime.open("memory:") as runtime:
        session = await runtime.session("s", Agent("{key}:any"))
        turn = await session.run("Hello.")
        assert turn.text == "You said: Hello."
'''

KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "tool": {"__init__.py": _TOOL_HOOKS, "tools.py": _TOOL, "test": _TOOL_TEST},
    "hook": {"__init__.py": _HOOK, "test": _HOOK_TEST},
    "protocol": PROTOCOL,
    "adapter": {"__init__.py": _ADAPTER_HOOKS, "model.py": _ADAPTER, "test": _ADAPTER_TEST},
}
"""Kind to the files of the plugin's package, and its tests."""


@click.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(list(KINDS)), default="tool", show_default=True, help="What it brings.")
@options()
def new(name: str, kind: str) -> None:
    """Start a plugin NAME in a new folder spine-NAME, with tests that pass."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or len(name) > 40:
        raise UsageError(
            f'"{name}" is no name for a plugin; small letters, digits and single -, a letter first, at most 40',
            hint="spine plugins new orders",
        )
    folder = Path(f"spine-{name}")
    if folder.exists():
        raise UsageError(f"{folder} is there already; nothing was changed", hint="spine plugins new OTHER")
    files = _files(name, kind)
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    out(f"{folder}{os.sep}: {', '.join(files)}")
    out(f"Try: cd {folder} && pip install -e '.[test]' && pytest -q && spine plugins")


def _files(name: str, kind: str) -> dict[str, str]:
    """Path in the new folder to its text."""
    key = name.replace("-", "_")
    module = f"spine_{key}"
    package, test = dict(KINDS[kind]), f"tests/test_{module}.py"
    texts = {"pyproject.toml": _PROJECT, ".gitignore": _IGNORE, test: package.pop("test")}
    texts |= {f"{module}/{path}": text for path, text in package.items()}
    words = {
        "name": name,
        "key": key,
        "module": module,
        "class": "".join(map(str.capitalize, name.split("-"))),
    }
    return {path: re.sub(r"\{(\w+)\}", lambda m: words[m[1]], text) for path, text in texts.items()}
