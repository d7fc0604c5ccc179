"""Nothing leaves the process before it is on disk, and what arrives is kept as it came."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from stage import Adapter, agent_of, data_of, events_of, judge, kinds_of, reader_of, staged, tool_of

from spine.llm import chunks as c
from spine.llm.assemble import assemble
from spine.llm.errors import provider_error
from spine.llm.response import ModelResponse
from spine.llm.usage import Usage
from spine.stores.sqlite import SqliteStore
from spine.testing.clock import FakeClock
from spine.testing.script import call, fail, say
from spine.testing.scripted import ScriptedAdapter, prepare

pytestmark = pytest.mark.anyio


class Elsewhere:
    """Another connection to the same file, as another process has it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def kinds(self) -> list[str]:
        store = SqliteStore(str(self.path))
        try:
            return [row.type for row in store.read("s")]  # type: ignore[arg-type]
        finally:
            store.close()

    def last_request(self) -> Any:
        store = SqliteStore(str(self.path))
        try:
            reader = reader_of(store, "s")
            seq = [event.seq for event in reader.read() if event.type == "model.requested"][-1]
            return reader.request(seq)
        finally:
            store.close()


async def test_a_request_is_on_disk_before_the_provider_is_called(tmp_path: Path) -> None:
    """At the moment the adapter is called another connection finds `model.requested`, and rebuilds the same request."""
    elsewhere = Elsewhere(tmp_path / "s.db")
    found: list[str] = []
    script = iter([call("look"), say("Done.")])

    async def play(request: Any) -> AsyncIterator[Any]:
        found.append(elsewhere.kinds()[-1])
        rebuilt = elsewhere.last_request()
        assert rebuilt == request.evolve(messages=tuple(request.messages)), "what is on disk is what is sent"
        for item in prepare(next(script)).items:
            yield item

    async with staged(model=Adapter(play), store=f"sqlite:{elsewhere.path}") as runtime:
        session = await runtime.session(
            "s", agent_of(tool_of("look", lambda arguments, context: "x"), instructions="Hi.")
        )
        await session.run("Go.")
        assert found == ["model.requested", "model.requested"]


async def test_a_retry_is_on_disk_before_the_provider_is_called_again(tmp_path: Path) -> None:
    """The failed attempt, the wait and the start of the next attempt are durable before it."""
    elsewhere = Elsewhere(tmp_path / "s.db")
    found: list[list[str]] = []
    script = iter([fail("overloaded", retry_after_s=0), say("Done.")])

    async def play(request: Any) -> AsyncIterator[Any]:
        found.append(elsewhere.kinds()[-2:])
        for item in prepare(next(script)).items:
            if hasattr(item, "failure"):
                raise provider_error("overloaded", "again", retry_after_s=0.0)
            yield item

    async with staged(model=Adapter(play), store=f"sqlite:{elsewhere.path}", clock=FakeClock()) as runtime:
        await (await runtime.session("s", agent_of())).run("Go.")
    assert found == [["content.added", "model.requested"], ["model.attempt_failed", "model.attempt_started"]]


async def test_a_start_is_on_disk_before_the_handler_runs(tmp_path: Path) -> None:
    """Every handler of a group finds all its group's `tool.started` on disk, on the loop or in a thread."""
    elsewhere = Elsewhere(tmp_path / "s.db")
    found: list[int] = []

    def in_thread(arguments: Any, context: Any) -> str:
        found.append(elsewhere.kinds().count("tool.started"))
        return "x"

    async def on_loop(arguments: Any, context: Any) -> str:
        return in_thread(arguments, context)

    tools = [tool_of(n, h, parallel=True, effect="read_only") for n, h in (("a", in_thread), ("b", on_loop))]
    script = (call("a") + call("b"), say("Done."))
    async with staged(*script, store=f"sqlite:{elsewhere.path}") as runtime:
        await (await runtime.session("s", agent_of(*tools))).run("Go.")
    assert found == [2, 2]


async def test_a_turn_is_on_disk_when_run_returns(tmp_path: Path) -> None:
    """Whoever is told of an ending can read it elsewhere at once; a suspended turn too."""
    elsewhere = Elsewhere(tmp_path / "s.db")
    script = (say("Done."), call("pay"), fail("auth"))
    async with staged(*script, store=f"sqlite:{elsewhere.path}") as runtime:
        session = await runtime.session("s", agent_of(tool_of("pay", lambda a, c: "x", approval="ask")))
        turn = await session.run("Go.")
        assert elsewhere.kinds()[-1] == "turn.completed"
        assert turn.head == session.log.head
        await session.run("Pay.")
        assert elsewhere.kinds()[-1] == "turn.suspended"
        turn = await session.deny("a1", by="me") if False else turn
        await session.cancel()
        assert elsewhere.kinds()[-1] == "turn.cancelled"
        await session.run("Fail.", check=False)
        assert elsewhere.kinds()[-1] == "turn.failed"


