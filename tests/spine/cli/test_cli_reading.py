"""Commands that look, prove and exchange: they run on a store or a file, and import nothing of the project."""

import hashlib
import json
import sqlite3
import sys
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from model_server import say, serving

from spine import late
from spine.cli import cli
from spine.cli.screen import LOCAL
from spine.codec import Codec, chain_hash, genesis
from spine.events import EventType
from spine.projectors.phrases import clock
from spine.testing.demo import run_demo
from spine.values import SessionId, encode

CLOSING = (
    "turn t1 completed: 3 steps, 2 tool calls, 1 retry, 4,717 tokens in (2,816 from cache), 82 out, "
    "cost unknown (scripted:demo has no price)"
)


@pytest.fixture
def tripwire(demo: Path) -> Path:
    """A project whose agent must not be imported."""
    (demo / "spine.toml").write_text('agent = "tripwire:agent"\n')
    (demo / "tripwire.py").write_text("raise SystemExit('the agent was imported')")
    return demo


@pytest.mark.parametrize(
    "command",
    ["sessions", "transcript", "log", "request", "explain", "verify", "export", "approvals"],
)
def test_reading_never_imports_the_agent_nor_writes_to_the_log(spine, tripwire: Path, command: str) -> None:
    before = spine("verify", "--json").stdout
    assert spine(command).exit_code == 0
    assert "tripwire" not in sys.modules
    assert spine("verify", "--json").stdout == before


# ------------------------------------------------------------------------------------------------- which session


def test_a_session_is_named_by_id_by_beginning_or_left_out(spine, demo: Path) -> None:
    run_demo("sqlite:spine.db")
    heads = [
        spine(*words).stdout.splitlines()[0].split()[0] for words in (["transcript"], ["transcript", "refund-1017"])
    ]
    assert heads == ["refund-1018", "refund-1017"]
    assert spine("verify", "refund-1018", "--json").exit_code == 0


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            "refund-107",
            'no session "refund-107" in sqlite:spine.db (2 sessions); nearest is refund-1017. '
            "Try: spine sessions  [session_unknown]\n",
        ),
        (
            "ref",
            '"ref" is the beginning of 2 sessions in sqlite:spine.db: refund-1017, refund-1018. '
            "Try: spine sessions  [session_unknown]\n",
        ),
        ("zzz", 'no session "zzz" in sqlite:spine.db (2 sessions). Try: spine sessions  [session_unknown]\n'),
    ],
)
def test_an_unknown_session_names_the_nearest(spine, demo: Path, wanted: str, said: str) -> None:
    run_demo("sqlite:spine.db")
    done = spine("log", wanted)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize("command", ["sessions", "log", "transcript", "verify", "approvals", "export", "request"])
def test_a_store_that_is_not_there_is_told_and_not_made(spine, folder: Path, command: str) -> None:
    done = spine(command, "--store", "nowhere.db")
    assert done.exit_code == 2
    assert (
        done.stderr == "there is no store at sqlite:nowhere.db yet, so no session. Try: spine demo  [session_unknown]\n"
    )
    assert list(folder.iterdir()) == []


