"""Commands that compare sessions and steps, as text and as JSON, with their exit statuses."""

import importlib
import json
import sqlite3
from pathlib import Path

import anyio
import pytest
from model_server import say as answer
from model_server import serving

from spine.testing.demo import run_demo


@pytest.fixture
def two(demo: Path) -> Path:
    """The demonstration, played twice."""
    run_demo("sqlite:spine.db")
    return demo


def test_two_plays_of_the_demonstration_are_alike(spine, two: Path) -> None:
    done = spine("diff", "refund-1017", "refund-1018")
    assert done.exit_code == 0
    assert done.stdout.startswith("no difference between refund-1017 and refund-1018: 3 steps, 2 tool calls, 1 retry")
    fact = json.loads(spine("diff", "refund-1017", "refund-1018", "--json").stdout)
    assert (fact["equal"], fact["differences"], fact["sums"]) == (True, [], {})


def test_sessions_that_differ_end_with_one(spine, two: Path) -> None:
    """An export and a session are compared alike."""
    lines = spine("export", "refund-1017").stdout.splitlines()
    (two / "x.jsonl").write_text("\n".join(lines[:10]))
    done = spine("diff", "refund-1018", "x.jsonl")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-2].split() == ["t1", "ending", "completed", "(end_turn)", "→", "open"]
    assert json.loads(spine("diff", "refund-1018", "x.jsonl", "--json").stdout)["sums"]["steps"] == {
        "left": 3,
        "right": 1,
    }


def test_what_is_no_session_is_told(spine, demo: Path) -> None:
    done = spine("diff", "refund-1017", "refund-1019")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nearest is refund-1017" in done.stderr
    assert spine("diff", "refund-1017").exit_code == 2


# -------------------------------------------------------------------------------------------- requests and steps


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["--diff"], {"compared_with", "differences", "messages"}),
        (["--patches"], {"patches"}),
        ([], {"request", "message_seqs", "patches", "estimate", "trimmed"}),
    ],
)
def test_each_view_of_a_request_speaks_json(spine, demo: Path, words: list[str], keys: set[str]) -> None:
    fact = json.loads(spine("request", "--step", "t1s2", *words, "--json").stdout)
    assert set(fact) == {"step", "seq", "digest", "recorded", "equal", "erased"} | keys
    assert fact["equal"]


def test_what_was_new_as_json(spine, demo: Path) -> None:
    fact = json.loads(spine("request", "--step", "t1s2", "--diff", "--json").stdout)
    assert (fact["compared_with"], fact["differences"], fact["messages"]["kept"]) == ("t1s1", [], 1)
    assert [message["role"] for message in fact["messages"]["added"]] == ["assistant", "tool"]
    first = json.loads(spine("request", "--step", "t1s1", "--diff", "--json").stdout)
    assert (first["compared_with"], len(first["messages"]["added"])) == (None, 1)


def test_steps_and_calls_are_explained_as_json(spine, demo: Path) -> None:
    step = json.loads(spine("explain", "--step", "t1s2", "--json").stdout)
    assert (step["step"], [part["name"] for part in step["tools"]]) == ("t1s2", ["lookup_order", "refund"])
    call = json.loads(spine("explain", "t1s2c1", "--json").stdout)
    assert (call["call"], call["status"]) == ("t1s2c1", "ok")


# ---------------------------------------------------------------------------------------------------------- prefix


@pytest.mark.parametrize(("words", "status", "end"), [(["--min", "90%"], 0, "   ok\n"), ([], 0, "100 %\n")])
def test_a_kept_prefix_is_one_line(spine, demo: Path, words: list[str], status: int, end: str) -> None:
    done = spine("prefix", *words)
    assert (done.exit_code, done.stdout) == (status, f"t1s2 100 %   t1s3 100 %{end.removeprefix('100 %')}")


