"""Around a running turn (floor 14): what comes in while it runs, and how model and tools wait until that is recorded.

Inputs that come in at a moment are sent by tasks of their own, as they would be in life. So that every run of a
scenario is the same, model and tools hold back until those tasks are done.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from spine import outcomes
from spine.errors import ScriptMismatch
from spine.events import RecordedEvent
from spine.execution import runs_on_loop
from spine.llm.chunks import Chunk
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.session import Session
from spine.testing.clock import FakeClock
from spine.testing.crashes import ProcessDied
from spine.testing.scenarios.scenario import CancelInput, LateInput, ToolAnswer
from spine.testing.scripted import ScriptedAdapter
from spine.tools import Tool
from spine.values import CallId, thaw

__all__ = ["Answers", "Armed", "HeldModel", "Stage"]

_REPEATABLE: Final = frozenset(("read_only", "idempotent"))
"""The world answers such a call again, as before: it is the same call, and no second run."""

Settle = Callable[[], Awaitable[None]]


@attrs.define(eq=False)
class Armed:
    """An input that waits for its moment; `is_sent` once it is durable."""

    number: int
    input: LateInput | CancelInput
    is_begun: bool = False
    is_sent: bool = False


class Stage:
    """Watches one session in one process and sends the armed inputs at their moments."""

    def __init__(self, is_over: Callable[[], bool], leave: Callable[[], None]) -> None:
        """`is_over` tells that the process ends here; `leave` then lets it go."""
        self.is_over = is_over
        self._leave = leave
        self._armed: Sequence[Armed] = ()
        self._counts: Counter[str] = Counter()
        self._sending = 0
        self._calm = anyio.Event()
        self.session: Session | None = None
        """The session that is watched."""
        self._group: anyio.abc.TaskGroup | None = None

    def enter(self, session: Session, group: anyio.abc.TaskGroup) -> None:
        """Begin to watch a session."""
        self.session, self._group = session, group
        for event in session.log.read() if session.log.seq else ():
            self._count(event)
        session.log.observe(self._watch)

    def arm(self, inputs: Sequence[Armed]) -> None:
        """Wait for the moments of these inputs, instead of earlier ones; a moment that is past has come."""
        self._armed = inputs
        self._send_due()

    async def calm(self) -> None:
        """Return when everything that came in is recorded."""
        while self._sending:
            await self._calm.wait()

    async def settle(self) -> None:
        """`calm` for model and tools; never returns when the process ends here."""
        await self.calm()
        if self.is_over():
            self._leave()
            await anyio.sleep_forever()

    def _watch(self, event: RecordedEvent) -> None:
        self._count(event)
        self._send_due()

    def _count(self, event: RecordedEvent) -> None:
        if event.type == "turn.started":
            self._counts.clear()
        self._counts[event.type] += 1

    def _send_due(self) -> None:
        for armed in self._armed:
            moment = armed.input.at
            if not armed.is_begun and self._counts[moment.event] >= moment.nth:
                assert self._group is not None
                armed.is_begun = True
                self._sending += 1
                self._group.start_soon(self._send, armed)

    async def _send(self, armed: Armed) -> None:
        assert self.session is not None
        try:
            match armed.input:
                case LateInput(text=text, delivery=delivery):
                    await self.session.submit(text, delivery=delivery, key=f"late-{armed.number}")
                case CancelInput(cause=cause):
                    await self.session.cancel(cause)
            armed.is_sent = True
        except ProcessDied:
            pass  # the next process sends it again
        finally:
            self._sending -= 1
            if not self._sending:
                self._calm.set()
                self._calm = anyio.Event()


class HeldModel:
    """A scripted model that waits for the stage to settle before each attempt."""

    def __init__(self, model: ScriptedAdapter, stage: Stage, prepare: Callable[[Session], None]) -> None:
        """`prepare` is called with the session once the stage has settled."""
        self.protocol = model.protocol
        self._model = model
        self._stage = stage
        self._prepare = prepare

    def check(self, request: ModelRequest) -> None:
        """As the model does."""
        self._model.check(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | ModelResponse, None]:
        """As the model does."""
        await self._stage.settle()
        if self._stage.session is not None:
            self._prepare(self._stage.session)
        async with aclosing(self._model.stream(request)) as stream:
            async for item in stream:
                yield item

    async def aclose(self) -> None:
        """As the model does."""
        await self._model.aclose()


class Answers:
    """Tools that do what the scenario says; counts over all processes how often each ran."""

    def __init__(self, answers: Mapping[str, tuple[ToolAnswer, ...]], clock: FakeClock) -> None:
        self._series = {name: _series(each) for name, each in answers.items()}
        self._always = {name: each[0] for name, each in answers.items()}
        self._clock = clock
        self._runs: Counter[str] = Counter()
        self._given: dict[CallId, ToolAnswer] = {}

    def tool(self, tool: Tool, settle: Settle) -> Tool:
        """`tool` with the scenario's answers in place of its handler."""

        async def handler(arguments: Mapping[str, Any], context: Any) -> Any:
            await settle()
            return await self._answer(tool, arguments, context)

        return tool.evolve(handler=handler) if tool.name in self._always else tool

    async def _answer(self, tool: Tool, arguments: Mapping[str, Any], context: Any) -> Any:
        again = self._given.get(context.call) if tool.effect in _REPEATABLE else None
        answer = self._given[context.call] = again or self._next(tool.name)
        if tool.timeout_s is not None and answer.delay_s >= tool.timeout_s:
            await self._clock.sleep(tool.timeout_s)
            return outcomes.timed_out(tool.timeout_s)
        if answer.delay_s:
            await self._clock.sleep(answer.delay_s)
        if answer.is_own:
            return await _run(tool, arguments, context)
        if answer.raises is not None:
            name, message = answer.raises
            raise type(name, (Exception,), {})(message)
        return thaw(answer.returns)

    def _next(self, name: str) -> ToolAnswer:
        self._runs[name] += 1
        series = self._series[name]
        if series is None:
            return self._always[name]
        if self._runs[name] > len(series):
            raise ScriptMismatch(f"the scenario has {len(series)} answers for tool {name}")
        return series[self._runs[name] - 1]

    def problems(self) -> list[str]:
        """A sentence for each tool that did not run as often as the scenario says."""
        return [
            f"tool {name} ran {self._runs[name]} times, the scenario says {len(series)}"
            for name, series in self._series.items()
            if series is not None and self._runs[name] != len(series)
        ]


def _series(answers: tuple[ToolAnswer, ...]) -> list[ToolAnswer] | None:
    """One answer for each run; None when there is one for all of them."""
    if len(answers) == 1 and answers[0].times is None:
        return None
    return [answer for answer in answers for _ in range(1 if answer.times is None else answer.times)]


async def _run(tool: Tool, arguments: Mapping[str, Any], context: Any) -> Any:
    if runs_on_loop(tool.handler):
        return await tool.handler(arguments, context)
    return await anyio.to_thread.run_sync(tool.handler, arguments, context)
