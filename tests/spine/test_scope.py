"""Layers of contributions: what holds where, what is hidden, who owns it, and what moves a version."""

import gc
import timeit
import weakref

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spine.errors import DuplicateContribution, IdInvalid, UsageError
from spine.scope import LayeredRegistry, Registries, Scope
from spine.sections import Section
from spine.tools import Tool, ToolDefinition
from spine.values import ScopeId

TENANT = Scope(ScopeId("tenant-acme"))
TEAM = Scope(ScopeId("team-7"), TENANT)
SESSION = Scope(ScopeId("session oslo"), TEAM)
OTHER = Scope(ScopeId("session bergen"), TENANT)


@pytest.fixture
def registry():
    return LayeredRegistry("tool")


def held(registry, scope=None):
    return {entry.name: entry.value for entry in registry.resolve(scope)}


# ------------------------------------------------------------------------------------------------------- layering


def test_reading_merges_from_the_global_layer_to_the_nearest(registry):
    for layer, names in ((None, "abcd"), (TENANT, "bcd"), (TEAM, "cd"), (SESSION, "d")):
        for name in names:
            registry.add(name, layer.id if layer else "global", owner="application", scope=layer)
    assert held(registry) == dict.fromkeys("abcd", "global")
    assert held(registry, TENANT) == {"a": "global", "b": "tenant-acme", "c": "tenant-acme", "d": "tenant-acme"}
    assert held(registry, SESSION) == {"a": "global", "b": "tenant-acme", "c": "team-7", "d": "session oslo"}
    assert held(registry, OTHER) == held(registry, TENANT)


def test_what_is_nearer_hides_and_gives_back(registry):
    registry.add("weather", 1, owner="demo@1.0")
    registry.add("weather", 2, owner="application", scope=TENANT)
    dispose = registry.add("weather", 3, owner="agent oslo", scope=SESSION)
    resolved = registry.resolve(SESSION)
    entry = resolved.entries["weather"]
    assert [below.value for below in entry.hides] == [2, 1]
    assert [below.owner for below in resolved.hidden] == ["application", "demo@1.0"]
    assert all(below.hides == () for below in resolved.hidden)
    dispose()
    assert held(registry, SESSION) == {"weather": 2}
    assert registry.resolve(SESSION).entries["weather"].hides[0].value == 1


def test_a_contribution_says_whose_it_is_and_where_it_stands(registry):
    registry.add("weather", 1, owner="orders@0.3.0", scope=TENANT, where="app.py:9")
    (entry,) = registry.resolve(SESSION)
    assert (entry.name, entry.owner, entry.layer, entry.where) == ("weather", "orders@0.3.0", "tenant-acme", "app.py:9")


def test_order_is_by_name_whatever_the_order_of_registration(registry):
    for name in ("b", "c", "a"):
        registry.add(name, name, owner="application", scope=TENANT if name == "c" else None)
    resolved = registry.resolve(TENANT)
    assert list(resolved.entries) == ["a", "b", "c"]
    assert resolved.values == ("a", "b", "c")
    assert (resolved.get("b"), resolved.get("z"), "a" in resolved, len(resolved)) == ("b", None, True, 3)


# ----------------------------------------------------------------------------------------------------- duplicates

DUPLICATES = (
    (
        (SESSION, "agent refunds", "app.py:9"),
        ("agent refunds", "app.py:31"),
        'tool "weather" already in scope "session oslo" from agent "refunds" (app.py:9); '
        "added again at app.py:31; names are unique per scope",
    ),
    (
        (None, "demo@1.0", "demo.py:3"),
        ("orders@0.3.0", "orders.py:8"),
        'tool "weather" already in the global scope from plugin "demo@1.0" (demo.py:3); '
        'added again by plugin "orders@0.3.0" at orders.py:8; names are unique per scope',
    ),
    (
        (TENANT, "application", None),
        ("application", None),
        'tool "weather" already in scope "tenant-acme" from application; added again; names are unique per scope',
    ),
)


@pytest.mark.parametrize(("first", "second", "text"), DUPLICATES)
def test_the_same_name_twice_in_one_layer_names_both(registry, first, second, text):
    scope, owner, where = first
    registry.add("weather", 1, owner=owner, scope=scope, where=where)
    version = registry.version(scope)
    with pytest.raises(DuplicateContribution) as refused:
        registry.add("weather", 2, owner=second[0], scope=scope, where=second[1])
    assert str(refused.value) == text
    assert held(registry, scope) == {"weather": 1}
    assert registry.version(scope) == version


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_contribution_needs_a_name(registry, name):
    with pytest.raises(UsageError, match=r'plugin "demo@1" .*; it needs one'):
        registry.add(name, 1, owner="demo@1")


