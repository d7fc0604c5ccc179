"""What a scenario runs with (floor 14): agents, tools, sections and plugins, from Python or written in the scenario."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from spine.agent import Agent, Limits
from spine.errors import ScenarioInvalid
from spine.functions import as_tool
from spine.hooks import hookimpl
from spine.llm.catalogue import ModelEntry, Provider
from spine.llm.request import Route
from spine.sections import Section
from spine.testing.scenarios.scenario import AgentSpec, Scenario, SectionSpec, ToolSpec
from spine.tools import Tool, ToolDefinition

__all__ = ["ScenarioPlugin", "find", "find_module", "make_agent", "make_section"]


# --------------------------------------------------------------------------------------------------- from Python


def find(reference: str, scenario: Scenario, what: str) -> Any:
    """The object of `module:attribute`; the module is looked for beside the scenario, then among importable ones."""
    name, colon, attribute = reference.partition(":")
    if not (name and colon and attribute):
        raise ScenarioInvalid(f'{scenario.path.name}: {what} "{reference}" is not of the form module:attribute')
    module = find_module(name, scenario, what)
    try:
        return getattr(module, attribute)
    except AttributeError as exc:
        raise ScenarioInvalid(f'{scenario.path.name}: {what} "{reference}": {name} has no "{attribute}"') from exc


def find_module(name: str, scenario: Scenario, what: str) -> ModuleType:
    """A module beside the scenario, or else an importable one."""
    folder = scenario.path.resolve().parent
    beside = folder.joinpath(*name.split(".")).with_suffix(".py")
    if beside.is_file():
        return _load(name, beside, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{name}.".startswith(f"{exc.name}."):
            raise
        raise ScenarioInvalid(
            f'{scenario.path.name}: {what} "{name}" is neither beside the file nor importable: no module "{exc.name}"'
        ) from exc


def _load(name: str, path: Path, folder: Path) -> ModuleType:
    # Folders of scenarios may each have their `agents.py`, so the module's name says which one it is.
    unique = f"scenarios_{sha256(str(folder).encode()).hexdigest()[:8]}.{name}"
    kept = sys.modules.get(unique)
    if kept is not None:
        return kept
    spec = importlib.util.spec_from_file_location(unique, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    try:
        with _importable(folder):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[unique]
        raise
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let a module import its neighbours while it is loaded."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


# --------------------------------------------------------------------------------------------- from the scenario


def make_agent(spec: str | AgentSpec, scenario: Scenario) -> Agent:
    """The agent that a scenario names or holds."""
    if isinstance(spec, str):
        agent = find(spec, scenario, "agent")
        if not isinstance(agent, Agent):
            raise ScenarioInvalid(f'{scenario.path.name}: agent "{spec}" is {type(agent).__name__}, no Agent')
        return agent
    options: dict[str, Any] = dict(spec.options)
    limits = {name: options.pop(name) for name in ("steps", "tokens", "cost", "wall_s") if name in options}
    options["limits"] = Limits(**limits)
    tools: list[Any] = [_own_tool(tool, scenario) for tool in spec.tools]
    return Agent(spec.model, tools=tuple(tools), **options)


def _own_tool(tool: str | ToolSpec, scenario: Scenario) -> Tool | str:
    if isinstance(tool, ToolSpec):
        return _written_tool(tool, scenario)
    return as_tool(find(tool, scenario, "tool")) if ":" in tool else tool


def _written_tool(spec: ToolSpec, scenario: Scenario) -> Tool:
    answers = scenario.tools.get(spec.name, ())
    if not answers or any(answer.is_own for answer in answers):
        raise ScenarioInvalid(
            f'{scenario.path.name}: tool "{spec.name}" is written in the scenario and has no handler; '
            f"under tools it needs returns or raises"
        )
    options: dict[str, Any] = dict(spec.options)
    options.setdefault("parallel", options.get("effect") == "read_only")
    definition = ToolDefinition(name=spec.name, description=spec.description, parameters=spec.parameters)
    return Tool(definition=definition, handler=_no_handler, **options)


async def _no_handler(arguments: Mapping[str, Any], context: Any) -> Any:
    raise AssertionError("the scenario answers for this tool")


def make_section(spec: SectionSpec) -> Section:
    """The section that a scenario holds."""
    return Section(spec.name, render=spec.text, **spec.options)


class ScenarioPlugin:
    """Offers what a scenario holds itself: its global sections, and what it says of models."""

    __name__ = "scenario"
    __version__ = "0"

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    @hookimpl
    def spine_register_prompts(self, registrar: Any) -> None:
        """The sections that hold everywhere."""
        for section in self._scenario.sections:
            if section.scope is None:
                registrar.add(make_section(section))

    @hookimpl
    def spine_register_protocols(self, registrar: Any) -> None:
        """A catalogue entry for each provider that the scenario describes a model of."""
        routes = [(Route.parse(name), spec) for name, spec in self._scenario.models.items()]
        for provider in dict.fromkeys(route.provider for route, _ in routes):
            models = {
                route.model: ModelEntry(window=spec.window, max_output=spec.max_output, prices=spec.prices)
                for route, spec in routes
                if route.provider == provider
            }
            registrar.add(Provider(id=provider, protocol="scripted", auth="none", models=models))
