"""Commands that talk: run, resume, retry, chat, approvals, approve, deny; with a model server on this machine."""

import json
import sqlite3
from pathlib import Path

import anyio
import pytest
from model_server import call, fail, say, serving

from spine.cli.agents import load_agent
from spine.config import load_settings
from spine.errors import UsageError
from spine.runtime import Runtime

REFUND = call("refund", order_id="1017", amount_cents=5)


# ------------------------------------------------------------------------------------------------------------- run


def test_the_answer_alone_is_on_stdout(spine, shop) -> None:
    with serving(call("lookup_order", order_id="1017"), say("It is ", "a mug.")) as server:
        shop(server)
        done = spine("run", "--session", "one", "What is it?", input="")
        assert (done.exit_code, done.stdout, done.stderr) == (0, "It is a mug.\n", "")
        assert [message["role"] for message in server.requests[1]["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]


def test_texts_of_several_steps_are_paragraphs(spine, shop) -> None:
    asking = {"deltas": [*say("Let me look.")["deltas"], *call("lookup_order", order_id="1")["deltas"]]}
    with serving(asking, say("A mug.")) as server:
        shop(server)
        assert spine("run", "x", input="").stdout == "Let me look.\n\nA mug.\n"


def test_piped_text_is_the_attachment_of_the_words(spine, shop) -> None:
    with serving(say("fine"), say("fine")) as server:
        shop(server)
        spine("run", "Review", "this", input="+ a line\n")
        assert [m["content"] for m in server.requests[0]["messages"][1:]] == ["+ a line\n", "Review this"]
        spine("run", "--session", "two", input="only piped")
        assert server.requests[1]["messages"][-1]["content"] == "only piped"
    kinds = [
        json.loads(line)["data"]["message"]["kind"]
        for line in spine(
            "log",
            spine("sessions", "--json").stdout.splitlines()[0].split('"session":"')[1].split('"')[0],
            "--types",
            "input.accepted",
            "--json",
        ).stdout.splitlines()
    ]
    assert kinds == ["context", "user"]


def test_without_an_input_nothing_is_written(spine, shop, folder: Path) -> None:
    with serving() as server:
        shop(server)
        done = spine("run", input="  \n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("there is no input: ")
    assert not (folder / "spine.db").exists()


def test_c_goes_on_with_the_newest_session(spine, shop) -> None:
    with serving(say("one"), say("two")) as server:
        shop(server)
        spine("run", "--session", "first", "a", input="")
        spine("run", "-c", "b", input="")
        assert [m["content"] for m in server.requests[1]["messages"][1:]] == ["a", "one", "b"]
    assert spine("run", "-c", "--session", "x", "b").exit_code == 2


def test_c_goes_on_with_the_plain_assistant_and_its_model(spine, shop, folder: Path) -> None:
    """A model that was named once, for a session without an agent, is the session's from then on."""
    with serving(say("one"), say("two")) as server:
        shop(server)
        project = (folder / "spine.toml").read_text().replace('agent = "shop:agent"\n', "")
        (folder / "spine.toml").write_text(project)
        assert spine("run", "-m", "lab:large", "a", input="").exit_code == 0
        done = spine("run", "-c", "b", input="")
        assert (done.exit_code, done.stdout) == (0, "two\n"), done.stderr
        assert [request["model"] for request in server.requests] == ["large", "large"]
        assert "resumed" not in spine("transcript").stdout


def test_a_new_session_gets_an_id_of_its_own(spine, shop) -> None:
    with serving(say("one"), say("two")) as server:
        shop(server)
        for text in ("a", "b"):
            assert spine("run", text, input="").exit_code == 0
    ids = [json.loads(line)["session"] for line in spine("sessions", "--json").stdout.splitlines()]
    assert len(set(ids)) == 2


def test_a_turn_as_a_fact(spine, shop) -> None:
    with serving(call("lookup_order", order_id="1"), say("done")) as server:
        shop(server)
        fact = json.loads(spine("run", "--json", "x", input="").stdout)
    assert (fact["status"], fact["text"], fact["steps"], fact["error"]) == ("completed", "done", 2, None)
    assert [(each["name"], each["status"]) for each in fact["tool_calls"]] == [("lookup_order", "ok")]
    assert fact["usage"]["input_tokens"] == 20


def test_a_failed_turn_is_told_and_has_status_1(spine, shop) -> None:
    with serving(fail(401, "who are you")) as server:
        shop(server)
        done = spine("run", "--session", "one", "x", input="")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("turn t1 failed: ")
    assert done.stderr.endswith("Try: spine log one  [auth]\n")


def test_retry_runs_the_input_of_a_failed_turn_again(spine, shop) -> None:
    with serving(fail(401), say("now it works")) as server:
        shop(server)
        spine("run", "--session", "one", "x", input="")
        done = spine("retry")
        assert (done.exit_code, done.stdout) == (0, "now it works\n")
        assert spine("retry").stderr.startswith('nothing to retry in session "one": turn t2 completed')


def test_resume_without_an_open_turn_says_so(spine, shop) -> None:
    with serving(say("x")) as server:
        shop(server)
        spine("run", "--session", "one", "x", input="")
        done = spine("resume")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "session one has no open turn" in done.stderr


# ------------------------------------------------------------------------------------------------ agents and models


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("shop", 'agent "shop" is not of the form module:attribute'),
        ("nowhere:agent", 'agent "nowhere:agent": there is no module "nowhere" in '),
        ("shop:agnt", 'agent "shop:agnt": shop has no "agnt"; nearest is "agent"; agents there: agent'),
        ("shop:not_an_agent", 'agent "shop:not_an_agent": not_an_agent is int, no Agent; agents there: agent'),
        ("broken:agent", 'agent "broken:agent": broken does not load: NameError: '),
        ("lacking:agent", 'agent "lacking:agent": lacking does not load: ModuleNotFoundError: '),
    ],
)
def test_an_agent_that_cannot_be_had_is_told(spine, shop, folder: Path, agent: str, said: str) -> None:
    (folder / "broken.py").write_text("x = nothing\n")
    (folder / "lacking.py").write_text("import no_such_package_here\n")
    with serving() as server:
        shop(server)
        done = spine("run", "--agent", agent, "x", input="")
    assert done.exit_code == 2
    assert done.stderr.startswith(said)


def test_without_an_agent_the_configured_model_answers(spine, folder: Path) -> None:
    with serving(say("plain"), say("again")) as server:
        (folder / "spine.toml").write_text(
            f'model = "lab:tiny"\n[providers.lab]\nprotocol = "openai_chat"\nbase_url = "{server.url}"\n'
        )
        assert spine("run", "x", input="").stdout == "plain\n"
        assert spine("run", "-c", "y", input="").stdout == "again\n"
        assert server.requests[0]["model"] == "tiny"


def test_without_agent_and_model_nothing_runs(spine, folder: Path) -> None:
    done = spine("run", "x", input="")
    assert done.exit_code == 2
    assert done.stderr.startswith("no agent and no model is configured. Try: -m provider:name")


def test_a_model_on_the_command_line_is_asked_instead_of_the_agents(spine, shop) -> None:
    with serving(say("x"), say("y")) as server:
        shop(server)
        spine("run", "-m", "lab:large", "x", input="")
        spine("run", "-c", "y", input="")
        assert [body["model"] for body in server.requests] == ["large", "tiny"]


def test_a_session_goes_on_with_the_agent_it_was_recorded_with(spine, shop, folder: Path) -> None:
    with serving(say("x"), say("y")) as server:
        shop(server)
        (folder / "other.py").write_text("from spine import Agent\nagent = Agent('lab:other', instructions='Other.')\n")
        spine("run", "--session", "one", "--agent", "other:agent", "x", input="")
        spine("run", "-c", "y", input="")
        assert [body["model"] for body in server.requests] == ["other", "other"]


def test_an_agent_is_found_from_a_folder_below(folder: Path) -> None:
    (folder / "lonely.py").write_text("from spine import Agent\nagent = Agent('a:b')\n")
    assert load_agent("lonely:agent", folder).model == "a:b"
    with pytest.raises(UsageError, match='there is no module "lonely'):
        load_agent("lonely.deep:agent", folder)


def test_a_missing_key_is_found_before_anything_is_written(spine, folder: Path) -> None:
    (folder / "spine.toml").write_text(
        'model = "lab:x"\n[providers.lab]\nprotocol = "openai_chat"\nbase_url = "http://127.0.0.1:9"\n'
        'key = { env = "LAB_KEY" }\n'
    )
    done = spine("run", "--session", "one", "x", input="")
    assert done.exit_code == 2
    assert done.stderr == (
        'no key for provider "lab": LAB_KEY is not set. '
        "Try: export LAB_KEY=…, or without a key: spine demo  [key_missing]\n"
    )
    assert spine("sessions").stdout.splitlines()[1:] == []


# ---------------------------------------------------------------------------------------------------------- limits


def limit(folder: Path, limits: str) -> None:
    """Give the project's agent limits."""
    with (folder / "shop.py").open("a") as file:
        file.write(f"from spine import Limits\nagent = agent.evolve(limits=Limits({limits}))\n")


def test_a_limit_on_cost_needs_a_price_in_the_catalogue_or_in_the_file(spine, shop) -> None:
    """Without one nothing is asked and nothing written; with one the turn ends when it is used up."""
    asking = call("lookup_order", order_id="1017")  # 10 tokens in, 3 out
    with serving(asking, asking, say("Never.")) as server:
        folder = shop(server)
        limit(folder, 'cost="0.00005 USD"')
        done = spine("run", "--session", "one", "x", input="")
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr == (
            "limit cost 0.00005 USD cannot be checked: no price for lab:tiny. "
            'Try: prices in spine.toml [models."lab:tiny"], or limits without cost  [budget_unknown]\n'
        )
        assert spine("sessions").stdout.splitlines()[1:] == []
        with (folder / "spine.toml").open("a") as file:
            file.write('[models."lab:tiny"]\nprices = { id = "lab-1", input = 1.00, output = 5.00 }\n')
        done = spine("run", "--session", "one", "x", input="")
        assert done.exit_code == 1
        assert done.stderr == ("turn t1 failed: 0.000050 of 0.00005 USD used. Try: spine log one  [limit]\n")
        assert len(server.requests) == 2


def test_time_that_is_up_ends_a_silent_answer(spine, shop) -> None:
    """What had arrived is on stdout, why it ended on stderr, both in the log and in its replay."""
    with serving(say("It ", "is ", for_ever=True)) as server:
        limit(shop(server), "wall_s=0.4")
        done = spine("run", "--session", "one", "x", input="")
        assert (done.exit_code, done.stdout) == (1, "It is \n")
        assert done.stderr == "turn t1 failed: 0.4 s used. Try: spine log one  [limit]\n"
        server.go_on.set()
        lines = [line.split(maxsplit=2)[2] for line in spine("log", "one").stdout.splitlines()[-3:]]
        assert lines[0].split(maxsplit=1) == ["cancel.requested", "limit · 0.4 s used"]
        assert lines[2].split(maxsplit=1) == ["turn.failed", "limit · 0.4 s used · 1 step"]
        assert spine("transcript", "one").stdout.splitlines()[-4:] == [
            "  ~ the answer was cancelled",
            "",
            "turn t1 failed (limit): 1 step",
            "  ! limit: 0.4 s used",
        ]
        assert spine("replay", "one").stdout.startswith("equal: ")


# ------------------------------------------------------------------------------------------------------- approvals


@pytest.fixture
def suspended(spine, shop):
    """A session that waits for a person."""
    with serving(REFUND, say("Done."), say("More.")) as server:
        shop(server)
        done = spine("run", "--session", "one", "refund it", input="")
        assert done.exit_code == 3
        assert done.stderr == (
            'turn t1 waits: a1  refund(order_id="1017", amount_cents=5): refunds need a person. '
            "Try: spine approve a1 --session one  [suspended]\n"
        )
        yield server


def test_waiting_calls_are_listed_with_what_to_type(spine, suspended) -> None:
    line = spine("approvals").stdout
    assert line.startswith('a1  one  refund(order_id="1017", amount_cents=5)  waits ')
    assert "   spine approve a1 --by " in line
    fact = json.loads(spine("approvals", "--json").stdout)
    assert (fact["id"], fact["session"], fact["name"]) == ("a1", "one", "refund")


def test_approve_goes_on_with_the_turn_in_another_process(spine, suspended) -> None:
    done = spine("approve", "a1", "--by", "ada")
    assert (done.exit_code, done.stdout) == (0, "Done.\n")
    assert suspended.requests[1]["messages"][-1]["content"] == "refunded 5"
    assert "  ? approved by ada\n" in spine("transcript").stdout
    assert spine("approvals").stdout == ""
    assert spine("approve", "a1").stderr.startswith('no open approval "a1" in sqlite:spine.db; open: none')


def test_deny_tells_the_model_why(spine, suspended) -> None:
    assert spine("deny", "a1", "--by", "ada", "--reason", "still shipped").exit_code == 0
    assert "A person declined this call: still shipped." in suspended.requests[1]["messages"][-1]["content"]


def test_a_suspended_session_takes_no_other_turn(spine, suspended) -> None:
    done = spine("run", "-c", "and?", input="")
    assert done.exit_code == 2
    assert done.stderr.endswith("Try: spine approve a1  [session_busy]\n")


def test_an_approval_of_that_id_in_two_sessions_needs_the_session(spine, shop) -> None:
    with serving(REFUND, REFUND, say("Done.")) as server:
        shop(server)
        for name in ("one", "two"):
            spine("run", "--session", name, "x", input="")
        done = spine("approve", "a1", "--by", "ada")
        assert done.exit_code == 2
        assert "is open in several sessions of sqlite:spine.db: one, two" in done.stderr
        assert "--session one" in spine("approvals").stdout
        assert spine("approve", "a1", "--session", "two", "--by", "ada").stdout == "Done.\n"


def test_without_the_agent_a_decision_is_queued_and_resume_takes_it(spine, suspended, folder: Path) -> None:
    text = (folder / "spine.toml").read_text()
    (folder / "spine.toml").write_text(text.replace('agent = "shop:agent"\n', ""))
    _forget_reference(folder / "spine.db")
    done = spine("approve", "a1", "--by", "ada")
    assert done.exit_code == 3
    assert done.stdout == "one: a1 approved by ada, queued\n"
    assert "Try: spine resume one --agent module:attribute" in done.stderr
    again = spine("approve", "a1", "--by", "eve")
    assert again.exit_code == 2
    assert "was decided already and waits to be taken" in again.stderr
    resumed = spine("resume", "one", "--agent", "shop:agent")
    assert (resumed.exit_code, resumed.stdout, resumed.stderr) == (0, "Done.\n", "")


def _forget_reference(path: Path) -> None:
    """Rewrite the first event without the agent's reference (no hash of it is checked by what follows here)."""
    connection = sqlite3.connect(path)
    key, data = connection.execute("SELECT key, data FROM events ORDER BY key LIMIT 1").fetchone()
    value = json.loads(data)
    del value["agent"]["reference"]
    connection.execute("UPDATE events SET data = ? WHERE key = ?", (json.dumps(value).encode(), key))
    connection.commit()
    connection.close()


def test_a_decision_reaches_a_living_owner_through_its_inbox(spine, suspended, folder: Path) -> None:
    agent = load_agent("shop:agent", folder)

    async def own_and_decide() -> str:
        async with Runtime.open(settings=load_settings()) as runtime:
            session = await runtime.session("one", agent)
            done = await anyio.to_thread.run_sync(lambda: spine("approve", "a1", "--by", "ada"))
            with anyio.fail_after(10):
                while session.turn is None or session.turn.status != "completed":
                    await anyio.sleep(0.01)
            return done.stdout

    said = anyio.run(own_and_decide)
    assert said.startswith("one: a1 approved by ada")
    assert "pid " in said


def test_a_turn_that_fails_after_the_decision_has_status_1(spine, shop) -> None:
    with serving(REFUND, fail(401)) as server:
        shop(server)
        spine("run", "--session", "one", "x", input="")
        done = spine("approve", "a1", "--by", "ada")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "[auth]" in done.stderr


# ------------------------------------------------------------------------------------------------------------ chat


def test_a_chat_is_turns_of_one_session(spine, shop) -> None:
    with serving(say("hello"), say("bye")) as server:
        shop(server)
        done = spine("chat", "--session", "one", input="hi\n\nand?\n/exit\nnever asked\n")
        assert (done.exit_code, done.stdout) == (0, "hello\nbye\n")
        assert len(server.requests) == 2
        assert server.requests[1]["messages"][-2]["content"] == "hello"


def test_chat_commands_look_and_change_the_model(spine, shop) -> None:
    with serving(say("hello"), say("bye")) as server:
        shop(server)
        done = spine("chat", input="hi\n/request\n/transcript\n/model lab:large\nagain\n/help\n/nonsense\n")
        assert "t1s1 · lab:tiny · rebuilt from the log" in done.stdout
        assert "ASSISTANT t1s1" in done.stdout
        assert [body["model"] for body in server.requests] == ["tiny", "large"]
        assert "/approve" in done.stderr
        assert 'there is no command "/nonsense"; there are /approve' in done.stderr
        assert done.exit_code == 0


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("/approve", "refunded 5"),
        ("/approve a1", "refunded 5"),
        ("/deny a1 not today", "A person declined this call: not today."),
        ("/deny not today", "A person declined this call: not today."),
    ],
)
def test_a_chat_decides_what_waits(spine, shop, line: str, seen: str) -> None:
    with serving(REFUND, say("Done.")) as server:
        shop(server)
        done = spine("chat", input=f"refund it\n{line}\n")
        assert done.stdout == "Done.\n"
        assert seen in server.requests[1]["messages"][-1]["content"]
        assert "/approve a1" in done.stderr


