"""The snapshot of a step: by reference, ordered, with owners; sections rendered as rarely as may be."""

from typing import Any

import pytest

from spine import Agent, Section
from spine.capabilities import SectionRenderer, is_plugin, snapshot, trim
from spine.errors import HookMisused, PluginFailed, ToolUnknown
from spine.llm.request import Route
from spine.messages import SystemBlock
from spine.scope import Registries, Scope
from spine.sections import DynamicContext, StaticContext
from spine.tools import ServerTool, Tool, ToolDefinition
from spine.values import ScopeId, SessionId, StepId, TurnId, utc

SCOPE = Scope(ScopeId("session s"), Scope(ScopeId("tenant")))
ROUTE = Route("p", "m")


def tool(name: str) -> Tool:
    return Tool(definition=ToolDefinition(name=name), handler=lambda arguments, context: None)


def agent(*tools: Any) -> Agent:
    return Agent("p:m", tools=tools)


def test_a_snapshot_holds_what_holds_in_the_scope_with_owners_and_order() -> None:
    """Tools by name, sections by (order, name); what is hidden is told apart."""
    registries = Registries.new()
    registries.tools.add("b", tool("b"), owner="application")
    registries.tools.add("b", tool("b"), owner="agent a", scope=SCOPE)
    registries.tools.add("a", ServerTool(name="a", protocol="p"), owner="application", scope=SCOPE.parent)
    for name, order in (("z", 1), ("y", 5), ("x", 5)):
        registries.sections.add(name, Section(name, order=order, render=name), owner="application")
    found = snapshot(registries, SCOPE, agent())
    assert [definition.name for definition in found.definitions] == ["a", "b"]
    assert found.tools["b"].owner == "agent a"
    assert [entry.owner for entry in found.hidden_tools] == ["application"]
    assert [entry.name for entry in found.sections] == ["z", "x", "y"]
    with pytest.raises(TypeError):
        found.tools["c"] = found.tools["b"]  # type: ignore[index]


SELECTIONS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "nothing": ((), ["own"]),
    "one": (("o.a",), ["o.a", "own"]),
    "a pattern": (("o.*",), ["o.a", "o.b", "own"]),
    "all": (("*",), ["o.a", "o.b", "own", "p.c"]),
}


@pytest.mark.parametrize(("names", "expected"), SELECTIONS.values(), ids=SELECTIONS)
def test_what_plugins_offer_is_taken_by_name(names: tuple[str, ...], expected: list[str]) -> None:
    """The application's own tools, and those added to the session's own scope, need no naming."""
    registries = Registries.new()
    for name in ("o.a", "o.b", "p.c"):
        registries.tools.add(name, tool(name), owner="orders@1")
    registries.tools.add("own", tool("own"), owner="opener@1", scope=SCOPE)
    assert sorted(snapshot(registries, SCOPE, agent(*names)).tools) == expected
    with pytest.raises(ToolUnknown, match=r'"q.\*", which nobody offers; there are: o.a, o.b, own, p.c'):
        snapshot(registries, SCOPE, agent("q.*"))


def test_owners_that_are_plugins_have_a_version() -> None:
    """`name@version`, and nobody else."""
    assert is_plugin("orders@0.3.0")
    assert not is_plugin("agent orders")


# ------------------------------------------------------------------------------------------------------ sections


class Stage:
    """A renderer with contexts, counting what is rendered."""

    def __init__(self, *sections: Section) -> None:
        self.registries = Registries.new()
        for section in sections:
            self.registries.sections.add(section.name, section, owner="application")
        self.renderer = SectionRenderer()

    def render(self, step: str = "t1s1", route: Route = ROUTE, capabilities: Any = None) -> tuple[SystemBlock, ...]:
        static = StaticContext(scope=SCOPE.id, session=SessionId("s"), agent="a", route=route)
        dynamic = DynamicContext(
            scope=SCOPE.id, session=SessionId("s"), agent="a", route=route, turn=TurnId("t1"), step=StepId(step),
            now=utc(0),
        )  # fmt: skip
        capabilities = capabilities or self.capabilities()
        return self.renderer.render(capabilities, route, lambda: static, lambda: dynamic)

    def capabilities(self) -> Any:
        return snapshot(self.registries, SCOPE, agent())


