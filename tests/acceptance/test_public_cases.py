"""The public bug cases about replay, plugins and sessions: each line of theirs that is about this library."""

import os
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import cases
import pytest
from stage import ALONE, agent_of, plugin, run_with, staged, tool_of

from spine import Runtime
from spine.codec import Codec
from spine.errors import LogBroken
from spine.exports import ExportReader, export
from spine.log import LogReader
from spine.proof.replay.run import Given, replay
from spine.proof.verify import verify
from spine.sections import Section
from spine.store import Append, Owner
from spine.stores.memory import MemoryStore
from spine.stores.opening import open_store
from spine.testing.script import call, say
from spine.values import SessionId

pytestmark = pytest.mark.anyio


# -------------------------------------------------------------------------------------------------------------- replay


@pytest.mark.parametrize("size", [None, 5, 1])
async def test_a_recorded_stream_replays_the_same_however_its_body_was_cut(size: int | None) -> None:
    cases.case("t01-replay-chunking")
    text = "The parcel is on its way."
    pieces = [text] if size is None else [text[at : at + size] for at in range(0, len(text), size)]
    agent = agent_of(instructions="Be brief.")
    async with staged(say(chunks=pieces)) as runtime:
        session = await runtime.session("s", agent)
        await session.run("Where is it?")
        found = [await replay(session.log, Given(agent=agent, settings=ALONE)) for _ in range(2)]
        assert all(each.is_exact for each in found)
        transcript = str(session.transcript())
        drifted = await replay(session.log, Given(agent=agent.evolve(instructions="Be long."), settings=ALONE))
    assert transcript.count(text) == 1
    assert "Be long." in str(drifted)


PARALLEL = """
import anyio, sys
sys.path[:0] = [{folder!r}]
from stage import agent_of, staged, tool_of
from spine.testing.script import call, say

async def work(arguments, context):
    await anyio.sleep(0.002 * (3 - arguments["n"]))
    return "done"

async def main():
    tools = [tool_of("a", work, parallel=True)]
    script = (say("Both.") + call("a", n=1) + call("a", n=2), say("Done."), say("Again."))
    async with staged(*script) as runtime:
        session = await runtime.session("s", agent_of(*tools))
        await session.run("One.")
        await session.run("Two.")
        print(session.transcript())

anyio.run(main)
"""


async def test_snapshots_are_the_same_under_two_hash_seeds_and_in_another_zone() -> None:
    cases.case("t02-snapshot-noise")
    program = PARALLEL.format(folder=str(Path(__file__).parent))
    texts = set()
    for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone}
        done = await anyio.run_process([sys.executable, "-c", program], env=environment, check=False)
        assert done.returncode == 0, done.stderr.decode()
        texts.add(done.stdout)
    (text,) = texts
    assert b"turn t1" in text
    assert b"turn t2" in text


# ------------------------------------------------------------------------------------------------------------- plugins


async def test_each_hook_gets_what_the_one_before_it_made_of_the_arguments() -> None:
    cases.case("h01-hook-args-propagate")
    seen: list[Any] = []
    asked: list[str] = []

    async def upper(call: Any, call_next: Any) -> Any:
        asked.append("upper")
        with pytest.raises(TypeError):
            call.arguments["city"] = "nowhere"
        return await call_next(call.evolve(arguments={"city": call.arguments["city"].upper()}))

    async def suffix(call: Any, call_next: Any) -> Any:
        asked.append("suffix")
        return await call_next(call.evolve(arguments={"city": call.arguments["city"] + " FI"}))

    async def weather(arguments: Any, context: Any) -> str:
        seen.append(arguments["city"])
        return "cold"

    script = (call("weather", city="oulu"), say("Cold."))
    second, first = plugin("p2", pre_execute=suffix), plugin("p1", pre_execute=upper)
    _, events = await run_with(second, first, script=script, tools=[tool_of("weather", weather)])
    assert seen == ["OULU FI"]
    assert asked == ["upper", "suffix"]
    started = next(event.data for event in events if event.type == "tool.started")
    assert (dict(started.arguments), dict(started.requested)) == ({"city": "OULU FI"}, {"city": "oulu"})
    message = next(event.data.message for event in events if event.type == "message.committed")
    assert dict(message.tool_calls[0].arguments) == {"city": "oulu"}


async def test_a_plugin_that_breaks_while_it_registers_leaves_nothing_behind() -> None:
    cases.case("p01-broken-plugin")

    def register(registrar: Any) -> None:
        registrar.add(Section("half", render="half"))
        raise ValueError("no more")

    bad = plugin("bad", spine_register_prompts=register)
    async with staged(say("ok"), plugins=[plugin("good1")]) as runtime:
        with pytest.raises(Exception, match="bad"):
            runtime.load_plugin(bad)
        runtime.load_plugin(good("good2"))
        assert [info.name for info in runtime.plugins if info.state == "loaded"] == ["good1", "good2"]
        assert "half" not in runtime.registries.sections.resolve(None)


def good(name: str) -> types.ModuleType:
    def register(registrar: Any) -> None:
        registrar.add(Section(name, render=name))

    return plugin(name, spine_register_prompts=register)


