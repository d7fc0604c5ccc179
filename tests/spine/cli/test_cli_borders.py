"""The command line at its borders: outputs that are no files, streams that are closed, stores that were edited."""

import io
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_server import call, fail, say, serving

from spine import late
from spine.cli import TABLE
from spine.cli.agents import load_agent
from spine.cli.ending import OF_STORES
from spine.cli.talk.margin import Margin
from spine.cli.talk.turns import _stale_text, shown
from spine.config import load_settings
from spine.errors import ConfigInvalid, StoreUnavailable
from spine.events import ApprovalRequested
from spine.runtime import Runtime
from spine.store import Owner
from spine.stores.opening import open_store
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
    assert ".spine-" not in done.stderr


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


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:", 'store "sqlite:" names no file'),
        ("sqlite:?durability=full", "names no file"),
        ("sqlite:x.db?durability=fast", 'there is no option "durability=fast"'),
        ("sqlite:x.db?not=relaxed", 'there is no option "not=relaxed"'),
        ("sqlite:x.db?", 'there is no option ""'),
    ],
)
def test_a_store_that_is_misspelt_is_refused_and_not_made(folder: Path, url: str, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(said)):
        open_store(url)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("query", "waits"), [("", True), ("?durability=full", True), ("?durability=relaxed", False)])
def test_a_store_takes_its_durability_from_its_url(folder: Path, query: str, waits: bool) -> None:
    with closing(open_store(f"sqlite:x.db{query}")) as store:
        assert store.waits is waits


def test_plain_http_to_another_machine_can_be_allowed(folder: Path) -> None:
    text = '[providers.lab]\nprotocol = "openai_chat"\nbase_url = "http://10.0.0.9:80"\n'
    for line, allowed in (("", False), ("allow_http = true\n", True)):
        (folder / "spine.toml").write_text(text + line)
        assert load_settings().providers[0].allow_http is allowed


# -------------------------------------------------------------------------------------------------------- sentences


def test_a_stale_approval_is_told_and_waits_again(stale) -> None:
    assert (stale.exit_code, stale.stdout) == (3, "")
    first, second = stale.stderr.splitlines()
    assert first.startswith("approval a1 of refund no longer fits: its tool, its policy or the plugins are not ")
    assert first.endswith("; it was asked again as a2  [approval_stale]")
    assert second.startswith("turn t1 waits: a2  refund(")


def test_a_stale_approval_names_the_arguments_that_changed() -> None:
    def asked(id: str, **arguments: object) -> ApprovalRequested:
        return ApprovalRequested(id=id, call="t1s1c1", hash="1:0", name="refund", arguments=arguments)

    said = _stale_text(asked("a2", order_id="1017", amount_cents=1290), asked("a3", order_id="1017", amount_cents=9900))
    assert said == (
        "approval a2 of refund no longer fits: amount_cents was 1290 when asked, is 9900 now; "
        "it was asked again as a3  [approval_stale]"
    )


def test_a_model_that_is_not_there_is_named_with_the_nearest(spine, shop, folder: Path) -> None:
    with serving(fail(404, "no such model")) as server:
        shop(server)
        with (folder / "spine.toml").open("a") as file:
            file.write('[models."lab:tinny"]\nwindow = 8000\n')
        done = spine("run", "--session", "one", "x", input="")
    assert done.exit_code == 1, done.stderr
    assert done.stderr == (
        'turn t1 failed: provider "lab" answered 404 for model "tiny"; nearest in the catalogue is "tinny". '
        "Try: spine models  [not_found]\n"
    )


def test_hints_keep_the_store_that_was_named(spine, shop) -> None:
    with serving(fail(401), REFUND) as server:
        shop(server)
        done = spine("run", "--store", "my db", "--session", "one", "x", input="")
        assert done.stderr.endswith("Try: spine log one --store 'my db'  [auth]\n")
        done = spine("run", "--store", "my db", "--session", "two", "x", input="")
        assert done.stderr.endswith("Try: spine approve a1 --session two --store 'my db'  [suspended]\n")


def test_a_demonstration_in_memory_suggests_nothing_to_look_at(spine, folder: Path) -> None:
    done = spine("demo", "--store", "memory:")
    assert done.exit_code == 0
    assert "--store" not in done.stdout + done.stderr
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["verify", "log nothing", "run -m lab:x hi"])
def test_a_stream_that_is_closed_is_no_accident(demo: Path, command: str, closed: str) -> None:
    whole = subprocess.run([*SPINE, *command.split()], capture_output=True, stdin=subprocess.DEVNULL)
    done = subprocess.run(f"{' '.join(SPINE)} {command} {closed}", shell=True, capture_output=True, text=True)
    assert done.returncode == whole.returncode
    assert "Error" not in done.stderr
    assert subprocess.run([*SPINE, "verify"], capture_output=True).returncode == 0


