"""Discovery and loading: one by one, in a fixed order; a broken plugin is reported by name and the others work."""

import importlib.metadata
import types
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from spine import Section
from spine.codec import Codec
from spine.errors import DuplicateContribution, PluginFailed, UsageError
from spine.hooks import Hooks, hookimpl
from spine.llm.catalogue import Catalogue, Provider
from spine.plugins import Plugins
from spine.scope import Registries, Scope
from spine.tools import Tool, ToolDefinition
from spine.values import ScopeId

TOOL = Tool(definition=ToolDefinition(name="look"), handler=lambda arguments, context: None)


class Distribution:
    """Where an entry point was found."""

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version


def plugin(name: str, **hooks: Any) -> types.ModuleType:
    made = types.ModuleType(f"spine_{name}")
    for hook, function in hooks.items():
        setattr(made, hook, hookimpl(specname=hook)(function))
    return made


def entry(name: str, load: Any, distribution: str = "dist", version: str = "1.0") -> Any:
    found = EntryPoint(name, f"spine_{name}", "spine")
    found.__dict__["dist"] = Distribution(distribution, version)

    class Loading:
        dist, group = found.dist, "spine"

        def __init__(self) -> None:
            self.name = name

        def load(self) -> Any:
            return load() if callable(load) else load

    return Loading()


def loaded(*entries: Any, monkeypatch: Any, strict: bool = False, blocks: Any = lambda name: None) -> Plugins:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: list(entries))
    plugins = Plugins(Hooks(), Registries.new(), Codec(), Catalogue(snapshot="x", providers={}))
    plugins.discover(blocks, strict=strict)
    return plugins


def fails_to_import() -> Any:
    raise ImportError("no module named 'requests'")


def raises_half_way(registrar: Any) -> None:
    registrar.add(TOOL.evolve(definition=ToolDefinition(name="half")))
    raise RuntimeError("half way")


def offers_look(registrar: Any) -> None:
    registrar.add(TOOL)


def test_a_broken_plugin_is_reported_and_the_others_work(monkeypatch: Any) -> None:
    """p01: two good ones are active; the bad one is named with its cause; strict raises instead."""
    good1 = entry("good1", plugin("good1", spine_register_tools=offers_look))
    bad = entry("bad", fails_to_import, version="0.4")
    good2 = entry("good2", plugin("good2", spine_close=lambda: None))
    half = entry("half", plugin("half", spine_register_tools=raises_half_way))
    plugins = loaded(good1, bad, half, good2, monkeypatch=monkeypatch)
    states = {info.name: (info.version, info.state) for info in plugins.infos}
    assert states == {
        "good1": ("1.0", "loaded"), "bad": ("0.4", "failed"), "half": ("1.0", "failed"), "good2": ("1.0", "loaded"),
    }  # fmt: skip
    errors = {info.name: info.error for info in plugins.infos if info.error}
    assert errors["bad"].startswith("ImportError: no module named 'requests' (")
    assert "half@1.0 failed in spine_register_tools: RuntimeError: half way" in errors["half"]
    assert list(plugins.registries.tools.resolve(None).entries) == ["look"], "nothing is half registered"
    with pytest.raises(PluginFailed, match='plugin "bad"'):
        loaded(good1, bad, monkeypatch=monkeypatch, strict=True)


def test_plugins_are_loaded_by_distribution_and_name_whatever_the_order_found(monkeypatch: Any) -> None:
    """So that the order of hooks and sections does not depend on the machine."""
    entries = [entry(n, plugin(n, spine_close=lambda: None), d) for n, d in (("b", "z"), ("a", "z"), ("c", "a"))]
    orders = [loaded(*found, monkeypatch=monkeypatch).hooks.order("spine_close") for found in (entries, entries[::-1])]
    assert orders[0] == orders[1] == ("b@1.0", "a@1.0", "c@1.0")


def test_a_blocked_plugin_is_not_imported(monkeypatch: Any) -> None:
    """And it is said who blocks it."""
    plugins = loaded(entry("x", fails_to_import), monkeypatch=monkeypatch, blocks=lambda name: "spine.toml:6")
    (info,) = plugins.infos
    assert (info.state, info.error) == ("blocked", "spine.toml:6")


