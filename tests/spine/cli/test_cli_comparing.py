"""Commands that compare sessions and steps, as text and as JSON, with their exit statuses."""

import json
from pathlib import Path

import pytest

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
    assert set(fact) == {"step", "seq", "digest", "recorded", "equal"} | keys
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