def test_a_reader_that_leaves_is_the_status_of_a_broken_pipe(demo: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*SPINE, "log", "--json"], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_ctrl_c_twice_leaves_a_tool_that_hangs_without_a_traceback(shop, folder: Path) -> None:
    with serving(call("hang")) as server:
        shop(server)
        (folder / "slow.py").write_text(
            "import pathlib, time\nfrom spine import Agent, tool\n\n@tool\ndef hang() -> str:\n"
            '    """Never end."""\n    pathlib.Path("hangs").touch()\n    time.sleep(20)\n\n'
            'agent = Agent("lab:tiny", tools=[hang])\n'
        )
        process = subprocess.Popen(
            [*SPINE, "run", "--agent", "slow:agent", "x"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        until = time.monotonic() + 10
        while not (folder / "hangs").exists() and time.monotonic() < until:
            time.sleep(0.02)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        _, said = process.communicate(timeout=15)
    assert process.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in said


# ----------------------------------------------------------------------------------------------------- on a terminal


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["turn t1 completed"], "    turn t1 completed"),
        (["a\n", "b"], "    a\n    b"),
        (["a", "b\n\nc"], "    ab\n\n    c"),
        (["x" * 30], "    " + "x" * 20 + "\n    " + "x" * 10),
        (["x" * 20, "turn"], "    " + "x" * 20 + "\n    turn"),
        (["\u96ea" * 11], "    " + "\u96ea" * 10 + "\n    \u96ea"),
    ],
)
def test_no_piece_of_text_reaches_the_margin(pieces: list[str], shown: str) -> None:
    margin = Margin(24)
    assert "".join(map(margin.indent, pieces)) == shown


@given(st.lists(st.text(st.sampled_from("ab \n\t\u96ea\u0301"), max_size=40), max_size=8))
def test_cutting_text_changes_nothing_about_its_margin(pieces: list[str]) -> None:
    margin = Margin(24)
    cut = "".join(map(margin.indent, pieces))
    assert cut == Margin(24).indent("".join(pieces))
    assert all(line.startswith("    ") for line in cut.split("\n") if line)


def test_on_a_terminal_an_answer_is_set_off_and_through_a_pipe_it_is_bare(shop, monkeypatch) -> None:
    with serving(say("\nturn t1 ", "failed: \x1b[2Jno\n> x")) as server:
        folder = shop(server)
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)

        async def talk() -> None:
            async with Runtime.open(settings=load_settings()) as runtime:
                session = await runtime.session("one", load_agent("shop:agent", folder))
                with shown(session):
                    await session.run("x")

        anyio.run(talk)
    assert screen.getvalue() == "\n    turn t1 failed: \\x1b[2Jno\n    > x\n"


# ------------------------------------------------------------------------------------- a folder one may only look at


AS_NOBODY = """
import encodings.utf_8_sig, importlib, os, sys
from spine.cli import cli
from spine.late import LATE
for module in LATE:
    importlib.import_module(module)  # what belongs to the administrator cannot be imported later
if os.getuid() == 0:
    os.setuid(65534)
cli(sys.argv[1:])
"""


def _as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", AS_NOBODY, *arguments], capture_output=True, text=True)


@pytest.fixture
def locked(demo_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project in a folder that can be read and not written to; outside pytest's own, which others cannot enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(demo_file, folder / "spine.db")
        (folder / "spine.toml").write_text("version = 1\n")
        (folder / "spine.db").chmod(0o444)
        folder.chmod(0o555)
        monkeypatch.chdir(folder)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("command", ["verify", "sessions", "transcript", "log", "request", "export", "approvals"])
def test_a_store_in_a_folder_for_reading_can_be_looked_at(locked: Path, command: str) -> None:
    done = _as_nobody(command)
    assert (done.returncode, "cannot" in done.stderr) == (0, False), done.stderr
    assert sorted(path.name for path in locked.iterdir()) == ["spine.db", "spine.toml"]


def test_a_log_beside_such_a_store_is_told_and_not_passed_over(locked: Path) -> None:
    locked.chmod(0o755)
    (locked / "spine.db-wal").write_bytes(b"not empty")
    locked.chmod(0o555)
    done = _as_nobody("verify")
    assert done.returncode == 2
    assert "spine.db-wal holds events that are not in it yet. Try: copy spine.db* into a folder" in done.stderr


def test_what_is_opened_to_look_cannot_be_written(demo: Path) -> None:
    with closing(SqliteStore("spine.db", is_unchanging=True)) as store:
        with pytest.raises(StoreUnavailable, match="it is read-only"):
            store.renew(Owner(id="o", host="h", pid=1, started=0), until=1)
        assert store.sessions()


# ---------------------------------------------------------------------------------------- settings that cannot work


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'model = "antropic:x"',
            'spine.toml:1: model "antropic:x" cannot be asked: no provider is called "antropic"; did',
        ),
        ('model = "quick"', 'spine.toml:1: model "quick" cannot be asked: it is no provider:name and no alias'),
        ('[aliases]\nquick = "nowhere:x"', 'spine.toml:2: aliases.quick "nowhere:x" cannot be asked: no provider is '),
        ('store = "mysql:x"', 'spine.toml:1: nothing here opens a store "mysql:x"; try sqlite:PATH'),
        (
            '[providers.lab]\nprotocol = "openai_chatt"\nbase_url = "http://127.0.0.1:9"',
            'spine.toml:1: no plugin offers the protocol "openai_chatt" of lab; did you mean "openai_chat"?',
        ),
    ],
)
def test_config_says_which_settings_cannot_work(spine, folder: Path, text: str, said: str) -> None:
    (folder / "spine.toml").write_text(text)
    done = spine("config")
    assert done.exit_code == 0
    assert f"note: {said}" in done.stderr


