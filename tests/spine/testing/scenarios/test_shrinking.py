"""spine.testing.scenarios.shrinking: what is left of a failing session still fails, and nothing of it can go."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from spine import Agent, Runtime, tool
from spine.codec import Codec
from spine.config import Settings
from spine.errors import UsageError
from spine.events import RecordedEvent
from spine.log import LogReader
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing import ScriptedAdapter, call, fail, say
from spine.testing.scenarios.file import read_scenario
from spine.testing.scenarios.play import play
from spine.testing.scenarios.shrinking import Fails, shows, shrink
from spine.testing.scenarios.yaml_tree import dump
from spine.values import SessionId

pytestmark = pytest.mark.anyio


@tool(effect="read_only")
def look(word: str) -> str:
    """Look."""
    return f"seen {word}"


@tool(approval="ask")
def forget(word: str) -> str:
    """Forget."""
    return f"gone {word}"


SCRIPT = (
    say("a"),
    fail("rate_limit", status=429),
    call("look", word="x"),
    call("look", word="y"),
    call("forget", word="bad"),
    say("b"),
    call("look", word="z"),
    say("c"),
    say("d"),
)


async def recorded() -> LogReader:
    """Four turns; in the second a failed attempt, two looks and an approved call."""
    store = MemoryStore()
    options: dict[str, Any] = {"settings": Settings(installed_plugins=False)}
    async with Runtime.open(store, model=ScriptedAdapter(*SCRIPT), **options) as runtime:
        session = await runtime.session("s", Agent("demo:x", tools=[look, forget]))
        await session.run("one")
        turn = await session.run("two")
        await session.approve(turn.approvals[0].id, by="ada")
        await session.run("three")
        await session.run("four")
    return LogReader(store, Codec(), SessionId("s"))


def has(kind: str, times: int = 1) -> Fails:
    """Fails once the log has so many events of a type."""

    def fails(events: tuple[RecordedEvent, ...]) -> bool:
        return sum(event.type == kind for event in events) >= times

    return fails


def looks_at(*words: str) -> Fails:
    """Fails once the handlers ran with all these words."""

    def fails(events: tuple[RecordedEvent, ...]) -> bool:
        return {e.data.arguments["word"] for e in events if e.type == "tool.started"} >= set(words)

    return fails


@pytest.mark.parametrize(
    ("fails", "inputs", "script"),
    [
        (shows("gone bad"), ["two"], [{"call": {"forget": {"word": "bad"}}}, {"say": "b"}]),
        (has("model.attempt_failed"), ["two"], ["fail", {"say": "b"}]),
        (has("turn.completed", 2), None, [{"say": "c"}, {"say": "d"}]),
        (looks_at("y"), ["two"], [{"call": {"look": {"word": "y"}}}, {"say": "b"}]),
        (
            looks_at("x", "z"),
            ["two", "three"],
            [{"call": {"look": {"word": "x"}}}, {"say": "b"}, {"call": {"look": {"word": "z"}}}, {"say": "c"}],
        ),
    ],
    ids=["shown", "failed attempt", "two turns", "one call", "calls of two turns"],
)
async def test_what_is_left_is_what_it_takes(
    fails: Fails, inputs: list[str] | None, script: list[Any], tmp_path: Path
) -> None:
    """It plays, as written, to the same failure, with nothing left over and what it expects fulfilled."""
    found = await shrink(await recorded(), fails)
    content = found.written.content
    if inputs is not None:
        assert [item["user"] for item in content["inputs"]] == inputs
    assert (found.inputs, found.answers) == ((4, len(content["inputs"])), (9, len(content["model"])))
    for entry, wanted in zip(content["model"], script, strict=True):
        left = {key: value for key, value in entry.items() if key != "expect"}
        assert wanted in left if isinstance(wanted, str) else left == wanted or inputs is None
    ending = await play(read_scenario(tmp_path / "x.scenario.yaml", dump(content)), tmp_path / "x.db")
    assert ending.problems == ()
    assert fails(ending.events)


async def test_the_smallest_prefix_is_told() -> None:
    reader = await recorded()
    found = await shrink(reader, has("approval.decided"))
    assert found.prefix == next(event.seq for event in reader.read() if event.type == "approval.decided")
    assert found.tries < 60


async def test_each_call_keeps_its_own_answer() -> None:
    """The second look's answer goes with the second look."""
    content = (await shrink(await recorded(), shows("seen y"))).written.content
    assert content["tools"]["look"] == {"returns": "seen y"}


async def test_a_session_that_does_not_fail_is_told() -> None:
    with pytest.raises(UsageError, match="does not fail: none of its 57 events"):
        await shrink(await recorded(), shows("nowhere"))


async def test_a_session_that_does_not_fail_again_is_told() -> None:
    """What is looked for came from something that a scenario does not hold: here, from when it happened."""
    reader = await recorded()
    at = next(event.at for event in reader.read() if event.type == "turn.completed")

    def fails(events: tuple[RecordedEvent, ...]) -> bool:
        return any(event.at == at for event in events)

    with pytest.raises(UsageError, match="does not fail again when it is played as a scenario"):
        await shrink(reader, fails)


async def test_of_its_faults_those_are_left_that_it_takes() -> None:
    """Of three processes' ends the one that cuts a tool's call; the others go, each on its own."""
    path = Path(__file__).parent / "ends.scenario.yaml"
    text = """\
scenario: ends three times
session: s
agent: {model: "demo:x", tools: [pay: {effect: irreversible}]}
inputs: [{user: one}, {user: two}, {user: three}]
model: [{say: a}, {call: {pay: {}}}, {say: b}, {say: c}]
tools: {pay: {returns: paid}}
faults:
  - {at: turn.completed, do: restart}
  - {at: model.requested, do: crash}
  - {at: tool.started, do: crash}
"""
    async with anyio.TemporaryDirectory() as folder:
        ending = await play(read_scenario(path, text), Path(folder, "s.db"))
        assert ending.problems == ()
        store = SqliteStore(Path(folder, "s.db"))
        try:
            found = await shrink(LogReader(store, Codec(), SessionId("s")), shows("interrupted"))
        finally:
            store.close()
    assert found.written.content["faults"] == [{"at": "tool.started", "do": "crash"}]
    assert found.inputs == (3, 1)
