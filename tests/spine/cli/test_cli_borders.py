"""The command line at its borders: outputs that are no files, streams that are closed, stores that were edited."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from model_server import call, say, serving

from spine.stores.sqlite import SqliteStore
from spine.values import Digest

SPINE = [sys.executable, "-m", "spine"]
REFUND = call("refund", order_id="1017", amount_cents=5)


# --------------------------------------------------------------------------------------------------- export's output


def test_an_export_follows_a_link_and_keeps_it(spine, demo: Path) -> None:
    (demo / "real.jsonl").write_text("old")
    (demo / "link.jsonl").symlink_to("real.jsonl")
    assert spine("export", "-o", "link.jsonl").exit_code == 0
    assert (demo / "link.jsonl").is_symlink()
    assert spine("verify", "./real.jsonl").exit_code == 0


def test_an_export_is_written_into_a_pipe_that_stays_one(spine, demo: Path) -> None:
    pipe, read = demo / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    done = spine("export", "-o", "pipe")
    reader.join(10)
    assert done.exit_code == 0
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert read[0].startswith(b'{"format":')


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_an_export_to_a_full_device_fails_and_leaves_the_device(spine, demo: Path) -> None:
    (demo / "full").symlink_to("/dev/full")
    done = spine("export", "-o", "full")
    assert (done.exit_code, done.stderr) == (2, "no space left on device  [system]\n")
    assert (demo / "full").is_symlink()


def test_an_export_into_no_folder_names_what_was_asked_for(spine, demo: Path) -> None:
    done = spine("export", "-o", "nowhere/x.jsonl")
    assert done.exit_code == 2
    assert done.stderr.startswith("nowhere/x.jsonl cannot be written: nothing can be made in the folder nowhere: ")
    assert ".export-" not in done.stderr


# ------------------------------------------------------------------------------------------------- edits of a store


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("UPDATE events SET data = CAST(data AS TEXT) || ' ' WHERE key = 5", "BROKEN at seq 5"),
        ("UPDATE events SET data = 7 WHERE key = 5", "BROKEN at seq 5"),
        ("UPDATE events SET hash = 'nothing' WHERE key = 5", "BROKEN at seq 5"),
        ("UPDATE events SET at = 'noon' WHERE key = 5", "BROKEN at seq 5"),
        ("UPDATE events SET kind = 999 WHERE key = 5", "BROKEN at seq 5"),
        ("UPDATE sessions SET hash = 'other'", "BROKEN at seq "),
    ],
)
def test_a_store_edited_by_hand_is_broken_and_no_accident(spine, demo: Path, edit: str, said: str) -> None:
    connection = sqlite3.connect(demo / "spine.db")
    changed = connection.execute(edit).rowcount
    connection.commit()
    connection.close()
    assert changed
    done = spine("verify")
    assert done.exit_code == 1
    assert said in done.stdout
    assert "Error" not in spine("export").stderr


def test_text_where_bytes_were_is_read_as_its_bytes(demo: Path) -> None:
    with closing(sqlite3.connect(demo / "spine.db")) as connection:
        connection.execute("INSERT INTO contents VALUES ('1:00', 'text/plain', 'caf\u00e9')")
        connection.commit()
    with closing(SqliteStore("spine.db")) as store:
        assert store.contents([Digest("1:00")])[Digest("1:00")].data == "caf\u00e9".encode()


# ------------------------------------------------------------------------------------------- approvals that went stale


@pytest.fixture
def stale(spine, shop, folder: Path):
    """A call that was approved, and whose tool was another one by then."""
    with serving(REFUND, say("Done.")) as server:
        shop(server)
        spine("run", "--session", "one", "refund it", input="")
        text = (folder / "shop.py").read_text()
        (folder / "shop.py").write_text(text.replace('"""Pay an order back."""', '"""Pay an order back, all of it."""'))
        del sys.modules["shop"]
        yield spine("approve", "a1", "--by", "ada")


def test_who_allowed_a_stale_approval_allowed_nothing(spine, stale) -> None:
    assert "no longer fitted: approved by ada, asked again as a2" in spine("explain", "t1s1c1").stdout
    assert "nobody yet: approval a2 waits" in spine("explain", "t1s1c1").stdout
    spine("approve", "a2", "--by", "eve")
    text = spine("explain", "t1s1c1").stdout
    assert "eve at " in text
    assert "ada at " not in text


# ------------------------------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize(
    "command", [["transcript", "--json"], ["transcript", "--format", "html"], ["transcript", "--format", "markdown"]]
)
def test_formats_that_are_utf8_are_utf8_everywhere(shop, spine, command: list[str]) -> None:
    with serving(say("caf\u00e9 \u2603")) as server:
        shop(server)
        spine("run", "--session", "one", "x", input="")
    done = subprocess.run(
        [*SPINE, *command], capture_output=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, check=True
    )
    assert "caf\u00e9 \u2603" in done.stdout.decode()


def test_piped_bytes_that_are_no_text_are_refused_before_anything(spine, shop, folder: Path) -> None:
    with serving(say("x")) as server:
        shop(server)
        done = spine("run", "x", input=b"ab\xff")
        assert server.requests == []
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "the input is no UTF-8: byte 3 is 0xff. Try: iconv -t utf-8  [usage]\n"
    assert not (folder / "spine.db").exists()


def test_a_line_of_a_chat_that_is_no_text_ends_it(spine, shop) -> None:
    with serving(say("x")) as server:
        shop(server)
        done = spine("chat", input=b"\xe9t\xe9\n")
        assert server.requests == []
    assert done.exit_code == 2
    assert "byte 1 is 0xe9" in done.stderr


# ------------------------------------------------------------------------------------------------ nothing on the way


def test_an_import_of_a_broken_file_makes_no_store(spine, demo: Path) -> None:
    spine("export", "-o", "x.jsonl")
    text = (demo / "x.jsonl").read_text()
    (demo / "x.jsonl").write_text(text.replace("1290", "9999", 1))
    done = spine("import", "x.jsonl", "--store", "new/other.db")
    assert done.exit_code == 1
    assert not (demo / "new").exists()


def test_a_key_in_place_of_a_variable_is_refused_and_not_quoted(spine, folder: Path) -> None:
    (folder / "spine.toml").write_text(
        '[providers.lab]\nprotocol = "openai_chat"\nbase_url = "http://127.0.0.1:9"\nkey = { env = "not-a-name" }\n'
    )
    done = spine("config")
    assert done.exit_code == 2
    assert done.stderr.startswith("spine.toml:4: providers.lab.key.env is the name of a variable: letters, digits")
    assert "not-a-name" not in done.stderr