@pytest.mark.parametrize("id", ["", "a\nb", "x" * 201, "\x00", None, 5])
def test_a_scope_needs_a_printable_id(id):
    with pytest.raises(IdInvalid, match="scope id"):
        Scope(id)


# ------------------------------------------------------------------------------------------------------- disposing


def test_disposing_twice_does_nothing_more(registry):
    dispose = registry.add("weather", 1, owner="demo@1")
    dispose()
    version = registry.version()
    dispose()
    assert registry.version() == version
    registry.add("weather", 2, owner="other@1")
    dispose()
    assert held(registry) == {"weather": 2}


def test_an_equal_contribution_of_another_is_not_disposed(registry):
    dispose = registry.add("weather", 1, owner="demo@1")
    dispose()
    registry.add("weather", 1, owner="demo@1")
    dispose()
    assert held(registry) == {"weather": 1}


def section(name):
    return Section(name, render="text")


def a_tool(name):
    return Tool(definition=ToolDefinition(name=name), handler=print)


def test_an_owner_goes_last_added_first_over_all_registries():
    registries = Registries.new()
    registries.tools.add("a", a_tool("a"), owner="demo@1")
    registries.sections.add("b", section("b"), owner="demo@1", scope=TENANT)
    registries.tools.add("other", a_tool("other"), owner="orders@1")
    registries.tools.add("c", a_tool("c"), owner="demo@1", scope=SESSION)
    registries.counters.add("d", len, owner="demo@1")
    gone = registries.dispose_owner("demo@1")
    assert [entry.name for entry in gone] == ["d", "c", "b", "a"]
    assert [entry.name for registry in registries.all for entry in registry.contributions()] == ["other"]
    assert registries.dispose_owner("demo@1") == ()


def test_an_owner_can_go_half_way_through_registering():
    registries = Registries.new()
    registries.tools.add("a", a_tool("a"), owner="orders@1")
    registries.tools.add("b", a_tool("b"), owner="demo@1")
    with pytest.raises(DuplicateContribution):
        registries.tools.add("a", a_tool("a"), owner="demo@1")
    registries.dispose_owner("demo@1")
    assert held(registries.tools).keys() == {"a"}


def test_what_a_snapshot_holds_outlives_the_owner(registry):
    registry.add("weather", 1, owner="demo@1")
    snapshot = registry.resolve(TENANT)
    registry.remove(next(iter(snapshot)))
    assert snapshot.get("weather") == 1
    assert held(registry, TENANT) == {}


# -------------------------------------------------------------------------------------------------------- versions


def test_a_version_moves_only_with_its_own_chain(registry):
    def versions():
        return {scope and scope.id: registry.version(scope) for scope in (None, TENANT, TEAM, SESSION, OTHER)}

    before = versions()
    dispose = registry.add("weather", 1, owner="application", scope=TEAM)
    after = versions()
    assert {id for id in after if after[id] != before[id]} == {"team-7", "session oslo"}
    dispose()
    gone = versions()
    assert {id for id in gone if gone[id] != after[id]} == {"team-7", "session oslo"}
    assert all(gone[id] not in (before[id], after[id]) for id in ("team-7", "session oslo"))


def test_one_number_tells_of_every_kind():
    registries = Registries.new()
    numbers = [registries.version(SESSION)]
    for add in (
        lambda: registries.tools.add("a", a_tool("a"), owner="application"),
        lambda: registries.sections.add("a", section("a"), owner="application", scope=SESSION),
        lambda: registries.policies.add("a", "never", owner="application", scope=TENANT),
    ):
        dispose = add()
        numbers.append(registries.version(SESSION))
        dispose()
        numbers.append(registries.version(SESSION))
    assert len(set(numbers)) == len(numbers)
    registries.tools.add("b", a_tool("b"), owner="application", scope=OTHER)
    assert registries.version(SESSION) == numbers[-1]


def test_resolving_again_gives_the_same_object_until_something_moves(registry):
    registry.add("a", 1, owner="application")
    first = registry.resolve(SESSION)
    registry.add("b", 1, owner="application", scope=OTHER)
    assert registry.resolve(SESSION) is first
    assert first.version == registry.version(SESSION)
    registry.add("c", 1, owner="application", scope=TENANT)
    assert registry.resolve(SESSION) is not first


