"""One session over all three protocols: each request is valid, what is lost is foretold and listed, ids come back."""

import json
from typing import Any

import attrs
import pytest
from made_answers import Part
from three_providers import CHAT, CLAUDE, GPT, PICTURE, Providers, look

from spine import Agent, TurnFailed
from spine.messages import Message, TextBlock, ToolCallBlock

AGENT = Agent(CLAUDE, tools=[look], instructions="Be brief.")
QUESTION = [Message(role="user", content=(TextBlock(text="What is this?"), PICTURE), kind="user")]


def looks(*vendor_ids: str) -> list[Part]:
    """An answer that thinks, speaks, and looks twice or once."""
    calls = [Part("call", json.dumps({"at": id}), "shop.look", id) for id in vendor_ids]
    return [Part("think", "Better look."), Part("say", "I look."), *calls]


SCRIPT = (
    looks("toolu_01", "toolu_02"),
    [Part("hide"), Part("think", "Seen."), Part("say", "A lamp.")],
    looks("call_0"),
    [Part("search", "lamps"), Part("say", "A red lamp.")],
    looks("call_0", "call_1"),
    [Part("say", "Two lamps.")],
    [Part("think", "So."), Part("say", "Lamps it is.")],
)


async def test_a_session_goes_over_all_three_protocols_and_back() -> None:
    providers = Providers(*SCRIPT)
    async with providers.open() as runtime:
        session = await runtime.session("switching", AGENT)
        foretold = {}
        for place, route in enumerate((CLAUDE, GPT, CHAT, CLAUDE)):
            foretold[route] = session.portability(route)
            turn = await session.run(QUESTION, model=route)
            assert turn.status == "completed"
            first = next(event for event in turn_answers(session, turn.id))
            assert tuple(first.metadata.get("losses", ())) == foretold[route].losses, place
            assert set(foretold[route].losses) <= set(turn.warnings)
        assert [name for name, _ in providers.requests] == ["anthropic"] * 2 + ["openai"] * 2 + ["openai_chat"] * 2 + [
            "anthropic"
        ]
        assert foretold[GPT].losses == ("thinking of another model was left out",)
        assert set(foretold[CHAT].losses) == {
            "thinking of another model was left out",
            "an image in a tool result was replaced by a note",
            'an extension block "web_search_call" was left out',
        }
        assert {call.name for message in session.history() for call in message.tool_calls} == {"shop.look"}
        await runtime_holds(session)


def turn_answers(session: Any, turn: str) -> list[Any]:
    """The committed answers of a turn."""
    events = session.log.read()
    return [e.data for e in events if e.type == "message.committed" and str(e.step).startswith(f"{turn}s")]


async def runtime_holds(session: Any) -> None:
    """Our ids are the session's own whatever the vendors called their calls."""
    calls = [call for message in session.history() for call in message.tool_calls]
    assert [call.id for call in calls] == ["t1s1c1", "t1s1c2", "t2s1c1", "t3s1c1", "t3s1c2"]
    assert [call.vendor_id for call in calls] == ["toolu_01", "toolu_02", "call_0", "call_0", "call_1"]


async def test_what_a_model_said_comes_back_when_it_does() -> None:
    """Signatures, redacted thinking and the vendor's own ids of the first turn stand in the last request again."""
    providers = Providers(*SCRIPT)
    async with providers.open() as runtime:
        session = await runtime.session("switching", AGENT)
        for route in (CLAUDE, GPT, CHAT, CLAUDE):
            await session.run(QUESTION, model=route)
    first, last = providers.requests[1][1]["messages"], providers.requests[-1][1]["messages"]
    for block in (first[1]["content"], last[1]["content"]):
        assert [part.get("signature") or part.get("id") or part["text"] for part in block] == [
            "sig-1_0",
            "I look.",
            "toolu_01",
            "toolu_02",
        ]
    kinds = [part["type"] for part in last[3]["content"]]
    assert kinds == ["redacted_thinking", "thinking", "text"]
    foreign = [part for message in last[4:] for part in message["content"] if part["type"] == "tool_use"]
    assert [part["id"] for part in foreign] == ["t2s1c1", "t3s1c1", "t3s1c2"]
    assert all(part["name"] != "shop.look" for part in foreign)


@pytest.mark.parametrize("route", [GPT, CHAT])
async def test_strict_mode_refuses_what_would_be_lost_before_anything_is_sent(route: str) -> None:
    providers = Providers(*SCRIPT)
    async with providers.open(strict=True) as runtime:
        session = await runtime.session("strict", AGENT)
        await session.run(QUESTION)
        with pytest.raises(TurnFailed) as caught:
            await session.run(QUESTION, model=route)
        failure = caught.value.turn.error
        assert failure.category == "unsupported_capability"
        assert failure.details["losses"] == session.portability(route).losses
        assert (failure.details["provider"], failure.details["model"]) == tuple(route.split(":"))
    assert [name for name, _ in providers.requests] == ["anthropic", "anthropic"]


async def test_portability_tells_a_refusal_a_full_window_and_no_loss() -> None:
    providers = Providers(*SCRIPT)
    async with providers.open() as runtime:
        session = await runtime.session("asked", attrs.evolve(AGENT, thinking=2048))
        assert session.portability(CLAUDE).is_lossless
        await session.run(QUESTION)
        length = session.log.seq
        own, other = session.portability(CLAUDE), session.portability(GPT)
        assert (own.refused, own.losses, own.fits, own.is_lossless) == (None, (), True, True)
        assert other.losses is None
        assert not other.is_lossless
        assert other.refused is not None
        assert other.refused.category == "unsupported_capability"
        assert other.refused.details["request_feature"] == "a thinking budget in tokens"
        assert 2000 < own.estimated_tokens < 6000  # three pictures, a few words
        assert attrs.evolve(own, window=100).fits is False
        assert session.log.seq == length
    assert len(providers.requests) == 2


async def test_the_same_conversation_is_the_same_history_over_each_protocol() -> None:
    """Up to ids and opaque state of the vendors, and to what each calls the answer."""
    told = []
    for route in (CLAUDE, GPT, CHAT):
        providers = Providers(looks("call_0", "call_1"), [Part("think", "Seen."), Part("say", "Two lamps.")])
        async with providers.open() as runtime:
            session = await runtime.session("same", AGENT)
            turn = await session.run(QUESTION, model=route)
            told.append(([plain(message) for message in session.history()], turn.text, turn.stop_reason))
    assert told[0] == told[1] == told[2]


def plain(message: Message) -> Message:
    """A message without what its vendor added."""
    content = [attrs.evolve(block, provider_state=None) for block in message.content]
    bare = [attrs.evolve(block, vendor_id=None) if type(block) is ToolCallBlock else block for block in content]
    return message.evolve(content=tuple(bare), origin=None)