def test_a_prefix_below_what_is_wanted_ends_with_one(spine, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices of the configuration turn the loss into money."""
    (demo / "spine.toml").write_text(PRICED)
    (demo / "moving.py").write_text(MOVING)
    monkeypatch.syspath_prepend(str(demo))
    anyio.run(importlib.import_module("moving").play)
    done = spine("prefix", "moving", "--min", "90%")
    assert done.exit_code == 1
    assert "section now (application)  1 line changed (t1s1 → t1s2 is); about " in done.stdout
    assert "BELOW 90 %: t1s2" in done.stdout
    fact = json.loads(spine("prefix", "moving", "--json").stdout)
    assert (fact["ok"], fact["min"], fact["steps"][0]["owner"]) == (True, None, "application")
    assert fact["steps"][0]["lost"]["prices"] == "lab-1"


PRICED = """
[providers.lab]
protocol = "openai_chat"
base_url = "http://127.0.0.1:9"
auth = "none"
[models."lab:tiny".prices]
id = "lab-1"
input = 3.0
output = 15.0
cache_read = 0.3
"""
MOVING = '''
from spine import Agent, Runtime, Section, tool
from spine.testing import ScriptedAdapter, call, say

@tool(effect="read_only")
def look(word: str) -> str:
    """Look."""
    return word

async def play():
    agent = Agent("lab:tiny", instructions="Be brief.", tools=[look])
    with ScriptedAdapter(call("look", word="a"), say("b")) as model:
        async with Runtime.open("sqlite:spine.db", model=model) as runtime:
            now = Section("now", order=1, dynamic=True, render=lambda context: f"{context.step} is it.")
            runtime.scope("acme").add(now)
            session = await runtime.session("moving", agent, scope="acme")
            await session.run("Go. " * 100)
'''


def test_a_share_that_is_none_is_refused(spine, demo: Path) -> None:
    done = spine("prefix", "--min", "most")
    assert (done.exit_code, done.stderr) == (
        2,
        '--min is "most"; it must be a whole share from 0% to 100%  [usage]\n',
    )


# ---------------------------------------------------------------------------------------------------------- report


def test_a_report_is_a_file_that_is_whole(spine, demo: Path) -> None:
    done = spine("report", "-o", "r.html")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("refund-1017: ok, ")
    page = (demo / "r.html").read_text()
    assert page == spine("report").stdout
    assert page.startswith("<!DOCTYPE html>")
    assert "sqlite:spine.db" in page


def test_a_report_of_a_log_that_does_not_hold_says_so_and_ends_with_one(spine, demo: Path) -> None:
    connection = sqlite3.connect(demo / "spine.db")
    key = connection.execute("SELECT max(key) FROM events").fetchone()[0]
    connection.execute("UPDATE events SET at = at + 1 WHERE key = ?", (key,))
    connection.commit()
    connection.close()
    done = spine("report", "-o", "r.html")
    assert (done.exit_code, "refund-1017: broken, " in done.stderr) == (1, True)
    assert "It does not hold." in (demo / "r.html").read_text()


def test_a_report_that_cannot_be_written_leaves_no_file(spine, demo: Path) -> None:
    before = sorted(demo.iterdir())
    assert spine("report", "nothing", "-o", "r.html").exit_code == 2
    assert spine("report", "-o", "nowhere/r.html").exit_code == 2
    assert sorted(demo.iterdir()) == before


# --------------------------------------------------------------------------------------------------------- what-if


def test_the_same_again_comes_out_the_same(spine, demo: Path) -> None:
    """By default the model answers what it answered, and calls get what they got."""
    done = spine("what-if", "--step", "t1s2", "--as", "again")
    assert (done.exit_code, done.stderr) == (0, "again: from t1s2 on, completed\n")
    assert done.stdout.startswith("no difference between refund-1017 and again")
    assert spine("verify", "again").exit_code == 0
    assert spine("diff", "refund-1017", "again").exit_code == 1  # nobody was asked about the refund


def test_another_result_and_another_section(spine, demo: Path) -> None:
    (demo / "rude.txt").write_text("Be rude.")
    done = spine("what-if", "--result", "t1s1c1=lost", "--section", "instructions=@rude.txt", "--as", "w", "--json")
    fact = json.loads(done.stdout)
    assert (done.exit_code, fact["step"], fact["status"], fact["right"]) == (1, "t1s2", "completed", "w")
    assert {(each["place"], each["what"]) for each in fact["differences"]} == {
        ("t1s1c1", "result"),
        ("t1s2", "section instructions"),
    }


def test_another_answer_from_a_script(spine, demo: Path) -> None:
    (demo / "no.scenario.yaml").write_text(
        "scenario: no\nagent: {model: 'any:x'}\ninputs:\n- {user: x}\nmodel:\n- {say: Sorry.}\n"
    )
    done = spine("what-if", "--step", "t1s2", "--script", "no.scenario.yaml")
    assert done.exit_code == 1
    assert 'calls refund(…) → text "Sorry."' in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--step", "t7s1"], 'no request of step "t7s1" in refund-1017; it has t1s1, t1s2, t1s3'),
        (["--section", "policy"], '--section is "policy"; it must be NAME=TEXT'),
        (["--result", "t5s1c1=x"], 'no request of step "t5s2"'),
        (["--live", "--script", "x"], "the model is real or a script, not both"),
    ],
)
def test_what_cannot_be_supposed_is_told_and_nothing_is_stored(spine, demo: Path, words: list[str], said: str) -> None:
    done = spine("what-if", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(spine("sessions").stdout.splitlines()) == 2


# -------------------------------------------------------------------------------------------------- over a protocol


def test_a_protocol_of_a_plugin_is_whose_the_adapter_is(spine, shop) -> None:
    with serving(answer("Hello.")) as server:
        shop(server)
        assert spine("run", "--session", "s", "Hi").exit_code == 0
    rows = [" ".join(line.split()) for line in spine("explain", "s").stdout.splitlines()]
    assert "adapter lab openai_chat@0.1.0 global protocol openai_chat, model tiny, no price known" in rows
    assert "refund agent refunds session idempotent, approval ask" in rows
