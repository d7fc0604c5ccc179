"""Limits on tokens and cost: a turn that has used one up asks for nothing more, and says so with the numbers."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from stage import ALONE, agent_of, data_of, judge, kinds_of, plugin, staged, tool_of
from test_kill_anywhere import Later, crashed

from spine import Limits
from spine.errors import BudgetUnknown, UsageError
from spine.hooks import NextStep
from spine.llm.catalogue import ModelEntry, Prices, Provider
from spine.llm.request import Route
from spine.proof.replay.run import Given, replay
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.testing.script import call, fail, say, usage
from spine.values import SessionId

pytestmark = pytest.mark.anyio

PRICES = Prices(id="lab-1", input=1_000_000, output=5_000_000, cache_read=100_000)
LAB = Provider(
    id="lab",
    protocol="scripted",
    auth="none",
    models={"priced": ModelEntry(prices=PRICES), "euro": ModelEntry(prices=attrs.evolve(PRICES, currency="EUR"))},
)
SETTINGS = attrs.evolve(ALONE, providers=(LAB,))
PRICED = "lab:priced"


def looking(*limits: Limits, model: str = PRICED) -> Any:
    """An agent with one tool, which ends nothing."""
    return agent_of(
        tool_of("look", lambda arguments, context: "seen", effect="read_only"), model=model, limits=limits[0]
    )


def step(input_tokens: int, output_tokens: int, **more: int) -> Any:
    return call("look") + usage(input_tokens=input_tokens, output_tokens=output_tokens, **more)


def answer(input_tokens: int, output_tokens: int, **more: int) -> Any:
    return say("Done.") + usage(input_tokens=input_tokens, output_tokens=output_tokens, **more)


async def replayed(log: Any, agent: Any, **options: Any) -> Any:
    """A replay of a session with the same prices."""
    found = StoredLog(log.store, log.codec, SessionId("s"))
    return await replay(found, Given(agent=agent, settings=options.pop("settings", SETTINGS), **options))


TOKENS: dict[str, Any] = {"limit": "tokens", "allowed": 1000, "used": 1030}
COST: dict[str, Any] = {"limit": "cost", "allowed": 1500, "used": 1540, "currency": "USD"}
ENDINGS: dict[str, tuple[Limits, list[Any], dict[str, Any], str]] = {
    # the limit, the steps that use it up, the numbers, the words
    "tokens": (Limits(tokens=1000), [step(500, 10), step(515, 5)], TOKENS, "1,030 of 1,000 tokens used"),
    "tokens from a cache once": (
        Limits(tokens=1000),
        [step(500, 10, cache_read_tokens=400), step(515, 5, cache_read_tokens=500, reasoning_tokens=5)],
        TOKENS,
        "1,030 of 1,000 tokens used",
    ),
    "exactly all tokens": (
        Limits(tokens=1000),
        [step(990, 10)],
        {"limit": "tokens", "allowed": 1000, "used": 1000},
        "1,000 of 1,000 tokens used",
    ),
    "cost": (Limits(cost="0.0015 USD"), [step(700, 10), step(690, 20)], COST, "0.001540 of 0.0015 USD used"),
    "cost from a cache": (
        Limits(cost="$0.0015"),
        [step(1000, 200, cache_read_tokens=1000), step(440, 0)],
        COST,
        "0.001540 of 0.0015 USD used",
    ),
    "steps first": (
        Limits(steps=2, tokens=1000, cost="0.0001 USD"),
        [step(20, 0), step(20, 0)],
        {"limit": "steps", "allowed": 2, "used": 2},
        "2 steps used",
    ),
}


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
@pytest.mark.parametrize("name", ENDINGS)
async def test_a_turn_that_has_used_a_limit_up_fails_with_the_numbers(name: str, store: str, tmp_path: Any) -> None:
    """Everything up to there is kept, the next turn begins anew, and a replay comes to the same end."""
    limits, steps, numbers, words = ENDINGS[name]
    url = store if store == "memory:" else f"sqlite:{tmp_path / 's.db'}"
    async with staged(*steps, answer(1, 1), store=url, settings=SETTINGS) as runtime:
        session = await runtime.session("s", looking(limits))
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.steps, turn.error.category) == ("failed", len(steps), "limit")
        assert (turn.error.details, turn.error.message) == (numbers, words)
        assert [c.outcome.status for c in turn.tool_calls] == ["ok"] * len(steps)
        assert turn.warnings == ()
        assert (await session.run("And?")).text == "Done."
        judge(session.log)
        found = await replayed(session.log, session.agent)
        assert found.is_exact, found


ROOM: dict[str, tuple[Limits, list[Any]]] = {
    "one token is left": (Limits(tokens=1001), [step(990, 10), answer(5000, 5000)]),
    "a millionth is left": (Limits(cost="0.001001 USD"), [step(1000, 0), answer(5000, 5000)]),
    "the first answer goes far beyond": (Limits(tokens=1, cost="0.000001 USD"), [answer(10**9, 10**9)]),
}


@pytest.mark.parametrize(("limits", "script"), ROOM.values(), ids=ROOM)
async def test_the_answer_that_goes_over_a_limit_still_counts(limits: Limits, script: list[Any]) -> None:
    """What an answer uses is known when it is there; a turn that it ends is complete."""
    async with staged(*script, settings=SETTINGS) as runtime:
        session = await runtime.session("s", looking(limits))
        assert (await session.run("Go.")).status == "completed"


async def test_limits_of_one_turn_are_recorded_and_stand_in_place_of_the_agents() -> None:
    """Those that were given; the agent's others go on to hold, and the next turn has the agent's again."""
    script = [step(500, 0), step(500, 0), step(500, 0), answer(1, 1)]
    async with staged(*script, settings=SETTINGS) as runtime:
        session = await runtime.session("s", looking(Limits(tokens=400, cost="0.0009 USD")))
        turn = await session.run("Go.", limits=Limits(tokens=5000), check=False)
        assert turn.error.details["limit"] == "cost"
        assert dict(data_of(session, "turn.started")[0].overrides) == {"tokens": 5000}
        async with session.stream(
            "Go.", limits=Limits(steps=7, tokens=2, cost="2 USD", wall_s=9), check=False
        ) as stream:
            assert [event async for event in stream]
        given = {"steps": 7, "tokens": 2, "cost": "2 USD", "wall_s": 9}
        assert dict(data_of(session, "turn.started")[1].overrides) == given
        assert stream.turn.error.details == {"limit": "tokens", "allowed": 2, "used": 500}
        assert (await session.retry(check=False)).status == "completed"
        assert dict(data_of(session, "turn.started")[2].overrides) == given
    async with staged(step(1, 0), step(1, 0)) as runtime:
        session = await runtime.session("s", looking(Limits(steps=1)))
        turn = await session.run("Go.", limits=Limits(tokens=5000), check=False)
        assert turn.error.details == {"limit": "steps", "allowed": 1, "used": 1}
    with pytest.raises(UsageError, match="limits are 7; they must be Limits"):
        async with staged() as runtime:
            await (await runtime.session("s", agent_of())).run("Go.", limits=7)


# ------------------------------------------------------------------------------------------------------ not checkable

NO_PRICE = "limit cost 0.50 USD cannot be checked: no price for lab:tiny"
UNKNOWN: dict[str, tuple[str, str, str]] = {
    "no price": ("lab:tiny", NO_PRICE, 'prices in spine.toml [models."lab:tiny"], or limits without cost'),
    "another currency": (
        "lab:euro",
        "limit cost 0.50 USD cannot be checked: prices of lab:euro are in EUR",
        "a limit in EUR, or limits without cost",
    ),
}


async def watch(session: Any) -> None:
    async with session.stream("Go."):
        pass


LIMITS = Limits(cost="0.50 USD")
WAYS: dict[str, tuple[Limits, str, Callable[[Any, str], Any]]] = {
    # the agent's limits and model (empty: the one that is tried), and what is done
    "run": (LIMITS, "", lambda session, model: session.run("Go.")),
    "submit": (LIMITS, "", lambda session, model: session.submit("Go.")),
    "stream": (LIMITS, "", lambda session, model: watch(session)),
    "limits of the turn": (Limits(), "", lambda session, model: session.run("Go.", limits=LIMITS)),
    "model of the turn": (LIMITS, PRICED, lambda session, model: session.run("Go.", model=model)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", UNKNOWN)
async def test_a_limit_that_cannot_be_checked_is_refused_with_nothing_written(name: str, way: str) -> None:
    model, message, hint = UNKNOWN[name]
    limits, own, act = WAYS[way]
    store = MemoryStore()
    async with staged(say("Done."), store=store, settings=SETTINGS) as runtime:
        session = await runtime.session("s", looking(limits, model=own or model))
        with pytest.raises(BudgetUnknown) as refused:
            await act(session, model)
        assert (refused.value.code, refused.value.message, refused.value.hint) == ("budget_unknown", message, hint)
        assert session.log.seq == 0
        assert not store.sessions()


@pytest.mark.parametrize("hook", ["pre_step", "step_failed"])
async def test_a_hook_that_moves_to_a_model_without_a_price_fails_the_step(hook: str) -> None:
    """In the same words, before that step's request is recorded; a replay comes to the same end."""
    tiny = Route.parse("lab:tiny")

    async def pre_step(request: Any, call_next: Any) -> Any:
        return await call_next(request.evolve(route=tiny) if request.step == "t1s2" else request)

    async def step_failed(error: Any, call_next: Any) -> Any:
        return NextStep(tiny) if error.category == "overloaded" else await call_next(error)

    moves = plugin("moves", **{hook: {"pre_step": pre_step, "step_failed": step_failed}[hook]})
    first = step(1, 1) if hook == "pre_step" else fail("overloaded", retryable=False)
    agent = looking(Limits(cost="0.50 USD"))
    async with staged(first, say("Never."), settings=SETTINGS, plugins=[moves]) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.error.category, turn.error.message) == ("failed", "invalid_request", NO_PRICE)
        assert kinds_of(session).count("model.requested") == 1
        judge(session.log)
        found = await replayed(session.log, agent, plugins=[moves])
        assert found.is_exact, found