async def test_an_accepted_input_is_on_disk_when_submit_returns(tmp_path: Path) -> None:
    """`submit` acknowledges what another connection can read."""
    elsewhere = Elsewhere(tmp_path / "s.db")
    async with staged(say("Done."), store=f"sqlite:{elsewhere.path}") as runtime:
        session = await runtime.session("s", agent_of())
        await session.submit("Go.")
        assert elsewhere.kinds()[:2] == ["session.created", "input.accepted"]


async def test_a_step_costs_two_commits(tmp_path: Path) -> None:
    """Without hooks that await, a step with a tool call has two durable moments: its request and its tool's start."""
    steps = 10
    async with staged(*[call("look")] * steps, say("Done."), store=f"sqlite:{tmp_path / 's.db'}") as runtime:

        async def look(arguments: Any, context: Any) -> str:
            return "x"

        session = await runtime.session("s", agent_of(tool_of("look", look)))
        await session.run("Go.")
        assert session.log.commits <= 2 * steps + 3


# -------------------------------------------------------------------------------------------------------- chunks


def chunk_kinds() -> list[Any]:
    """One chunk of each kind, several blocks interleaved."""
    return [
        c.ResponseStarted("demo", "r1"),
        c.ThinkingDelta(0, "Hm"),
        c.TextDelta(1, "One"),
        c.ThinkingDelta(0, "…"),
        c.TextDelta(1, " two"),
        c.ToolCallStarted(2, "look", "v1"),
        c.ToolCallDelta(2, '{"n"'),
        c.TextDelta(1, " three"),
        c.ToolCallDelta(2, ":1}"),
        c.BlockEnded(2),
        c.UsageReported(Usage(input_tokens=1, output_tokens=2)),
    ]


async def test_raw_chunks_are_kept_in_the_order_they_came() -> None:
    """The recorded chunks are the stream's, in order and unmerged; the message is their fold."""
    sent = chunk_kinds()
    answers = iter([sent, [c.TextDelta(0, "Done.")]])

    async def play(request: Any) -> AsyncIterator[Any]:
        chunks = next(answers)
        for chunk in chunks:
            yield chunk
            await checkpoint()
        yield ModelResponse(message=assemble(chunks), stop_reason="end_turn")

    async with staged(model=Adapter(play)) as runtime:
        session = await runtime.session("s", agent_of(tool_of("look", lambda a, c: "x")))
        await session.run("Go.")
        first = [event for event in events_of(session, "model.chunks") if event.step == "t1s1"]
        kept = [chunk for event in first for chunk in event.data.chunks]
        assert kept == sent
        message = data_of(session, "message.committed")[0].message
        assert message.content == assemble(kept, "t1s1").content
        assert message.tool_calls[0].arguments == {"n": 1}
        judge(session.log)


BORDERS = {63: [63], 64: [64], 65: [64, 1], 128: [64, 64], 200: [64, 64, 64, 8]}


@pytest.mark.parametrize(("count", "flushes"), BORDERS.items())
async def test_chunks_are_flushed_at_64(count: int, flushes: list[int]) -> None:
    """A flush holds at most 64 chunks; none is lost at a border."""
    async with staged(say(chunks=[f"{n} " for n in range(count)]), clock=FakeClock()) as runtime:
        session = await runtime.session("s", agent_of())
        turn = await session.run("Go.")
        assert [len(data.chunks) for data in data_of(session, "model.chunks")] == flushes
        assert turn.text == "".join(f"{n} " for n in range(count))


async def test_chunks_are_flushed_50_ms_after_the_first_of_a_flush() -> None:
    """The age of the first unrecorded chunk decides, by the injected clock; offsets count from it in milliseconds."""
    clock = FakeClock()

    async def play(request: Any) -> AsyncIterator[Any]:
        sent = []
        for number, pause in enumerate((0, 0.02, 0.02, 0.02, 0.03, 0.05, 0.0)):
            clock.advance(pause)
            sent.append(c.TextDelta(0, f"{number} "))
            yield sent[-1]
        yield ModelResponse(message=assemble(sent), stop_reason="end_turn")

    async with staged(model=Adapter(play), clock=clock) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.")
        flushed = data_of(session, "model.chunks")
        assert [len(data.chunks) for data in flushed] == [4, 2, 1]
        assert [data.offsets for data in flushed] == [(0, 20, 40, 60), (0, 50), ()]


async def test_chunks_of_a_model_that_falls_silent_are_recorded_while_it_is() -> None:
    """What arrived is on record 50 ms later, even when nothing else comes."""
    silent, go_on = anyio.Event(), anyio.Event()

    async def play(request: Any) -> AsyncIterator[Any]:
        yield c.TextDelta(0, "One")
        silent.set()
        await go_on.wait()
        yield ModelResponse(message=assemble([c.TextDelta(0, "One")]), stop_reason="end_turn")

    async with staged(model=Adapter(play)) as runtime, anyio.create_task_group() as group:
        session = await runtime.session("s", agent_of())
        group.start_soon(session.run, "Go.")
        await silent.wait()
        with anyio.fail_after(2):
            while "model.chunks" not in kinds_of(session):
                await anyio.sleep(0.01)
        go_on.set()


