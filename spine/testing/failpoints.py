"""Named places at which a test can make a run go wrong (floor 14): every call of the store, every await of a turn.

Nothing of this stands in the runtime: a `Failpoints` wraps what is handed to it (store, model, agent, plugins, clock,
the turn's own coroutine), so a run without it pays nothing. Names say where they are:

    store.append.before   store.append.after      each call of the store, on whatever thread makes it
    model.ask  model.item  model.end              an attempt, each piece of its answer, its end
    tool.pay.before       tool.pay.after          a handler, before it began and after it acted; `reconcile.pay.…` too
    hook.guard.spine_pre_step.before   ….after    a plugin's step hook
    clock.sleep.before    clock.sleep.after       the wait before a retry
    await.loop._request>run.Run.commit>…       a suspension of the turn: the three innermost functions of ours
"""

import inspect
import threading
import types
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing
from functools import partial, wraps
from typing import Any, Final, NamedTuple, TypeVar, cast

import anyio

from spine.agent import Agent
from spine.clock import Clock
from spine.execution import runs_on_loop
from spine.hooks import HOOKS
from spine.llm.chunks import Chunk
from spine.llm.protocols import Adapter
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.store import Store
from spine.tools import Tool, ToolHandler

__all__ = ["Failpoint", "Failpoints"]

T = TypeVar("T")
Act = Callable[[], object]
_NEVER: Final = threading.Event()


class Failpoint(NamedTuple):
    """A place and a moment: the `nth` time, from 1, that the place called `name` is reached."""

    name: str
    nth: int = 1

    def __str__(self) -> str:
        return self.name if self.nth == 1 else f"{self.name}#{self.nth}"