# ------------------------------------------------------------------------------------------------------ not reported

UNSAID: dict[str, tuple[Limits, int]] = {
    # the limit, and what the turn had used of it in the end
    "tokens": (Limits(tokens=900), 1000),
    "cost": (Limits(cost="0.0006 USD"), 700),
    "tokens and cost": (Limits(tokens=900, cost="1 USD"), 1000),
}


@pytest.mark.parametrize("name", UNSAID)
async def test_what_nobody_reported_counts_as_nothing_and_is_said_once(name: str) -> None:
    """The limit goes on to count what is known; the turn's cost stays unknown."""
    limits, used = UNSAID[name]
    half = call("look") + usage(input_tokens=300)  # no output, so no cost either
    async with staged(step(400, 0), call("look"), half, call("look"), step(300, 0), settings=SETTINGS) as runtime:
        session = await runtime.session("s", looking(limits))
        turn = await session.run("Go.", check=False)
        assert turn.error.details["used"] == used
        assert turn.cost is None
        assert turn.warnings == (f"the limit on {name} counted only what was reported; some answer did not say all",)


async def test_without_such_a_limit_nothing_is_said() -> None:
    async with staged(say("Done."), settings=SETTINGS) as runtime:
        assert (await (await runtime.session("s", looking(Limits()))).run("Go.")).warnings == ()