def test_static_sections_are_rendered_once_per_snapshot_and_route_and_dynamic_ones_each_step() -> None:
    """And the same tuple is given while nothing changed."""
    asked: list[str] = []
    stage = Stage(
        Section("s", order=1, render=lambda context: asked.append("static") or f"Model {context.model}."),  # type: ignore[func-returns-value]
        Section("d", order=2, dynamic=True, render=lambda context: asked.append("dynamic") or "Now."),  # type: ignore[func-returns-value]
        Section("empty", order=3, render=""),
    )
    capabilities = stage.capabilities()
    first = stage.render("t1s1", capabilities=capabilities)
    assert stage.render("t1s2", capabilities=capabilities) is first
    assert asked == ["static", "dynamic", "dynamic"]
    assert [block.text for block in first] == ["Model m.", "Now."]
    other = stage.render("t1s3", Route("p", "n"), capabilities)
    assert [block.text for block in other] == ["Model n.", "Now."]
    head = first[0]
    assert (head.name, head.source, head.order) == ("s", "application", 1)
    assert (head.dynamic, head.token_count) == (False, 2)


def reads_now(context: Any) -> str:
    return str(context.now)


FAILURES = {
    "a static section that reads the time": (Section("x", render=reads_now), PluginFailed, "dynamic=True"),
    "an exception": (Section("x", render=lambda context: 1 / 0), PluginFailed, "ZeroDivisionError"),
    "no text": (Section("x", render=lambda context: None), HookMisused, "rendered NoneType"),
}


@pytest.mark.parametrize(("section", "error", "message"), FAILURES.values(), ids=FAILURES)
def test_a_section_that_fails_is_named_with_its_owner(section: Section, error: Any, message: str) -> None:
    """And can render again when it is mended."""
    with pytest.raises(error, match=message) as failed:
        Stage(section).render()
    assert 'section "x" of application' in failed.value.message


# ---------------------------------------------------------------------------------------------------------- trim


def block(name: str, tokens: int, *, dynamic: bool = True, priority: int = 0, order: int = 0) -> SystemBlock:
    return SystemBlock(
        name=name, source="s", text="x", dynamic=dynamic, priority=priority, order=order, token_count=tokens
    )


BLOCKS = (
    block("fixed", 100, dynamic=False),
    block("low", 10, priority=1),
    block("high", 10, priority=9),
    block("late", 10, priority=1, order=5),
)
BUDGETS: dict[str, tuple[int | None, list[str], tuple[str, ...]]] = {
    "no budget": (None, ["fixed", "low", "high", "late"], ()),
    "all fit": (130, ["fixed", "low", "high", "late"], ()),
    "one too many": (129, ["fixed", "low", "high"], ("late",)),
    "two too many": (119, ["fixed", "high"], ("low", "late")),
    "nothing fits": (0, ["fixed"], ("low", "high", "late")),
}


@pytest.mark.parametrize(("budget", "kept", "dropped"), BUDGETS.values(), ids=BUDGETS)
def test_dynamic_sections_go_lowest_priority_first_and_static_ones_never(
    budget: int | None, kept: list[str], dropped: tuple[str, ...]
) -> None:
    """Of equal priority the later one goes first; what was left out is named in its order."""
    blocks, left_out = trim(BLOCKS, budget, 0)
    assert ([each.name for each in blocks], left_out) == (kept, dropped)


# ------------------------------------------------------------------------------------------------------ counters


def raises(text: str) -> int:
    raise ZeroDivisionError("oops")


COUNTERS: dict[str, Any] = {
    "raises": (raises, "raised ZeroDivisionError"),
    "no number": (lambda text: None, "returned None"),
    "less than nothing": (lambda text: -1, "returned -1"),
    "half a token": (lambda text: 0.5, r"returned 0\.5"),
}


@pytest.mark.parametrize(("counter", "message"), COUNTERS.values(), ids=COUNTERS)
def test_a_token_counter_that_fails_is_blamed_on_its_plugin(counter: Any, message: str) -> None:
    """A counter is foreign code, too."""
    stage = Stage(Section("x", render="some text"))
    stage.registries.counters.add("p", counter, owner="counts@1")
    with pytest.raises(PluginFailed, match=f"the token counter of counts@1 {message}"):
        stage.render()


def test_a_plugins_token_counter_counts_for_its_provider_only() -> None:
    """Others get the documented default."""
    stage = Stage(Section("x", render="some text"))
    stage.registries.counters.add("p", len, owner="counts@1")
    assert stage.render()[0].token_count == 9
    assert stage.render(route=Route("q", "m"))[0].token_count == 3
