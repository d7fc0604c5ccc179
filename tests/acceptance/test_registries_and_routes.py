"""Who contributes what, where it holds, how it goes again; and which adapter answers a route."""

from typing import Any

import pytest
from stage import ALONE, MODEL, Adapter, agent_of, data_of, judge, plugin, results_of, staged, text_of_result, tool_of

from spine import Agent, Runtime, Section
from spine.config import Settings
from spine.errors import DuplicateContribution, PluginFailed, RouteUnknown, ToolUnknown, UsageError
from spine.events import EventType
from spine.llm.catalogue import Provider
from spine.testing.script import call, expect, say
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


def answers(text: str) -> Any:
    return tool_of("where", lambda arguments, context: text)


def offering(name: str, *tools: Any, **hooks: Any) -> Any:
    """A plugin that offers tools, globally."""

    def register(registrar: Any) -> None:
        for tool in tools:
            registrar.add(tool)

    return plugin(name, spine_register_tools=register, **hooks)


async def where(runtime: Any, id: str, **options: Any) -> str:
    """What the tool `where` answers in a new session."""
    session = await runtime.session(id, agent_of("where", *options.pop("tools", ())), **options)
    await session.run("Go.")
    return text_of_result(results_of(session.history())["t1s1c1"])


# -------------------------------------------------------------------------------------------------------- layers


async def test_nearer_contributions_hide_farther_ones_and_give_them_back() -> None:
    """Global, ancestor, exact: the nearest wins; hiding deletes nothing, and disposing shows the farther one again."""
    script = [call("where"), say("ok")] * 5
    async with staged(*script, plugins=[offering("globe", answers("global"))]) as runtime:
        tenant = runtime.scope("tenant")
        team = runtime.scope("team", tenant)
        assert await where(runtime, "one", scope=team) == "global"
        from_tenant = tenant.add(answers("tenant"))
        assert await where(runtime, "two", scope=team) == "tenant"
        from_team = team.add(answers("team"))
        assert await where(runtime, "three", scope=team) == "team"
        from_team()
        assert await where(runtime, "four", scope=team) == "tenant"
        from_tenant()
        from_tenant()
        assert await where(runtime, "five", scope=team) == "global"


async def test_an_exact_scope_does_not_leak_into_its_siblings() -> None:
    """What is added to one tenant is not there for another."""
    async with staged(call("where"), say("ok"), plugins=[offering("globe", answers("global"))]) as runtime:
        runtime.scope("tenant-a").add(answers("a"))
        assert await where(runtime, "b", scope="tenant-b") == "global"


async def test_the_agents_own_tool_is_nearest() -> None:
    """A session's own scope holds what its agent brings, and what plugins add when the session is opened."""
    async with staged(call("where"), say("ok")) as runtime:
        runtime.scope("tenant").add(answers("tenant"))
        session = await runtime.session("s", agent_of(answers("agent")), scope="tenant")
        await session.run("Go.")
        assert text_of_result(results_of(session.history())["t1s1c1"]) == "agent"


async def test_plugins_may_add_to_a_sessions_own_scope_when_it_is_opened() -> None:
    """`spine_session_opened` gives a registrar for this session alone; the agent need not name what it adds."""

    def opened(registrar: Any) -> None:
        registrar.add(answers("opened"))
        registrar.add(Section("hint", render="Mind the gap."))

    async with staged(
        expect(system_contains="Mind the gap.", tools=["where"]) + call("where"),
        say("ok"),
        plugins=[plugin("opener", spine_session_opened=opened)],
    ) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.")
        assert text_of_result(results_of(session.history())["t1s1c1"]) == "opened"
        assert runtime.registries.tools.resolve(None).entries == {}


async def test_an_agent_takes_of_plugins_only_what_it_names() -> None:
    """Installing a package arms nobody: names, patterns and `*` select; an agent that names none gets none."""
    tools = [tool_of(name, lambda a, c: "x") for name in ("orders.list", "orders.pay", "mail.send")]
    selections: list[tuple[tuple[str, ...], list[str]]] = [
        ((), []),
        (("mail.send",), ["mail.send"]),
        (("orders.*",), ["orders.list", "orders.pay"]),
        (("*",), ["mail.send", "orders.list", "orders.pay"]),
    ]
    script = [expect(tools=expected) + say("ok") for _, expected in selections]
    async with staged(*script, plugins=[offering("shop", *tools)]) as runtime:
        for number, (names, _) in enumerate(selections):
            session = await runtime.session(f"s{number}", agent_of(*names))
            assert (await session.run("Go.")).text == "ok"


async def test_a_tool_that_nobody_offers_is_refused_when_the_session_opens() -> None:
    """An agent that names a missing tool fails early, with the names there are."""
    async with staged(plugins=[offering("shop", answers("x"))]) as runtime:
        with pytest.raises(ToolUnknown, match=r'"wherr".*where') as refused:
            await runtime.session("s", agent_of("wherr"))
        assert refused.value.code == "tool_unknown"
        assert runtime.store.owner("s") is None


