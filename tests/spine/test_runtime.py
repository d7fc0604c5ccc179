"""The runtime: opens by name, keeps what it opened, says what it has."""

import gc
import time
import weakref
from pathlib import Path
from typing import Any

import anyio
import pytest

from spine import Agent, Runtime, Secret, Section
from spine.config import Settings
from spine.errors import ConfigInvalid, RouteUnknown, UsageError
from spine.session import Session
from spine.stores.memory import MemoryStore
from spine.testing.script import call, say
from spine.testing.scripted import ScriptedAdapter
from spine.tools import Tool, ToolDefinition

pytestmark = pytest.mark.anyio
ALONE = Settings(installed_plugins=False)


def opened(*script: Any, store: Any = "memory:", **options: Any) -> Runtime:
    return Runtime.open(store, model=ScriptedAdapter(*script), settings=options.pop("settings", ALONE), **options)


STORES = {"memory:": "memory:", "sqlite:{tmp}/a.db": "sqlite:", "sqlite:{tmp}/b.db?durability=relaxed": "sqlite:"}


@pytest.mark.parametrize(("url", "kind"), STORES.items())
async def test_a_store_is_opened_by_its_url(url: str, kind: str, tmp_path: Path) -> None:
    """And closed when the runtime is left."""
    async with opened(say("x"), store=url.format(tmp=tmp_path)) as runtime:
        assert runtime.store.url.startswith(kind)
        await (await runtime.session("s", Agent("p:m"))).run("Go.")
        assert [info.id for info in runtime.sessions()] == ["s"]


@pytest.mark.parametrize("url", ["", "nowhere", "postgresql://x", "sqlite", "http://x"])
async def test_a_store_that_nobody_opens_is_refused(url: str) -> None:
    """An empty URL means the configured one; others are named."""
    if not url:
        assert Runtime.open(MemoryStore(), settings=ALONE).store.url == "memory:"
        return
    with pytest.raises(ConfigInvalid):
        Runtime.open(url, settings=ALONE)


async def test_a_session_whose_opening_was_cancelled_is_free(tmp_path: Path) -> None:
    """The claim of a thread that nobody waited for any more; the next runtime need not wait for the lease."""

    class Slow(MemoryStore):
        def claim(self, *arguments: Any, **named: Any) -> Any:
            claimed = super().claim(*arguments, **named)
            time.sleep(0.2)
            return claimed

    store, agent = Slow(), Agent("p:m")
    async with opened(say("a"), store=store) as runtime:
        await (await runtime.session("s", agent)).run("Go.")
    store.waits = True
    async with opened(store=store) as first, opened(say("b"), store=store) as second:
        with anyio.move_on_after(0.02) as scope:
            await first.session("s", agent)
        assert scope.cancelled_caught
        assert (await (await second.session("s", agent)).run("On.")).text == "b"


def test_opening_a_runtime_opens_no_session_and_asks_no_model() -> None:
    """It may be made where no loop runs."""
    runtime = Runtime.open("memory:", model=ScriptedAdapter(), settings=ALONE)
    assert runtime.sessions() == []
    assert runtime.plugins == ()


async def test_models_are_named_by_route_or_alias() -> None:
    """An alias is one of the configuration; anything else without a provider is refused with the aliases there are."""
    settings = Settings(installed_plugins=False, aliases={"fast": "p:m"})
    async with opened(settings=settings) as runtime:
        assert str(runtime.resolve_model("fast")) == "p:m"
        assert str(runtime.resolve_model("q:a:b")) == "q:a:b"
        with pytest.raises(RouteUnknown, match="aliases: fast"):
            runtime.resolve_model("slow")


async def test_a_session_opened_by_several_at_once_is_one(tmp_path: Path) -> None:
    found: list[Session] = []

    async def open_one(runtime: Runtime) -> None:
        found.append(await runtime.session("s", Agent("p:m")))

    async with opened(say("x"), store=f"sqlite:{tmp_path}/a.db") as runtime:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(open_one, runtime)
        (session,) = set(found)
        await session.run("Go.")


