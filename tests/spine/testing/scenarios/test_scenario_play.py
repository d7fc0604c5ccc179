"""Playing a scenario: what comes in at which moment, how tools answer, how processes end, and what goes wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spine.testing.scenarios.run import ScenarioResult

RunText = Callable[..., ScenarioResult]


HEAD = """\
scenario: x
agent:
  model: demo:small
  tools: [{look: {parameters: {what: string}, effect: read_only, timeout_s: 20}}, {buy: {approval: ask}}]
tools: {look: {returns: found}, buy: {returns: bought}}
"""
ANSWERED = HEAD + "inputs: [{user: Hi}]\nmodel: [{say: Hello}]\n"


def lines(result: ScenarioResult) -> str:
    return "\n".join(result.problems)


def test_a_scenario_without_expectations_holds(run_text: RunText) -> None:
    result = run_text(ANSWERED)
    assert result.is_ok, result
    assert result.transcript.endswith("turn t1 completed: 1 step")


PRICED = """\
models: {demo:small: {prices: {input: 1, output: 5}}}
inputs: [{user: Hi}]
model: [{call: {look: {what: mug}}, usage: {input_tokens: 900, output_tokens: 40}}]
"""


def test_a_limit_on_cost_needs_prices_in_the_scenario(run_text: RunText) -> None:
    """With them it ends the turn; without, nothing is run."""
    costly = HEAD.replace("  model:", "  cost: 0.001 USD\n  model:")
    result = run_text(costly + PRICED)
    assert result.is_ok, result
    assert result.transcript.endswith(
        "turn t1 failed (limit): 1 step, 1 tool call, 900 tokens in, 40 out, $0.001100\n"
        "  ! limit: 0.001100 of 0.001 USD used"
    )
    result = run_text(costly + PRICED.partition("\n")[2])
    assert "limit cost 0.001 USD cannot be checked: no price for demo:small" in lines(result)


# ---------------------------------------------------------------------------------------------- what goes wrong


WRONG = {
    "exhausted": (
        HEAD + "inputs: [{user: Hi}]\nmodel: [{call: {look: {what: mug}}}]\n",
        "script exhausted: step t1s2 asked the model a second time, the script has 1 entry; "
        "last message was the result of look (ok)",
    ),
    "left over": (
        ANSWERED.replace("{say: Hello}", "{say: Hello}, {say: Bye}"),
        'script left over: 1 of 2 entries not asked for, from model entry 2 (line 7): say "Bye"',
    ),
    "unexpected": (
        ANSWERED.replace("{say: Hello}", "{expect: {last_role: tool}, say: Hello}"),
        'model entry 1 (line 7): expected last_role tool, found user (step t1s1, last message was the user\'s "Hi")',
    ),
    "no such tool": (
        ANSWERED.replace("tools: {look: {returns: found}", "tools: {find: {returns: 1}, look: {returns: found}"),
        'x.scenario.yaml: no tool "find" to answer for; there are: look, buy',
    ),
    "no answer": (
        ANSWERED.replace("tools: {look: {returns: found}, ", "tools: {look: {times: 0}, "),
        'x.scenario.yaml: tool "look" is written in the scenario and has no handler; under tools it needs returns',
    ),
    "ran too seldom": (
        ANSWERED.replace("{returns: found}", "{returns: found, times: 2}"),
        "tool look ran 0 times, the scenario says 2",
    ),
    "never came in": (
        ANSWERED.replace("{user: Hi}", "{user: Hi}, {steer: Wait., at: tool.started, nth: 2}"),
        "input 2 never came in: the turn had no tool.started number 2",
    ),
    "fault that never struck": (
        ANSWERED + "faults: [{at: tool.started, do: crash}]\n",
        "the fault at tool.started never struck",
    ),
    "approval not asked": (
        ANSWERED + "approvals: [{call: buy, decide: deny, by: ada}]\n",
        "0 of 1 approvals were asked for",
    ),
    "approval of another tool": (
        ANSWERED.replace("{say: Hello}", "{call: {buy: {}}}") + "approvals: [{call: look, decide: deny, by: ada}]\n",
        "approval 1 is about look; a person is asked about buy",
    ),
    "input while a person is waited for": (
        ANSWERED.replace("{say: Hello}", "{call: {buy: {}}}").replace("{user: Hi}", "{user: Hi}, {user: So}"),
        "input 2 came too early: a person is asked about buy",
    ),
    "no agent": (ANSWERED.replace("scenario: x", "scenario: x\nscope: a").replace("demo:small", "small"), '"small"'),
    "unknown module": (
        "scenario: x\nagent: no_such_module:agent\ninputs: [{user: Hi}]\nmodel: []\n",
        'agent "no_such_module" is neither beside the file nor importable: no module "no_such_module"',
    ),
    "no attribute": (
        "scenario: x\nagent: spine.agent:nothing\ninputs: [{user: Hi}]\nmodel: []\n",
        'agent "spine.agent:nothing": spine.agent has no "nothing"',
    ),
    "no agent there": (
        "scenario: x\nagent: spine.agent:Limits\ninputs: [{user: Hi}]\nmodel: []\n",
        'agent "spine.agent:Limits" is type, no Agent',
    ),
    "no reference": (
        "scenario: x\nagent: agent\ninputs: [{user: Hi}]\nmodel: []\n",
        'agent "agent" is not of the form module:attribute',
    ),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_goes_wrong_is_said(run_text: RunText, text: str, message: str) -> None:
    result = run_text(text)
    assert not result.is_ok
    assert message in lines(result)


def test_the_entry_that_did_not_fit_is_named_with_its_line(run_text: RunText) -> None:
    result = run_text(WRONG["unexpected"][0])
    assert result.line == 7
    assert str(result).startswith("FAIL  x.scenario.yaml:7         model entry 1")


# --------------------------------------------------------------------------------------------- what comes in when


def test_queued_inputs_become_turns_of_their_own(run_text: RunText) -> None:
    result = run_text(
        HEAD
        + """\
