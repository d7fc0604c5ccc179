"""A runtime that ends after its store failed holds nobody up: the next one may own its sessions at once."""

from typing import Any

import pytest
from stage import agent_of, staged

from spine.errors import SpineError, StoreUnavailable
from spine.stores.memory import MemoryStore
from spine.testing.script import say

pytestmark = pytest.mark.anyio


class FailingStore:
    """A store with methods that fail, before or after they did their work."""

    def __init__(self, store: Any, methods: str, *, after: bool) -> None:
        self._store, self._methods, self._after = store, methods.split(), after
        self.url, self.waits = store.url, store.waits

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)

        def fails(*arguments: Any, **named: Any) -> Any:
            if self._after:
                value(*arguments, **named)
            raise StoreUnavailable("the disk is gone")

        return fails if name in self._methods else value


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", ["claim", "append", "release", "append release renew"])
async def test_the_next_runtime_need_not_wait_for_the_lease(method: str, after: bool) -> None:
    """Whatever failed, the lease ends with its runtime, also within one process."""
    memory = MemoryStore()
    memory.close = lambda: None  # type: ignore[method-assign]  # it outlives its runtimes
    try:
        async with staged(say("Hi."), store=FailingStore(memory, method, after=after)) as runtime:
            session = await runtime.session("s", agent_of())
            await session.run("Go.")
    except SpineError:
        pass
    async with staged(say("Hi."), say("Again."), store=memory) as runtime:
        session = await runtime.session("s", agent_of())
        turn = await session.resume() or await session.run("Go.")
        assert turn.status == "completed"


async def test_a_claim_that_comes_to_light_later_is_nobodys() -> None:
    """A disk may keep a claim whose commit it reported as failed, and show it only when it is read again."""
    memory = MemoryStore()
    memory.close = lambda: None  # type: ignore[method-assign]  # it outlives its runtimes
    store = FailingStore(memory, "claim", after=True)
    store.renew = lambda *arguments, **named: None  # type: ignore[attr-defined]  # nothing is known of the claim yet
    with pytest.raises(StoreUnavailable):
        async with staged(store=store) as runtime:
            await runtime.session("s", agent_of())
    async with staged(say("Hi."), store=memory) as runtime:
        session = await runtime.session("s", agent_of())
        assert (await session.run("Go.")).status == "completed"
