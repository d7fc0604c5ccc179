"""Which agent a command talks with (floor 15), and its import from `module:attribute`.

Named on the command line or in `SPINE_AGENT`, else the one that the session was recorded with, else the project's. A
new session without any gets a plain assistant on the configured model.
"""

import importlib
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from spine.agent import Agent
from spine.config import Settings
from spine.errors import SpineError, UsageError
from spine.events import SessionCreated
from spine.frozen import frozen
from spine.projectors.usage import SessionUsage
from spine.stored import StoredLog

__all__ = [
    "ChosenAgent",
    "choose_agent",
    "is_named",
    "load_agent",
    "load_function",
    "make_importable",
    "recorded_agent",
    "recorded_route",
]

_EXPLICIT: Final = ("--", "SPINE_")


@frozen
class ChosenAgent:
    """An agent, and the `module:attribute` it was found under; None for the plain assistant."""

    agent: Agent
    reference: str | None


def choose_agent(
    settings: Settings, recorded: SessionCreated | None, reader: StoredLog | None = None
) -> ChosenAgent | None:
    """The agent for a session; `recorded` is its first event, None for a new one. None when nobody names one.

    A session of the plain assistant goes on with the model it asked last, which its log (`reader`) says, when the
    configuration has none.
    """
    reference = recorded.agent.reference if recorded is not None else None
    chosen = settings.agent if is_named(settings) else reference or settings.agent
    if chosen is not None:
        return ChosenAgent(load_agent(chosen, settings.folder), chosen)
    if recorded is not None and recorded.agent.name != PLAIN:
        return None
    route = settings.model
    if route is None and recorded is not None and reader is not None:
        route = recorded_route(reader)
    return None if route is None else ChosenAgent(Agent(route, name=PLAIN), None)


def is_named(settings: Settings) -> bool:
    """Whether this very call names the agent: on its command line, or in `SPINE_AGENT`."""
    return settings.origins.get("agent", "").startswith(_EXPLICIT)


PLAIN: Final = "assistant"


def recorded_agent(reader: StoredLog) -> SessionCreated | None:
    """What a session says about the agent it began with; None when there is no such session yet."""
    if reader.store.head(reader.session) is None:
        return None
    first = next(iter(reader.read(until=1)), None)
    return first.data if first is not None and isinstance(first.data, SessionCreated) else None


def recorded_route(reader: StoredLog) -> str | None:
    """`provider:model` that a session asked last; None when it asked none yet."""
    usage = SessionUsage()
    tallies = usage.initial()
    for event in reader.select(usage.types):
        usage.apply(tallies, event)
    return next(filter(None, map(tallies.route, reversed(tallies.steps.values()))), None)


def load_agent(reference: str, folder: Path) -> Agent:
    """Import an agent; its module is looked for in `folder` and the working folder first.

    Raises `UsageError` that says what was looked for, what was found, and where.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise UsageError(f'agent "{reference}" is not of the form module:attribute', hint="--agent shop.agent:agent")
    module = _import(module_name, f'agent "{reference}"', folder)
    found = getattr(module, attribute, None)
    if isinstance(found, Agent):
        return found
    agents = [name for name, value in vars(module).items() if isinstance(value, Agent)]
    if found is not None:
        what = f"{attribute} is {type(found).__name__}, no Agent"
    else:
        near = get_close_matches(attribute, agents, 1)
        what = f'{module_name} has no "{attribute}"' + (f'; nearest is "{near[0]}"' if near else "")
    there = f"; agents there: {', '.join(agents)}" if agents else ""
    raise UsageError(f'agent "{reference}": {what}{there}')


def load_function(reference: str, folder: Path) -> Callable[..., Any]:
    """Import a function named as `module:function`, looked for as an agent is. Raises `UsageError`."""
    module_name, _, attribute = reference.partition(":")
    what = f'function "{reference}"'
    if not module_name or not attribute:
        raise UsageError(f"{what} is not of the form module:function", hint="checks:fails")
    found = getattr(_import(module_name, what, folder), attribute, None)
    if not callable(found):
        raise UsageError(f'{what}: {module_name} has no function "{attribute}"')
    function: Callable[..., Any] = found
    return function


def make_importable(folder: Path) -> None:
    """Let modules of `folder` and of the working folder be imported, before any other of the same name."""
    for place in (str(Path.cwd()), str(folder.absolute())):
        if place not in sys.path:
            sys.path.insert(0, place)


def _import(name: str, what: str, folder: Path) -> ModuleType:
    make_importable(folder)
    try:
        return importlib.import_module(name)
    except SpineError:
        raise
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise UsageError(f'{what}: there is no module "{exc.name}" in {folder.absolute()}') from exc
        raise _broken(what, name, exc) from exc
    except Exception as exc:
        raise _broken(what, name, exc) from exc


def _broken(what: str, name: str, error: Exception) -> UsageError:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 1 else ""
    return UsageError(f"{what}: {name} does not load: {type(error).__name__}: {error}{where}")