inputs:
  - user: Hi
  - {queue: "And then?", at: turn.started}
  - user: Bye
model: [{say: Hello}, {expect: {contains: "And then?"}, say: Nothing.}, {say: Bye}]
expect: {turns: [{status: completed}, {status: completed}, {status: completed, text: Bye}]}
"""
    )
    assert result.is_ok, result


def test_an_interruption_cancels_and_begins_another_turn(run_text: RunText) -> None:
    result = run_text(
        HEAD
        + """\
inputs: [{user: Tell me a story.}, {interrupt: "No, a joke.", at: model.chunks}]
model: [{say: Once upon, stall: forever}, {expect: {last_role: user, contains: a joke}, say: Knock knock.}]
expect: {turns: [{status: cancelled}, {status: completed, text: Knock knock.}]}
"""
    )
    assert result.is_ok, result


def test_a_cancel_during_a_tool_leaves_it_interrupted(run_text: RunText) -> None:
    result = run_text(
        HEAD
        + """\
inputs: [{user: Look.}, {cancel: never mind, at: tool.started}]
model: [{call: {look: {what: mug}}}]
expect: {turns: [{status: cancelled}], outcomes: [interrupted], never: [turn.completed]}
"""
    )
    assert result.is_ok, result


def test_moments_are_counted_within_their_turn(run_text: RunText) -> None:
    """The second tool of the second turn, not of the session."""
    result = run_text(
        HEAD
        + """\
inputs: [{user: Look.}, {user: Look twice.}, {steer: Enough., at: tool.started, nth: 2}]
model:
  - call: {look: {what: a}}
  - say: A.
  - call: {look: {what: b}}
  - {expect: {lacks: Enough.}, call: {look: {what: c}}}
  - {expect: {contains: Enough.}, say: B and C.}
expect: {turns: [{status: completed}, {status: completed, steps: 3}]}
"""
    )
    assert result.is_ok, result


# ------------------------------------------------------------------------------------------------ tools that answer


def test_a_tool_may_run_its_own_handler(run_text: RunText) -> None:
    result = run_text(
        """\
scenario: x
agent: spine.testing.demo:AGENT
deps: spine.testing.demo:Shop
inputs: [{user: "What is in 1017?"}]
model: [{call: {lookup_order: {order_id: "1017"}}}, {expect: {contains: mug}, say: A mug.}]
tools: {lookup_order: {times: 1, delay_s: 3}}
expect: {outcomes: [ok]}
"""
    )
    assert result.is_ok, result


def test_a_tool_that_runs_too_often_says_so(run_text: RunText) -> None:
    result = run_text(
        HEAD.replace("{returns: found}", "[{returns: one}, {returns: two}]")
        + """\
inputs: [{user: Look.}]
model: [{call: [{look: {what: a}}, {look: {what: b}}, {look: {what: c}}]}, {say: Hm.}]
"""
    )
    assert lines(result) == "tool look ran 3 times, the scenario says 2"


@pytest.mark.parametrize(("delay", "outcome"), [(19.9, "ok"), (20, "timeout"), (21, "timeout")])
def test_a_delay_that_reaches_the_timeout_is_one(run_text: RunText, delay: float, outcome: str) -> None:
    result = run_text(
        HEAD.replace("{returns: found}", f"{{returns: found, delay_s: {delay}}}")
        + f"""\