def test_what_a_plugin_offers_is_listed_with_its_owner_and_place(monkeypatch: Any) -> None:
    """Tools, sections, providers, policies, events and hooks; each contribution knows where it was added."""

    def prompts(registrar: Any) -> None:
        registrar.add(Section("hint", render="x"))

    def protocols(registrar: Any) -> None:
        registrar.add(Provider(id="acme", protocol="p"))

    async def pre_step(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    full = plugin(
        "full",
        spine_register_tools=offers_look,
        spine_register_prompts=prompts,
        spine_register_protocols=protocols,
        spine_pre_step=pre_step,
    )
    plugins = loaded(entry("full", full), monkeypatch=monkeypatch)
    (info,) = plugins.infos
    assert info.full_name == "full@1.0"
    assert info.import_s is not None
    assert set(info.offers) == {"provider acme", "tool look", "section hint", "hooks pre_step"}
    (contribution,) = plugins.registries.tools.contributions()
    assert contribution.owner == "full@1.0"
    assert contribution.where is not None
    assert contribution.where.startswith("test_plugins.py:")
    assert plugins.catalogue.providers["acme"].source == "full@1.0"


def plugins_alone() -> Plugins:
    return Plugins(Hooks(), Registries.new(), Codec(), Catalogue(snapshot="x", providers={}))


WRONG: dict[str, tuple[str, Any, str]] = {
    "a section among tools": ("spine_register_tools", Section("x", render="x"), "Section"),
    "a tool among prompts": ("spine_register_prompts", TOOL, "takes Section"),
    "something that is no event": ("spine_register_events", TOOL, "takes EventType"),
    "an adapter without a provider": ("spine_register_adapters", lambda settings: None, "needs a name"),
    "a policy without a name": ("spine_register_policies", "ask", "needs a name"),
}


@pytest.mark.parametrize(("hook", "value", "message"), WRONG.values(), ids=WRONG)
def test_a_contribution_in_the_wrong_place_is_refused(hook: str, value: Any, message: str) -> None:
    """And nothing of the plugin stays."""
    plugins = plugins_alone()
    with pytest.raises((UsageError, PluginFailed), match=message):
        plugins.load(plugin("wrong", **{hook: lambda registrar: registrar.add(value)}))
    assert plugins.infos == ()
    assert all(not registry.contributions() for registry in plugins.registries.all)


def test_a_contribution_may_be_for_one_scope() -> None:
    """It does not hold elsewhere."""
    scope = Scope(ScopeId("tenant"))
    plugins = plugins_alone()
    plugins.load(plugin("p", spine_register_tools=lambda registrar: registrar.add(TOOL, scope=scope)))
    assert "look" in plugins.registries.tools.resolve(scope)
    assert "look" not in plugins.registries.tools.resolve(None)


def test_unloading_withdraws_at_once_and_closing_comes_later() -> None:
    """In the order of unloading; one that raises keeps none of the others from closing; then it can come again."""
    closed: list[str] = []

    def close(name: str) -> Any:
        def function() -> None:
            closed.append(name)
            if name == "b":
                raise RuntimeError("stuck")

        return function

    plugins = plugins_alone()
    for name in "abc":
        plugins.load(plugin(name, spine_close=close(name)))
    plugins.unload("b")
    assert plugins.hooks.order("spine_close") == ("c@0", "a@0")
    assert closed == []
    plugins.unload_all()
    with pytest.raises(PluginFailed, match="b@0 failed in spine_close"):
        plugins.close_unloaded()
    assert closed == ["b", "c", "a"]
    plugins.close_unloaded()
    assert closed == ["b", "c", "a"]
    with pytest.raises(UsageError, match="loaded are: none"):
        plugins.unload("a")
    plugins.load(plugin("a"))
    with pytest.raises(DuplicateContribution):
        plugins.load(plugin("a"))


def test_a_plugin_may_be_named_by_its_module() -> None:
    """An importable name is imported."""
    with pytest.raises(UsageError, match='plugin "spine_nowhere": there is no module of that name'):
        plugins_alone().load("spine_nowhere")


def exits(*arguments: Any) -> Any:
    raise SystemExit(3)


def test_a_plugin_that_exits_is_reported_like_any_broken_one(monkeypatch: Any) -> None:
    """At import and in its hooks; what it had added is taken back, and the others work."""
    hook = entry("hook", plugin("hook", spine_register_tools=offers_look, spine_register_stores=exits_in_hook))
    plugins = loaded(entry("gone", exits), hook, entry("good", plugin("good")), monkeypatch=monkeypatch)
    states = {info.name: (info.state, (info.error or "").partition(" (")[0]) for info in plugins.infos}
    assert states["gone"] == ("failed", "SystemExit: 3")
    assert states["hook"] == ("failed", "plugin hook@1.0 failed in spine_register_stores: SystemExit: 3")
    assert states["good"] == ("loaded", "")
    assert len(plugins.registries.tools.resolve(None)) == 0


def exits_in_hook(registrar: Any) -> None:
    raise SystemExit(3)


def test_an_interruption_passes(monkeypatch: Any) -> None:
    """It is the person's, not the plugin's."""

    def interrupted() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loaded(entry("slow", interrupted), monkeypatch=monkeypatch)


NO_PLUGINS: dict[str, Any] = {"none": None, "a number": 3, "an object without hooks": object()}


@pytest.mark.parametrize("thing", NO_PLUGINS.values(), ids=NO_PLUGINS)
def test_what_is_no_plugin_is_refused(thing: Any) -> None:
    """With what would be one."""
    with pytest.raises(UsageError, match=r"a plugin was expected, found .*; accepted are modules"):
        plugins_alone().load(thing)


def test_a_module_that_fails_to_import_is_blamed(tmp_path: Any, monkeypatch: Any) -> None:
    """It is there, so it is not unknown; the place is named."""
    (tmp_path / "spine_brittle.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginFailed, match=r'"spine_brittle": ModuleNotFoundError: .*spine_brittle.py:1\)'):
        plugins_alone().load("spine_brittle")


REFUSED = ("adapters", "counters", "events", "policies", "prompts", "protocols", "stores", "tools")


@pytest.mark.parametrize("kind", REFUSED)
def test_a_contribution_of_the_wrong_kind_names_plugin_hook_and_place(kind: str) -> None:
    """Whatever the registrar is for."""

    def adds(registrar: Any) -> None:
        registrar.add(3, name="x", provider="x")

    hook = f"spine_register_{kind}"
    with pytest.raises(UsageError, match=rf'^plugin "p@0" in {hook}: .*found int.*\(test_plugins.py:\d+\)$'):
        plugins_alone().load(plugin("p", **{hook: adds}))
