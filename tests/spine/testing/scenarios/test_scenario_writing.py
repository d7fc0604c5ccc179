"""A stored session written as a scenario plays to the same transcript; what cannot be written is said."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from spine import Agent, Limits, Runtime, Secret, Section, tool
from spine.codec import Codec
from spine.config import Settings
from spine.errors import UsageError
from spine.hooks import hookimpl
from spine.llm.catalogue import ModelEntry, Prices, Provider
from spine.log import LogReader
from spine.messages import ImageBlock, Message, TextBlock
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing import ScriptedAdapter, call, call_text, fail, say, think, usage
from spine.testing.scenarios.check import failed_expectations, failed_invariants, transcript_of
from spine.testing.scenarios.file import read_scenario
from spine.testing.scenarios.play import play
from spine.testing.scenarios.scenario import Scenario
from spine.testing.scenarios.writing import WrittenScenario, scenario_of
from spine.testing.scenarios.yaml_tree import Source, dump, parse
from spine.values import session_id

pytestmark = pytest.mark.anyio
SCENARIOS = Path(__file__).parents[4] / "scenarios"
FILES = sorted(SCENARIOS.glob("*.scenario.yaml"))


def written(path: Path, scenario: Scenario, **options: Any) -> WrittenScenario:
    store = SqliteStore(path)
    try:
        return scenario_of(LogReader(store, Codec(), session_id(scenario.session)), **options)
    finally:
        store.close()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".scenario.yaml"))
async def test_a_recorded_session_plays_to_the_same_transcript(path: Path, tmp_path: Path) -> None:
    """Of every scenario here: its log is written down, read back, and played; what is expected holds, too."""
    scenario = read_scenario(path)
    first = await play(scenario, tmp_path / "first.db")
    content = written(tmp_path / "first.db", scenario, plugins=scenario.plugins).content
    for module in SCENARIOS.glob("*.py"):
        shutil.copy(module, tmp_path)
    again = read_scenario(tmp_path / path.name, dump(content))
    second = await play(again, tmp_path / "second.db")
    assert second.problems == ()
    assert transcript_of(second.events) == transcript_of(first.events)
    assert list(failed_invariants(second.events, second.verification)) == []
    assert list(failed_expectations(again.expect, second.events)) == []
    assert again.expect.turns


def test_all_scenarios_are_tried() -> None:
    assert len(FILES) >= 29


@tool(effect="read_only")
def peek(what: str) -> str:
    """Look at a thing."""
    return f"seen {what}"


async def session_of(
    *entries: Any, said: Any = "Hello?", agent: Agent | None = None, providers: tuple[Provider, ...] = ()
) -> WrittenScenario:
    """One turn, written down."""
    store, settings = MemoryStore(), Settings(installed_plugins=False, providers=providers)
    async with Runtime.open(store, model=ScriptedAdapter(*entries), settings=settings) as runtime:
        session = await runtime.session("s", agent or Agent("any:model", tools=[peek]))
        await session.run(said, check=False)
        return scenario_of(session.log, secrets=[Secret("sesame-open")])


class Orders:
    """A plugin with a section."""

    __name__ = "shop.spine_orders"
    __version__ = "1.0"

    @hookimpl
    def spine_register_prompts(self, registrar: Any) -> None:
        registrar.add(Section("policy", render="Be kind.", order=50, dynamic=True))
        registrar.add(Section("tone", render="Be brief.", order=60, priority=3))


@pytest.mark.parametrize(("plugins", "names"), [([], ["policy", "tone"]), (["shop.spine_orders"], [])])
async def test_sections_are_written_down_but_for_those_that_named_plugins_bring(
    plugins: list[str], names: list[str]
) -> None:
    """What is written reads back, whether a section has a priority or none."""
    store, settings = MemoryStore(), Settings(installed_plugins=False)
    model = ScriptedAdapter(say("Hello."))
    async with Runtime.open(store, model=model, settings=settings, plugins=[Orders()]) as runtime:
        session = await runtime.session("s", Agent("any:model"))
        await session.run("Hello?")
        found = scenario_of(session.log, plugins=plugins)
    again = read_scenario(Path("s.scenario.yaml"), dump(found.content))
    assert [section.name for section in again.sections] == names
    assert [section.options.get("priority") for section in again.sections] == [None, 3][: len(names)]


async def test_entries_are_what_a_person_would_have_written() -> None:
    """Pieces stand there only where they are not words, arguments as JSON, counts as reported, endings if odd."""
    entry = think("hm") + say(chunks=["He", "llo"]) + call("peek", what="it") + usage(input_tokens=3, output_tokens=2)
    found = await session_of(entry, call_text("peek", "{broken"), say("plain words", stop="max_tokens"))
    assert found.notes == ()
    assert found.content["model"] == [
        {
            "expect": {"last_role": "user", "messages": 1},
            "think": "hm",
            "say": "Hello",
            "chunks": ["He", "llo"],
            "call": {"peek": {"what": "it"}},
            "usage": {"input_tokens": 3, "output_tokens": 2},
        },
        {"expect": {"last_role": "tool", "messages": 3}, "call": {"peek": "{broken"}},
        {"expect": {"last_role": "tool", "messages": 5}, "say": "plain words", "stop": "max_tokens"},
    ]
    assert found.content["tools"] == {"peek": {"returns": "seen it"}}


async def test_a_failure_says_only_what_does_not_follow() -> None:
    found = await session_of(fail("billing", status=402, message="no money"), agent=Agent("any:model"))
    (entry,) = found.content["model"]
    assert entry["fail"] == {"category": "billing", "status": 402, "message": "no money"}
    assert found.content["expect"]["turns"] == [
        {"status": "failed", "steps": 1, "retries": 0, "tool_calls": 0, "error": "billing"}
    ]


async def test_steps_stand_for_a_limit_on_cost() -> None:
    """No log has prices, so the written scenario ends at the same place in other words; a note says so."""
    prices = Prices(id="p", input=1_000_000, output=1_000_000)
    entry = call("peek", what="it") + usage(input_tokens=600, output_tokens=0)
    provider = Provider(id="lab", protocol="scripted", auth="none", models={"one": ModelEntry(prices=prices)})
    agent = Agent("lab:one", tools=[peek], limits=Limits(cost="0.001 USD"))
    found = await session_of(entry, entry, agent=agent, providers=(provider,))
    assert found.content["agent"]["steps"] == 2
    assert "cost" not in found.content["agent"]
    assert found.notes == ("turn t1 was ended by its limit on cost; a limit on steps stands for it",)
    assert found.content["expect"]["turns"][0]["error"] == "limit"


async def test_secrets_are_masked_in_every_text() -> None:
    """In inputs, answers, arguments and results, at any depth."""
    found = await session_of(
        say("it is sesame-open") + call("peek", what="sesame-open"), say("done"), said="is it sesame-open?"
    )
    text = dump(found.content)
    assert "sesame-open" not in text
    assert text.count("[secret]") == 4


async def test_what_a_scenario_cannot_hold_is_said() -> None:
    image = ImageBlock(media_type="image/png", url="https://example.org/a.png")
    said = Message(role="user", kind="user", content=(TextBlock(text="See"), image))
    found = await session_of(say("yes"), said=said)
    assert found.notes == ("an input held ImageBlock; inputs of scenarios are text",)
    assert found.content["inputs"] == [{"user": "See"}]


class Beginning(LogReader):
    """A log of which only the first event is there."""

    def read(self, **_: Any) -> Any:
        return super().read(until=1)


async def test_a_session_without_a_turn_is_refused() -> None:
    store = MemoryStore()
    async with Runtime.open(
        store, model=ScriptedAdapter(say("x")), settings=Settings(installed_plugins=False)
    ) as runtime:
        await (await runtime.session("s", Agent("any:model"))).run("Hi")
        with pytest.raises(UsageError, match="has no turn yet"):
            scenario_of(Beginning(store, Codec(), session_id("s")))


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "1",
            "1e5",
            "-0.5",
            "true",
            "Null",
            "~",
            "yes",
            "12:30",
            "2026-01-01",
            "a: b",
            "- a",
            "#x",
            " a ",
            "\x00",
        ),
        *(
            "two\nlines",
            "ends\n",
            "\n",
            "tab\there",
            "é€𝄞",
            '"quoted"',
            "'q'",
            "%",
            "@",
            "`",
            "|",
            ">",
            "\u2028",
            "x" * 300,
        ),
        *([], {}, None, True, 0, 1.5, [None, [1]], {"a": {"b": []}}),
    ],
    ids=repr,
)
def test_what_is_dumped_reads_back_as_the_same(value: Any) -> None:
    """Texts that look like numbers or words of JSON stay texts."""
    read = parse(dump({"key": value, "list": [value]}), Source("x")).plain()
    assert read == {"key": value, "list": [value]}
    assert type(read["key"]) is type(value)
