"""Prompt sections as values, and what their contexts let them read."""

import copy
import datetime

import attrs
import pytest

from spine.errors import UsageError
from spine.llm.request import Route
from spine.sections import DynamicContext, Section, StaticContext
from spine.tools import ToolDefinition
from spine.values import ScopeId, SessionId, StepId, TurnId

SHARED = {
    "scope": ScopeId("session s"),
    "session": SessionId("s"),
    "agent": "refunds",
    "route": Route("scripted", "demo"),
    "variables": {"customer": "c-77"},
}
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


@pytest.fixture
def static():
    return StaticContext(**SHARED)


@pytest.fixture
def dynamic():
    tools = (ToolDefinition(name="refund"),)
    return DynamicContext(**SHARED, turn=TurnId("t1"), step=StepId("t1s2"), now=NOW, tools=tools)


def test_a_section_takes_its_name_first():
    made = Section("refund-policy", order=50, dynamic=True, render=lambda context: str(context.now.date()))
    assert (made.name, made.order, made.source, made.priority, made.dynamic) == ("refund-policy", 50, "", 0, True)
    assert made.metadata == {}
    assert made.evolve(order=5).order == 5


def test_only_the_name_is_positional():
    with pytest.raises(TypeError):
        Section("a", 50, render="x")
    with pytest.raises(TypeError, match="render"):
        Section("a")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"name": "", "render": "x"}, "a section's name is ''"),
        ({"name": "  ", "render": "x"}, "it must be text that is not empty"),
        ({"name": None, "render": "x"}, "a section's name is None"),
        ({"name": "a", "render": None}, 'section "a": render is NoneType; it must be text, or a function'),
        ({"name": "a", "render": 5}, 'section "a": render is int'),
    ],
)
def test_a_section_without_name_or_text_is_refused(arguments, part):
    with pytest.raises(UsageError) as refused:
        Section(**arguments)
    assert part in str(refused.value)


@pytest.mark.parametrize("field", ["name", "render", "order", "metadata"])
def test_a_section_is_frozen(field):
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(Section("a", render="x"), field, "other")


def test_a_static_section_reads_what_holds_for_the_session(static):
    assert (static.scope, static.session, static.agent) == ("session s", "s", "refunds")
    assert (str(static.route), static.model) == ("scripted:demo", "demo")
    assert static.variables["customer"] == "c-77"


@pytest.mark.parametrize("field", ["turn", "step", "tools", "now"])
def test_a_static_section_is_told_how_to_read_more(static, field):
    with pytest.raises(UsageError, match=rf"read context\.{field}, .* Section\(…, dynamic=True\)"):
        getattr(static, field)
    with pytest.raises(UsageError):
        getattr(static, field, None)


def test_other_names_are_plain_mistakes(static):
    with pytest.raises(AttributeError, match="'nwo'"):
        _ = static.nwo
    assert getattr(static, "nwo", "default") == "default"


def test_a_dynamic_section_reads_the_step_too(dynamic):
    assert (dynamic.turn, dynamic.step, dynamic.now, dynamic.model) == ("t1", "t1s2", NOW, "demo")
    assert dynamic.tools[0].name == "refund"


def test_the_static_part_is_the_same_at_each_step(static, dynamic):
    later = attrs.evolve(dynamic, step=StepId("t1s3"))
    assert dynamic.static == later.static == static
    assert len({dynamic.static, later.static, static}) == 1


@pytest.mark.parametrize("field", ["scope", "session", "variables", "turn", "other"])
def test_contexts_are_frozen(static, dynamic, field):
    for context in (static, dynamic):
        with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError)):
            setattr(context, field, "other")
        with pytest.raises(TypeError):
            context.variables["customer"] = "c-78"


def test_a_context_can_be_copied(static):
    assert copy.copy(static) == static
    assert copy.deepcopy(static) == static