def test_a_chat_goes_on_in_a_fork(spine, shop) -> None:
    with serving(say("hello"), say("bye"), say("other")) as server:
        shop(server)
        done = spine("chat", "--session", "one", input="hi\n/fork 1\nx\n/fork nine\n/fork\ny\n")
        assert done.exit_code == 0
        assert "goes on from seq 1 of one" in done.stderr
        assert '"nine" is no seq' in done.stderr
        assert [len(body["messages"]) for body in server.requests] == [2, 2, 4]
    facts = [json.loads(line) for line in spine("sessions", "--json").stdout.splitlines()]
    assert [fact["shares_with"] for fact in facts] == [None, "one", facts[1]["session"]]
    assert all(spine("verify", fact["session"]).exit_code == 0 for fact in facts)


def test_a_chat_survives_a_failed_turn_and_a_wrong_decision(spine, shop) -> None:
    with serving(fail(401), say("hello")) as server:
        shop(server)
        done = spine("chat", input="one\n/approve\n/approve a7\n/retry\ntwo\n")
    assert done.exit_code == 0
    assert done.stdout == "hello\n"
    assert "[auth]" in done.stderr
    assert "which approval? open: none" in done.stderr


def test_a_chat_says_what_waits_when_it_begins(spine, suspended) -> None:
    done = spine("chat", "-c", input="/approve\n")
    assert "refund waits for a person: /approve a1" in done.stderr
    assert done.stdout == "Done.\n"


# ----------------------------------------------------------------------------------------------- nothing is written


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("run", "-m", "nosuch:model", "Hi"), "unknown provider"),
        (("run", "-m", "openai:gpt-5-mini", "Hi"), "no key for provider"),
        (("run", "Hi"), "no agent and no model"),
        (("chat", "-m", "openai:gpt-5-mini"), "no key for provider"),
        (("resume",), "there is no store"),
        (("retry",), "there is no store"),
        (("scenario", "record", "x.scenario.yaml", "-m", "openai:gpt-5-mini", "Hi"), "no key for provider"),
    ],
)
def test_what_is_refused_makes_no_store(words: tuple[str, ...], found: str, spine, folder: Path) -> None:
    """Nor its folder: a first run that cannot begin leaves the disk as it was."""
    done = spine(*words, "--store", "sqlite:below/spine.db", input="Hi\n")
    assert (done.exit_code, found in done.stderr) == (2, True), done.stderr
    assert list(folder.iterdir()) == []
