"""The loop: one move for each phase, whatever state it begins with."""

import itertools
from typing import Any, get_args

import anyio
import pytest

from spine import Agent, Runtime, Section
from spine import loop as module
from spine.config import Settings
from spine.errors import PluginFailed, RouteUnknown, UsageError
from spine.events import ModelRequested
from spine.llm.catalogue import ModelEntry, Provider
from spine.llm.errors import CATEGORIES, ProviderError, provider_error
from spine.loop import _failure
from spine.projectors.status import Phase
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


def settings_of(**fields: Any) -> Settings:
    return Settings(installed_plugins=False, **fields)


def test_every_phase_has_its_move() -> None:
    """A state of a turn without a move would hang."""
    assert set(module._MOVES) == set(get_args(Phase))


FAILURES: dict[str, tuple[Exception, str]] = {
    "a provider's": (provider_error("overloaded", "busy"), "overloaded"),
    "a plugin's": (PluginFailed("broken", plugin="p@1"), "hook_failed"),
    "a route's": (RouteUnknown("nowhere"), "not_found"),
    "the caller's": (UsageError("wrong"), "invalid_request"),
}


@pytest.mark.parametrize(("error", "category"), FAILURES.values(), ids=FAILURES)
def test_an_error_becomes_a_failure_of_its_kind(error: Any, category: str) -> None:
    """A provider's own failure stays as it is; a plugin's names the plugin."""
    failure = _failure(error)
    assert failure.category == category
    assert category in CATEGORIES
    assert failure.message == error.message
    if isinstance(error, ProviderError):
        assert failure is error.failure
    if isinstance(error, PluginFailed):
        assert failure.details["plugin"] == "p@1"


def lab(window: int | None) -> Settings:
    provider = Provider(id="lab", protocol="scripted", models={"tiny": ModelEntry(window=window)})
    return settings_of(providers=(provider,))


WINDOWS: dict[str, tuple[int | None, tuple[str, ...]]] = {
    "unknown": (None, ()),
    "wide": (100_000, ()),
    "narrow": (150, ("low",)),
    "too narrow": (60, ("high", "low")),
}


@pytest.mark.parametrize(("window", "trimmed"), WINDOWS.values(), ids=WINDOWS)
async def test_dynamic_sections_are_left_out_when_the_window_is_full(
    window: int | None, trimmed: tuple[str, ...]
) -> None:
    """Lowest priority first; what was left out, and the estimate, stand in `model.requested`."""
    model = ScriptedAdapter(say("ok"))
    async with Runtime.open("memory:", model=model, settings=lab(window)) as runtime:
        scope = runtime.scope("tenant")
        for name, priority in (("low", 1), ("high", 9)):
            scope.add(Section(name, dynamic=True, priority=priority, render="x" * 200))
        agent = Agent("lab:tiny", instructions="y" * 200, max_output_tokens=20)
        session = await runtime.session("s", agent, scope=scope)
        await session.run("z" * 40)
        (requested,) = [e.data for e in session.log.read() if isinstance(e.data, ModelRequested)]
        assert requested.trimmed == trimmed
        assert (requested.estimate is None) is (window is None)
        kept = [block.name for block in model.requests[0].system]
        assert kept == [name for name in ("high", "low", "instructions") if name not in trimmed]


async def test_a_long_turn_lets_other_tasks_run() -> None:
    """A model that never waits does not starve its neighbours."""
    from spine.testing.script import call
    from spine.tools import Tool, ToolDefinition

    async def handler(arguments: Any, context: Any) -> str:
        return "x"

    tool = Tool(definition=ToolDefinition(name="look"), handler=handler)

    class Eager(ScriptedAdapter):
        """Answers without a checkpoint of its own."""

    beats: list[float] = []

    async def heartbeat() -> None:
        while True:
            beats.append(anyio.current_time())
            await anyio.sleep(0)

    model = Eager(*[call("look")] * 300, say("ok"))
    async with Runtime.open("memory:", model=model, settings=settings_of()) as runtime:
        session = await runtime.session("s", Agent("p:m", tools=[tool], limits=module_limits()))
        async with anyio.create_task_group() as group:
            group.start_soon(heartbeat)
            await session.run("Go.")
            group.cancel_scope.cancel()
    assert max(b - a for a, b in itertools.pairwise(beats)) < 0.25


def module_limits() -> Any:
    from spine import Limits

    return Limits(steps=400)
