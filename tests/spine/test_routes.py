"""From a route to what answers it: nearest adapter, else the catalogue's protocol; one adapter per provider entry."""

from typing import Any

import pytest

from spine.errors import KeyMissing, PluginFailed, RouteUnknown
from spine.llm.catalogue import Catalogue, ModelEntry, Prices, Provider
from spine.llm.request import Route
from spine.routes import Routes
from spine.scope import Registries, Scope
from spine.values import ScopeId, Secret

pytestmark = pytest.mark.anyio
PRICES = Prices(id="p", input=1, output=2)
CATALOGUE = Catalogue(
    snapshot="x",
    providers={
        "lab": Provider(
            id="lab", protocol="proto", base_url="http://127.0.0.1:1/v1", auth="header X-Key", key_env="LAB_KEY",
            traits={"vision": False}, models={"tiny": ModelEntry(window=100, prices=PRICES, traits={"vision": True})},
        ),
        "mute": Provider(id="mute", protocol="unspoken"),
    },
)  # fmt: skip


class Protocol:
    name = "proto"


class Made:
    """An adapter that remembers how it was made and closed."""

    protocol = "made"

    def __init__(self, settings: Any, protocol: Any = None) -> None:
        self.settings, self.made_for = settings, protocol
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def routes(**options: Any) -> tuple[Routes, Registries]:
    registries = Registries.new()
    registries.protocols.add("proto", Protocol(), owner="p@1")  # type: ignore[arg-type]
    key = options.pop("key", lambda provider: Secret("s3cret-s3cret"))
    made = Routes(registries, lambda: CATALOGUE, key, lambda protocol, settings: Made(settings, protocol), **options)  # type: ignore[arg-type,return-value]
    return made, registries


def test_a_catalogued_provider_is_answered_through_its_protocol() -> None:
    """With its address, way of authentication, key and traits; the selection holds none of the secret."""
    found, _ = routes()
    target = found.resolve(Route("lab", "tiny"), Scope(ScopeId("s")))
    settings = target.adapter.settings  # type: ignore[attr-defined]
    assert (settings.provider, settings.base_url, settings.auth) == ("lab", "http://127.0.0.1:1/v1", "header X-Key")
    assert settings.secret == Secret("s3cret-s3cret")
    assert settings.traits("tiny").vision
    assert not settings.traits("other").vision
    assert (target.traits.protocol, target.traits.window, target.prices) == ("proto", 100, PRICES)
    assert (target.selection.provider, target.selection.protocol, target.selection.model) == ("lab", "proto", "tiny")
    assert target.selection.prices == "p"
    assert "s3cret" not in str(target.selection)
    assert "127.0.0.1" not in str(target.selection)


def test_one_adapter_serves_all_models_of_a_provider() -> None:
    """Made on first use, kept."""
    found, _ = routes()
    scope = Scope(ScopeId("s"))
    first, second = (found.resolve(Route("lab", model), scope).adapter for model in ("tiny", "other"))
    assert first is second


def test_sessions_share_a_target_until_the_catalogue_is_another() -> None:
    found, registries = routes()
    tenant = Scope(ScopeId("tenant"))
    here, there = (found.resolve(Route("lab", "tiny"), scope) for scope in (tenant, Scope(ScopeId("other"))))
    assert here is there
    registries.adapters.add("lab", Made, owner="acme@1", scope=tenant)  # type: ignore[arg-type]
    own = found.resolve(Route("lab", "tiny"), tenant)
    assert own.adapter is not here.adapter
    dearer = ModelEntry(window=100, prices=Prices(id="q", input=2, output=2))
    found._catalogue = lambda: Catalogue(
        snapshot="y", providers={"lab": Provider(id="lab", protocol="proto", auth="none", models={"tiny": dearer})}
    )
    after = found.resolve(Route("lab", "tiny"), tenant)
    assert after.adapter is own.adapter
    assert (own.selection.prices, after.selection.prices) == ("p", "q")


def test_the_nearest_adapter_of_a_provider_wins() -> None:
    """A scope's own factory makes an adapter of its own; elsewhere the catalogue answers."""
    found, registries = routes()
    tenant = Scope(ScopeId("tenant"))
    registries.adapters.add("lab", Made, owner="acme@1", scope=tenant)  # type: ignore[arg-type]
    here = found.resolve(Route("lab", "tiny"), tenant).adapter
    there = found.resolve(Route("lab", "tiny"), Scope(ScopeId("other"))).adapter
    assert (here.made_for, there.made_for.name) == (None, "proto")  # type: ignore[attr-defined]


def test_a_provider_beyond_the_catalogue_may_have_an_adapter() -> None:
    """It needs no key of ours; its protocol is its own name."""
    found, registries = routes()
    registries.adapters.add("acme", Made, owner="acme@1")  # type: ignore[arg-type]
    target = found.resolve(Route("acme", "any"), Scope(ScopeId("s")))
    assert (target.selection.protocol, target.adapter.settings.secret, target.prices) == ("acme", None, None)  # type: ignore[attr-defined]


UNKNOWN = {
    "a typing mistake": (Route("lap", "x"), 'unknown provider "lap" in model "lap:x"; nearest is "lab"'),
    "nothing like it": (Route("zzzzzz", "x"), 'unknown provider "zzzzzz" in model "zzzzzz:x"'),
    "a protocol nobody speaks": (Route("mute", "x"), "speaks unspoken, which no plugin offers"),
}


@pytest.mark.parametrize(("route", "message"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_route_that_nothing_answers_is_refused(route: Route, message: str) -> None:
    """With the nearest name, when there is one."""
    with pytest.raises(RouteUnknown, match=message):
        routes()[0].resolve(route, Scope(ScopeId("s")))


def test_a_missing_key_makes_no_adapter() -> None:
    """It is asked for when the adapter is made."""

    def missing(provider: Provider) -> Secret:
        raise KeyMissing("no key")

    found, _ = routes(key=missing)
    for _attempt in range(2):
        with pytest.raises(KeyMissing):
            found.resolve(Route("lab", "tiny"), Scope(ScopeId("s")))


def test_a_factory_that_fails_is_blamed_and_tried_again() -> None:
    """No broken adapter is kept."""

    def factory(settings: Any) -> Any:
        raise OSError("no socket")

    found, registries = routes()
    registries.adapters.add("acme", factory, owner="acme@1")
    for _attempt in range(2):
        with pytest.raises(PluginFailed, match="acme@1 failed to make the adapter of acme: OSError: no socket"):
            found.resolve(Route("acme", "x"), Scope(ScopeId("s")))


async def test_adapters_are_closed_once_in_reverse_order() -> None:
    """Again is nothing; one that fails is reported after the others."""
    order: list[str] = []

    class Closing(Made):
        async def aclose(self) -> None:
            order.append(self.settings.provider)
            if self.settings.provider == "b":
                raise OSError("stuck")

    found, registries = routes()
    for name in "abc":
        registries.adapters.add(name, Closing, owner="p@1")  # type: ignore[arg-type]
        found.resolve(Route(name, "x"), Scope(ScopeId("s")))
    with pytest.raises(ExceptionGroup):
        await found.aclose()
    await found.aclose()
    assert order == ["c", "b", "a"]


async def test_one_adapter_may_answer_everything() -> None:
    """A scripted model stands for every provider, known or not."""
    everything = Made(None)
    found, _ = routes(everything=everything)
    for route in (Route("lab", "tiny"), Route("nowhere", "x")):
        target = found.resolve(route, Scope(ScopeId("s")))
        assert (target.adapter, target.selection.protocol) == (everything, "made")
    await found.aclose()
    assert everything.closed == 1
