"""A second server that nobody here wrote: a LiteLLM proxy over its three endpoints, with a mocked and a real model."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import attrs
import pytest

from scenarios.live.host import served_model
from scenarios.live.project import Project, write_project
from scenarios.live.proxy import MOCKED, missing_proxy, served_proxy
from scenarios.live.weights import missing
from spine import Agent, Limits, Runtime, tool
from spine.config import Settings
from spine.llm.catalogue import Provider

ABSENT = missing() or missing_proxy()
PROTOCOLS = {"chat": "openai_chat", "responses": "openai_responses", "messages": "anthropic_messages"}
pytestmark = [pytest.mark.live, pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))]


@tool(effect="read_only")
def look(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The running proxy, in front of the running model."""
    with served_model() as model, served_proxy(model) as proxy:
        yield proxy


@pytest.fixture
async def runtime(address: str) -> AsyncIterator[Runtime]:
    providers = tuple(
        Provider(id=name, protocol=protocol, base_url=f"{address}/v1", auth="none")
        for name, protocol in PROTOCOLS.items()
    )
    plain = attrs.evolve(providers[0], id="plain", traits={"stream": False})
    async with Runtime.open("memory:", settings=Settings(providers=(*providers, plain))) as runtime:
        yield runtime


async def test_a_mocked_chat_answer_streams(runtime: Runtime) -> None:
    """The pieces are the text, and the usage is there."""
    session = await runtime.session("s", Agent("chat:mock"))
    async with session.stream("Hello?") as stream:
        pieces = [piece async for piece in stream.text()]
    assert stream.turn is not None
    assert ("".join(pieces), stream.turn.text, stream.turn.stop_reason) == (MOCKED, MOCKED, "end_turn")
    assert len(pieces) > 3
    assert stream.turn.usage.output_tokens


async def test_one_plain_json_message_answers_a_streaming_request(runtime: Runtime) -> None:
    """The proxy's mock of Messages does not stream although it was asked to; the answer is whole all the same."""
    session = await runtime.session("s", Agent("messages:mock"))
    turn = await session.run("Hello?")
    assert (turn.text, turn.stop_reason) == (MOCKED, "end_turn")
    assert turn.usage.input_tokens


async def test_mocked_calls_run_although_the_ending_says_stop(runtime: Runtime) -> None:
    """The proxy ends an answer that has a call with the stop reason of one that has none; the call decides."""
    session = await runtime.session("s", Agent("plain:mock-tools", tools=[look], limits=Limits(steps=2)))
    turn = await session.run("Look it up.", check=False)
    assert [(c.name, c.arguments, c.outcome and c.outcome.status) for c in turn.tool_calls] == [
        ("look", {"word": "spine"}, "ok"),
        ("look", {"word": "spine"}, "ok"),
    ]
    assert turn.error is not None
    assert turn.error.category == "limit"  # the mock calls for ever


async def test_an_error_inside_a_stream_is_the_error(runtime: Runtime) -> None:
    """The proxy's mock of Responses breaks when it should stream: a server error, tried again, and no answer."""
    session = await runtime.session("s", Agent("responses:mock"))
    turn = await session.run("Hello?", check=False)
    assert (turn.status, turn.text) == ("failed", "")
    assert turn.error is not None
    assert (turn.error.category, turn.error.retryable) == ("server_error", True)
    assert "Error processing stream start" in turn.error.message
    assert turn.retries == 2


def test_one_session_over_three_endpoints_of_the_proxy_verifies(address: str, tmp_path: Path) -> None:
    """The real model behind the proxy answers over every protocol, turn by turn, in one session."""
    project: Project = write_project(tmp_path, address)
    for provider in ("local", "local_responses", "local_messages", "local"):
        done = project.spine("run", "-m", f"{provider}:real", "--session", "switched", "Name one more colour.")
        assert done.out.strip(), provider
    assert "4 requests rebuilt, 4 digests equal" in project.spine("verify", "switched").out