async def test_a_scope_is_made_once_and_knows_its_parent() -> None:
    """The same name gives the same scope; what is added can be taken out again."""
    async with opened(say("x"), say("x")) as runtime:
        team = runtime.scope("team", "tenant")
        assert runtime.scope("team") is team
        assert team.scope.parent == runtime.scope("tenant").scope
        dispose = runtime.scope("tenant").add(Section("hint", render="x"))
        assert "hint" in runtime.registries.sections.resolve(team.scope)
        dispose()
        assert "hint" not in runtime.registries.sections.resolve(team.scope)
        with pytest.raises(UsageError):
            team.add(5)


async def test_secrets_reach_tools_by_name_and_never_the_log() -> None:
    """A tool asks its context; neither events nor reprs show it."""
    got: list[str] = []

    async def handler(arguments: Any, context: Any) -> str:
        got.append(context.secret("shop").reveal())
        return "x"

    tool = Tool(definition=ToolDefinition(name="pay"), handler=handler)
    store = MemoryStore()
    async with opened(call("pay"), say("x"), store=store, secrets={"shop": Secret("hunter2-hunter2")}) as runtime:
        session = await runtime.session("s", Agent("p:m", tools=[tool]))
        await session.run("Go.")
        assert got == ["hunter2-hunter2"]
        assert not any(b"hunter2" in row.data for row in store.read(session.id))
        assert "hunter2" not in repr(vars(runtime))


async def test_deps_reach_tools_and_variables_reach_sections() -> None:
    """Neither is logged."""
    got: list[Any] = []

    async def handler(arguments: Any, context: Any) -> str:
        got.append(context.deps)
        return "x"

    class Shop:
        def __repr__(self) -> str:
            raise RuntimeError("never asked")

    shop = Shop()
    tool = Tool(definition=ToolDefinition(name="pay"), handler=handler)
    model = ScriptedAdapter(call("pay"), say("x"))
    async with Runtime.open("memory:", model=model, settings=ALONE) as runtime:
        scope = runtime.scope("tenant")
        scope.add(Section("who", render=lambda context: f"For {context.variables['customer']}."))
        session = await runtime.session(
            "s", Agent("p:m", tools=[tool]), deps=shop, variables={"customer": "c-77"}, scope="tenant"
        )
        await session.run("Go.")
        assert got == [shop]
        assert model.requests[0].system[0].text == "For c-77."


async def test_versions_say_what_wrote_a_log() -> None:
    """Of the runtime and of each loaded plugin."""
    async with opened(say("x")) as runtime:
        assert set(runtime.versions) == {"spine"}
        session = await runtime.session("s", Agent("p:m"))
        await session.run("Go.")
        assert next(iter(session.log.read())).data.versions == runtime.versions


@pytest.mark.parametrize("tick_s", [60.0, 0.001], ids=["seldom", "often"])
async def test_a_closed_session_leaves_nothing_behind(tick_s: float, monkeypatch: Any) -> None:
    """Not its scope, nor what the agent attached there: a server that opens sessions all day stays as it is."""
    monkeypatch.setattr("spine.runtime.TICK_S", tick_s)
    tool = Tool(definition=ToolDefinition(name="look", parameters={"type": "object"}), handler=found)
    agent = Agent("p:m", instructions="Be brief.", tools=[tool])
    async with opened(*[call("look"), say("x")] * 3) as runtime:
        shared = runtime.scope("tenant")
        kept = []
        for name in ("c", "a", "b"):
            session = await runtime.session(name, agent, scope=shared)
            await session.run("Go.")
            kept.append(weakref.ref(session.scope))
            if name != "c":
                await session.close()
        del session
        gc.collect()
        assert [scope() is not None for scope in kept] == [True, False, False]
        layers = {str(entry.layer) for registry in runtime.registries.all for entry in registry.contributions()}
        assert [layer for layer in layers if layer.startswith("session ")] == ["session c"]


async def found(arguments: Any, context: Any) -> str:
    await anyio.sleep(0.01)
    return "found"
