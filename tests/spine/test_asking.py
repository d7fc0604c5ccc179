"""What a step asks the model: made once, and anew as soon as something of it moved."""

from collections.abc import Callable
from typing import Any

import pytest

from spine import Agent, Runtime, Section
from spine.config import Settings
from spine.session import Session
from spine.testing.script import call, say
from spine.testing.scripted import ScriptedAdapter
from spine.tools import Tool, ToolDefinition

pytestmark = pytest.mark.anyio


def tool(name: str) -> Tool:
    async def handler(arguments: Any, context: Any) -> str:
        return "seen"

    return Tool(definition=ToolDefinition(name=name), handler=handler)


async def bases_of(agent: Agent, between: Callable[[Session], None] = lambda session: None) -> list[Any]:
    """The base of each of two steps and of a step of the next turn; `between` the first two something may happen."""
    bases: list[Any] = []
    settings = Settings(installed_plugins=False)
    model = ScriptedAdapter(call("look"), say("So."), say("Again."))
    async with Runtime.open("memory:", model=model, settings=settings) as runtime:
        session = await runtime.session("s", agent)

        def look(event: Any) -> None:
            if event.type == "model.requested":
                bases.append(session._run.base)
            if event.type == "tool.completed":
                between(session)

        session.log.observe(look)
        await session.run("Go.")
        await session.run("Go on.", model="p:other" if agent.name == "moving" else None)
    return bases


async def test_a_base_is_kept_over_steps_and_turns_while_nothing_moves() -> None:
    """It is the same object, with the same frame."""
    first, second, third = await bases_of(Agent("p:m", tools=[tool("look")], instructions="Be brief."))
    assert first is second is third
    assert first.frame is not None


def _more_tools(session: Session) -> None:
    run = session._run
    run.registries.tools.add("more", tool("more"), owner="me", scope=run.scope)


async def test_a_base_is_made_anew_when_a_tool_comes() -> None:
    """The next step of the same turn has it."""
    first, second, third = await bases_of(Agent("p:m", tools=[tool("look")]), _more_tools)
    assert [each.name for each in first.request.tools] == ["look"]
    assert [each.name for each in second.request.tools] == ["look", "more"]
    assert second is third


async def test_what_another_session_adds_moves_nothing() -> None:
    """Registries count all moves; only those in the scope's own chain make another base."""

    def elsewhere(session: Session) -> None:
        registries = session._run.registries
        registries.tools.add("more", tool("more"), owner="me", scope=type(session._run.scope)("elsewhere"))

    first, second, _ = await bases_of(Agent("p:m", tools=[tool("look")]), elsewhere)
    assert first is second


async def test_another_model_for_a_turn_is_another_base() -> None:
    """Overrides belong to a turn."""
    agent = Agent("p:m", tools=[tool("look")], name="moving")
    first, second, third = await bases_of(agent)
    assert first is second
    assert str(third.request.route) == "p:other"


async def test_a_dynamic_section_is_rendered_at_each_step() -> None:
    """Its base is another one when its text is."""
    texts = iter(["one", "one", "two"])
    section = Section("clock", dynamic=True, render=lambda context: next(texts))
    bases: list[Any] = []
    model = ScriptedAdapter(call("look"), call("look"), say("So."))
    async with Runtime.open("memory:", model=model, settings=Settings(installed_plugins=False)) as runtime:
        session = await runtime.session("s", Agent("p:m", tools=[tool("look")]))
        run = session._run
        run.registries.sections.add(section.name, section, owner="me", scope=run.scope)
        session.log.observe(lambda event: bases.append(run.base) if event.type == "model.requested" else None)
        await session.run("Go.")
    assert bases[0] is bases[1] is not bases[2]
    assert [base.request.system[0].text for base in bases] == ["one", "one", "two"]
