"""The reader of scenario files: every key, every mistake with its place, and a schema that says the same."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from spine.errors import ScenarioInvalid
from spine.llm.catalogue import Prices
from spine.testing.scenarios.file import read_scenario, scenario_schema
from spine.testing.scenarios.scenario import (
    AgentSpec,
    CancelInput,
    Decision,
    Expected,
    ExpectedTurn,
    Fault,
    LateInput,
    ModelSpec,
    Moment,
    RetryInput,
    Scenario,
    SectionSpec,
    ToolAnswer,
    ToolSpec,
    UserInput,
)
from spine.testing.scenarios.yaml_tree import Source, parse
from spine.testing.script import call, call_text, cut, expect, fail, refuse, say, stall, stop, think, usage

ROOT = Path(__file__).parents[4]
PATH = Path("shop/refund.scenario.yaml")
SMALL = "scenario: x\nagent: shop:agent\ninputs: [{user: Hi}]\nmodel: []\n"


def read(text: str) -> Scenario:
    return read_scenario(PATH, text)


def test_the_smallest_scenario() -> None:
    scenario = read(SMALL)
    assert scenario == Scenario(
        path=PATH, name="x", session="refund", agent="shop:agent", inputs=(UserInput(text="Hi"),)
    )
    assert scenario.snapshot == Path("shop/refund.transcript.txt")


PRICES = Prices(id="scenario", currency="EUR", input=150_000, output=1_000_000, cache_read=1, cache_write=100_000)
EVERYTHING = """\
scenario: everything
session: s-1
agent:
  model: demo:small
  name: clerk
  instructions: Be kind.
  steps: 5
  tokens: 9000
  cost: $0.50
  wall_s: 0.5
  max_output_tokens: 100
  temperature: 0.5
  tools:
    - shop:find
    - orders.*
    - refund:
        description: Pay back.
        parameters: {id: string, note: {type: string, maxLength: 5}}
        effect: idempotent
        parallel: false
        approval: ask
        approval_reason: money
        timeout_s: 20
        max_result_bytes: 1000
plugins: [guard]
deps: shop:Shop
attempts: 5
scope: tenant
metadata: {customer: c-77}
variables: {tone: kind}
sections:
  - {name: policy, text: 14 days., scope: tenant, order: 3, priority: 1, dynamic: true}
models:
  demo:small:
    window: 100
    max_output: 10
    prices: {currency: EUR, input: 0.15, output: 1, cache_read: 0.000001, cache_write: 0.1}
inputs:
  - user: Hi
  - {steer: Wait., at: tool.started}
  - {queue: Later., at: turn.started, nth: 2}
  - {interrupt: Now., at: model.chunks}
  - {cancel: enough, at: crm.ticket_linked}
  - retry: keep_partial
  - retry: plain
model:
  - fail: auth
  - fail: {category: rate_limit, status: 429, retry_after_s: 2, message: slow, code: rl, retryable: false}
  - {think: Hm., say: Hello there, call: {find: {id: "1"}}, usage: {input_tokens: 3}, stop: pause}
  - {chunks: [Hel, lo], cut: true}
  - {say: Hello, chunks: [Hel, lo], stall: 2}
  - {call: [{find: {id: "1"}}, {find: "{broken"}], stall: forever}
  - {refuse: No.}
  - expect: {last_role: user, contains: a, lacks: [b, c], system_contains: d, system_lacks: e, tools: [f], messages: 1}
tools:
  find: {returns: {a: [1]}, delay_s: 1, times: 2}
  refund: [{raises: broke}, {raises: {ValueError: bad}}, {returns: null}, {times: 3}]
approvals:
  - {call: refund, decide: deny, by: ada, reason: no}
faults:
  - {at: tool.started, nth: 2, do: crash}
  - {at: turn.suspended, do: restart, agent: shop:other, plugins: []}
  - {point: tool.find.after, nth: 2, do: crash}