class Failpoints:
    """Notes every place that a run reaches, and lets `act` strike at one of them.

    `act` is called once, when `at` is reached, on the thread that reaches it: it may raise, cancel a scope, or end the
    process. With `hangs` the place never goes on after that, whether `act` returned or not. `hits` lists what was
    reached, in order: a first run without `at` finds all the places there are.
    """

    def __init__(self, at: Failpoint | None = None, act: Act = lambda: None, *, hangs: bool = False) -> None:
        self._at = at
        self._act = act
        self._hangs = hangs
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.hits: list[Failpoint] = []
        self.has_struck = False

    # --------------------------------------------------------------------------------------------- passing a place

    def reach(self, name: str) -> bool:
        """Note a place; True when whoever reached it must never go on. Raises what `act` raises."""
        with self._lock:
            self._counts[name] += 1
            hit = Failpoint(name, self._counts[name])
            self.hits.append(hit)
            strikes = hit == self._at
            self.has_struck = self.has_struck or strikes
        if strikes:
            self._act()
        return strikes and self._hangs

    def passed(self, name: str) -> None:
        """Pass a place in code that does not await; hanging there holds up its thread for ever."""
        if self.reach(name):
            _NEVER.wait()

    async def pass_by(self, name: str) -> None:
        """Pass a place in code that awaits."""
        if self.reach(name):
            await anyio.sleep_forever()

    async def around(self, name: str, work: Awaitable[T]) -> T:
        """`work` between the places `name.before` and `name.after`; the latter only when it did not raise."""
        try:
            await self.pass_by(f"{name}.before")
        except BaseException:
            if inspect.iscoroutine(work):
                work.close()
            raise
        result = await work
        await self.pass_by(f"{name}.after")
        return result

    # --------------------------------------------------------------------------------------------------- wrapping

    def store(self, store: Store) -> Store:
        """The store with a place before and after each of its calls."""
        return cast(Store, _TappedStore(store, self))

    def model(self, model: Adapter) -> Adapter:
        """The adapter with a place at each attempt, each piece of an answer, and its end."""
        return _TappedModel(model, self)

    def agent(self, agent: Agent) -> Agent:
        """The agent with a place before and after each of its own tools."""
        return agent.evolve(tools=(*map(self.tool, agent.own_tools), *agent.selected))

    def tool(self, tool: Tool) -> Tool:
        """The tool with a place before and after its handler, and its check after a crash."""
        check = None if tool.reconcile is None else self._handler(f"reconcile.{tool.name}", tool.reconcile)
        return tool.evolve(handler=self._handler(f"tool.{tool.name}", tool.handler), reconcile=check)

    def _handler(self, name: str, handler: ToolHandler) -> ToolHandler:
        async def on_loop(arguments: Any, context: Any) -> Any:
            return await self.around(name, handler(arguments, context))

        def in_thread(arguments: Any, context: Any) -> Any:
            return self._call(name, handler, arguments, context)

        return on_loop if runs_on_loop(handler) else in_thread

    def _call(self, name: str, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        self.passed(f"{name}.before")
        result = function(*arguments, **named)
        self.passed(f"{name}.after")
        return result

    def plugin(self, plugin: types.ModuleType) -> types.ModuleType:
        """The plugin with a place before and after each of its awaited hooks."""
        tapped = types.ModuleType(plugin.__name__)
        tapped.__dict__.update(plugin.__dict__)
        short = plugin.__name__.rpartition(".")[2].removeprefix("spine_")
        for attribute, function in vars(plugin).items():
            marks = getattr(function, "spine_impl", None)
            hook = None if marks is None else marks.get("specname") or attribute
            if hook in HOOKS and inspect.iscoroutinefunction(function):
                setattr(tapped, attribute, self._hook(f"hook.{short}.{hook}", function))
        return tapped

    def _hook(self, name: str, function: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        @wraps(function)
        async def hook(*arguments: Any) -> T:
            return await self.around(name, function(*arguments))

        return hook

    def clock(self, clock: Clock) -> Clock:
        """The clock with a place before and after the waits of retries."""
        return _TappedClock(clock, self)

    @types.coroutine
    def drive(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await `work` with a place at each of its suspensions, which is reached when the wait is over.

        There an exception comes out of the very await that waited; a task group's own tasks are not followed.
        """
        value, error = None, None
        while True:
            try:
                waits_for = work.send(value) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            name = f"await.{_place(work)}"
            try:
                value, error = (yield waits_for), None
                if self.reach(name):
                    yield from anyio.sleep_forever().__await__()
            except BaseException as exc:
                value, error = None, exc


def _place(work: Any) -> str:
    """The three innermost functions of ours in which a coroutine waits."""
    names: list[str] = []
    while work is not None:
        frame: Any = getattr(work, "cr_frame", None) or getattr(work, "ag_frame", None)
        module = frame.f_globals.get("__name__", "") if frame is not None else ""
        if module.startswith("spine.") and not module.startswith("spine.testing"):
            names.append(f"{module.removeprefix('spine.')}.{frame.f_code.co_qualname}")
        work = getattr(work, "cr_await", None) or getattr(work, "ag_await", None)
    return ">".join(names[-3:]) or "outside"


class _TappedStore:
    """A store whose every method has a place before and after it; `close` only lets go."""

    def __init__(self, store: Store, failpoints: Failpoints) -> None:
        self._store = store
        self._failpoints = failpoints

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not callable(value) or name == "close":
            return value
        tapped = partial(self._failpoints._call, f"store.{name}", value)
        self.__dict__[name] = tapped
        return tapped


class _TappedModel:
    def __init__(self, model: Adapter, failpoints: Failpoints) -> None:
        self.protocol = getattr(model, "protocol", "tapped")
        self._model = model
        self._failpoints = failpoints

    def check(self, request: ModelRequest) -> None:
        """As the model does."""
        self._model.check(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | ModelResponse, None]:
        """As the model does, with its places."""
        await self._failpoints.pass_by("model.ask")
        async with aclosing(self._model.stream(request)) as stream:  # type: ignore[type-var]
            async for item in stream:
                yield item
                await self._failpoints.pass_by("model.item")
        await self._failpoints.pass_by("model.end")

    async def aclose(self) -> None:
        """As the model does."""
        await self._model.aclose()


class _TappedClock:
    def __init__(self, clock: Clock, failpoints: Failpoints) -> None:
        self._clock = clock
        self._failpoints = failpoints
        self.now, self.monotonic, self.pause = clock.now, clock.monotonic, clock.pause

    async def sleep(self, delay_s: float) -> None:
        """As the clock does, with its places."""
        await self._failpoints.around("clock.sleep", self._clock.sleep(delay_s))
