"""A scenario recorded anew with the model its agent names: only the script changes."""

from pathlib import Path

import pytest
from model_server import call, fail, say, serving

from spine.errors import ScenarioInvalid
from spine.testing.scenarios.recording import record_scenario, with_script
from spine.testing.scenarios.yaml_tree import Source, parse

BEFORE = """\
# who reads this
scenario: an order is found
agent: shop:agent                     # the real one
inputs:
  - user: What is order 1017?

# the script
model:
  - call: {lookup_order: {order_id: "1"}}
    usage: {input_tokens: 1}
  - expect: {last_role: tool, contains: mug}
    say: Old words.

# what the shop says
tools:
  lookup_order: {returns: {item: mug}}
expect:
  calls: [lookup_order]
"""
USAGE = {"usage": {"input_tokens": 10, "output_tokens": 3}}
"""What the server always reports."""


def test_the_real_answers_replace_the_script_and_nothing_else(shop) -> None:
    """Comments, tools, expectations and what an entry expects of its request stay."""
    with serving(call("lookup_order", order_id="1017"), say("A", " mug.")) as server:
        path = shop(server) / "order.scenario.yaml"
        path.write_text(BEFORE)
        result = record_scenario(path)
    assert (result.problems, len(server.requests)) == ((), 2)
    before, after = BEFORE.split("model:\n"), path.read_text().split("model:\n")
    assert after[0] == before[0]
    script, rest = after[1].split("\n# what the shop says")
    assert rest == before[1].split("\n# what the shop says")[1]
    assert parse(script, Source("script")).plain() == [
        {"expect": {"last_role": "user", "messages": 1}, "call": {"lookup_order": {"order_id": "1017"}}, **USAGE},
        {"expect": {"last_role": "tool", "contains": "mug"}, "say": "A mug.", **USAGE},
    ]
    assert [message["content"] for message in server.requests[1]["messages"] if message["role"] == "tool"] == [
        '{"item":"mug"}'
    ]


def test_a_live_run_that_fails_otherwise_than_a_model_may_leaves_the_file(shop) -> None:
    """A moment that never came is a problem of the run: nothing is written."""
    with serving(say("A mug.")) as server:
        path = shop(server) / "order.scenario.yaml"
        late = "  - user: Tell me.\n  - {steer: Now., at: tool.started}\n  - user: What"
        text = BEFORE.replace("  - user: What", late)
        path.write_text(text)
        result = record_scenario(path)
    assert not result.is_ok
    assert path.read_text() == text


def test_a_failed_attempt_is_recorded_as_one(shop) -> None:
    with serving(fail(401, "who are you?")) as server:
        path = shop(server) / "order.scenario.yaml"
        path.write_text(BEFORE.replace("  calls: [lookup_order]", "  turns: [{status: failed, error: auth}]"))
        result = record_scenario(path)
    assert result.problems == ()
    assert "fail: {category: auth, status: 401" in path.read_text()


@pytest.mark.parametrize(
    "text",
    ["{scenario: x, agent: {model: 'a:b'}, inputs: [{user: x}], model: [{say: y}]}"],
)
def test_a_script_on_a_line_with_other_keys_is_refused(text: str) -> None:
    with pytest.raises(ScenarioInvalid, match="a line of its own"):
        with_script(text, [], "x")


@pytest.mark.parametrize("at_end", ["", "\n", "\n# the end\n"])
def test_a_script_at_the_end_of_the_file_is_replaced_too(at_end: str) -> None:
    text = f"scenario: x\nagent: a:b\ninputs:\n  - user: x\nmodel:\n  - say: old{at_end}"
    assert with_script(text, [{"say": "new"}], "x").startswith(
        "scenario: x\nagent: a:b\ninputs:\n  - user: x\nmodel:\n- {say: new}\n"
    )
    assert "old" not in with_script(text, [{"say": "new"}], "x")


def test_the_command_records(spine, shop) -> None:
    """`spine scenario run --record`."""
    with serving(call("lookup_order", order_id="7"), say("A mug.")) as server:
        folder: Path = shop(server)
        (folder / "order.scenario.yaml").write_text(BEFORE)
        done = spine("scenario", "run", "--record", "order.scenario.yaml")
    assert (done.exit_code, len(server.requests)) == (0, 2), done.stdout
    assert 'order_id: "7"' in (folder / "order.scenario.yaml").read_text()
