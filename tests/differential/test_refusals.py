"""What a provider refuses, over each protocol: told once, retried or not, and waited for no longer than is bearable."""

from typing import Any

import attrs
import httpx
import pytest
from made_answers import BODIES, Part
from three_providers import CHAT, CLAUDE, GPT, PLUGINS, look, protocol_of

from spine import Agent, Runtime, Secret, TurnFailed
from spine.config import Settings
from spine.testing import FakeClock

ROUTES = (CLAUDE, GPT, CHAT)
SLOW_DOWN = {"type": "error", "error": {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "Slow."}}
NO_MONEY = {"type": "error", "error": {"type": "billing_error", "code": "insufficient_quota", "message": "No credit."}}
TOO_LONG = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
        "message": "prompt is too long: 9 tokens > 8 maximum",
    },
}
REFUSALS: dict[str, tuple[int, dict[str, str], Any, str, int, float | None]] = {
    "asks for an hour": (429, {"retry-after": "3600"}, SLOW_DOWN, "rate_limit", 1, 3600.0),
    "asks for two seconds": (429, {"retry-after": "2"}, SLOW_DOWN, "rate_limit", 3, 2.0),
    "is overloaded": (529, {}, {"type": "error", "error": {"type": "overloaded_error"}}, "overloaded", 3, None),
    "wants money": (402, {"retry-after": "1"}, NO_MONEY, "billing", 1, 1.0),
    "wants money, as a rate": (429, {}, NO_MONEY, "billing", 1, None),
    "has no room": (400, {}, TOO_LONG, "context_overflow", 1, None),
}
"""Status, headers and body; category, number of requests, and the delay that is handed up."""


class Refusing:
    """Answers with one refusal, or in the end with an answer."""

    def __init__(self, route: str, *refusal: Any, times: int = 99) -> None:
        self.requests = 0
        self._route, self._refusal, self._times = route, refusal, times

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.requests <= self._times:
            status, headers, body = self._refusal
            return httpx.Response(status, headers=headers, json=body)
        return httpx.Response(200, json=BODIES[protocol_of(self._route)]("m", "1", [Part("say", "Hello.")]))

    def open(self, clock: FakeClock) -> Runtime:
        provider = self._route.partition(":")[0]
        return Runtime.open(
            "memory:",
            plugins=PLUGINS,
            settings=Settings(installed_plugins=False),
            secrets={provider: Secret("key-of-nobody")},
            clients={provider: httpx.AsyncClient(transport=httpx.MockTransport(self))},
            clock=clock,
        )


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_is_told_with_its_delay_and_retried_only_when_that_helps(name: str, route: str) -> None:
    status, headers, body, category, requests, delay = REFUSALS[name]
    server, clock = Refusing(route, status, headers, body), FakeClock()
    async with server.open(clock) as runtime:
        session = await runtime.session("refused", Agent(route))
        with pytest.raises(TurnFailed) as caught:
            await session.run("Hi")
    failure = caught.value.turn.error
    assert (failure.category, failure.status, failure.retry_after_s) == (category, status, delay)
    assert server.requests == requests
    assert clock.monotonic() >= (delay or 0) * (requests - 1)
    assert clock.monotonic() < 30


@pytest.mark.parametrize("route", ROUTES)
async def test_a_refusal_that_passes_is_an_answer(route: str) -> None:
    server, clock = Refusing(route, 429, {"retry-after": "20"}, SLOW_DOWN, times=2), FakeClock()
    async with server.open(clock) as runtime:
        turn = await (await runtime.session("passing", Agent(route))).run("Hi")
    assert (turn.text, server.requests) == ("Hello.", 3)
    assert 40 <= clock.monotonic() < 41


@pytest.mark.parametrize(
    ("route", "fields", "feature", "capability"),
    [
        (GPT, {"thinking": 2048}, "a thinking budget in tokens", "thinking"),
        (CHAT, {"thinking": 2048}, "a thinking budget in tokens", "thinking"),
        (CHAT, {"thinking": "high"}, "thinking high", "thinking"),
        ("perplexity:sonar", {"tools": [look]}, "tools", "tools"),
    ],
)
async def test_what_a_model_cannot_do_is_refused_before_anything_is_sent(
    route: str, fields: dict[str, Any], feature: str, capability: str
) -> None:
    server = Refusing(route, 500, {}, {})
    async with server.open(FakeClock()) as runtime:
        session = await runtime.session("asking", attrs.evolve(Agent(route), **fields))
        with pytest.raises(TurnFailed) as caught:
            await session.run("Hi")
        assert [event.type for event in session.log.read() if event.type.startswith("model.")] == []
    failure = caught.value.turn.error
    assert (failure.category, failure.retryable, server.requests) == ("unsupported_capability", False, 0)
    provider, _, model = route.partition(":")
    assert dict(failure.details) == {
        "provider": provider,
        "model": model,
        "capability": capability,
        "request_feature": feature,
    }