inputs: [{{user: Look.}}]
model: [{{call: {{look: {{what: a}}}}}}, {{say: Hm.}}]
expect: {{outcomes: [{outcome}]}}
"""
    )
    assert result.is_ok, result


def test_a_plugins_tool_is_answered_for(run_text: RunText, tmp_path: Path) -> None:
    """The plugin stands beside the scenario, and imports its neighbour."""
    (tmp_path / "words.py").write_text("WORD = 'weather'\n")
    (tmp_path / "offers.py").write_text(
        "from spine import tool\n"
        "from spine.hooks import hookimpl\n"
        "from words import WORD\n"
        "@tool(name=WORD)\n"
        "def weather(city: str) -> str:\n"
        "    '''Weather.'''\n"
        "    raise AssertionError\n"
        "@hookimpl\n"
        "def spine_register_tools(registrar):\n"
        "    registrar.add(weather)\n"
    )
    result = run_text(
        """\
scenario: x
agent: {model: "demo:small", tools: [weather]}
plugins: [offers]
inputs: [{user: "Rain?"}]
model: [{expect: {tools: [weather]}, call: {weather: {city: Oslo}}}, {expect: {contains: rain}, say: "Yes."}]
tools: {weather: {returns: rain}}
expect: {outcomes: [ok]}
"""
    )
    assert result.is_ok, result


# ------------------------------------------------------------------------------------------------------ processes


CALLING = (
    HEAD.replace("{returns: found}", "{returns: found, times: 1}")
    + """\
inputs: [{user: Look.}, {user: "And?"}]
model: [{call: {look: {what: mug}}}, {expect: {contains: found}, say: A mug.}, {say: That is all.}]
expect: {turns: [{status: completed, steps: 2}, {status: completed, text: That is all.}], calls: [look], outcomes: [ok]}
"""
)
MOMENTS = (
    "session.created",
    "turn.started",
    "model.requested",
    "model.chunks",
    "message.committed",
    "tool.started",
    "tool.completed",
    "turn.completed",
)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_anywhere_changes_nothing_of_the_outcome(run_text: RunText, moment: str) -> None:
    result = run_text(CALLING + f"faults: [{{at: {moment}, do: crash}}]\n")
    assert result.is_ok, result
    assert [fault.do for fault, _ in result.ends] == ["crash"]


def test_crash_after_crash(run_text: RunText) -> None:
    faults = ", ".join(
        f"{{at: {moment}, do: crash}}" for moment in ("model.requested", "tool.started", "turn.completed")
    )
    result = run_text(CALLING + f"faults: [{faults}]\n")
    assert result.is_ok, result
    assert len(result.ends) == 3


def test_the_second_such_event_since_the_last_fault(run_text: RunText) -> None:
    result = run_text(CALLING + "faults: [{at: model.requested, nth: 2, do: crash}]\n")
    assert result.is_ok, result
    (_, seq) = result.ends[0]
    whole = run_text(CALLING)
    assert whole.is_ok
    assert 1 < seq < whole.events


def test_what_was_sent_before_a_crash_is_not_sent_twice(run_text: RunText) -> None:
    result = run_text(
        HEAD
        + """\
inputs: [{user: Look.}, {steer: Quick., at: tool.started}]
model: [{call: {look: {what: mug}}}, {expect: {contains: Quick., messages: 4}, say: A mug.}]
faults: [{at: input.accepted, nth: 2, do: crash}]
expect: {turns: [{status: completed}]}
"""
    )
    assert result.is_ok, result
    assert result.transcript.count("+ Quick.") == 1


def test_an_orderly_restart_cancels_a_turn_that_runs(run_text: RunText) -> None:
    result = run_text(
        HEAD
        + """\
inputs: [{user: Look.}, {user: Once more.}]
model: [{call: {look: {what: mug}}}, {say: A mug.}]
faults: [{at: tool.started, do: restart}]
expect: {turns: [{status: cancelled}, {status: completed}], outcomes: [interrupted]}
"""
    )
    assert result.is_ok, result
    assert "restarted once" in str(result)


def test_the_next_process_has_what_it_is_given(run_text: RunText, tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(
        "from spine import Agent\nagent = Agent('demo:small', instructions='You are new here.')\n__version__ = '2'\n"
    )
    result = run_text(
        """\
scenario: x
agent: {model: "demo:small", instructions: You are old.}
inputs: [{user: Hi}, {user: Hi again}]
model: [{expect: {system_contains: old}, say: Hello}, {expect: {system_contains: new here}, say: Hello}]
faults: [{at: turn.completed, do: restart, agent: "later:agent", plugins: [later]}]
expect: {turns: [{status: completed}, {status: completed}], events: [turn.completed, session.resumed]}
"""
    )
    assert result.is_ok, result


def test_a_scenario_that_hangs_is_told(run_text: RunText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spine.testing.scenarios.play.LIMIT_S", 0.3)
    result = run_text(ANSWERED.replace("{say: Hello}", "{stall: forever}"))
    assert "did not come to an end within 0.3 s" in lines(result)