# --------------------------------------------------------------------------------------------------- duplicates


async def test_the_same_name_twice_in_one_layer_is_refused_naming_both() -> None:
    """Both owners stand in the message; the first stays as it was."""
    async with staged(call("where"), say("ok"), plugins=[offering("first", answers("first"))]) as runtime:
        with pytest.raises(DuplicateContribution) as refused:
            runtime.load_plugin(offering("second", answers("second")))
        assert '"first@1"' in refused.value.message
        assert '"second@1"' in refused.value.message
        assert "names are unique per scope" in refused.value.message
        assert await where(runtime, "s") == "first"
        scope = runtime.scope("tenant")
        scope.add(answers("a"))
        with pytest.raises(DuplicateContribution):
            scope.add(answers("b"))


async def test_a_plugin_cannot_be_loaded_twice() -> None:
    """Its version is named; unloading makes room for another one."""
    async with staged(call("where"), say("ok")) as runtime:
        runtime.load_plugin(offering("shop", answers("one")))
        with pytest.raises(DuplicateContribution, match="loaded already"):
            runtime.load_plugin(offering("shop", answers("two")))
        runtime.unload_plugin("shop")
        runtime.load_plugin(offering("shop", answers("two")))
        assert await where(runtime, "s") == "two"


# ----------------------------------------------------------------------------------------------------- disposal


class Watched(dict[str, Any]):
    """Nothing."""


