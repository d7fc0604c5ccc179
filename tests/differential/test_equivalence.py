"""One conversation, scripted over each protocol and over none, is one model history and one transcript.

What a protocol cannot say, and how it then comes out, is the table `UNSAID`: nothing else may differ.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import httpx
import pytest
from test_switching import plain
from three_providers import PLUGINS, look

from spine import Agent, Runtime, Secret
from spine.config import Settings
from spine.llm.catalogue import Provider, Traits
from spine.messages import RefusalBlock, TextBlock
from spine.testing import Entry, FakeClock, ScriptedAdapter, call, call_text, refuse, say, stop, think, usage
from spine.testing.chaos.render import RENDERS
from spine.wire import wire_name

WIRED = wire_name("shop.look", Traits().tool_name_pattern).encode()
COUNTED = usage(input_tokens=11, output_tokens=6)
CONVERSATIONS: dict[str, tuple[Entry, ...]] = {
    "text": (say("It is raining.") + COUNTED,),
    "reasoning and text": (think("Hm.") + say("So it is.") + COUNTED,),
    "a call and its answer": (say("I look. ") + call("shop.look", at="a lamp") + COUNTED, say("A lamp.") + COUNTED),
    "two calls at once": (
        think("Both.") + call("shop.look", at="a") + call("shop.look", at="b") + COUNTED,
        say("Seen.") + COUNTED,
    ),
    "a call that cannot run": (
        call_text("shop.look", '{"at": ') + COUNTED,
        call("shop.look", at="it") + COUNTED,
        say("There.") + COUNTED,
    ),
    "a tool that does not exist": (call("smell", at="it") + COUNTED, say("No.") + COUNTED),
    "a limit": (say("It is") + stop("max_tokens") + COUNTED,),
    "a refusal": (refuse("I will not.") + COUNTED,),
    "many scripts": (say("Ünï 日本 🌧 \u2028 end") + COUNTED,),
}
UNSAID: Mapping[tuple[str, str], str] = {
    ("anthropic_messages", "a refusal"): "a refusal is text with the stop reason refusal",
}


NICE = {"tool_images": True}


class Body(httpx.AsyncByteStream):
    """A stream, event by event."""

    def __init__(self, frames: tuple[bytes, ...]) -> None:
        self._frames = frames

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for frame in self._frames:
            yield frame


def client(protocol: str, script: tuple[Entry, ...]) -> httpx.AsyncClient:
    """A provider that plays the script in the words of its protocol; names as its grammar has them."""
    entries: Iterator[Entry] = iter(script)

    def answer(request: httpx.Request) -> httpx.Response:
        frames = RENDERS[protocol](next(entries)).frames
        wired = tuple(frame.replace(b"shop.look", WIRED) for frame in frames)
        return httpx.Response(200, stream=Body(wired))

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def told(protocol: str | None, script: tuple[Entry, ...]) -> tuple[Any, str, Any]:
    """History without what vendors add, transcript, and ending; without a protocol, of the script itself."""
    lab = Provider(
        id="lab",
        protocol=protocol or "openai_chat",
        base_url="https://lab.example.com/v1",
        traits={"tool_images": True},
    )
    given: dict[str, Any] = {"model": ScriptedAdapter(*script)}
    if protocol is not None:
        given = {"clients": {"lab": client(protocol, script)}, "secrets": {"lab": Secret("key-of-nobody")}}
    async with Runtime.open(
        "memory:",
        plugins=PLUGINS,
        settings=Settings(installed_plugins=False, providers=(lab,)),
        clock=FakeClock(),
        **given,
    ) as runtime:
        session = await runtime.session("same", Agent("lab:m", tools=[look], instructions="Be brief."))
        turn = await session.run("What is it?", check=False)
        history = [plain(message) for message in session.history()]
        return history, str(session.transcript()), (turn.status, turn.stop_reason, turn.text, turn.usage.input_tokens)


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("protocol", RENDERS)
async def test_a_conversation_is_the_same_over_every_protocol(protocol: str, name: str) -> None:
    script = CONVERSATIONS[name]
    wanted, found = await told(None, script), await told(protocol, script)
    if (protocol, name) not in UNSAID:
        assert found == wanted
        return
    assert found[0] != wanted[0]
    assert found[2][:2] == wanted[2][:2]
    said = [block for message in found[0] for block in message.content if isinstance(block, TextBlock)]
    meant = [block for message in wanted[0] for block in message.content if isinstance(block, TextBlock | RefusalBlock)]
    assert [block.text for block in said] == [block.text for block in meant]
