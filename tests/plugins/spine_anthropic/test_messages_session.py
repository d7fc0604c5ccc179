"""A whole turn over HTTP: runtime, adapter and this protocol, against answers that stand ready."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
from events_made import block, call, ending, event, sse, start, text

import spine_anthropic
from spine import Agent, Runtime, Secret, tool
from spine.config import Settings
from spine.turn import Turn

KEY = "test-key-of-nobody"


class Server:
    """Gives one answer after the other and keeps what it was asked."""

    def __init__(self, *answers: bytes) -> None:
        self._answers: Iterator[bytes] = iter(answers)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((str(request.url), dict(request.headers), request.content))
        return httpx.Response(200, headers={"request-id": "req_1"}, content=next(self._answers))

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(content) for _, _, content in self.requests]


def thinking(signature: str) -> list[dict[str, Any]]:
    deltas = ({"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": signature})
    return block(0, "thinking", *deltas, thinking="", signature="")


async def ask(server: Server, agent: Agent) -> Turn:
    client = httpx.AsyncClient(transport=httpx.MockTransport(server))
    async with Runtime.open(
        "memory:",
        plugins=[spine_anthropic],
        settings=Settings(installed_plugins=False),
        secrets={"anthropic": Secret(KEY)},
        clients={"anthropic": client},
    ) as runtime:
        session = await runtime.session("oslo", agent)
        return await session.run("Do I need an umbrella?")


@tool(effect="read_only")
def weather(city: str) -> str:
    """Weather in a city."""
    return "12 °C, rain"


async def test_a_turn_with_a_tool_goes_over_the_wire() -> None:
    stop = event("message_stop")
    server = Server(
        sse(start(), *thinking("sig1"), *call(1, "weather", '{"city":"Oslo"}'), ending("tool_use"), stop),
        sse(start(), *text(0, "Yes, ", "take one."), ending(), stop),
    )
    agent = Agent("anthropic:claude-sonnet-4-5", tools=[weather], instructions="Be brief.", thinking="low")
    turn = await ask(server, agent)
    assert (turn.text, turn.stop_reason) == ("Yes, take one.", "end_turn")
    assert turn.cost is not None
    assert turn.cost.micros == 2 * (10 * 3 + 9 * 15)
    url, headers, _ = server.requests[0]
    assert url == "https://api.anthropic.com/v1/messages"
    assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in headers
    first, second = server.bodies()
    assert first["system"][0]["text"] == "Be brief."
    assert second["thinking"] == first["thinking"] == {"type": "enabled", "budget_tokens": 4096}
    assert second["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig1"},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
    ]
    answered = second["messages"][2]["content"][0]
    assert (answered["tool_use_id"], answered["content"][0]["text"]) == ("toolu_1", "12 °C, rain")


async def test_a_paused_answer_goes_on_as_one_message() -> None:
    stop = event("message_stop")
    search = block(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "rain"})
    found = block(0, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[])
    server = Server(
        sse(start(), *search, ending("pause_turn"), stop),
        sse(start(), *found, *call(1, "weather"), ending("tool_use"), stop),
        sse(start(), *text(0, "Yes."), ending(), stop),
    )
    turn = await ask(server, Agent("anthropic:claude-sonnet-4-5", tools=[weather]))
    assert turn.text == "Yes."
    assert [message["role"] for message in server.bodies()[1]["messages"]] == ["user", "assistant"]
    kinds = [part["type"] for part in server.bodies()[2]["messages"][1]["content"]]
    assert kinds == ["server_tool_use", "web_search_tool_result", "tool_use"]
