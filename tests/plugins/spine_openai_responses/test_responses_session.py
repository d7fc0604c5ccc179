"""Whole turns over HTTP: runtime, adapter and this protocol, against answers that stand ready."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
from responses_made import added, call, completed, created, delta, done, failed, message, reasoning, said, sse

import spine_openai_responses
from spine import Agent, Runtime, Secret, tool
from spine.config import Settings
from spine.turn import Turn
from spine.wire import wire_name

USAGE = {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 400}, "output_tokens": 100}


class Server:
    """Gives one answer after the other and keeps what it was asked."""

    def __init__(self, *answers: bytes) -> None:
        self._answers: Iterator[bytes] = iter(answers)
        self.requests: list[tuple[str, str, bytes]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((str(request.url), request.headers["authorization"], request.content))
        return httpx.Response(200, headers={"x-request-id": "req_1"}, content=next(self._answers))

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(content) for _, _, content in self.requests]


async def ask(server: Server, agent: Agent, *inputs: str) -> list[Turn]:
    async with Runtime.open(
        "memory:",
        plugins=[spine_openai_responses],
        settings=Settings(installed_plugins=False),
        secrets={"openai": Secret("test-key-of-nobody")},
        clients={"openai": httpx.AsyncClient(transport=httpx.MockTransport(server))},
    ) as runtime:
        session = await runtime.session("oslo", agent)
        return [await session.run(text) for text in inputs]


@tool(name="town.weather", effect="read_only", parallel=True)
def weather(city: str) -> str:
    """Weather in a city."""
    return f"{city}: rain"


def asked_for(name: str) -> bytes:
    first = call('{"city":"Oslo"}', name, id="fc_1")
    second = call('{"city":"Ii"}', name, "call_b", id="fc_2")
    return sse(
        created(),
        done(reasoning("Look it up.", encrypted_content="ENC")),
        added({**first, "arguments": ""}, 1),
        added({**second, "arguments": ""}, 2),
        delta("function_call_arguments", second["arguments"], 2),
        delta("function_call_arguments", first["arguments"], 1),
        done(second, 2),
        done(first, 1),
        completed(usage=USAGE),
    )


async def test_a_turn_with_tools_goes_over_the_wire_and_the_next_one_goes_on() -> None:
    name = wire_name("town.weather", r"[A-Za-z0-9_-]{1,64}")
    server = Server(
        asked_for(name),
        sse(created(), said("Yes."), done(message("Yes.", id="msg_1", phase="final_answer")), completed(usage=USAGE)),
        sse(created(), said("Bye."), completed(usage=USAGE)),
    )
    agent = Agent("openai:gpt-5-mini", tools=[weather], instructions="Be brief.", thinking="low")
    first, second = await ask(server, agent, "Do I need an umbrella?", "Thanks.")
    assert (first.text, first.stop_reason, second.text) == ("Yes.", "end_turn", "Bye.")
    assert first.cost is not None
    assert first.cost.micros == 2 * (600 * 250 + 400 * 25 + 100 * 2000) // 1000
    assert server.requests[0][:2] == ("https://api.openai.com/v1/responses", "Bearer test-key-of-nobody")
    opening, _, last = server.bodies()
    assert (opening["instructions"], opening["reasoning"]) == ("Be brief.", {"effort": "low"})
    assert [tool["name"] for tool in opening["tools"]] == [name]
    assert last["input"] == [
        {"role": "user", "content": "Do I need an umbrella?"},
        reasoning("Look it up.", encrypted_content="ENC"),
        call('{"city":"Oslo"}', name, id="fc_1"),
        call('{"city":"Ii"}', name, "call_b", id="fc_2"),
        {"type": "function_call_output", "call_id": "call_a", "output": "Oslo: rain"},
        {"type": "function_call_output", "call_id": "call_b", "output": "Ii: rain"},
        message("Yes.", id="msg_1", phase="final_answer", status="completed"),
        {"role": "user", "content": "Thanks."},
    ]


async def test_a_failure_in_the_stream_is_tried_again_before_anything_was_seen() -> None:
    overloaded = failed({"code": "server_is_overloaded", "message": "Please try again in 0.01s."})
    server = Server(sse(created(), overloaded), sse(created(), said("Hi"), completed()))
    (turn,) = await ask(server, Agent("openai:gpt-5-nano"), "Hello.")
    assert turn.text == "Hi"
    assert len(server.requests) == 2
    assert turn.cost is None