def test_config_has_no_note_on_settings_that_can(spine, folder: Path) -> None:
    (folder / "spine.toml").write_text('model = "quick"\n[aliases]\nquick = "anthropic:anything"\n')
    assert "note: " not in spine("config").stderr


def test_listed_approvals_keep_the_store_that_was_named(spine, shop) -> None:
    with serving(REFUND) as server:
        shop(server)
        spine("run", "--store", "other.db", "--session", "one", "x", input="")
    assert spine("approvals", "--store", "other.db").stdout.endswith(" --store other.db\n")
    assert spine("approve", "a9", "--store", "other.db").stderr.count("Try: spine approvals --store other.db") == 1


def test_a_scenario_whose_agent_does_not_load_reports_only_that(spine, folder: Path) -> None:
    (folder / "x.scenario.yaml").write_text(
        "scenario: x\nagent: nowhere.agent:agent\ninputs:\n  - user: hi\nmodel:\n  - say: hello\n"
        "expect:\n  turns: [{status: completed}]\n  transcript: snapshot\n"
    )
    done = spine("scenario", "run", "x.scenario.yaml")
    assert done.exit_code == 1
    (line,) = done.stdout.splitlines()
    assert line.endswith('agent "nowhere.agent" is neither beside the file nor importable: no module "nowhere"')
    assert [path.name for path in folder.iterdir()] == ["x.scenario.yaml"]


# ---------------------------------------------------------------------------------------- hints, exports in pipes


def test_commands_to_try_are_told_the_store_that_was_meant(spine, demo_file: Path, folder: Path) -> None:
    """Also where the error comes from deep below; a command that takes no store is left as it is."""
    missing = spine("log", "nosuch", "--store", demo_file)
    assert f"Try: spine sessions --store {demo_file}  [session_unknown]" in missing.stderr
    missing = spine("explain", "t9s9c1", f"--store={demo_file}")
    assert f"Try: spine transcript refund-1017 --store {demo_file}  [usage]" in missing.stderr
    assert "Try: spine demo  [" in spine("log", "--store", "sqlite:none.db").stderr
    assert "--store" not in spine("log", "nosuch").stderr


def test_the_commands_that_mean_a_store_are_those_that_take_one() -> None:
    found = {
        name
        for commands in TABLE.values()
        for name, (module, _) in commands.items()
        if any(parameter.name == "store" for parameter in late.load(module).COMMANDS[name].params)
    }
    assert found - {"demo", "config", "decode"} == OF_STORES


def test_an_export_goes_through_a_pipe(spine, demo: Path) -> None:
    """`-` is stdin for every command that looks at one session, and for import."""
    exported = spine("export", "refund-1017").stdout_bytes
    assert spine("verify", "-", input=exported).stdout.startswith("refund-1017  ok  27 events")
    first, rest = spine("transcript", "-", input=exported).stdout.split("\n", 1)
    assert (first, rest) == (
        "refund-1017 · scripted:demo · stdin",
        spine("transcript", "refund-1017").stdout.split("\n", 1)[1],
    )
    brought = spine("import", "-", "--store", "other.db", input=exported)
    assert (brought.exit_code, "27 events added" in brought.stdout) == (0, True)
    damaged = spine("verify", "-", input=exported.replace(b"mug", b"mud", 1))
    assert (damaged.exit_code, spine("import", "-", "--store", "third.db", input=b"").exit_code) == (1, 2)
