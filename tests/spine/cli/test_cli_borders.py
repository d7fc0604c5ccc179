"""The command line at its borders: outputs that are no files, streams that are closed, stores that were edited."""

import os
import sqlite3
import stat
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