async def test_hooks_are_asked_in_the_documented_order_and_prompts_do_not_depend_on_it() -> None:
    cases.case("p02-hook-order")
    asked: list[str] = []

    def made(name: str, **order: bool) -> types.ModuleType:
        async def pre_step(request: Any, call_next: Any) -> Any:
            asked.append(name)
            return await call_next(request)

        for key, value in order.items():
            setattr(pre_step, key, value)

        def register(registrar: Any) -> None:
            registrar.add(Section(f"about {name}", render=name))

        return plugin(name, pre_step=pre_step, spine_register_prompts=register)

    prompts = []
    for order in (("a", "b", "c"), ("c", "b", "a")):
        plugins = [made(name, trylast=True) if name == "c" else made(name) for name in order]
        async with staged(say("ok"), plugins=plugins) as runtime:
            session = await runtime.session("s", agent_of())
            await session.run("Go.")
            requested = next(event for event in session.log.read() if event.type == "model.requested")
            prompts.append([block.text for block in session.log.request(requested.seq).system])
    assert asked == ["b", "a", "c", "a", "b", "c"]
    assert prompts == [["a", "b", "c"], ["a", "b", "c"]]


# ------------------------------------------------------------------------------------------------------------ sessions


@pytest.fixture
async def exported(tmp_path: Path) -> Path:
    async with staged(say("One."), say("Two.")) as runtime:
        session = await runtime.session("s", agent_of())
        await session.run("Go.")
        await session.run("Go on.")
        path = tmp_path / "s.jsonl"
        with path.open("wb") as file:
            export(session.log, file.write)
    return path


@pytest.mark.parametrize("tail", [b'{"seq": 99, "ty', '{"text": "Ü'.encode()[:-1], b'{"seq": 99, "ty\n'])
async def test_a_torn_tail_is_told_and_not_mixed_in(exported: Path, tail: bytes) -> None:
    cases.case("s01-torn-tail")
    whole = exported.read_bytes().splitlines(keepends=True)
    exported.write_bytes(b"".join(whole[:-1]) + tail)
    with closing(ExportReader(exported, Codec())) as reader:
        count = len([line for line in whole if b'"seq"' in line and b'"type"' in line]) - 1
        assert [event.seq for event in reader.read(until=count)] == list(range(1, count + 1))
        found = verify(reader)
    assert found.verdict == "broken"
    assert found.broken_at == count + 1


async def test_many_writers_leave_numbers_without_gap_and_a_stale_one_is_refused(tmp_path: Path) -> None:
    cases.case("s02-concurrent-append")
    store = open_store(f"sqlite:{tmp_path}/x.db")
    async with Runtime.open(store, settings=ALONE) as runtime:
        session = await runtime.session("s", agent_of(model="openai:gpt-5-mini"))

        async def write(name: int) -> None:
            for number in range(50):
                await session.rename(f"{name}.{number}")
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            for name in range(20):
                group.start_soon(write, name)
        titles = [event.data.title for event in session.log.read(types=("session.renamed",))]
        rows = list(session.log.rows())
        assert [row.seq for row in rows] == list(range(1, 1002))
        for name in range(20):
            assert [title for title in titles if title.startswith(f"{name}.")] == [f"{name}.{n}" for n in range(50)]
        stale = Append(SessionId("s"), 1, 3, rows[2].hash, rows[3:4])
        assert store.append((stale,))[0] is not None


async def test_an_unknown_type_is_skipped_and_kept_and_a_bad_event_is_told_with_its_number() -> None:
    cases.case("s03-unknown-event-type")
    store = MemoryStore()
    async with staged(say("One."), say("Two."), store=store) as runtime:
        await (await runtime.session("s", agent_of())).run("Go.")
    rows = list(store.read(SessionId("s")))
    owner = Owner(id="test", host="", pid=0, started=0)
    again = MemoryStore()
    claim = again.claim(SessionId("s"), owner, now=0, lease_us=1)
    changed = [
        row._replace(type="team.note", origin="team@1", required=False) if row.type == "model.chunks" else row
        for row in rows
    ]
    assert again.append((Append(SessionId("s"), claim.token, 0, b"", tuple(changed)),)) == [None]
    again.release(SessionId("s"), owner)
    reader = LogReader(again, Codec(), SessionId("s"))
    assert [event.type for event in reader.read()].count("team.note") == 1
    damaged = [row._replace(data=b'{"message": 7}') if row.type == "input.accepted" else row for row in rows]
    broken = MemoryStore()
    claim = broken.claim(SessionId("s"), owner, now=0, lease_us=1)
    broken.append((Append(SessionId("s"), claim.token, 0, b"", tuple(damaged)),))
    with pytest.raises(LogBroken, match="seq 2"):
        list(LogReader(broken, Codec(), SessionId("s")).read())


async def test_a_turn_on_a_long_session_writes_as_much_as_on_a_short_one() -> None:
    cases.case("s04-quadratic")
    sizes = []
    for turns in (20, 200):
        store = MemoryStore()
        async with staged(*[say("Yes.") for _ in range(turns + 1)], store=store) as runtime:
            session = await runtime.session("s", agent_of())
            for _ in range(turns):
                await session.run("Go.")
            before = session.log.seq
            await session.run("Go.")
            sizes.append(sum(len(row.data) for row in store.read(SessionId("s"), after=before)))
    assert sizes[1] < 2 * sizes[0]
