"""The canonical turns of the crash sweep: what the model says, what tools do to the world outside, and what must hold.

The world outside is a file that tools append to with one system call, so that it outlives a killed process. Answers of
the model depend on the step alone: whichever process asks, it hears the same.
"""

import os
import types
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import attrs
from anyio.lowlevel import checkpoint

from spine import Agent
from spine.hooks import Compact, Deny, NextStep, hookimpl
from spine.llm.errors import ProviderError
from spine.llm.request import Route
from spine.messages import Message, TextBlock
from spine.testing.script import Entry, call, fail, say, stop, think
from spine.testing.scripted import prepare
from spine.tools import Effect, Tool, ToolDefinition

SLOW_S = 0.005
ONCE: frozenset[Effect] = frozenset(("irreversible", "reconcilable"))
"""Effects whose tools must not act twice for one call."""


class World:
    """What stays when a process is gone: which tool acted for which call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def act(self, tool: str, key: str) -> None:
        """Do it, outside: one write, which no death of this process takes back."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{tool} {key}\n".encode())
        os.close(descriptor)

    def acts(self) -> Counter[str]:
        """How often something was done, by `tool session/call`."""
        return Counter(self.path.read_text().splitlines()) if self.path.exists() else Counter()


@attrs.frozen(kw_only=True)
class Turn:
    """One canonical turn. `script` by step; the last entry of a step answers every later attempt."""

    script: Mapping[str, tuple[Entry, ...]]
    tools: Callable[[World, Callable[[], Any]], tuple[Tool, ...]] = lambda world, session: ()
    plugin: Callable[[], types.ModuleType] | None = None
    is_stopped: bool = False
    """It cancels itself, unless it died before."""
    lost: str | None = None
    """An input that its own tool gives; it is not there when the process died before that."""


class Model:
    """Answers by step; counts attempts in this process. A step that no script knows is answered with `Done.`"""

    protocol = "canonical"

    def __init__(self, turn: Turn, *, is_next: bool) -> None:
        self._turn, self._is_next = turn, is_next
        self._asked: Counter[str] = Counter()

    def check(self, request: Any) -> None:
        """Takes anything."""

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """Play the step's entry."""
        entries = self._turn.script.get(request.step, (say("Done."),))
        number = len(entries) - 1 if self._is_next else self._asked[request.step]
        self._asked[request.step] += 1
        for item in prepare(entries[min(number, len(entries) - 1)]).items:
            await checkpoint()
            if hasattr(item, "failure"):
                raise ProviderError(item.failure)
            yield item

    async def aclose(self) -> None:
        """Nothing to let go of."""


# ----------------------------------------------------------------------------------------------------------- tools


def acting(world: World, name: str, effect: Effect = "irreversible", result: str = "", **fields: Any) -> Tool:
    """A tool that acts outside between two awaits."""

    async def handler(arguments: Any, context: Any) -> str:
        await checkpoint()
        world.act(name, context.idempotency_key)
        await checkpoint()
        return result or f"{name} done"

    definition = ToolDefinition(name=name, parameters={"type": "object"})
    return Tool(definition=definition, handler=handler, effect=effect, **fields)


def in_thread(world: World, name: str, effect: Effect, **fields: Any) -> Tool:
    """The same as a synchronous function, which runs in a thread."""

    def handler(arguments: Any, context: Any) -> str:
        world.act(name, context.idempotency_key)
        return f"{name} done"

    return acting(world, name, effect, **fields).evolve(handler=handler)


def reconcilable(world: World) -> Tool:
    """A tool with a check that looks outside whether it took effect."""

    async def check(arguments: Any, context: Any) -> str:
        await checkpoint()
        if not world.acts()[f"book {context.idempotency_key}"]:
            raise LookupError("no booking is known")
        return "book done"

    return acting(world, "book", "reconcilable", reconcile=check)


def broken(world: World) -> Tool:
    """A tool that acts and then raises."""

    async def handler(arguments: Any, context: Any) -> str:
        world.act("trip", context.idempotency_key)
        await checkpoint()
        raise ValueError("tripped")

    return acting(world, "trip").evolve(handler=handler)


def meddling(name: str, meddle: Callable[[Any], Awaitable[None]]) -> Callable[..., tuple[Tool, ...]]:
    """A tool that acts and then does something to its own session."""

    def tools(world: World, session: Callable[[], Any]) -> tuple[Tool, ...]:
        async def handler(arguments: Any, context: Any) -> str:
            world.act(name, context.idempotency_key)
            await meddle(session())
            return f"{name} done"

        return (acting(world, name).evolve(handler=handler),)

    return tools


# ----------------------------------------------------------------------------------------------------------- hooks


def plugin(**hooks: Callable[..., Any]) -> types.ModuleType:
    """A plugin named `p` made of functions."""
    module = types.ModuleType("spine_p")
    for hook, function in hooks.items():
        setattr(module, f"spine_{hook}", hookimpl(specname=f"spine_{hook}")(function))
    return module


