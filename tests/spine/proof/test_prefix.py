"""spine.proof.prefix: how much of a request the next one begins with, and who moved the rest."""

from typing import Any

import anyio
import attrs
import pytest

from spine.agent import Agent
from spine.codec import Codec
from spine.config import Settings
from spine.errors import UsageError
from spine.functions import tool
from spine.hooks import Compact, hookimpl
from spine.llm.catalogue import Prices
from spine.llm.request import Route
from spine.log import LogReader
from spine.messages import user_message
from spine.proof.course import course_of
from spine.proof.prefix import (
    KeptPrefix,
    cost_of_loss,
    kept_prefixes,
    least_share,
    parse_share,
    prefix_json,
    prefix_text,
)
from spine.runtime import Runtime
from spine.sections import Section
from spine.stores.memory import MemoryStore
from spine.testing import FakeClock, ScriptedAdapter, call, say, usage
from spine.values import SessionId, encode


@tool(effect="read_only")
def look_up(word: str) -> str:
    """Look a word up."""
    return "x" * 400


AGENT = Agent("demo:small", instructions="y" * 400, tools=[look_up])


class Plugin:
    """A plugin named `meddler` with one thing to meddle with."""

    __name__ = "spine_meddler"
    __version__ = "1.0"


class Clock(Plugin):
    """A dynamic section whose text moves in the middle."""

    @hookimpl
    def spine_register_prompts(self, registrar: Any) -> None:
        text = "z" * 200
        registrar.add(Section("now", order=20, dynamic=True, render=lambda context: f"{text} {context.step}"))


class Dropper(Plugin):
    """Takes the tools out of the second request."""

    @hookimpl
    async def spine_pre_step(self, request: Any, context: Any, call_next: Any) -> Any:
        return await call_next(request.evolve(tools=()) if context.step == "t1s2" else request)


class Writer(Plugin):
    """Puts a message at the end of every request."""

    @hookimpl
    async def spine_pre_step(self, request: Any, context: Any, call_next: Any) -> Any:
        return await call_next(request.evolve(messages=(*request.messages, user_message("Quick."))))


class Mover(Plugin):
    """Asks another model in the second step."""

    @hookimpl
    async def spine_pre_step(self, request: Any, context: Any, call_next: Any) -> Any:
        return await call_next(request.evolve(route=Route("demo", "big")) if context.step == "t1s2" else request)


class Compactor(Plugin):
    """Puts a summary in the place of everything before the second step."""

    @hookimpl
    async def spine_pre_step(self, request: Any, context: Any, call_next: Any) -> Any:
        if context.step == "t1s2" and len(request.messages) > 2:
            return Compact(user_message("In short."), context.history.seqs[-1])
        return await call_next(request)


def played(*plugins: Any, prices: Prices | None = None) -> list[KeptPrefix]:
    """What the steps of a session of two steps kept."""
    store = MemoryStore()

    async def play() -> None:
        model = ScriptedAdapter(call("look_up", word="a") + usage(input_tokens=9, output_tokens=1), say("Done."))
        options: dict[str, Any] = {"clock": FakeClock(), "settings": Settings(installed_plugins=False)}
        async with Runtime.open(store, model=model, plugins=plugins, **options) as runtime:
            session = await runtime.session("s", AGENT)
            await session.run("w" * 400)

    anyio.run(play)
    reader = LogReader(store, Codec(), SessionId("s"))
    return list(kept_prefixes(reader, list(course_of(reader).steps.values()), lambda route: prices))


