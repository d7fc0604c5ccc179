"""The demonstration: the very lines that are promised, on every store and event loop."""

from pathlib import Path

import pytest

from spine.llm.providers import CATALOGUE
from spine.stores.memory import MemoryStore
from spine.testing.demo import AGENT, demo_script, play_demo, run_demo
from spine.testing.scenarios.file import read_scenario
from spine.values import thaw

SCENARIO = Path(__file__).parents[3] / "scenarios" / "refund.scenario.yaml"
CLOSING = (
    "turn t1 completed: 3 steps, 2 tool calls, 1 retry, 4,717 tokens in (2,816 from cache), 82 out, "
    "cost unknown (scripted:demo has no price)"
)


def test_the_demonstration_reads_as_promised() -> None:
    """Its transcript is the refund scenario's, which is promised line by line; the header names the store too."""
    header, *rest = str(run_demo("memory:")).split("\n")
    assert header == "refund-1017 · scripted:demo · memory:"
    assert rest == SCENARIO.with_name("refund.transcript.txt").read_text("utf-8").rstrip("\n").split("\n")[1:]
    assert rest[-1] == CLOSING
    assert "  ! attempt 1 failed: rate_limit (HTTP 429), tried again after 2 s" in rest
    assert '  > refund(order_id="1017", amount_cents=1290)' in rest
    assert "  ? approved by demo" in rest


async def test_it_runs_in_a_loop_that_runs_already() -> None:
    demo = await play_demo(MemoryStore())
    assert demo.turn.status == "completed"
    assert str(demo).endswith(CLOSING)


def test_each_run_is_a_new_session_of_the_same_file(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'demo.db'}"
    first, second = run_demo(url), run_demo(url)
    assert (first.session, second.session) == ("refund-1017", "refund-1018")
    assert first.store == url
    assert first.events == second.events > 20


def test_waits_take_no_time() -> None:
    demo = run_demo("memory:")
    assert demo.turn.duration_s == 2.0, "fake time, for the rate limit"


def test_the_demo_and_its_scenario_tell_the_same_story() -> None:
    """The scenario asks more of the requests; what the model answers is the same."""
    scenario = read_scenario(SCENARIO)
    assert scenario.agent == "spine.testing.demo:AGENT"
    answers = [(entry.parts[-1:], entry.usage) for entry in scenario.model[1:]]
    assert answers == [(entry.parts[-1:], entry.usage) for entry in demo_script()[1:]]


def test_its_model_is_in_no_catalogue() -> None:
    """Or the cost would not be unknown."""
    assert AGENT.model.partition(":")[0] not in CATALOGUE.providers


@pytest.mark.parametrize("tool", AGENT.own_tools, ids=lambda tool: tool.name)
def test_its_tools_are_worth_reading(tool: object) -> None:
    definition = tool.definition  # type: ignore[attr-defined]
    assert definition.description
    assert thaw(definition.parameters)["additionalProperties"] is False