# ------------------------------------------------------------------------------------------------- after a crash


@pytest.mark.parametrize("limits", [Limits(tokens=500), Limits(cost="0.0005 USD")], ids=["tokens", "cost"])
async def test_what_was_used_before_a_crash_counts_after_it(limits: Limits) -> None:
    """The process died with its limit used up; the next one resumes to the same failed turn, as a replay does."""
    store, agent = MemoryStore(), looking(limits)
    await crashed(store, "tool.started", agent, step(600, 0), settings=SETTINGS)
    async with staged(store=store, settings=SETTINGS, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        turn = await session.resume(check=False)
        assert (turn.status, turn.error.category, turn.error.details["used"]) == ("failed", "limit", 600)
        judge(session.log)
        assert (await replayed(session.log, agent)).is_exact


async def test_a_resumed_turn_whose_price_is_gone_is_refused_with_nothing_written() -> None:
    store, agent = MemoryStore(), looking(Limits(cost="0.50 USD"))
    await crashed(store, "tool.started", agent, step(600, 0), settings=SETTINGS)
    async with staged(store=store, clock=Later(5)) as runtime:
        session = await runtime.session("s", agent)
        before = session.log.seq
        with pytest.raises(BudgetUnknown):
            await session.resume()
        assert session.log.seq == before


# --------------------------------------------------------------------------------------------------- told by a replay

CAUSES: dict[str, tuple[Any, Any, tuple[str, str]]] = {
    "a tighter limit": (looking(Limits(tokens=1)), SETTINGS, ("limit", "tokens")),
    "another limit": (looking(Limits(cost="0.000001 USD")), SETTINGS, ("limit", "cost")),
    "a wider limit": (looking(Limits(tokens=10**6)), SETTINGS, ("limit", "tokens")),
    "a price that is gone": (looking(Limits(tokens=1000, cost="1 USD")), ALONE, ("limit", "cost")),
}


@pytest.mark.parametrize(("agent", "settings", "cause"), CAUSES.values(), ids=CAUSES)
async def test_a_replay_names_the_limit_that_ends_it_otherwise(agent: Any, settings: Any, cause: Any) -> None:
    async with staged(step(500, 0), step(500, 0), settings=SETTINGS) as runtime:
        session = await runtime.session("s", looking(Limits(tokens=1000)))
        assert (await session.run("Go.", check=False)).error.details["limit"] == "tokens"
        found = await replayed(session.log, agent, settings=settings)
        assert found.cause is not None
        assert (found.cause.kind, found.cause.name) == cause
        assert found.cause.owner == "agent agent"
