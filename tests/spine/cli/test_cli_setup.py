"""Commands that set up and try: demo, init, scenario, models, config, plugins, tools, decode."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from model_server import serving

from spine.cli.begin.init import TEMPLATES

# ------------------------------------------------------------------------------------------------------------- demo


def test_the_demonstration_ends_with_commands_that_work(spine, folder: Path) -> None:
    done = spine("demo")
    assert done.exit_code == 0
    assert done.stdout.startswith("refund-1017 · scripted:demo · sqlite:demo.db\n\nUSER\n")
    heading, *lines = done.stdout.split("\n\n")[-1].splitlines()
    assert heading.startswith("All of it is in demo.db: ")
    assert [line.split()[1] for line in lines] == ["request", "verify", "replay", "explain"]
    for line in lines:
        assert spine(*line.strip().split("  ")[0].split()[1:]).exit_code == 0, line
    assert "cost unknown (scripted:demo has no price)" in done.stdout


def test_the_demonstration_can_be_seen_again(spine, folder: Path) -> None:
    facts = [json.loads(spine("demo", "--json", "--store", "x/y.db").stdout)["session"] for _ in range(2)]
    assert facts == ["refund-1017", "refund-1018"]


# ------------------------------------------------------------------------------------------------------------- init


def test_a_new_project_is_green_without_a_key(spine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spine("init", "shop").exit_code == 0
    project = folder / "shop"
    assert sorted(str(p.relative_to(project)) for p in project.rglob("*") if p.is_file()) == sorted(TEMPLATES)
    monkeypatch.chdir(project)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert spine("scenario", "run").exit_code == 0
    assert "agent:agent" in spine("config").stdout
    assert spine("tools", "call", "count_words", "text=a b").stdout == "2\n"
    assert "OPENAI_API_KEY is not set" in spine("run", "x", input="").stderr


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "1x", "x" * 41])
def test_a_project_has_a_plain_name(spine, folder: Path, name: str) -> None:
    assert spine("init", name).exit_code == 2
    assert list(folder.iterdir()) == []


def test_init_changes_nothing_that_is_there(spine, folder: Path) -> None:
    (folder / "shop").mkdir()
    (folder / "shop" / "agent.py").write_text("mine")
    done = spine("init", "shop")
    assert done.exit_code == 2
    assert done.stderr.startswith("shop is there already and is not empty; nothing was changed")
    assert [path.name for path in (folder / "shop").iterdir()] == ["agent.py"]


# --------------------------------------------------------------------------------------------------------- scenario

SCENARIO = """\
scenario: words
agent: {model: "demo:small"}
inputs:
  - user: hi
model:
  - say: hello
expect:
  turns: [{status: %s}]
