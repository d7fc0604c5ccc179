"""Sessions made at random, with everything that can happen from outside: what a replay must make again.

A seed decides what is set up and what is done; when things happen is left to the event loop, as in life. A process may
die after any batch, and another one goes on.
"""

import random
import types
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import attrs

from spine import Agent, Limits, Runtime
from spine.clock import SystemClock
from spine.codec import Codec
from spine.config import Settings
from spine.errors import SpineError
from spine.events import EventType
from spine.hooks import Ask, Deny, NextStep, hookimpl
from spine.llm.assemble import assemble
from spine.llm.catalogue import ModelEntry, Prices, Provider
from spine.llm.chunks import (
    WIRE,
    BlockEnded,
    ProviderEvent,
    ResponseStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from spine.llm.errors import provider_error
from spine.llm.response import ModelResponse
from spine.llm.retry import RetryPolicy
from spine.llm.usage import Usage
from spine.proof.replay.run import Given
from spine.sections import Section
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.testing.crashes import ProcessDied, crashing
from spine.tools import Tool, ToolDefinition, ToolOutcome
from spine.values import SessionId

PRICES = Prices(id="wild", input=1_000_000, output=2_000_000)
LAB = Provider(id="lab", protocol="wild", auth="none", models={"wild": ModelEntry(prices=PRICES)})
ALONE = Settings(installed_plugins=False, providers=(LAB,))
STOPS = ("max_tokens", "refusal", "pause", "context_window", "content_filter", "unknown")
BREAKS = ("rate_limit", "overloaded", "connection", "stream_truncated", "auth", "context_overflow")
EFFECTS = ("read_only", "idempotent", "reconcilable", "irreversible")


@attrs.frozen(kw_only=True)
class Note:
    """An event that the plugin adds after an answer."""

    text: str


@attrs.frozen(kw_only=True)
class Made:
    """A recorded session, and what its processes were given."""

    log: StoredLog
    setting: Given
    borders: tuple[int, ...]


class QuickClock(SystemClock):
    """Real time; retries wait a thousandth of what they should, and the runtime looks ten times as often."""

    async def sleep(self, delay_s: float) -> None:
        """Wait a little."""
        await anyio.sleep(delay_s / 1000)

    async def pause(self, delay_s: float) -> None:
        """Wait a tenth."""
        await anyio.sleep(delay_s / 10)


# -------------------------------------------------------------------------------------------------------------- model


class WildModel:
    """Answers at random, in pieces, with pauses between them; breaks off now and then."""

    protocol = "wild"

    def __init__(self, rng: random.Random, names: list[str]) -> None:
        self._rng = rng
        self._names = names

    def check(self, request: Any) -> None:
        """Refuse a request now and then."""
        if self._rng.random() < 0.02:
            raise provider_error("unsupported_capability", "it cannot do that")

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """One attempt."""
        rng, pieces = self._rng, []
        if rng.random() < 0.15:
            await rest(rng)
            raise self._broken()
        for piece in self._pieces():
            pieces.append(piece)
            yield piece
            await rest(rng)
            if rng.random() < 0.02:
                raise self._broken()
        if rng.random() < 0.1:
            yield ProviderEvent(WIRE, {"request": {"body": "asked"}, "response": {"body": str(rng.random())}})
        stop = rng.choice(STOPS) if rng.random() < 0.1 else "end_turn"
        usage = Usage(input_tokens=rng.randrange(99), output_tokens=rng.randrange(99))
        yield ModelResponse(message=assemble(pieces), stop_reason=stop, usage=usage)

    def _broken(self) -> Exception:
        after = self._rng.choice((None, None, 0.5, 100.0))
        return provider_error(self._rng.choice(BREAKS), "it broke", retry_after_s=after)

    def _pieces(self) -> list[Any]:
        rng = self._rng
        found: list[Any] = [ResponseStarted(model=rng.choice((None, "wild-1")), response_id=rng.choice((None, "r")))]
        if rng.random() < 0.3:
            found += [ThinkingDelta(0, "hm"), ThinkingDelta(0, " so"), BlockEnded(0)]
        if rng.random() < 0.8:
            found += [TextDelta(1, rng.choice("abc") * rng.randrange(1, 4)) for _ in range(rng.choice((1, 3, 9, 90)))]
        calls = rng.choice((0, 0, 1, 1, 2, 3)) if self._names else 0
        for index in range(2, 2 + calls):
            name = rng.choice([*self._names, "nobody"]) if rng.random() < 0.1 else rng.choice(self._names)
            arguments = rng.choice(('{"n": 1}', '{"n": 2}', "{}", "", "[]", '{"n": "x"}'))
            found += [ToolCallStarted(index, name, rng.choice((None, "v"))), ToolCallDelta(index, arguments)]
        return found

    async def aclose(self) -> None:
        """Nothing is open."""


async def rest(rng: random.Random) -> None:
    """Wait for a random while, mostly none."""
    kind = rng.random()
    if kind < 0.3:
        await anyio.sleep(0)
    elif kind < 0.4:
        await anyio.sleep(rng.random() / 300)


# -------------------------------------------------------------------------------------------------------------- tools

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def made_tool(name: str, rng: random.Random) -> Tool:
    """A tool with a random nature; what it does each time is random, too."""

    async def handler(arguments: Any, context: Any) -> Any:
        for _ in range(rng.randrange(3)):
            await rest(rng)
            if rng.random() < 0.3:
                context.progress(f"{name} goes on", {"n": rng.randrange(9)})
        kind = rng.random()
        if kind < 0.15:
            raise ValueError("it cannot")
        if kind < 0.25:
            return ToolOutcome(status="error")
        return rng.choice(("done", {"n": rng.randrange(9)}, None, "long " * 300))

    async def reconcile(arguments: Any, context: Any) -> Any:
        if rng.random() < 0.5:
            raise ValueError("nobody knows")
        return "it was done"

    def blocking(arguments: Any, context: Any) -> Any:
        return rng.choice(("done in a thread", {"n": 3}))

    effect = rng.choice(EFFECTS)
    return Tool(
        definition=ToolDefinition(name=name, parameters=SCHEMA),
        handler=blocking if rng.random() < 0.1 else handler,
        effect=effect,
        parallel=rng.random() < 0.6,
        approval="ask" if rng.random() < 0.15 else "never",
        max_result_bytes=400,
        timeout_s=0.05 if rng.random() < 0.1 else None,
        reconcile=reconcile if effect == "reconcilable" else None,
    )


# ------------------------------------------------------------------------------------------------------------ plugins


def made_plugin(name: str, rng: random.Random) -> types.ModuleType:
    """A plugin with some hooks: each a function of what it is given, whatever time it takes."""
    module = types.ModuleType(f"spine_{name}")
    module.__dict__["__version__"] = "1.0"

    async def pre_step(request: Any, context: Any, call_next: Any) -> Any:
        await rest(rng)
        if context.step.endswith("s2"):
            request = attrs.evolve(request, max_output_tokens=100 + len(name))
        result = await call_next(request)
        await rest(rng)
        return attrs.evolve(result, temperature=0.5) if len(result.messages) % 3 == 0 else result

    async def pre_execute(call: Any, call_next: Any) -> Any:
        await rest(rng)
        if call.arguments.get("n") == 2 and call.id.endswith("c1"):
            return Deny("not twice") if len(name) % 2 else Ask("is that right?")
        if call.arguments.get("n") == 1 and len(name) % 2:
            call = attrs.evolve(call, arguments={"n": 7})
        return await call_next(call)

    async def post_execute(call: Any, outcome: Any, call_next: Any) -> Any:
        await rest(rng)
        result = await call_next(outcome)
        await rest(rng)
        return result.evolve(content=("seen by " + name,)) if call.id.endswith("c2") else result

    async def post_step(response: Any, context: Any) -> Any:
        await rest(rng)
        if context.step.endswith("s3"):
            raise ValueError("an observer that fails")
        return [module.Note(text=f"{name} saw {response.stop_reason}")] if context.step.endswith("s1") else None

    async def step_failed(error: Any, context: Any, call_next: Any) -> Any:
        await rest(rng)
        return NextStep() if error.category == "stream_truncated" else await call_next(error)

    module.__dict__["Note"] = attrs.make_class("Note", {"text": attrs.field(type=str)}, frozen=True, kw_only=True)

    def register_events(registrar: Any) -> None:
        registrar.add(EventType(name=f"{name}.note", data=module.Note))

    def register_prompts(registrar: Any) -> None:
        registrar.add(Section(f"about-{name}", render=f"{name} is here.", order=40))
        registrar.add(Section(f"now-{name}", render=lambda c: f"{c.step} {c.now}", dynamic=True, order=60))

    offered = {
        "spine_pre_step": pre_step,
        "spine_pre_execute": pre_execute,
        "spine_post_execute": fixed_content(post_execute),
        "spine_step_failed": step_failed,
        "spine_register_prompts": register_prompts,
    }
    for hook, function in offered.items():
        if rng.random() < 0.5:
            setattr(module, hook, hookimpl(specname=hook)(function))
    if rng.random() < 0.5:
        module.__dict__["spine_post_step"] = hookimpl(specname="spine_post_step")(post_step)
        module.__dict__["spine_register_events"] = hookimpl(specname="spine_register_events")(register_events)
    return module


def fixed_content(hook: Any) -> Any:
    """Let a hook say its content in text."""
    from spine.messages import TextBlock

    async def post_execute(call: Any, outcome: Any, call_next: Any) -> Any:
        result = await hook(call, outcome, call_next)
        content = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in result.content)
        return result.evolve(content=content) if content != result.content else result

    return post_execute


