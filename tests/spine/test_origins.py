"""spine.origins: whose the parts of a step are is recorded once for each snapshot, beside the request's frame."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from spine.agent import Agent
from spine.codec import Codec
from spine.config import Settings
from spine.events import SessionCreated
from spine.functions import tool
from spine.hooks import hookimpl
from spine.log import LogReader
from spine.proof.request_view import frame_origins, request_views
from spine.runtime import Runtime
from spine.sections import Section
from spine.stores.memory import MemoryStore
from spine.testing import FakeClock, ScriptedAdapter, call, say
from spine.values import SessionId, decode


@tool(effect="read_only")
def look_up(word: str) -> str:
    """Look a word up."""
    return word


@tool(approval="ask")
def forget(word: str) -> str:
    """Forget a word."""
    return word


class Orders:
    """A plugin with a section, a tool and a hook."""

    __name__ = "spine_orders"
    __version__ = "0.3"

    @hookimpl
    def spine_register_prompts(self, registrar: Any) -> None:
        registrar.add(Section("policy", order=50, render="Thirty days."))

    @hookimpl
    def spine_register_tools(self, registrar: Any) -> None:
        registrar.add(forget)

    @hookimpl
    async def spine_pre_step(self, request: Any, context: Any, call_next: Any) -> Any:
        return await call_next(request)


class Redact:
    """A plugin that is asked after all others."""

    __name__ = "spine_redact"
    __version__ = "1.2"

    @hookimpl(trylast=True)
    async def spine_pre_step(self, request: Any, context: Any, call_next: Any) -> Any:
        return await call_next(request)


def moving(context: Any) -> str:
    """A section that is another one in each step."""
    return f"Step {context.step}."


AGENT = Agent("demo:small", instructions="Be brief.", tools=[look_up, "forget"])
Play = Callable[..., LogReader]


@pytest.fixture
def play() -> Play:
    """Play a turn of three steps in scope `acme`, with these sections in it, and read its log."""

    def run(*sections: Section, agent: Agent = AGENT) -> LogReader:
        store = MemoryStore()

        async def turn() -> None:
            model = ScriptedAdapter(call("look_up", word="a"), call("look_up", word="b"), say("Done."))
            options = {"model": model, "clock": FakeClock(), "settings": Settings(installed_plugins=False)}
            async with Runtime.open(store, plugins=[Redact(), Orders()], **options) as runtime:
                for section in sections:
                    runtime.scope("acme").add(section)
                session = await runtime.session("s", agent, scope="acme")
                await session.run("Go.")

        anyio.run(turn)
        return LogReader(store, Codec(), SessionId("s"))

    return run


def frames(reader: LogReader) -> list[dict[str, Any]]:
    added = [event.data for event in reader.read(types=["content.added"])]
    return [decode(data.text.encode()) for data in added if data.media_type.endswith("frame+json")]


def test_each_part_has_its_owner_its_layer_and_what_it_hides(play: Play) -> None:
    reader = play(Section("policy", order=50, render="Sixty days."))
    (view, *_) = request_views(reader)
    assert frame_origins(reader, view) == {
        "sections": [
            {"name": "instructions", "owner": "agent agent", "layer": "session"},
            {
                "name": "policy",
                "owner": "application",
                "layer": "scope acme",
                "hides": [{"owner": "orders@0.3", "layer": "global"}],
            },
        ],
        "tools": [
            {"name": "forget", "owner": "orders@0.3", "layer": "global", "effect": "irreversible", "approval": "ask"},
            {"name": "look_up", "owner": "agent agent", "layer": "session", "effect": "read_only", "approval": "never"},
        ],
        "hooks": {"spine_pre_step": ["orders@0.3", "redact@1.2"]},
    }


def test_an_ordinary_step_records_nothing_of_it(play: Play) -> None:
    reader = play()
    assert len(list(request_views(reader))) == 3
    (frame,) = frames(reader)
    assert set(frame) == {"request", "selection", "origins"}


def test_a_frame_of_the_same_snapshot_names_the_one_that_has_them(play: Play) -> None:
    reader = play(Section("now", order=9, dynamic=True, render=moving))
    first, second, third = frames(reader)
    assert isinstance(first["origins"], dict)
    assert second["origins"] == third["origins"] == next(request_views(reader)).data.frame
    assert len({str(frame_origins(reader, view)) for view in request_views(reader)}) == 1


def test_no_digest_of_a_request_covers_them(play: Play) -> None:
    """Two sessions that differ in nothing but a layer ask the model the same."""
    plain, layered = play(), play(Section("policy", order=50, source="orders@0.3", render="Thirty days."))
    assert [view.digest for view in request_views(plain)] == [view.digest for view in request_views(layered)]
    assert frames(plain) != frames(layered)


def test_a_session_that_began_without_them_goes_on_without_them(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an old log is made again byte for byte."""
    made = SessionCreated.__init__
    monkeypatch.setattr(SessionCreated, "__init__", lambda self, **fields: made(self, **{**fields, "origins": False}))
    reader = play(Section("now", order=9, dynamic=True, render=moving))
    assert {tuple(sorted(frame)) for frame in frames(reader)} == {("request", "selection")}
    assert [frame_origins(reader, view) for view in request_views(reader)] == [None, None, None]
