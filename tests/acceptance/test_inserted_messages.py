"""Messages that a hook puts into a request: recorded so that the request can be rebuilt, or refused by name."""

from typing import Any

import pytest
from stage import agent_of, judge, plugin, staged

from spine.messages import Message, TextBlock
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio
BAD = {
    "number": Message(role="user", content=(TextBlock(text=5),)),  # type: ignore[arg-type]
    "no block": Message(role="user", content=(5,)),  # type: ignore[arg-type]
    "surrogate": Message(role="user", content=(TextBlock(text="\ud800"),)),
    "role": Message(role="boss"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD)
async def test_a_message_that_could_not_be_rebuilt_fails_the_step_before_anything_is_sent(message: Any) -> None:
    """The plugin is named, and the model has not been asked."""
    model = ScriptedAdapter()

    async def add(request: Any, call_next: Any) -> Any:
        return await call_next(request.evolve(messages=(*request.messages, message)))

    async with staged(model=model, plugins=[plugin("p", pre_step=add)]) as runtime:
        session = await runtime.session("s", agent_of())
        turn = await session.run("Go.", check=False)
        assert (turn.error.category, turn.error.details["plugin"]) == ("hook_failed", "p@1")
        assert len(model.requests) == 0
        judge(session.log)