# ------------------------------------------------------------------------------------------------------------ a session


def made_limits(rng: random.Random) -> Limits:
    """Mostly none; else of one kind or several, so low that some turns meet them."""
    given: dict[str, Any] = {
        "steps": rng.randrange(1, 6),
        "tokens": rng.randrange(50, 400),
        "cost": f"0.000{rng.randrange(100, 600)} USD",
        "wall_s": rng.random() / 20,
    }
    return Limits(**{name: value for name, value in given.items() if rng.random() < 0.2})


async def record(seed: int) -> Made:
    """Live through a session of one to three processes."""
    rng = random.Random(seed)
    tools = [made_tool(f"tool{number}", rng) for number in range(rng.randrange(4))]
    plugins = [made_plugin("a" * (1 + number), rng) for number in range(rng.choice((0, 1, 1, 2)))]
    limits = made_limits(random.Random(f"limits {seed}"))
    agent = Agent("lab:wild", instructions="Be brief.", tools=tuple(tools), limits=limits)
    setting = Given(agent=agent, plugins=plugins, settings=ALONE)
    store, borders = MemoryStore(), []
    deaths = [rng.randrange(3, 30) for _ in range(rng.choice((0, 0, 1, 2)))]
    for death in [*deaths, None]:
        head = store.head(SessionId("made"))
        borders.append(1 if head is None else head[0] + 1)
        if not await _process(store, setting, rng, death):
            break
    log = StoredLog(store, codec_of(plugins), SessionId("made"))
    if log.head[0] and rng.random() < 0.2:
        await _fork(store, setting, rng)
        log, borders = StoredLog(store, log.codec, SessionId("fork")), [1]
    return Made(log=log, setting=setting, borders=tuple(borders[1:]))