def test_scopes_with_nothing_of_their_own_share_what_holds_above_them(registry):
    registry.add("a", 1, owner="application")
    assert registry.resolve(SESSION) is registry.resolve(OTHER) is registry.resolve()
    dispose = registry.add("b", 1, owner="application", scope=TEAM)
    assert registry.resolve(SESSION) is registry.resolve(TEAM)
    assert registry.resolve(OTHER) is registry.resolve(TENANT) is registry.resolve()
    dispose()
    assert held(registry, SESSION) == {"a": 1}


def test_scopes_that_are_equal_are_one_scope(registry):
    registry.add("a", 1, owner="application", scope=Scope(ScopeId("s"), Scope(ScopeId("t"))))
    assert held(registry, Scope(ScopeId("s"), Scope(ScopeId("t")))) == {"a": 1}


def test_forgetting_a_scope_leaves_nothing_behind():
    class Value:
        pass

    registries, value = Registries.new(), Value()
    gone = weakref.ref(value)
    own = Scope(ScopeId("session s"), TENANT)
    dispose = registries.counters.add("a", value, owner="application", scope=own)
    registries.counters.resolve(own)
    del value
    registries.forget(own)
    assert registries.counters.contributions() == ()
    assert held(registries.counters, own) == {}
    dispose()
    del dispose
    gc.collect()
    assert gone() is None


def test_a_version_is_cheap():
    registries = Registries.new()
    for number in range(100):
        registries.tools.add(f"tool_{number}", a_tool("a"), owner="application")
    registries.version(SESSION)
    best = min(timeit.repeat(lambda: registries.version(SESSION), number=1000, repeat=5)) / 1000
    assert best < 5e-6


# ---------------------------------------------------------------------------------------------------------- values


def test_scopes_contributions_and_snapshots_are_frozen(registry):
    registry.add("a", 1, owner="application")
    resolved = registry.resolve(SESSION)
    for value, field in (
        (SESSION, "parent"),
        (SESSION, "id"),
        (resolved, "version"),
        (next(iter(resolved)), "value"),
        (next(iter(resolved)), "hides"),
        (Registries.new(), "tools"),
    ):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, field, None)
    with pytest.raises(TypeError):
        resolved.entries["b"] = 1
    with pytest.raises(AttributeError):
        SESSION.more = 1


class Layering(RuleBasedStateMachine):
    """The registry against the plainest model of it: a dictionary of dictionaries, merged anew each time."""

    scopes = (None, TENANT, TEAM, SESSION, OTHER)

    def __init__(self):
        super().__init__()
        self.registry = LayeredRegistry("thing")
        self.model = {scope and scope.id: {} for scope in self.scopes}
        self.disposers = []
        self.seen = {}
        self.count = 0

    @rule(scope=st.sampled_from(scopes), name=st.sampled_from("abc"))
    def add(self, scope, name):
        layer, self.count = self.model[scope and scope.id], self.count + 1
        if name in layer:
            with pytest.raises(DuplicateContribution):
                self.registry.add(name, self.count, owner="x", scope=scope)
        else:
            dispose = self.registry.add(name, self.count, owner="x", scope=scope)
            layer[name] = self.count
            self.disposers.append((dispose, layer, name, self.count))

    @precondition(lambda self: self.disposers)
    @rule(data=st.data())
    def dispose(self, data):
        dispose, layer, name, value = data.draw(st.sampled_from(self.disposers))
        dispose()
        if layer.get(name) == value:
            del layer[name]

    @invariant()
    def holds_what_the_model_holds(self):
        for scope in self.scopes:
            expected = {}
            for layer in (None, *reversed(scope.chain)) if scope else (None,):
                expected.update(self.model[layer])
            assert held(self.registry, scope) == dict(sorted(expected.items()))
            # A version, once seen for a scope, stands for the same content for ever.
            key = (scope, self.registry.version(scope))
            assert self.seen.setdefault(key, expected) == expected


TestLayering = Layering.TestCase
TestLayering.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_forgotten_scope_takes_what_stands_below_it_along() -> None:
    """What was read there is read anew, without the forgotten layer; others keep what they have."""
    registries = Registries.new()
    above = Scope(ScopeId("tenant"))
    below, other = Scope(ScopeId("session a"), above), Scope(ScopeId("session b"))
    registries.tools.add("x", 1, owner="a", scope=above)
    registries.tools.add("y", 2, owner="a")
    assert [*registries.tools.resolve(below).entries] == ["x", "y"]
    kept = registries.tools.resolve(other)
    registries.forget(above)
    assert [*registries.tools.resolve(below).entries] == ["y"]
    assert registries.tools.resolve(other) is kept
