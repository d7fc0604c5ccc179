"""A real model on this machine: real bytes through adapter, log and command line. Skipped when it is not installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.live.conversation import hold_conversation
from scenarios.live.host import served_model
from scenarios.live.project import write_project
from scenarios.live.weights import missing
from spine import Agent, Runtime
from spine.config import Settings
from spine.llm.catalogue import Provider
from spine.projectors import SessionTranscript, fold
from spine.rebuild import Rebuilder

ABSENT = missing()
pytestmark = [pytest.mark.live, pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The running model."""
    with served_model() as address:
        yield address


def test_a_conversation_through_the_command_line(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Turns stream and remember, an answer fits its type, Ctrl-C stops one, protocols change, and all verifies."""
    figures = hold_conversation(write_project(tmp_path, address))
    assert figures.rebuilt == 10
    with capsys.disabled():
        print(f"\n{figures}")


async def test_live_text_is_the_recorded_text(address: str) -> None:
    """What a watcher saw arriving is the message in the log, the transcript, and the request of the next turn."""
    local = Provider(id="local", protocol="openai_chat", base_url=f"{address}/v1", auth="none")
    settings = Settings(providers=(local,))
    async with Runtime.open("memory:", settings=settings) as runtime:
        session = await runtime.session("watched", Agent("local:smollm2", max_output_tokens=24))
        async with session.stream("Name three colours.") as stream:
            pieces = [piece async for piece in stream.text()]
        assert stream.turn is not None
        assert "".join(pieces) == stream.turn.text
        assert len(pieces) > 3
        assert stream.turn.usage.output_tokens in range(1, 25)
        await session.run("And one more?")
        assert stream.turn.text in fold(SessionTranscript(), session.log.read()).text
        rebuilder = Rebuilder(session.log.codec, session.log.content)
        rebuilt = [found for event in session.log.read() if (found := rebuilder.add(event)) is not None]
        assert [message.text for message in rebuilt[-1].request.messages][1] == stream.turn.text
