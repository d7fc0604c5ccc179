"""Sessions at rest: fork, erase, delete, check, migrate, and cutting off a damaged end."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest


def spoil(statement: str) -> None:
    with closing(sqlite3.connect("spine.db", isolation_level=None)) as connection:
        connection.execute(statement)


LAST = "UPDATE events SET data = x'7b7d' WHERE key = (SELECT max(key) FROM events)"
MIDDLE = "UPDATE events SET data = x'7b7d' WHERE key = 5"


def test_a_fork_is_a_session_of_its_own(spine, demo: Path) -> None:
    done = spine("fork", "refund", "--at", 14, "--as", "what-if")
    assert (done.exit_code, done.stdout) == (0, "what-if\n")
    assert done.stderr == "what-if shares 14 events with refund-1017\nclosed in it: call t1s1c1, turn t1\n"
    assert spine("verify", "what-if").exit_code == 0
    assert "t1 cancelled" in spine("sessions").stdout
    fact = json.loads(spine("fork", "what-if", "--json").stdout)
    assert (fact["parent"], fact["shared"], fact["closed"]) == ("what-if", 17, [])
    refused = spine("fork", "refund", "--at", 99)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "it has the events 1 to 27" in refused.stderr
    assert spine("fork", "refund", "--as", "what-if").exit_code == 2


def test_a_fork_verifies_as_an_export_and_comes_back(spine, demo: Path) -> None:
    spine("fork", "refund", "--at", 14, "--as", "what-if")
    spine("export", "what-if", "-o", "f.jsonl")
    assert spine("verify", "f.jsonl").exit_code == 0
    assert spine("import", "f.jsonl", "--store", "other.db").exit_code == 0
    assert spine("verify", "what-if", "--store", "other.db").exit_code == 0
    assert spine("log", "what-if", "--store", "other.db").stdout == spine("log", "what-if").stdout


def test_erased_is_told_and_the_log_verifies(spine, demo: Path) -> None:
    done = spine("erase", "refund", "--seq", 2, "--seq", 26, "--reason", "request 4711", "--by", "me")
    assert (done.exit_code, done.stdout) == (0, "refund-1017: erased seq 2, 25, 26\n")
    told = spine("verify")
    assert told.exit_code == 0
    assert 'erased: input.accepted at seq 2 · "request 4711"' in told.stdout
    assert "arrived broken" not in spine("transcript").stdout
    assert 'seq 2, 25, 26 · "request 4711" · by me' in spine("log").stdout
    assert b"arrived broken" not in b"".join(file.read_bytes() for file in demo.glob("spine.db*"))
    assert [part["seq"] for part in json.loads(spine("verify", "--json").stdout)["erased"]] == [2, 25, 26]


@pytest.mark.parametrize("words", [["request"], ["explain"], ["request", "--diff"], ["request", "--patches"]], ids=str)
def test_a_request_on_erased_data_has_no_verdict(spine, demo: Path, words: list[str]) -> None:
    """Status 3 and what it rests on; those before the erased data are proven as ever, and an edit is another thing."""
    assert spine("erase", "refund", "--seq", 18, "--reason", "request 4711").exit_code == 0
    told = spine(*words, "--step", "t1s3")
    assert told.exit_code == 3
    assert "rests on erased data (seq 17 and seq 18)" in told.stdout.splitlines()[0]
    assert "NOT" not in told.stdout
    assert json.loads(spine(*words, "--step", "t1s3", "--json").stdout)["erased"] == ["seq 17", "seq 18"]
    assert spine(*words, "--step", "t1s2").exit_code == 0


def test_a_call_of_a_request_on_erased_data_says_so(spine, demo: Path) -> None:
    assert spine("erase", "refund", "--seq", 2, "--reason", "request 4711").exit_code == 0
    told = spine("explain", "t1s2c1")
    assert (told.exit_code, "3 messages; rests on erased data)" in told.stdout) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("refund", "--reason", "x"), "nothing to erase was named"),
        (("--seq", 2, "--reason", "x"), "erasing wants the session's id"),
        (("refund", "--seq", 4, "--reason", "x"), "holds nothing that could be erased"),
        (("refund", "--seq", 99, "--reason", "x"), "has no event 99"),
        (("refund", "--seq", 2), "--reason"),
    ],
)
def test_what_cannot_be_erased_is_said(spine, demo: Path, arguments: tuple[object, ...], said: str) -> None:
    before = spine("export").stdout
    done = spine("erase", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert spine("export").stdout == before


def test_a_session_is_deleted_only_by_agreement_and_after_its_forks_have_copies(spine, demo: Path) -> None:
    spine("fork", "refund", "--at", 14, "--as", "what-if")
    assert spine("delete", "refund", input="y\n").exit_code == 2  # not from a terminal
    refused = spine("delete", "refund", "--yes")
    assert refused.exit_code == 2
    assert "forks of it share them (what-if)" in refused.stderr
    assert "spine delete refund-1017 --detach" in refused.stderr
    done = spine("delete", "refund", "--yes", "--detach")
    assert (done.exit_code, done.stdout) == (0, "refund-1017: deleted, 27 events\n")
    assert done.stderr == "what-if: 14 events copied into it\n"
    assert spine("verify", "what-if").exit_code == 0
    assert spine("log", "refund").exit_code == 2


def test_check_looks_at_everything(spine, demo: Path) -> None:
    spine("fork", "refund", "--as", "other")
    sound = spine("check")
    assert (sound.exit_code, sound.stdout) == (0, "sqlite:spine.db  storage sound · 2 sessions, 2 verified\n")
    spoil(MIDDLE)
    broken = spine("check")
    assert broken.exit_code == 1
    assert "refund-1017  BROKEN at seq 5" in broken.stdout
    assert "2 sessions, 0 verified" in broken.stdout
    repaired = spine("check", "--repair")
    assert repaired.exit_code == 1
    assert "not repaired: refund-1017 is damaged at seq 5, and seq 6 after it is whole" in repaired.stderr
    assert json.loads(spine("check", "--json").stdout)["broken"] == ["refund-1017", "other"]


@pytest.mark.parametrize("command", [("verify", "--repair-tail"), ("check", "--repair")])
def test_a_damaged_end_is_cut_off(spine, demo: Path, command: tuple[str, ...]) -> None:
    spoil(LAST)
    assert spine("verify").exit_code == 1
    done = spine(*command)
    assert done.exit_code == 0
    assert "refund-1017: ends at seq 26 now; cut off: 27 turn.completed\n" in done.stderr
    assert spine("verify").exit_code == 0


def test_a_torn_export_is_written_anew(spine, demo: Path) -> None:
    spine("export", "-o", "f.jsonl")
    whole = Path("f.jsonl").read_bytes()
    Path("f.jsonl").write_bytes(whole[:-40])
    assert spine("verify", "f.jsonl").exit_code == 1
    done = spine("verify", "f.jsonl", "--repair-tail")
    assert done.exit_code == 0
    assert "f.jsonl: ends at seq 26 now; cut off because its last line is torn" in done.stderr
    assert "its end is not torn" in spine("verify", "f.jsonl", "--repair-tail").stderr


def test_migrating_proves_each_session(spine, demo: Path) -> None:
    spine("fork", "refund", "--at", 14, "--as", "what-if")
    done = spine("migrate", "new.db")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "refund-1017  ok · 27 events, 0 in a newer version · projections equal · the same head",
        "what-if  ok · 17 events, 0 in a newer version · projections equal · the same head",
    ]
    assert spine("export", "what-if", "--store", "new.db").stdout == spine("export", "what-if").stdout
    assert spine("migrate", "new.db").exit_code == 2
    facts = [json.loads(line) for line in spine("migrate", "third.db", "--json").stdout.splitlines()]
    assert [(fact["verdict"], fact["upcast"]) for fact in facts] == [("ok", 0)] * 2