async def test_debug_events_of_a_provider_are_not_recorded() -> None:
    """`ProviderEvent` chunks pass by: neither message nor log holds them."""
    chunks = [c.ProviderEvent("ping", {"n": 1}), c.TextDelta(0, "Hi."), c.ProviderEvent("ping", {"n": 2})]

    async def play(request: Any) -> AsyncIterator[Any]:
        for chunk in chunks:
            yield chunk
        yield ModelResponse(message=assemble(chunks), stop_reason="end_turn")

    async with staged(model=Adapter(play)) as runtime:
        session = await runtime.session("s", agent_of())
        assert (await session.run("Go.")).text == "Hi."
        assert data_of(session, "model.chunks")[0].chunks == (chunks[1],)


async def test_large_chunks_never_make_an_event_over_its_limit() -> None:
    """Sixty-four pieces of sixty kilobytes are recorded in as many events as it takes."""
    pieces = ["x" * 60_000 for _ in range(64)]
    async with staged(say(chunks=pieces), clock=FakeClock()) as runtime:
        session = await runtime.session("s", agent_of())
        turn = await session.run("Go.")
        assert turn.text == "".join(pieces)
        assert sum(len(data.chunks) for data in data_of(session, "model.chunks")) == 64
        assert max(len(row.data) for row in session.log.rows()) < 1024 * 1024
        judge(session.log)


# --------------------------------------------------------------------------------------- exactly one response


def chunk() -> Any:
    return c.TextDelta(0, "Hi.")


def response(**fields: Any) -> ModelResponse:
    return ModelResponse(message=assemble([chunk()]), stop_reason="end_turn", **fields)


class NoItem:
    """Something that is neither a chunk nor a response."""


BROKEN: dict[str, tuple[list[Any], str]] = {
    "a chunk after the response": ([chunk(), response(), chunk()], "TextDelta after its response"),
    "no response": ([chunk()], "ended without a response"),
    "nothing at all": ([], "ended without a response"),
    "two responses": ([chunk(), response(), response()], "ModelResponse after its response"),
    "a message that is not the fold": ([response()], "not the fold"),
    "a foreign item": ([chunk(), NoItem(), response()], "NoItem"),
    "None": ([None, response()], "NoneType"),
    "text": (["Hi.", response()], "str"),
    "an exception": ([chunk(), ZeroDivisionError("oops")], "ZeroDivisionError"),
}


@pytest.mark.parametrize(("items", "message"), BROKEN.values(), ids=BROKEN)
async def test_an_adapter_that_breaks_its_contract_fails_the_step(items: list[Any], message: str) -> None:
    """Chunks and then exactly one response; anything else is the adapter's protocol error, and no message is made."""
    closed: list[bool] = []

    async def play(request: Any) -> AsyncIterator[Any]:
        try:
            for item in items:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            closed.append(True)

    async with staged(model=Adapter(play)) as runtime:
        session = await runtime.session("s", agent_of())
        turn = await session.run("Go.", check=False)
        assert (turn.status, turn.error.category, turn.error.retryable) == ("failed", "protocol_error", False)
        assert message in turn.error.message
        assert data_of(session, "message.committed") == []
        assert [data.failure for data in data_of(session, "step.failed")] == [turn.error]
        interrupted = data_of(session, "message.interrupted")
        assert len(interrupted) == (1 if chunk() in items else 0)
        assert closed == [True]
        judge(session.log)


async def test_an_adapter_whose_check_raises_fails_the_step_before_anything_is_sent() -> None:
    """`check` refuses with a provider's error; a broken check is the adapter's fault. Neither is retried or sent."""

    def refuses(request: Any) -> None:
        raise provider_error("unsupported_capability", "no images")

    def breaks(request: Any) -> None:
        raise ZeroDivisionError("oops")

    for check, category in ((refuses, "unsupported_capability"), (breaks, "protocol_error")):
        adapter = Adapter(ScriptedAdapter(say("never")).stream, check)
        async with staged(model=adapter) as runtime:
            session = await runtime.session("s", agent_of())
            turn = await session.run("Go.", check=False)
            assert (turn.status, turn.error.category) == ("failed", category)
            assert kinds_of(session)[-2:] == ["step.failed", "turn.failed"]
            assert "model.requested" not in kinds_of(session)
            assert adapter.requests == []


async def test_a_sqlite_file_made_by_a_session_is_readable_by_anyone(tmp_path: Path) -> None:
    """Envelope in columns: plain SQL counts the events of a session."""
    async with staged(say("Hi."), store=f"sqlite:{tmp_path / 's.db'}") as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.")
        head = session.log.head[0]
    with sqlite3.connect(tmp_path / "s.db") as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        counts = [connection.execute(f"select count(*) from {table}").fetchone()[0] for table in tables]
    connection.close()
    assert head in counts