async def test_a_plugin_that_raises_half_way_leaves_nothing_registered() -> None:
    """Tools, policies, event types and hooks added before the failure are withdrawn; it can be loaded again."""
    broken = [True]

    def tools(registrar: Any) -> None:
        registrar.add(answers("x"))

    def events(registrar: Any) -> None:
        registrar.add(EventType(name="half.done", data=Watched))
        if broken:
            raise RuntimeError("half way")

    def policies(registrar: Any) -> None:
        registrar.add(lambda invocation: "ask", name="where")

    async def pre_step(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    half = plugin(
        "half",
        spine_register_tools=tools,
        spine_register_policies=policies,
        spine_register_events=events,
        pre_step=pre_step,
    )
    async with staged(say("ok")) as runtime:
        with pytest.raises(PluginFailed, match="half@1 failed in spine_register_events"):
            runtime.load_plugin(half)
        assert [entry for registry in runtime.registries.all for entry in registry.contributions()] == []
        assert runtime.hooks.order("spine_pre_step") == ()
        assert runtime.codec.event_type("half.done") is None
        broken.clear()
        runtime.load_plugin(half)
        assert runtime.codec.event_type("half.done") is not None


async def test_contributions_are_disposed_in_reverse_order() -> None:
    """Unloading takes a plugin's contributions out last added first, and leaves everyone else's."""
    tools = [tool_of(f"t{n}", lambda a, c: "x") for n in range(3)]
    async with staged() as runtime:
        runtime.load_plugin(offering("shop", *tools))
        runtime.load_plugin(offering("other", answers("x")))
        removed: list[str] = []
        registry = runtime.registries.tools
        remove = registry.remove
        registry.remove = lambda entry: (removed.append(entry.name), remove(entry))[1]
        runtime.unload_plugin("shop")
        assert removed == ["t2", "t1", "t0"]
        assert list(registry.resolve(None).entries) == ["where"]
        with pytest.raises(UsageError, match="loaded are: other"):
            runtime.unload_plugin("shop")


async def test_plugins_close_in_reverse_order_and_each_once_whatever_one_raises() -> None:
    """When the runtime ends every plugin's `spine_close` runs, last loaded first."""
    closed: list[str] = []

    def closing(name: str) -> Any:
        def close() -> None:
            closed.append(name)
            if name == "b":
                raise RuntimeError("stuck")

        return plugin(name, spine_close=close)

    with pytest.raises(PluginFailed, match="b@1"):
        async with staged(say("ok"), plugins=[closing("b"), closing("a"), closing("c")]) as runtime:
            await (await runtime.session("s", agent_of())).run("Go.")
    assert closed == ["c", "a", "b"]


# ------------------------------------------------------------------------------------------------------- routes


def adapting(name: str, made: list[Any], *script: Any) -> Any:
    """A plugin with an adapter for the provider `name`; `made` gets each adapter and the settings it was made with."""

    def factory(settings: Any) -> Any:
        adapter = Adapter(ScriptedAdapter(*script).stream)
        made.append((adapter, settings))
        return adapter

    def register(registrar: Any) -> None:
        registrar.add(factory, provider=name)

    return plugin(name, spine_register_adapters=register)


async def test_a_route_is_answered_by_the_adapter_of_its_provider() -> None:
    """Explicit routing: one adapter per provider, made on first use; two routes, two adapters, no fallback."""
    made: list[Any] = []
    plugins = [adapting("acme", made, say("from acme"), say("again")), adapting("other", made, say("from other"))]
    async with Runtime.open("memory:", settings=ALONE, plugins=plugins) as runtime:
        assert made == []
        session = await runtime.session("s", Agent("acme:big"))
        assert (await session.run("Go.")).text == "from acme"
        assert (await session.run("Go.", model="other:small")).text == "from other"
        assert (await session.run("Go.")).text == "again"
        assert [settings.provider for _, settings in made] == ["acme", "other"]
        origins = [d.message.origin for d in data_of(session, "message.committed")]
        assert [(o.protocol, o.route) for o in origins] == [
            ("acme", "acme:big"), ("other", "other:small"), ("acme", "acme:big"),
        ]  # fmt: skip
        judge(session.log)
    assert [adapter.closed for adapter, _ in made] == [1, 1]


async def test_adapters_are_closed_once_last_made_first_whatever_one_raises() -> None:
    """Leaving the runtime closes each adapter exactly once, in reverse order, and reports those that failed."""
    closed: list[str] = []

    class Closing(Adapter):
        async def aclose(self) -> None:
            closed.append(self.name)
            if self.name == "b":
                raise OSError("stuck")

    def adapter(name: str) -> Any:
        def factory(settings: Any) -> Any:
            made = Closing(ScriptedAdapter(say("ok")).stream)
            made.name = name
            return made

        return plugin(name, spine_register_adapters=lambda registrar: registrar.add(factory, provider=name))

    async def run_all() -> None:
        async with Runtime.open("memory:", settings=ALONE, plugins=[adapter(n) for n in "abc"]) as runtime:
            for name in "bac":
                await (await runtime.session(name, Agent(f"{name}:x"))).run("Go.")

    with pytest.raises(ExceptionGroup, match="closing adapters failed"):
        await run_all()
    assert closed == ["c", "a", "b"]


async def test_a_given_model_answers_every_route_and_is_closed_once() -> None:
    """`Runtime.open(model=…)` stands for every provider; the agent's route stays in the log."""
    adapter = Adapter(ScriptedAdapter(say("One."), say("Two.")).stream)
    async with staged(model=adapter) as runtime:
        for name, model in (("a", "openai:gpt"), ("b", "nowhere:x")):
            session = await runtime.session(name, Agent(model))
            await session.run("Go.")
            assert data_of(session, "message.committed")[0].message.origin.route == model
    assert adapter.closed == 1


async def test_a_protocol_nobody_offers_is_a_missing_route() -> None:
    """A catalogue entry whose protocol no plugin speaks is refused by name, before anything is written."""
    lab = Provider(id="lab", protocol="martian", base_url="http://127.0.0.1:9")
    async with Runtime.open("memory:", settings=Settings(installed_plugins=False, providers=(lab,))) as runtime:
        session = await runtime.session("s", Agent("lab:x"))
        with pytest.raises(RouteUnknown, match="martian"):
            await session.run("Go.")
        assert session.log.seq == 0


async def test_no_second_adapter_is_asked_after_a_failure() -> None:
    """An adapter registered in a nearer scope wins alone: when it fails, the farther one is not tried."""
    from spine.testing.script import fail

    made: list[Any] = []
    plugins = [adapting("acme", made, fail("auth")), adapting("spare", made, say("never"))]
    async with Runtime.open("memory:", settings=ALONE, plugins=plugins) as runtime:
        session = await runtime.session("s", Agent("acme:big"))
        turn = await session.run("Go.", check=False)
        assert (turn.status, len(made)) == ("failed", 1)


async def test_a_factory_that_fails_is_the_plugins_failure_with_nothing_written() -> None:
    """A broken adapter factory is blamed by name when the route is resolved."""

    def factory(settings: Any) -> Any:
        raise OSError("no socket")

    broken = plugin("acme", spine_register_adapters=lambda registrar: registrar.add(factory, provider="acme"))
    async with Runtime.open("memory:", settings=ALONE, plugins=[broken]) as runtime:
        session = await runtime.session("s", Agent("acme:big"))
        with pytest.raises(PluginFailed, match="acme@1") as failed:
            await session.run("Go.")
        assert isinstance(failed.value.__cause__, OSError)
        assert session.log.seq == 0


async def test_a_plugin_may_add_a_provider_of_its_own() -> None:
    """Catalogue entries of plugins join the catalogue, with who they are from."""

    def register(registrar: Any) -> None:
        registrar.add(Provider(id="acme", protocol="openai_chat", base_url="http://127.0.0.1:9"))

    async with staged(plugins=[plugin("acme", spine_register_protocols=register)]) as runtime:
        assert runtime.routes.catalogue.providers["acme"].source == "acme@1"
        runtime.unload_plugin("acme")
        assert "acme" not in runtime.routes.catalogue.providers


async def test_aliases_are_resolved_before_anything_is_recorded() -> None:
    """The log holds the full route, never the alias."""
    settings = Settings(installed_plugins=False, aliases={"fast": MODEL})
    async with staged(say("ok"), settings=settings) as runtime:
        session = await runtime.session("s", Agent("fast"))
        await session.run("Go.")
        assert data_of(session, "message.committed")[0].message.origin.route == MODEL
