"""What people do wrong at first, or by accident: each is contained or refused in a sentence, and nothing is written."""

import contextlib
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from stage import agent_of, events_of, kinds_of, plugin, staged, tool_of

from spine import Agent, Runtime
from spine.config import Settings
from spine.errors import KeyMissing, RouteUnknown, SessionBusy, SpineError, UsageError
from spine.llm.catalogue import Provider
from spine.stores.memory import MemoryStore
from spine.testing.script import call, say

# ------------------------------------------------------------------------------------------------------- watchers


async def test_a_watcher_that_raises_is_dropped_and_the_turn_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """It is called once, the others see everything, and the warning holds nothing of the answer."""
    seen: list[str] = []
    calls = []

    def breaks(chunk: Any) -> None:
        calls.append(chunk)
        raise BrokenPipeError(getattr(chunk, "text", "secret words"))

    async with staged(say("secret words")) as runtime:
        session = await runtime.session("s", agent_of())
        end = session.watch(breaks)
        session.watch(lambda chunk: seen.append(getattr(chunk, "text", "")))
        with caplog.at_level(logging.WARNING, "spine"):
            turn = await session.run("go")
        end()
        assert turn.text == "secret words"
        assert (len(calls), "".join(seen)) == (1, "secret words")
        assert "model.attempt_failed" not in kinds_of(session)
    [record] = caplog.records
    assert "BrokenPipeError" in record.getMessage()
    assert "secret" not in record.getMessage()


# ---------------------------------------------------------------------------------------------------------- retry


async def test_a_retry_of_an_open_turn_says_what_the_turn_waits_for() -> None:
    """Not that there is no turn."""
    tool = tool_of("pay", lambda arguments, context: "paid", approval="ask")
    async with staged(call("pay")) as runtime:
        session = await runtime.session("s", agent_of(tool))
        assert (await session.run("go")).status == "suspended"
        with pytest.raises(SessionBusy, match="waits for a1") as refused:
            await session.retry()
        assert refused.value.hint == "spine approve a1"


# ------------------------------------------------------------------------------------------------ nothing written

UNRESOLVED: dict[str, tuple[str, type[UsageError]]] = {
    "an alias that is none": ("plain", RouteUnknown),
    "an unknown provider": ("antropic:x", RouteUnknown),
    "a missing key": ("lab:tiny", KeyMissing),
}
LAB = Provider(id="lab", protocol="openai_chat", base_url="https://lab.invalid/v1", key_env="LAB_KEY")


@pytest.mark.parametrize(("model", "error"), UNRESOLVED.values(), ids=UNRESOLVED)
async def test_a_model_that_cannot_be_asked_leaves_nothing_behind(
    tmp_path: Path, model: str, error: type[UsageError]
) -> None:
    """No event and no claimed session, in either store."""
    path = tmp_path / "spine.db"
    memory = MemoryStore()
    for store in (memory, f"sqlite:{path}"):
        async with Runtime.open(store, settings=Settings(providers=(LAB,))) as runtime:
            with pytest.raises(error):
                await (await runtime.session("s", Agent(model))).run("hello")
    assert memory._sessions == {}
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM sessions").fetchone() == (0,)


# --------------------------------------------------------------------------------------------------------- values

NO_INPUT: dict[str, tuple[Any, str]] = {
    "none": (None, "found NoneType; accepted are text"),
    "bytes": (b"x", "found bytes"),
    "an empty text": ("", "found an empty text"),
    "nothing": ([], "found an empty sequence"),
    "texts in a list": (["x"], "made of messages, found str"),
}


@pytest.mark.parametrize(("input", "message"), NO_INPUT.values(), ids=NO_INPUT)
async def test_what_is_no_input_is_refused(input: Any, message: str) -> None:
    """By every way in, and nothing is written."""
    async with staged() as runtime:
        session = await runtime.session("s", agent_of())
        for give in (session.run, session.submit):
            with pytest.raises(UsageError, match=message):
                await give(input)
        assert runtime.sessions() == []


async def test_a_hook_may_not_set_a_parameter_to_what_it_cannot_be() -> None:
    """The step fails, and the plugin is named."""

    async def pre_step(request: Any, call_next: Any) -> Any:
        return await call_next(request.evolve(max_output_tokens=-5))

    async with staged(plugins=[plugin("odd", pre_step=pre_step)]) as runtime:
        turn = await (await runtime.session("s", agent_of())).run("go", check=False)
        assert turn.error.category == "hook_failed"
        assert turn.error.message.startswith("plugin odd@1 changed a parameter to what it cannot be: max_output_tokens")


# ---------------------------------------------------------------------------------------------------------- notes


async def test_an_answer_that_an_error_cut_says_so_in_english() -> None:
    """Here the script has nothing left; the note tells what happened, not that an answer "was failed"."""
    async with staged(say("one")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("go")
        with contextlib.suppress(SpineError):
            await session.run("again")
        [note] = [event.data.note for event in events_of(session, "message.interrupted")]
        assert note == "the turn failed before the answer was complete"