async def _fork(store: MemoryStore, setting: Given, rng: random.Random) -> None:
    """Let another session go on from some event."""
    names = [tool.name for tool in setting.agent.own_tools]
    async with Runtime.open(
        store, model=WildModel(rng, names), plugins=setting.plugins, settings=ALONE, clock=QuickClock()
    ) as runtime:
        await runtime.fork("made", "fork", seq=rng.randrange(1, 1 + runtime.reader("made").head[0]))
        session = await runtime.session("fork", setting.agent)
        with anyio.move_on_after(2):
            await _live(session, rng)


def codec_of(plugins: list[Any]) -> Codec:
    """A codec that knows the events of these plugins."""
    return Runtime.open("memory:", plugins=plugins, settings=ALONE).codec


async def _process(store: MemoryStore, setting: Given, rng: random.Random, death: int | None) -> bool:
    """Live in one process; True when it died after `death` events, so that another one must go on."""
    begun = store.head(SessionId("made"))
    last = (begun[0] if begun else 0) + (death or 0)
    front, crash = crashing(store, lambda row: death is not None and row.seq >= last)
    runtime = Runtime.open(
        front,
        model=WildModel(rng, [tool.name for tool in setting.agent.own_tools]),
        plugins=setting.plugins,
        settings=ALONE,
        clock=QuickClock(),
        random=rng.random,
        retry=RetryPolicy(attempts=rng.choice((1, 3, 4))),
    )
    try:
        async with anyio.create_task_group() as group, runtime:
            group.start_soon(_die, crash, group.cancel_scope)
            with anyio.move_on_after(2):
                session = await runtime.session("made", setting.agent)
                await _live(session, rng)
            group.cancel_scope.cancel()
    except* (ProcessDied, SpineError):
        pass
    if crash.is_dead:
        for holder in (store.owner(SessionId("made")),):
            if holder is not None:
                store.release(SessionId("made"), holder[0])
    return bool(crash.is_dead)