def test_the_store_is_found_from_a_folder_below(spine, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (demo / "deep").mkdir()
    monkeypatch.chdir(demo / "deep")
    assert spine("verify").exit_code == 0


# ------------------------------------------------------------------------------------------------------- sessions


def test_sessions_are_a_table_or_facts(spine, demo: Path) -> None:
    lines = spine("sessions").stdout.splitlines()
    assert lines[0].split() == ["session", "events", "last", "event", "state", "title"]
    assert lines[1].split()[0] == "refund-1017"
    assert "t1 completed" in lines[1]
    (fact,) = (json.loads(line) for line in spine("sessions", "--json").stdout.splitlines())
    assert (fact["session"], fact["state"], fact["updated"][-1]) == ("refund-1017", "t1 completed", "Z")


# ------------------------------------------------------------------------------------------------------ transcript


def test_a_transcript_is_the_text_that_the_demonstration_printed(spine, demo: Path) -> None:
    text = spine("transcript").stdout
    assert text.splitlines()[0] == "refund-1017 · scripted:demo · sqlite:spine.db"
    assert text.endswith(f"\n\n{CLOSING}\n")
    assert "\x1b" not in text


def test_a_transcript_in_other_forms(spine, demo: Path) -> None:
    assert json.loads(spine("transcript", "--json").stdout)["session"] == "refund-1017"
    assert spine("transcript", "--format", "markdown").stdout.startswith("# ")
    assert spine("transcript", "--format", "html").stdout.lower().startswith("<!doctype html>")
    assert " · 2026-01-05 09:00:02.000" in spine("transcript", "--times").stdout


# ------------------------------------------------------------------------------------------------------------- log


def test_every_event_is_one_line(spine, demo: Path) -> None:
    lines = spine("log", "--chunks").stdout.splitlines()
    assert lines[0].split() == ["seq", "at", "step", "event", "what"]
    assert [int(line.split()[0]) for line in lines[1:]] == list(range(1, len(lines)))
    assert len({line.index(line.split()[-1]) for line in lines[:1]}) == 1


def test_chunks_are_folded_unless_asked_for(spine, demo: Path) -> None:
    folded, shown = spine("log").stdout, spine("log", "--chunks").stdout
    assert "model.chunks" not in folded
    assert shown.count("model.chunks") == folded.count("· chunk ")


@pytest.mark.parametrize(
    ("types", "kinds"),
    [
        ("turn", {"turn.started", "turn.suspended", "turn.completed"}),
        ("turn.started,tool", {"turn.started", "tool.started", "tool.completed"}),
    ],
)
def test_types_choose_groups_or_single_types(spine, demo: Path, types: str, kinds: set[str]) -> None:
    assert {json.loads(line)["type"] for line in spine("log", "--types", types, "--json").stdout.splitlines()} == kinds
    assert {
        line.split()[2 if line[20:27].strip() == "" else 3]
        for line in spine("log", "--types", types).stdout.splitlines()[1:]
    } == kinds


def test_an_unknown_group_of_types_is_told(spine, demo: Path) -> None:
    done = spine("log", "--types", "tools")
    assert done.exit_code == 2
    assert done.stderr.startswith('no event type begins with "tools"; groups are approval, cancel, ')


def test_the_log_as_json_names_every_field(spine, demo: Path) -> None:
    """The arrays in which some values are stored are nobody's business."""
    facts = [json.loads(line) for line in spine("log", "--json", "--types", "message,model.chunks").stdout.splitlines()]
    answers = [fact["data"] for fact in facts if fact["type"] == "message.committed"]
    assert answers[0]["usage"]["input_tokens"] > 0
    assert ":" in answers[0]["message"]["origin"]["route"]
    blocks = {block["type"] for answer in answers for block in answer["message"]["content"]}
    assert {"text", "tool_call"} <= blocks
    chunks = [chunk for fact in facts if fact["type"] == "model.chunks" for chunk in fact["data"]["chunks"]]
    assert {"text", "call", "args", "usage"} <= {chunk["type"] for chunk in chunks}


def test_the_log_as_json_is_what_is_stored(spine, demo: Path) -> None:
    facts = [json.loads(line) for line in spine("log", "--json").stdout.splitlines()]
    assert [fact["seq"] for fact in facts] == list(range(1, len(facts) + 1))
    assert facts[0]["data"]["agent"]["name"] == "refunds"
    assert facts[0]["at"] == "2026-01-05T09:00:00.000000Z"


def test_a_damaged_event_is_listed_with_what_is_wrong(spine, demo: Path) -> None:
    connection = sqlite3.connect(demo / "spine.db")
    keys = [key for (key,) in connection.execute("SELECT key FROM events ORDER BY key")]
    connection.execute("UPDATE events SET data = ? WHERE key = ?", (b'{"inputs": 7}', keys[2]))
    connection.execute("UPDATE events SET data = ? WHERE key = ?", (b"{", keys[3]))
    connection.commit()
    connection.close()
    done = spine("log")
    assert done.exit_code == 0
    assert done.stdout.count("damaged") == 2
    assert len(spine("log", "--json").stdout.splitlines()) == len(keys)
    assert spine("transcript").stderr.endswith("[log_broken]\n")
    assert "BROKEN at seq 3" in spine("verify").stdout


def test_plugins_are_loaded_for_a_log_with_their_events_and_not_otherwise(
    spine, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []

    def load_plugins(settings: object, codec: Codec) -> None:
        loads.append(settings)
        codec.add(EventType(name="crm.seen", data=Seen), "crm@1")

    monkeypatch.setattr(late.load("spine.cli.installed"), "load_plugins", load_plugins)
    spine("transcript")
    assert loads == []
    connection = sqlite3.connect(demo / "spine.db")
    kind = connection.execute(
        "INSERT INTO kinds(type, version, origin, required) VALUES ('crm.seen', 1, 'crm@1', 1) RETURNING id"
    ).fetchone()[0]
    key = connection.execute("SELECT key FROM events WHERE key % 1000 = 5").fetchone()[0]
    connection.execute("UPDATE events SET kind = ?, data = ? WHERE key = ?", (kind, b'{"who": "ada"}', key))
    connection.commit()
    connection.close()
    assert "crm.seen               crm@1 · " in spine("log").stdout
    assert len(loads) == 1


@attrs.frozen(kw_only=True)
class Seen:
    """A plugin's event."""

    who: str = ""


# -------------------------------------------------------------------------------------------- request and explain


def test_a_request_is_shown_whole_compared_patched_or_as_json(spine, demo: Path) -> None:
    assert spine("request", "--step", "t1s1").stdout.startswith("t1s1 · scripted:demo · rebuilt from the log, digest ")
    assert "t1s3 compared with t1s2" in spine("request", "--diff").stdout
    assert "no plugin changed this request" in spine("request", "--patches").stdout
    assert json.loads(spine("request", "--json").stdout)["equal"] is True


def test_a_request_as_a_protocol_writes_it(spine, demo: Path) -> None:
    body = json.loads(spine("request", "--step", "t1s1", "--wire", "openai_chat").stdout)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    done = spine("request", "--wire", "openai_chatt")
    assert done.exit_code == 2
    assert 'nearest is "openai_chat"' in done.stderr


def test_only_one_view_at_a_time(spine, demo: Path) -> None:
    assert spine("request", "--diff", "--patches").exit_code == 2
    assert spine("request", "--step", "t9s9").stderr.startswith('no request of step "t9s9" in refund-1017; it has t1s1')


def test_explain_takes_a_step_or_a_call_with_or_without_the_session(spine, demo: Path) -> None:
    assert spine("explain", "--step", "t1s2").stdout.startswith("t1s2 · request seq ")
    for words in (["t1s2c1"], ["refund-1017", "t1s2c1"], ["refund", "t1s2c1"]):
        assert spine("explain", *words).stdout.startswith('refund(order_id="1017", amount_cents=1290) ran once')
    assert spine("explain", "t1s9c9").exit_code == 2
    assert spine("explain", "t1s2c1", "--step", "t1s2").exit_code == 2
    assert spine("explain", "refund-1017", "what").stderr.startswith('"what" is no call')


# ----------------------------------------------------------------------------------------- verify, export, import


def test_verify_says_how_it_stands_and_what_to_note(spine, demo: Path) -> None:
    done = spine("verify")
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert first.startswith("refund-1017  ok  ")
    assert spine(*second.partition("then: spine ")[2].split()).exit_code == 0


@pytest.mark.parametrize(("head", "status"), [("99:0123456789ab", 1), ("5:0123456789ab", 1), ("5", 2)])
def test_verify_against_a_noted_head(spine, demo: Path, head: str, status: int) -> None:
    assert spine("verify", "--head", head).exit_code == status


def test_a_session_travels_as_a_file(spine, demo: Path) -> None:
    done = spine("export", "-o", "x.jsonl")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "27 events" in done.stderr
    assert spine("export").stdout_bytes == (demo / "x.jsonl").read_bytes()
    for command in ("log", "transcript", "verify", "request", "explain", "export"):
        assert spine(command, "x.jsonl").exit_code == 0, command
    assert spine("import", "x.jsonl", "--store", "new/other.db").stdout == (
        "refund-1017: 27 events added, 27 events in sqlite:new/other.db\n"
    )
    assert "nothing to add" in spine("import", "x.jsonl", "--store", "new/other.db").stdout
    assert spine("export", "--store", "new/other.db").stdout_bytes == (demo / "x.jsonl").read_bytes()


def test_an_edited_export_does_not_hold(spine, demo: Path) -> None:
    spine("export", "-o", "x.jsonl")
    edited = (demo / "x.jsonl").read_text().replace("delivered", "deliverex", 1)
    (demo / "x.jsonl").write_text(edited)
    done = spine("verify", "x.jsonl")
    assert done.exit_code == 1
    assert "BROKEN at seq " in done.stdout
    assert json.loads(spine("verify", "x.jsonl", "--json").stdout)["verdict"] == "broken"
    for command in ("transcript", "request", "explain"):
        refused = spine(command, "x.jsonl")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.endswith("does not match its hash  [log_broken]\n")
    assert spine("log", "x.jsonl").exit_code == 0
    assert spine("import", "x.jsonl", "--store", "other.db").exit_code == 1
    assert spine("sessions", "--store", "other.db").stdout.splitlines()[1:] == []


def test_a_torn_export_is_read_and_imported_with_a_note(spine, demo: Path) -> None:
    spine("export", "-o", "x.jsonl")
    (demo / "x.jsonl").write_bytes((demo / "x.jsonl").read_bytes()[:-40])
    assert "its last line is torn" in spine("transcript", "x.jsonl").stderr
    done = spine("import", "x.jsonl", "--store", "other.db")
    assert done.exit_code == 0
    assert "x.jsonl was cut: its last line is torn" in done.stderr


def test_an_export_that_fails_leaves_no_file(spine, demo: Path) -> None:
    assert spine("export", "nothing", "-o", "x.jsonl").exit_code == 2
    assert spine("export", "-o", "nowhere/x.jsonl").exit_code == 2
    assert sorted(path.name for path in demo.iterdir() if path.suffix == ".jsonl" or path.name[0] == ".") == []


# ---------------------------------------------------------------------------------- how far a log can be read


@pytest.fixture
def ticketed(demo: Path) -> int:
    """The demonstration with an event in it that must be known and is not; the seq before it."""
    lines = CliRunner().invoke(cli, ["export"]).stdout.splitlines()
    head = json.loads(lines[0])
    events = [json.loads(line) for line in lines[1:]]
    at = next(i for i, event in enumerate(events) if event.get("type") == "approval.requested")
    seq = events[at - 1]["seq"]
    ticket = {**events[at], "type": "crm.linked", "origin": "crm@1.4", "required": True, "data": {}, "place": "t1"}
    events = [*events[:at], ticket, *events[at:]]
    last = genesis(SessionId(head["session"]))
    for number, event in enumerate((e for e in events if "seq" in e), 1):
        event["seq"] = number
        fields = [event[name] for name in ("seq", "type", "version", "at", "place", "origin", "required")]
        last = chain_hash(last, tuple(fields), hashlib.sha256(encode(event["data"])).digest())
        event["hash"] = last.hex()
    head |= {"seq": number, "hash": last.hex()}
    (demo / "x.jsonl").write_bytes(b"".join(encode(each) + b"\n" for each in (head, *events)))
    return int(seq)


@pytest.mark.parametrize("command", ["transcript", "request", "explain"])
def test_a_log_is_read_up_to_the_event_that_must_be_known(spine, ticketed: int, command: str) -> None:
    done = spine(command, "x.jsonl")
    assert done.exit_code == 3
    assert f"can be projected up to seq {ticketed}: seq {ticketed + 1} has the type " in done.stderr
    assert done.stdout == spine(command, "x.jsonl", "--until", ticketed).stdout
    assert spine(command, "x.jsonl", "--until", ticketed).exit_code == 0
    assert spine(command, "refund-1017", "--until", ticketed).stdout.splitlines()[1:] == done.stdout.splitlines()[1:]
    asked = spine(command, "x.jsonl", "--until", ticketed + 1)
    assert (asked.exit_code, asked.stdout) == (3, "")


def test_a_transcript_stops_where_it_is_told(spine, demo: Path) -> None:
    whole, cut = spine("transcript").stdout, spine("transcript", "--until", 9).stdout
    assert whole.startswith(cut[:-1].rpartition("\n\n")[0])
    assert "ASSISTANT t1s2" not in cut
    assert spine("transcript", "--until", 0).exit_code == 2


# ----------------------------------------------------------------------------------------------------- odds and ends


def test_local_time_has_the_offset_of_its_own_moment() -> None:
    assert clock(1_767_603_600_000_000, LOCAL) == "2026-01-05 09:00:00.000"


def test_a_turn_that_runs_is_open_in_the_list(spine, shop) -> None:
    with serving(say("hello")) as server:
        shop(server)
        assert spine("run", "--session", "one", "hi").exit_code == 0
    assert spine("sessions").stdout.splitlines()[1].split()[0] == "one"