def slow() -> types.ModuleType:
    async def post_step(response: Any) -> None:
        await anyio.sleep(SLOW_S)

    async def post_execute(outcome: Any, call_next: Any) -> Any:
        await anyio.sleep(SLOW_S)
        return await call_next(outcome)

    return plugin(post_step=post_step, post_execute=post_execute)


def redacting() -> types.ModuleType:
    async def pre_step(request: Any, call_next: Any) -> Any:
        await checkpoint()
        return await call_next(request.evolve(max_output_tokens=100))

    async def post_execute(outcome: Any, call_next: Any) -> Any:
        await checkpoint()
        return await call_next(outcome.evolve(content=(TextBlock(text="redacted"),)))

    return plugin(pre_step=pre_step, post_execute=post_execute)


def vetoing() -> types.ModuleType:
    async def pre_execute(call: Any, call_next: Any) -> Any:
        await checkpoint()
        return Deny("not today") if call.name == "pay" else await call_next(call)

    return plugin(pre_execute=pre_execute)


def compacting() -> types.ModuleType:
    async def pre_step(request: Any, context: Any, call_next: Any) -> Any:
        await checkpoint()
        history = context.history
        if context.step == "t1s2" and not any(message.kind == "summary" for message in history):
            summary = Message(role="user", kind="summary", content=(TextBlock(text="What was said."),))
            return Compact(summary, history.seqs[-1])
        return await call_next(request)

    return plugin(pre_step=pre_step)


def falling_back() -> types.ModuleType:
    async def step_failed(error: Any, call_next: Any) -> Any:
        await checkpoint()
        if error.category == "not_found":
            return NextStep(route=Route("scripted", "other"))
        return await call_next(error)

    return plugin(step_failed=step_failed)


# ----------------------------------------------------------------------------------------------------------- turns


def three() -> Entry:
    return call("look", n=1) + call("ship", n=2) + call("pay", n=3)


async def cancel(session: Any) -> None:
    await session.cancel("enough")


async def steer(session: Any) -> None:
    await session.steer("And hurry.")


def one(make: Callable[..., Tool], *given: Any, **fields: Any) -> Callable[..., tuple[Tool, ...]]:
    return lambda world, session: (make(world, *given, **fields),)


DONE = (say("Done."),)
TURNS: Mapping[str, Turn] = {
    "text": Turn(script={"t1s1": (think("Hm. So.") + say("Done."),)}),
    "pay": Turn(script={"t1s1": (say("So.") + call("pay"),)}, tools=one(acting, "pay")),
    "ship": Turn(script={"t1s1": (call("ship"),)}, tools=one(in_thread, "ship", "idempotent")),
    "look": Turn(script={"t1s1": (call("look"),)}, tools=one(acting, "look", "read_only")),
    "book": Turn(script={"t1s1": (call("book"),)}, tools=lambda world, session: (reconcilable(world),)),
    "parallel": Turn(
        script={"t1s1": (three(),)},
        tools=lambda world, session: (
            acting(world, "look", "read_only", parallel=True),
            in_thread(world, "ship", "idempotent", parallel=True),
            acting(world, "pay", parallel=True),
        ),
    ),
    "tool error": Turn(script={"t1s1": (call("trip"),)}, tools=lambda world, session: (broken(world),)),
    "approval": Turn(
        script={"t1s1": (call("pay") + call("look"),)},
        tools=lambda world, session: (acting(world, "pay", approval="ask"), acting(world, "look", "read_only")),
    ),
    "retry": Turn(script={"t1s1": (fail("overloaded", retry_after_s=0), *DONE)}),
    "cancel": Turn(script={"t1s1": (call("stop"),)}, tools=meddling("stop", cancel), is_stopped=True),
    "steering": Turn(script={"t1s1": (call("turn"),)}, tools=meddling("turn", steer), lost="And hurry."),
    "compaction": Turn(
        script={"t1s1": (call("look"),)}, tools=one(acting, "look", "read_only"), plugin=compacting
    ),
    "blob": Turn(script={"t1s1": (call("dump"),)}, tools=one(acting, "dump", "idempotent", "x" * 150_000)),
    "veto": Turn(script={"t1s1": (call("pay"),)}, tools=one(acting, "pay"), plugin=vetoing),
    "max tokens": Turn(
        script={"t1s1": (say("So") + call("pay") + stop("max_tokens"),)}, tools=one(acting, "pay")
    ),
    "slow hook": Turn(script={"t1s1": (call("pay"),)}, tools=one(acting, "pay"), plugin=slow),
    "redaction": Turn(script={"t1s1": (call("pay"),)}, tools=one(acting, "pay"), plugin=redacting),
    "fallback": Turn(script={"t1s1": (fail("not_found"),)}, plugin=falling_back),
}  # fmt: skip


def agent_of(turn: Turn, world: World, session: Callable[[], Any]) -> Agent:
    """The turn's agent."""
    return Agent("scripted:demo", tools=turn.tools(world, session))