expect:
  turns: [{status: failed, steps: 1, retries: 2, tool_calls: 3, stop_reason: pause, text: Hi, error: limit}]
  calls: [a]
  finished: [b]
  outcomes: [ok, not_started]
  events: [turn.started]
  never: [hook.failed]
  transcript: snapshot
"""


def test_every_key_is_read() -> None:
    scenario = read(EVERYTHING)
    refund = ToolSpec(
        name="refund",
        description="Pay back.",
        parameters={
            "type": "object",
            "properties": {"id": {"type": "string"}, "note": {"type": "string", "maxLength": 5}},
            "required": ["id", "note"],
            "additionalProperties": False,
        },
        options={
            "effect": "idempotent",
            "parallel": False,
            "approval": "ask",
            "approval_reason": "money",
            "timeout_s": 20.0,
            "max_result_bytes": 1000,
        },
    )
    options = {"name": "clerk", "instructions": "Be kind.", "max_output_tokens": 100, "temperature": 0.5}
    options |= {"steps": 5, "tokens": 9000, "cost": "$0.50", "wall_s": 0.5}
    assert scenario.agent == AgentSpec(model="demo:small", tools=("shop:find", "orders.*", refund), options=options)
    assert (scenario.session, scenario.scope, scenario.deps, scenario.plugins) == (
        "s-1",
        "tenant",
        "shop:Shop",
        ("guard",),
    )
    assert scenario.attempts == 5
    assert (scenario.metadata, scenario.variables) == ({"customer": "c-77"}, {"tone": "kind"})
    section = {"order": 3, "priority": 1, "dynamic": True}
    assert scenario.sections == (SectionSpec(name="policy", text="14 days.", scope="tenant", options=section),)
    assert scenario.models == {"demo:small": ModelSpec(window=100, max_output=10, prices=PRICES)}
    assert scenario.inputs == (
        UserInput(text="Hi"),
        LateInput(text="Wait.", delivery="steer", at=Moment("tool.started")),
        LateInput(text="Later.", delivery="queue", at=Moment("turn.started", 2)),
        LateInput(text="Now.", delivery="interrupt", at=Moment("model.chunks")),
        CancelInput(cause="enough", at=Moment("crm.ticket_linked")),
        RetryInput(keep_partial=True),
        RetryInput(),
    )
    assert scenario.tools == {
        "find": (ToolAnswer(returns={"a": (1,)}, delay_s=1.0, times=2),),
        "refund": (
            ToolAnswer(raises=("RuntimeError", "broke")),
            ToolAnswer(raises=("ValueError", "bad")),
            ToolAnswer(returns=None),
            ToolAnswer(is_own=True, times=3),
        ),
    }
    assert scenario.approvals == (Decision(call="refund", decide="deny", by="ada", reason="no"),)
    assert scenario.faults == (
        Fault(at=Moment("tool.started", 2), do="crash"),
        Fault(at=Moment("turn.suspended"), do="restart", agent="shop:other", plugins=()),
        Fault(at=Moment("tool.find.after", 2), do="crash", is_point=True),
    )
    assert scenario.expect == Expected(
        turns=(
            ExpectedTurn(
                status="failed", steps=1, retries=2, tool_calls=3, stop_reason="pause", text="Hi", error="limit"
            ),
        ),
        calls=("a",),
        finished=("b",),
        outcomes=("ok", "not_started"),
        events=("turn.started",),
        never=("hook.failed",),
        transcript="snapshot",
    )


def test_entries_are_what_the_builders_make() -> None:
    entries = [entry.evolve(where=None) for entry in read(EVERYTHING).model]
    assert entries == [
        fail("auth"),
        fail("rate_limit", status=429, retry_after_s=2.0, message="slow", code="rl", retryable=False),
        think("Hm.") + say("Hello there") + call("find", id="1") + usage(input_tokens=3) + stop("pause"),
        say(chunks=["Hel", "lo"]) + cut(),
        say("Hello", chunks=["Hel", "lo"]) + stall(2.0),
        call("find", id="1") + call_text("find", "{broken") + stall(),
        refuse("No."),
        expect(
            last_role="user",
            contains="a",
            lacks=["b", "c"],
            system_contains="d",
            system_lacks="e",
            tools=["f"],
            messages=1,
        ),
    ]


def test_parts_arrive_in_the_order_of_the_file() -> None:
    (entry,) = read(SMALL.replace("[]", "[{stall: 1, say: a, call: {b: {}}, think: c}]")).model
    assert [type(part).__name__ for part in entry.parts] == ["Stall", "Say", "Call", "Think"]


def test_entries_know_their_line() -> None:
    assert [entry.where for entry in read(SMALL.replace("[]", "\n  - say: a\n  - say: b")).model] == [
        "line 5",
        "line 6",
    ]


@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("refund.scenario.yaml", "refund"),
        ("three tools!.scenario.yaml", "three-tools"),
        ("ä.scenario.yaml", "scenario"),
    ],
)
def test_the_session_is_named_after_the_file(name: str, session: str) -> None:
    assert read_scenario(Path(name), SMALL).session == session


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioInvalid, match="No such file"):
        read_scenario(tmp_path / "no.scenario.yaml")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.scenario.yaml"
    path.write_text(SMALL)
    assert read_scenario(path).name == "x"


MISTAKES: dict[str, tuple[str, str, str]] = {
    "unknown key": (
        "model: []",
        "model: [{calls: {a: {}}}]",
        '4:10: unknown key "calls"; allowed here: expect, say, think, call, fail, chunks, usage, refuse, stall, cut, '
        'stop; did you mean "call"?',
    ),
    "missing key": ("agent: shop:agent\n", "", '1:1: missing key "agent"; needed here: scenario, agent, inputs, model'),
    "no mapping": ("[{user: Hi}]", "[Hi]", '3:10: expected a mapping with one of the keys user, steer, queue'),
    "no text": ("scenario: x", "scenario: 12", "1:11: expected text (quote it), found the number 12"),
    "nothing": ("scenario: x", "scenario:", "1:10: expected text, found nothing"),
    "no list": ("model: []", "model: {}", "4:8: expected a list, found a mapping"),
    "no input": ("[{user: Hi}]", "[]", "3:9: expected at least 1 in this list, found 0"),
    "unknown input": ("{user: Hi}", "{usr: Hi}", '3:11: unknown key "usr"; allowed here: user, steer, queue'),
    "two inputs in one": ("{user: Hi}", "{user: Hi, retry: plain}", "3:10: expected exactly one of user, steer"),
    "empty input": ("{user: Hi}", "{}", "one of user, steer, queue, interrupt, cancel, retry, found none"),
    "late without a moment": ("{user: Hi}", "{user: Hi}, {steer: x}", '3:22: missing key "at"; needed here: steer, at'),
    "begins late": ("{user: Hi}", "{steer: x, at: tool.started}", "3:9: inputs begin with a user's; found steer"),
    "begins with a retry": ("{user: Hi}", "{retry: plain}", "3:9: inputs begin with a user's; found retry"),
    "no amount": (
        "shop:agent", "{model: 'a:b', cost: '0.50'}", "2:29: limit cost is '0.50'; it must be an amount over 0"
    ),
    "an amount that is no text": ("shop:agent", "{model: 'a:b', cost: 0.5}", "2:29: expected text (quote it)"),
    "no time": ("shop:agent", "{model: 'a:b', wall_s: 0}", "2:31: expected a number over 0, found the number 0"),
    "no tokens": ("shop:agent", "{model: 'a:b', tokens: 0}", "2:31: expected a whole number from 1 on"),
    "misspelt limit": ("shop:agent", "{model: 'a:b', wall: 3}", 'did you mean "wall_s"?'),
    "half a price": (
        "agent:", "models: {'a:b': {prices: {input: 1}}}\nagent:", '2:26: missing key "output"; needed here: input'
    ),
    "a fine price": (
        "agent:",
        "models: {'a:b': {prices: {input: 0.0000001, output: 1}}}\nagent:",
        "2:26: the price input has more than six decimals",
    ),
    "misspelt event": ("{user: Hi}", "{user: a}, {cancel: x, at: tool.start}", 'did you mean "tool.started"?'),
    "event without a group": ("{user: Hi}", "{user: a}, {cancel: x, at: started}", 'expected'),
    "no failpoint": (
        "model: []",
        "model: []\nfaults: [{point: tool.pay, do: crash}]",
        '5:18: no failpoint is called "tool.pay"; there are model.ask, model.item, model.end, tool.NAME.before',
    ),
    "a restart at a failpoint": (
        "model: []", "model: []\nfaults: [{point: model.ask, do: restart}]", "5:33: expected one of crash"
    ),
    "two moments": (
        "model: []", "model: []\nfaults: [{at: a.b, point: model.ask, do: crash}]", "exactly one of at, point"
    ),
    "unknown word": ("model: []", "model: [{stop: end}]", '4:16: expected one of end_turn,'),
    "negative": ("model: []", "model: [{stall: -1}]", "4:17: expected a number from 0 on, found the number -1"),
    "no whole number": ("model: []", "model: [{usage: {input_tokens: 1.5}}]", "4:32: expected a whole number"),
    "wrong type": ("model: []", "model: [{stall: [1]}]", "expected a whole number or a number or text, found a list"),
    "cut is not false": ("model: []", "model: [{cut: false}]", "4:15: expected true, found false"),
    "no flag": ("model: []", "model: [{fail: {category: auth, retryable: 1}}]", "expected true or false"),
    "after a failure": ("model: []", "model: [{fail: auth, say: Hi}]", "4:9: a script adds say"),
    "two exceptions": ("model: []", "model: []\ntools: {a: {raises: {A: x, B: y}}}", "5:12: raises takes one"),
    "bad session": ("agent:", "session: a/b\nagent:", "2:10: session id 'a/b' is not of the form"),
    "metadata is a mapping": ("agent:", "metadata: 3\nagent:", "2:11: expected a mapping, found the number 3"),
    "a mapping of answers": ("model: []", "model: []\ntools: []", "5:8: expected a mapping, found a list"),
    "a list in place of a file": (SMALL, "[]", "1:1: expected a mapping with the keys scenario, session"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_with_its_place(old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(ScenarioInvalid) as caught:
        read(SMALL.replace(old, new))
    assert str(caught.value).startswith("refund.scenario.yaml:")
    assert message in str(caught.value)


# ---------------------------------------------------------------------------------------------------------- schema


@pytest.mark.parametrize("place", ["scenarios", "spine/testing"])
def test_the_published_schema_is_that_of_the_reader(place: str, request: pytest.FixtureRequest) -> None:
    """Written anew with `--snapshot-update`."""
    published = ROOT / place / "scenario.schema.json"
    if request.config.getoption("--snapshot-update"):
        published.write_text(json.dumps(scenario_schema(), indent=1) + "\n", "utf-8")
    assert json.loads(published.read_text("utf-8")) == scenario_schema()


def validator() -> Any:
    return jsonschema_rs.Draft202012Validator(scenario_schema())


def plain(text: str) -> Any:
    return parse(text, Source("x")).plain()


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    for text in (SMALL, EVERYTHING):
        assert list(validator().iter_errors(plain(text))) == []


BEYOND_SCHEMAS = {
    *("no amount", "a fine price", "bad session", "after a failure", "two exceptions"),
    *("begins late", "begins with a retry"),
}
"""What only the reader can tell."""


@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in BEYOND_SCHEMAS])
def test_the_schema_refuses_what_the_reader_refuses(name: str) -> None:
    old, new, _ = MISTAKES[name]
    assert list(validator().iter_errors(plain(SMALL.replace(old, new))))


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.scenario.yaml")), ids=lambda path: path.name)
def test_every_scenario_of_ours_names_and_fits_the_schema(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith("# yaml-language-server: $schema=scenario.schema.json\n")
    assert list(validator().iter_errors(plain(text))) == []
