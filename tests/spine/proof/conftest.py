"""Logs to prove things about: the demonstration's, whole or changed with its hashes made right again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from spine.agent import Agent
from spine.codec import Codec, genesis, row_hash
from spine.config import Settings
from spine.exports import ExportReader, export
from spine.functions import tool
from spine.hooks import Ask, hookimpl
from spine.log import LogReader
from spine.messages import user_message
from spine.runtime import Runtime
from spine.sections import Section
from spine.store import Append, Owner, Row
from spine.stores.memory import MemoryStore
from spine.testing import FakeClock, ScriptedAdapter, call, say
from spine.testing.demo import play_demo
from spine.values import SessionId

SESSION = SessionId("refund-1017")
Edit = Callable[[list[Row]], list[Row]]


@pytest.fixture(scope="session")
def demo_store() -> MemoryStore:
    """The store of the demonstration; tests read it."""
    store = MemoryStore()
    anyio.run(play_demo, store)
    return store


@pytest.fixture
def demo(demo_store: MemoryStore) -> LogReader:
    """The demonstration's log."""
    return LogReader(demo_store, Codec(), SESSION)


@pytest.fixture
def rechained(demo_store: MemoryStore) -> Callable[[Edit], LogReader]:
    """The demonstration's log after an edit of its rows, numbered and hashed anew: its chain is whole."""

    def make(edit: Edit) -> LogReader:
        prev, rows = genesis(SESSION), []
        for seq, row in enumerate(edit(list(demo_store.read(SESSION))), 1):
            numbered = row._replace(seq=seq)
            rows.append(numbered._replace(hash=row_hash(prev, numbered)))
            prev = rows[-1].hash
        store = MemoryStore()
        claim = store.claim(SESSION, Owner(id="o", host="h", pid=1, started=0), now=0, lease_us=1)
        assert store.append([Append(SESSION, claim.token, 0, genesis(SESSION), tuple(rows))]) == [None]
        return LogReader(store, Codec(), SESSION)

    return make


@pytest.fixture(scope="session")
def demo_export(demo_store: MemoryStore) -> bytes:
    """The demonstration as an export."""
    lines: list[bytes] = []
    export(LogReader(demo_store, Codec(), SESSION), lines.append)
    return b"".join(lines)


@pytest.fixture
def from_file(tmp_path: Path) -> Iterator[Callable[[bytes], ExportReader]]:
    """A reader of these bytes as an export."""
    opened: list[ExportReader] = []

    def read(data: bytes) -> ExportReader:
        path = tmp_path / f"export-{len(opened)}.jsonl"
        path.write_bytes(data)
        opened.append(ExportReader(path, Codec()))
        return opened[-1]

    yield read
    for reader in opened:
        reader.close()


@tool(effect="read_only")
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word\x1b[2J"


class Careful:
    """A plugin with a section, which changes requests, calls and results."""

    __name__ = "spine_careful"
    __version__ = "2.1"

    @hookimpl
    def spine_register_prompts(self, registrar: Any) -> None:
        registrar.add(Section("policy", order=50, dynamic=True, render=lambda context: f"Step {context.step}."))

    @hookimpl
    async def spine_pre_step(self, request: Any, context: Any, call_next: Any) -> Any:
        messages = (*request.messages, user_message("Be quick."))
        return await call_next(request.evolve(max_output_tokens=64, messages=messages))

    @hookimpl
    async def spine_pre_execute(self, call: Any, context: Any, call_next: Any) -> Any:
        return await call_next(call.evolve(arguments={"word": call.arguments["word"].upper()}))


class Silent:
    """A plugin that is asked last and changes nothing."""

    __name__ = "spine_silent"
    __version__ = "1.0"

    @hookimpl(trylast=True)
    async def spine_pre_step(self, request: Any, context: Any, call_next: Any) -> Any:
        return await call_next(request)


def play_careful(*sections: Section, plugins: tuple[Any, ...] = (Careful(),)) -> LogReader:
    """A session in which a plugin had its hand in everything, in scope `acme` with `sections` in it."""
    store = MemoryStore()

    async def play() -> None:
        model = ScriptedAdapter(call("look_up", word="mug"), say("A mug."))
        settings = Settings(installed_plugins=False)
        agent = Agent("demo:small", instructions="Be brief.", tools=[look_up])
        async with Runtime.open(store, model=model, clock=FakeClock(), settings=settings, plugins=plugins) as runtime:
            for section in sections:
                runtime.scope("acme").add(section)
            session = await runtime.session("careful", agent, scope="acme")
            await session.run("What is a mug?")

    anyio.run(play)
    return LogReader(store, Codec(), SessionId("careful"))


class Strict:
    """A plugin that has a person asked."""

    __name__ = "spine_strict"
    __version__ = "1.0"

    @hookimpl
    async def spine_pre_execute(self, call: Any, context: Any, call_next: Any) -> Any:
        return Ask("it is strict")


@pytest.fixture(scope="session")
def strict() -> LogReader:
    """A session in which a plugin has a person asked."""
    return play_careful(plugins=(Strict(),))


@pytest.fixture(scope="session")
def careful() -> LogReader:
    """A session in which a plugin had its hand in everything."""
    return play_careful()


@pytest.fixture(scope="session")
def layered() -> LogReader:
    """The same, with a section of the scope in front of the plugin's, an empty one, and a plugin that only looks."""
    policy = Section("policy", order=50, render="Sixty days.")
    return play_careful(policy, Section("mute", order=60, render=""), plugins=(Silent(), Careful()))