@pytest.mark.parametrize(
    ("plugin", "moved", "owner", "how"),
    [
        (Clock(), "section now", "meddler@1.0", "1 line changed (t1s1 → t1s2)"),
        (Dropper(), "tool look_up", "meddler@1.0", "gone"),
        (Writer(), "message 2", "meddler@1.0", "replaced"),
        (Mover(), "route", "meddler@1.0", "demo:small → demo:big"),
        (Compactor(), "message 1", "a compaction, or a turn that was repeated", "replaced"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Plugin) else None,
)
def test_what_moved_the_prefix_is_named_with_its_owner(plugin: Any, moved: str, owner: str, how: str) -> None:
    (found,) = played(plugin)
    assert (found.step, found.earlier, found.moved, found.owner, found.how) == ("t1s2", "t1s1", moved, owner, how)
    assert found.percent < 100
    assert found.lost_tokens > 0


def test_what_only_grows_is_kept_whole() -> None:
    (found,) = played()
    assert (found.percent, found.moved, found.lost_tokens, found.owner) == (100, None, 0, None)


def test_the_unchanged_beginning_of_a_section_counts() -> None:
    """Kept are tool, instructions and most of the section; its last word and the input are lost."""
    (found,) = played(Clock())
    whole, total = played(), found.kept_tokens + found.lost_tokens
    assert found.lost_tokens == 100 + 1  # the input, and what is left of the section
    assert total == whole[0].kept_tokens + (200 + 5 + 3) // 4
    assert found.percent == 100 * found.kept_tokens // total


def test_another_route_keeps_nothing() -> None:
    (found,) = played(Mover())
    assert (found.kept_tokens, found.percent) == (0, 0)


def test_money_needs_the_price_list_of_the_log() -> None:
    (found,) = played(Clock(), prices=Prices(id="other", input=3_000_000, output=1, cache_read=300_000))
    assert found.lost is None


def test_an_added_section_moves_what_follows(careful: LogReader) -> None:
    steps = list(course_of(careful).steps.values())
    view = steps[0].request
    assert view is not None
    bare = attrs.evolve(steps[0], request=attrs.evolve(view, request=view.request.evolve(system=())))
    (found,) = kept_prefixes(careful, [bare, steps[1]], lambda route: None)
    assert (found.moved, found.how, found.owner) == ("section instructions", "added", "agent agent")


def test_a_section_that_went_is_named_though_a_message_follows(careful: LogReader) -> None:
    first, second = course_of(careful).steps.values()
    assert second.request is not None
    bare = attrs.evolve(second.request, request=second.request.request.evolve(system=()))
    (found,) = kept_prefixes(careful, [first, attrs.evolve(second, request=bare)], lambda route: None)
    assert (found.moved, found.how, found.owner) == ("section instructions", "gone", "agent agent")


def test_a_text_that_only_grew_is_kept_to_its_end(careful: LogReader) -> None:
    """What follows it moves all the same."""
    first, second = course_of(careful).steps.values()
    assert first.request is not None
    assert second.request is not None
    block = first.request.request.system[0]
    longer = first.request.request.evolve(system=(attrs.evolve(block, text=f"{block.text} And polite."),))
    short = first.request.request.evolve(system=(block,))
    steps = [attrs.evolve(first, request=attrs.evolve(first.request, request=each)) for each in (short, longer)]
    (found,) = kept_prefixes(careful, steps, lambda route: None)
    assert (found.moved, found.how) == ("section instructions", "1 line changed (nothing → And polite.)")
    (whole,) = kept_prefixes(careful, [steps[0], steps[0]], lambda route: None)
    messages = sum((len(text) + 3) // 4 for text in ("What is a mug?", "Be quick."))
    assert whole.kept_tokens - found.kept_tokens == messages + (len(block.text) + 3) // 4 - len(block.text) // 4


class Offers(Plugin):
    """Offers a tool."""

    @hookimpl
    def spine_register_tools(self, registrar: Any) -> None:
        registrar.add(tool(effect="read_only", name="peek")(peeking))


def peeking(word: str) -> str:
    """Peek."""
    return word


def test_a_tool_is_whose_the_log_says(demo: LogReader) -> None:
    """No plugin changed the request, so it came from wherever the tool did."""
    store = MemoryStore()

    async def play() -> None:
        options: dict[str, Any] = {"clock": FakeClock(), "settings": Settings(installed_plugins=False)}
        model = ScriptedAdapter(call("look_up", word="a"), say("Done."))
        async with Runtime.open(store, model=model, plugins=[Offers()], **options) as runtime:
            session = await runtime.session("s", attrs.evolve(AGENT, tools=(look_up, "peek")))
            await session.run("Go.")

    anyio.run(play)
    reader = LogReader(store, Codec(), SessionId("s"))
    first, second = course_of(reader).steps.values()
    assert first.request is not None
    fewer = first.request.request.evolve(tools=first.request.request.tools[:1])
    steps = [attrs.evolve(first, request=attrs.evolve(first.request, request=fewer)), second]
    (found,) = kept_prefixes(reader, steps, lambda route: None)
    assert (found.moved, found.how, found.owner) == ("tool peek", "added", "meddler@1.0")


def test_shares_in_words(demo: LogReader) -> None:
    steps = list(course_of(demo).steps.values())
    found = list(kept_prefixes(demo, steps, lambda route: None))
    assert prefix_text(found, 90) == "t1s2 100 %   t1s3 100 %   ok"
    assert prefix_text(found) == "t1s2 100 %   t1s3 100 %"
    assert prefix_text([]) == "fewer than two requests: there is no prefix to keep"
    assert prefix_text(found * 3, 90) == "t1s2 to t1s3 100 %   ok"
    assert [each.cached_tokens for each in found] == [1408, 1408]


def test_a_lost_prefix_in_words() -> None:
    (found,) = played(Clock())
    first, last, verdict = prefix_text([found], 90).split("\n")
    assert first == (
        f"t1s2   {found.percent} %  section now (meddler@1.0)  1 line changed (t1s1 → t1s2); about 101 tokens lost"
    )
    assert last == "lost in 1 step of 1: about 101 tokens"
    assert verdict == "BELOW 90 %: t1s2"
    fact = prefix_json([found], 90)
    assert (fact["ok"], fact["least"], fact["steps"][0]["owner"]) == (False, found.percent, "meddler@1.0")
    assert encode(fact)
    assert least_share([found]) == found.percent


def test_a_loss_in_money() -> None:
    (found,) = played(Clock())
    prices = Prices(id="p", input=3_000_000, output=1, cache_read=300_000)
    cost = cost_of_loss(101, prices, "p")
    assert cost_of_loss(101, attrs.evolve(prices, cache_read=None), "p") is None
    assert cost is not None
    assert cost.micros == round(101 * 2.7)
    assert "about 101 tokens lost, $0.000273" in prefix_text([attrs.evolve(found, lost=cost)])


@pytest.mark.parametrize(("text", "share"), [("90%", 90), ("90", 90), (" 0 % ", 0), ("100%", 100)])
def test_a_share_is_read(text: str, share: int) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["", "%", "101", "-1", "0.9", "ninety", "٣"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="whole share from 0% to 100%"):
        parse_share(text)