"""


def test_scenarios_that_hold_and_one_that_does_not(spine, folder: Path) -> None:
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "a.scenario.yaml").write_text(SCENARIO % "completed")
    done = spine("scenario", "run")
    assert done.exit_code == 0
    assert done.stdout.startswith("ok    a.scenario.yaml")
    assert done.stderr == "1 of 1 hold\n"
    (folder / "scenarios" / "b.scenario.yaml").write_text(SCENARIO % "failed")
    done = spine("scenario", "run", "scenarios")
    assert done.exit_code == 1
    assert "\nFAIL  b.scenario.yaml" in done.stdout
    facts = [json.loads(line) for line in spine("scenario", "run", "--json").stdout.splitlines()]
    assert [fact["ok"] for fact in facts] == [True, False]


def test_a_scenario_is_swept_for_crashes(spine, folder: Path) -> None:
    """It dies once for each place and comes to the same end; a sweep writes no snapshot."""
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "a.scenario.yaml").write_text(SCENARIO % "completed")
    done = spine("scenario", "run", "--crash-sweep")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert "same end" in done.stdout
    (fact,) = (json.loads(line) for line in spine("scenario", "run", "--crash-sweep", "--json").stdout.splitlines())
    assert fact["ok"]
    assert fact["deaths"] > 1
    assert spine("scenario", "run", "--crash-sweep", "--snapshot-update").exit_code == 2
    (folder / "scenarios" / "a.scenario.yaml").write_text(SCENARIO % "failed")
    assert spine("scenario", "run", "--crash-sweep").exit_code == 1


def test_no_scenario_is_wrong_use(spine, folder: Path) -> None:
    (folder / "scenarios").mkdir()
    assert spine("scenario", "run").exit_code == 2
    assert spine("scenario", "run", "nowhere").exit_code == 2


# ------------------------------------------------------------------------------------------------- models and config


def test_models_show_keys_as_set_or_missing_and_never_their_text(
    spine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-value")
    (folder / "spine.toml").write_text(
        'aliases = { fast = "openai:gpt-5-mini" }\n[providers.lab]\nprotocol = "openai_chat"\n'
        'base_url = "http://127.0.0.1:1"\nkey = { command = "exit 1" }\n[models."lab:tiny"]\nwindow = 8192\n'
        'prices = { id = "mine", input = 1, output = 2.5 }\n'
    )
    done = spine("models")
    text = " ".join(done.stdout.split())
    assert "openai:gpt-5-mini openai_responses 400,000 OPENAI_API_KEY set 0.25 / 0.025 / 2.00" in text
    assert "GROQ_API_KEY missing" in text
    assert "lab:tiny openai_chat 8,192 of a command (exit 1) 1.00 / 1.00 / 2.50" in text
    assert "fast = openai:gpt-5-mini alias, spine.toml:1" in text
    assert "(catalogue " in done.stderr
    for command in (["models"], ["models", "--json"], ["config"], ["config", "--json"]):
        shown = spine(*command)
        assert "not-a-real-value" not in shown.stdout + shown.stderr
    facts = [json.loads(line) for line in spine("models", "--json").stdout.splitlines()]
    assert {fact["provider"] for fact in facts} >= {"openai", "lab", "ollama"}


def test_models_explain_a_provider_a_model_and_an_alias(spine, folder: Path) -> None:
    (folder / "spine.toml").write_text('aliases = { fast = "openai:gpt-5-mini" }\n')
    lines = {" ".join(line.split()) for line in spine("models", "fast").stdout.splitlines()}
    assert {
        "window 400,000 catalogue",
        "prices 0.25 / 0.025 / 2.00 2026-11-28",
        "traits.thinking minimal, low, medium, high model gpt-5-mini",
        "traits.strict_schemas yes provider openai",
        "traits.tools yes default",
    } <= lines
    fact = json.loads(spine("models", "deepseek", "--json").stdout)
    assert (fact["model"], fact["auth"], fact["traits"]["reasoning_field"]) == (None, "bearer", "reasoning_content")
    assert "prices unknown" in " ".join(spine("models", "groq:unlisted").stdout.split())
    done = spine("models", "opnai")
    assert (done.exit_code, 'did you mean "openai"?' in done.stderr) == (2, True)


def test_config_says_where_each_value_comes_from(spine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "spine.toml").write_text('model = "a:1"\nagent = "m:a"\nplugins.block = ["noisy"]\nstrict = true\n')
    monkeypatch.setenv("SPINE_MODEL", "b:2")
    rows = {line.split()[0]: line.split()[1:] for line in spine("config", "--store", "x.db").stdout.splitlines()[1:]}
    assert rows["store"] == ["sqlite:x.db", "--store"]
    assert rows["model"] == ["b:2", "SPINE_MODEL"]
    assert rows["agent"] == ["m:a", "spine.toml:2"]
    assert rows["strict"] == ["yes", "spine.toml:4"]
    assert rows["plugins.block"] == ["noisy", "spine.toml:3"]
    assert rows["plugins.allow"] == ["not", "set", "default"]
    assert json.loads(spine("config", "--json").stdout)["model"] == {"origin": "SPINE_MODEL", "value": "b:2"}


# ------------------------------------------------------------------------------------------------ plugins and tools


def test_plugins_are_listed_with_what_they_offer(spine, monkeypatch: pytest.MonkeyPatch) -> None:
    done = spine("plugins")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0].split() == ["plugin", "version", "state", "import", "offers"]
    assert "protocol openai_chat" in done.stdout
    assert spine("plugins", "list", "--json").stdout.count("\n") == done.stdout.count("\n") - 1
    monkeypatch.setenv("SPINE_PLUGINS", "")
    row = next(line for line in spine("plugins").stdout.splitlines() if line.startswith("openai_chat"))
    assert row.split()[2:] == ["blocked", "SPINE_PLUGINS"]


def test_tools_are_listed_and_called(spine, shop) -> None:
    with serving() as server:
        shop(server)
    listed = spine("tools").stdout
    assert " ".join(listed.splitlines()[2].split()) == "refund (order_id, amount_cents) idempotent ask agent refunds"
    assert [json.loads(line)["name"] for line in spine("tools", "list", "--json").stdout.splitlines()] == [
        "lookup_order",
        "refund",
        "breaks",
    ]
    done = spine("tools", "call", "refund", "order_id=1017", "amount_cents=5")
    assert (done.exit_code, done.stdout) == (0, "refunded 5\n")
    assert spine("tools", "call", "lookup_order", "order_id=1").stdout == '{"item": "mug", "state": "delivered"}\n'


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["refnd"], 2, 'no tool "refnd"; nearest is "refund"'),
        (["refund", "order_id"], 2, 'argument "order_id" is not of the form key=value'),
        (["refund", "order_id=1", "amount_cents=x"], 2, 'argument amount_cents: "x" is no JSON'),
        (["refund", "order_id=1", 'amount_cents="x"'], 2, 'tool "refund": amount_cents: expected integer'),
        (["refund", "order_id=1"], 2, 'tool "refund": missing "amount_cents"'),
        (["breaks", "text=oh"], 1, "breaks: error"),
    ],
)
def test_a_tool_that_cannot_be_called_says_why(spine, shop, words: list[str], status: int, said: str) -> None:
    with serving() as server:
        shop(server)
    done = spine("tools", "call", *words)
    assert done.exit_code == status
    assert done.stderr.startswith(said)


# ------------------------------------------------------------------------------------------------------------ decode

GOOD = json.dumps(
    {
        "id": "c1",
        "model": "tiny",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
    }
)


def test_a_captured_answer_is_read_from_a_file_or_stdin(spine, folder: Path) -> None:
    (folder / "body.json").write_text(GOOD)
    from_file = spine("decode", "--protocol", "openai_chat", "body.json")
    assert from_file.exit_code == 0
    assert json.loads(from_file.stdout)["content"] == [{"type": "text", "text": "hi"}]
    assert spine("decode", "--protocol", "openai_chat", input=GOOD).stdout == from_file.stdout


def test_an_error_answer_is_a_result_with_status_1(spine) -> None:
    done = spine("decode", "--protocol", "openai_chat", "--status", "429", input='{"error": {"message": "slow down"}}')
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"]["category"] == "rate_limit"


@pytest.mark.parametrize("name", ["batch.jsonl", "batch.jsonl.gz"])
def test_a_batch_is_one_result_a_line_with_its_id(spine, folder: Path, name: str) -> None:
    records = [
        {"id": "one", "protocol": "openai_chat", "status": 200, "headers": {}, "body": GOOD},
        {"id": "two", "protocol": "openai_chat", "status": 503, "headers": {}, "body": None},
    ]
    data = "".join(f"{json.dumps(record)}\n" for record in records).encode() + b"\n"
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    done = spine("decode", "--batch", name)
    assert done.exit_code == 0
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["id"], r["error"] is None) for r in results] == [("one", True), ("two", False)]


@pytest.mark.parametrize(
    ("arguments", "data", "said"),
    [
        ([], "", "no protocol was named"),
        (["--protocol", "openai_cht"], "", 'no plugin offers the protocol "openai_cht"; there are: '),
        (["--batch"], "{}\n", "stdin:1: the record names no protocol"),
        (["--batch"], "\n[]\n", "stdin:2: this line is no JSON object"),
        (["--batch"], "{\n", "stdin:1: this line is no JSON: "),
        (["--protocol", "openai_chat", "nowhere"], "", "nowhere: no such file"),
    ],
)
def test_decode_used_wrongly(spine, arguments: list[str], data: str, said: str) -> None:
    done = spine("decode", *arguments, input=data)
    assert done.exit_code == 2
    assert done.stderr.startswith(said)
