"""`scenario from` and `scenario record`: a session as a scenario file that holds."""

from pathlib import Path

import pytest
from model_server import call, say, serving

from spine.testing.scenarios.yaml_tree import Source, parse


def test_a_stored_session_goes_to_stdout_or_to_a_file_that_holds(spine, demo: Path) -> None:
    """The file comes with its transcript, and runs without a key."""
    done = spine("scenario", "from", "refund-1017")
    assert (done.exit_code, done.stderr) == (0, "")
    content = parse(done.stdout, Source("out")).plain()
    assert [entry.get("call") for entry in content["model"]][1] == {"lookup_order": {"order_id": "1017"}}
    assert "transcript" not in content["expect"]
    done = spine("scenario", "from", "refund-1017", "-o", "refund.scenario.yaml")
    assert (done.exit_code, done.stdout[:28]) == (0, "ok    refund.scenario.yaml  ")
    assert "ASSISTANT t1s3" in (demo / "refund.transcript.txt").read_text()
    again = spine("scenario", "run", "refund.scenario.yaml")
    assert (again.exit_code, again.stderr) == (0, "1 of 1 hold\n")


def test_a_file_that_is_there_is_left_alone(spine, demo: Path) -> None:
    (demo / "x.scenario.yaml").write_text("mine")
    done = spine("scenario", "from", "refund-1017", "-o", "x.scenario.yaml")
    assert (done.exit_code, "is there already" in done.stderr) == (2, True)
    assert (demo / "x.scenario.yaml").read_text() == "mine"
    assert spine("scenario", "from", "-o", "x.yaml").exit_code == 2


def test_a_live_run_is_recorded_with_the_agent_it_ran(spine, shop, monkeypatch, folder: Path) -> None:
    """The real model answers once; the file then plays for ever with the agent's own module, and holds no key."""
    monkeypatch.setenv("LAB_KEY", "open-sesame-in-a-test")
    with serving(
        call("lookup_order", order_id="1017"), say("A mug, ", "open-sesame-in-a-test."), say("Bye.")
    ) as server:
        shop(server)
        with (folder / "spine.toml").open("a") as file:
            file.write('key = { env = "LAB_KEY" }\n')
        done = spine("scenario", "record", "mug.scenario.yaml", "What is it?", "Thanks.")
    assert (done.exit_code, len(server.requests)) == (0, 3), done.stderr
    text = (folder / "mug.scenario.yaml").read_text()
    assert "open-sesame" not in text
    assert "agent: shop:agent" in text
    assert spine("scenario", "run", "mug.scenario.yaml").exit_code == 0
    (folder / "mug.scenario.yaml").write_text(text.replace("messages: 3", "messages: 4"))
    assert spine("scenario", "run", "mug.scenario.yaml").exit_code == 1


def test_without_an_input_nothing_is_recorded(spine, folder: Path) -> None:
    assert spine("scenario", "record", "x.scenario.yaml").exit_code == 2
    assert not (folder / "x.scenario.yaml").exists()


@pytest.mark.parametrize("words", [["--shows", "reference R-88"], ["--fails", "checks:is_paid"]])
def test_a_session_is_shrunk_to_a_scenario_that_still_fails(spine, demo: Path, words: list[str]) -> None:
    (demo / "checks.py").write_text(
        "def is_paid(events):\n    return any(e.type == 'tool.completed' and 'R-88' in str(e.data) for e in events)\n"
    )
    done = spine("scenario", "shrink", *words, "-o", "small.scenario.yaml")
    assert done.exit_code == 0, done.stderr
    assert "fails from seq 23 on; 1 of 1 input and " in done.stderr
    assert done.stdout.startswith("ok    small.scenario.yaml")
    assert spine("scenario", "run", "small.scenario.yaml").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "one of --fails and --shows must say it. Try: --shows TEXT  [usage]"),
        (["--shows", "a", "--fails", "b:c"], "one of --fails and --shows must say it"),
        (["--shows", "nowhere"], "refund-1017 does not fail: none of its 27 events shows what is looked for"),
        (["--fails", "nonsense"], 'function "nonsense" is not of the form module:function'),
        (["--fails", "json:nothing"], 'function "json:nothing": json has no function "nothing"'),
        (["--fails", "nowhere_at_all:x"], 'function "nowhere_at_all:x": there is no module "nowhere_at_all" in '),
    ],
)
def test_what_cannot_be_shrunk_is_told(spine, demo: Path, words: list[str], said: str) -> None:
    done = spine("scenario", "shrink", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
