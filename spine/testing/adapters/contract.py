"""What every adapter must do, as tests that any adapter's author can run (floor 14).

Subclass `AdapterContract`, say how an adapter is made, and let a test runner collect the class; nothing here needs one:

    class TestMyAdapter(AdapterContract):
        def answering(self) -> Adapter:
            return MyAdapter(model="tiny")

Each test runs on asyncio and, where it is installed, on trio; it makes its own adapter and closes it. What an adapter
cannot be made to do (`failing`, `hanging`) is not tried.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any, Final

import anyio
import attrs

from spine.agent import Agent
from spine.llm.assemble import assemble
from spine.llm.chunks import Chunk
from spine.llm.errors import CATEGORIES, ProviderError
from spine.llm.protocols import Adapter
from spine.llm.request import ModelRequest, Route
from spine.llm.response import STOP_REASONS, ModelResponse
from spine.llm.usage import Usage
from spine.messages import Message, ToolCallBlock, user_message
from spine.testing.clock import FakeClock
from spine.testing.fixtures import offline_runtime
from spine.testing.raising import raises
from spine.values import CallId, StepId

__all__ = ["AdapterContract"]

LIMIT_S: Final = 10.0
"""Real seconds until one attempt counts as hanging."""
BACKENDS: Final = ("asyncio", "trio") if find_spec("trio") else ("asyncio",)


class AdapterContract:
    """The promises of `spine.llm.protocols.Adapter`, one test each."""

    # ------------------------------------------------------------------------------------ what the author says

    def answering(self) -> Adapter:
        """A fresh adapter that answers `request()`, at least three times."""
        raise NotImplementedError("an adapter's author says here how one that answers is made")

    def failing(self) -> Adapter | None:
        """A fresh adapter whose first attempt fails and whose second one succeeds; None when there is none."""
        return None

    def hanging(self) -> Adapter | None:
        """A fresh adapter whose first attempt never ends and whose second one succeeds; None when there is none."""
        return None

    def request(self) -> ModelRequest:
        """What is asked; override it for an adapter that wants a certain model."""
        return ModelRequest(
            route=Route("contract", "model"), step=StepId("t1s1"), messages=(user_message("Say something."),)
        )

    # ------------------------------------------------------------------------------------------------ answers

    def test_an_answer_ends_with_its_one_response(self) -> None:
        """Any number of chunks, then exactly one `ModelResponse`, and nothing after it."""

        async def trial(adapter: Adapter) -> None:
            items = await _items(adapter, self.request())
            assert items, "the stream was empty"
            assert type(items[-1]) is ModelResponse, f"the last item is {type(items[-1]).__name__}"
            assert sum(type(item) is ModelResponse for item in items) == 1

        self._try(trial)

    def test_the_message_is_the_fold_of_its_chunks(self) -> None:
        """Chunks carry everything that the message holds, but for the ids of its calls."""

        async def trial(adapter: Adapter) -> None:
            *chunks, response = await _items(adapter, self.request())
            assert _without_ids(response.message) == _without_ids(assemble(chunks))

        self._try(trial)

    def test_a_response_says_how_it_ended(self) -> None:
        """The stop reason is a known one, and token counts are absent or whole numbers."""

        async def trial(adapter: Adapter) -> None:
            response = (await _items(adapter, self.request()))[-1]
            assert response.stop_reason in STOP_REASONS
            assert response.message.role == "assistant"
            counts = [
                getattr(response.usage, field.name) for field in attrs.fields(Usage) if field.name.endswith("tokens")
            ]
            assert all(count is None or (type(count) is int and count >= 0) for count in counts), counts

        self._try(trial)

    def test_attempts_do_not_mix(self) -> None:
        """Two attempts at once are two whole answers."""

        async def trial(adapter: Adapter) -> None:
            answers: list[list[Any]] = []

            async def ask() -> None:
                answers.append(await _items(adapter, self.request()))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                group.start_soon(ask)
            for *chunks, response in answers:
                assert _without_ids(response.message) == _without_ids(assemble(chunks))

        self._try(trial)

    def test_a_session_runs_on_it(self) -> None:
        """The loop takes its answers: a turn completes."""

        async def trial(adapter: Adapter) -> None:
            model: Any = adapter
            async with offline_runtime(model, FakeClock()) as runtime:
                session = await runtime.session("contract", Agent(str(self.request().route)))
                turn = await session.run("Say something.", check=False)
                assert turn.status == "completed", turn.error

        self._try(trial)

    # ------------------------------------------------------------------------------------------------- endings

    def test_leaving_early_leaves_it_usable(self) -> None:
        """A stream may be closed after its first item; the next attempt is a whole one."""

        async def trial(adapter: Adapter) -> None:
            async with aclosing(adapter.stream(self.request())) as stream:  # type: ignore[type-var]
                async for _ in stream:
                    break
            assert type((await _items(adapter, self.request()))[-1]) is ModelResponse

        self._try(trial)

    def test_a_failure_is_a_provider_error(self) -> None:
        """A failed attempt raises `ProviderError` of a known category, and the next attempt is as good as a first."""

        async def trial(adapter: Adapter) -> None:
            with raises(ProviderError) as caught:
                await _items(adapter, self.request())
            assert caught[0].category in CATEGORIES  # type: ignore[attr-defined]
            assert type((await _items(adapter, self.request()))[-1]) is ModelResponse

        self._try(trial, self.failing)

    def test_a_cancelled_attempt_ends_at_once(self) -> None:
        """Cancellation passes through and becomes neither an answer nor an error."""

        async def trial(adapter: Adapter) -> None:
            items: list[Any] = []
            with anyio.move_on_after(0.05) as scope:
                items = await _items(adapter, self.request())
            assert scope.cancelled_caught, f"the attempt ended by itself with {len(items)} items"
            assert type((await _items(adapter, self.request()))[-1]) is ModelResponse

        self._try(trial, self.hanging)

    def test_check_lets_a_plain_request_pass(self) -> None:
        """`check` is synchronous and returns nothing."""

        async def trial(adapter: Adapter) -> None:
            found: object = adapter.check(self.request())  # type: ignore[func-returns-value]
            assert found is None, f"check returned {found!r}"

        self._try(trial)

    def test_closing_again_does_nothing(self) -> None:
        """`aclose` is idempotent, before and after use."""

        async def trial(adapter: Adapter) -> None:
            await _items(adapter, self.request())
            await adapter.aclose()
            await adapter.aclose()

        self._try(trial)

    # ------------------------------------------------------------------------------------------------- machinery

    def _try(
        self, trial: Callable[[Adapter], Awaitable[None]], make: Callable[[], Adapter | None] | None = None
    ) -> None:
        async def run() -> None:
            adapter = (make or self.answering)()
            if adapter is None:
                return
            try:
                with anyio.fail_after(LIMIT_S):
                    await trial(adapter)
            finally:
                await adapter.aclose()

        for backend in BACKENDS:
            anyio.run(run, backend=backend)


async def _items(adapter: Adapter, request: ModelRequest) -> list[Any]:
    items: list[Chunk | ModelResponse] = []
    async with aclosing(adapter.stream(request)) as stream:  # type: ignore[type-var]
        async for item in stream:
            items.append(item)
    return items


def _without_ids(message: Message) -> tuple[Any, ...]:
    """The content, calls without the ids that are minted later."""
    return tuple(
        attrs.evolve(block, id=CallId(""), vendor_id=None) if isinstance(block, ToolCallBlock) else block
        for block in message.content
    )