async def _die(crash: Any, scope: anyio.CancelScope) -> None:
    while not crash.is_dead:
        await anyio.sleep(0.0005)
    scope.cancel()


async def _live(session: Any, rng: random.Random) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_disturb, session, rng)
        if session.turn is not None and session.turn.status == "open":
            await session.resume(check=False)
        for _ in range(rng.randrange(1, 4)):
            await _settle(session, rng)
            if session.turn is None or session.turn.status not in ("open", "suspended"):
                retry = session.turn is not None and session.turn.status in ("failed", "cancelled")
                again = retry and rng.random() < 0.5
                with suppress(SpineError):  # somebody else's input was first
                    await (session.retry(check=False) if again else session.run("Go on.", check=False))
        await _settle(session, rng)
        group.cancel_scope.cancel()


async def _settle(session: Any, rng: random.Random) -> None:
    """Decide what waits for a person, and let queued inputs have their turns."""
    while session.is_running or (session.turn is not None and session.turn.status == "suspended"):
        waiting = session.log.status.open_approvals
        if session.is_running or not waiting:
            await anyio.sleep(0.0005)
            continue
        decide = rng.choice((session.approve, session.approve, partial(session.deny, reason="no")))
        with suppress(SpineError):  # somebody else was faster, or the turn failed
            await decide(waiting[0].request.id, by="someone")
        await anyio.sleep(0)


async def _disturb(session: Any, rng: random.Random) -> None:
    """Steer, cancel, queue and decide while turns run."""
    while True:
        await anyio.sleep(rng.random() / 150)
        kind = rng.random()
        with suppress(SpineError):
            if kind < 0.15:
                await session.steer("Hurry.")
            elif kind < 0.25:
                await session.cancel("enough", by="someone")
            elif kind < 0.3:
                await session.submit("And then?", delivery=rng.choice(("queue", "interrupt")))
            elif kind < 0.35 and session.log.status.open_approvals:
                first = session.log.status.open_approvals[0].request.id
                await session.approve(first, by="someone else")
            elif kind < 0.37 and session.log.seq:
                await session.rename("a title")
