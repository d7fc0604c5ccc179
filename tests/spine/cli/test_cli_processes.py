"""The command line as a process: exit status, streaming, pipes, signals, and the time that help takes."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from model_server import call, say, serving

SPINE = [sys.executable, "-m", "spine"]


@contextmanager
def started(*arguments: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone after the block."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*SPINE, *arguments], **(streams | options))  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["verify"], 0), (["verify", "--head", "99:01234567"], 1), (["verify", "nothing"], 2), (["nothing"], 2)],
)
def test_the_exit_status_of_the_process(demo: Path, arguments: list[str], status: int) -> None:
    assert subprocess.run([*SPINE, *arguments], capture_output=True).returncode == status


def test_the_answer_arrives_while_the_model_still_speaks(shop) -> None:
    with serving(say("first ", "second", wait_before=1)) as server:
        shop(server)
        with started("run", "x") as process:
            assert process.stdout is not None
            assert process.stdout.read(6) == b"first "
            server.go_on.set()
            assert process.stdout.read() == b"second\n"
            assert process.wait(10) == 0


def test_a_reader_that_leaves_early_is_no_accident(demo: Path) -> None:
    done = subprocess.run(f"{' '.join(SPINE)} log --chunks | head -1", shell=True, capture_output=True, text=True)
    assert done.stdout.split()[0] == "seq"
    assert done.stderr == ""


def test_a_turn_ends_well_when_nobody_reads_its_answer(shop) -> None:
    with serving(say("first ", "second ", "third", wait_before=1)) as server:
        shop(server)
        with started("run", "--session", "one", "x") as process:
            assert process.stdout is not None
            assert process.stdout.read(6) == b"first "
            process.stdout.close()
            server.go_on.set()
            assert process.wait(10) == 0
        log = subprocess.run([*SPINE, "log", "one"], capture_output=True, text=True, check=True).stdout
        assert "turn.completed" in log
        assert "attempt_failed" not in log


def test_follow_shows_events_as_they_are_committed(shop) -> None:
    with serving(say("one"), say("two")) as server:
        shop(server)
        subprocess.run([*SPINE, "run", "--session", "one", "x"], stdin=subprocess.DEVNULL, check=True)
        with started("log", "--follow", "--json") as process:
            assert process.stdout is not None
            while b'"turn.completed"' not in process.stdout.readline():
                pass
            subprocess.run([*SPINE, "run", "-c", "y"], stdin=subprocess.DEVNULL, check=True)
            while b'"turn.completed"' not in process.stdout.readline():
                pass
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130


def _wait_for(condition, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


def test_ctrl_c_once_ends_the_turn_and_keeps_what_was_said(spine, shop) -> None:
    with serving(say("Slow ", "answer", for_ever=True)) as server:
        shop(server)
        with started("run", "--session", "one", "x") as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(11) == b"Slow answer"
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            said = process.stderr.read().decode()
    assert "turn t1 was cancelled and is recorded. Try: spine retry one  [cancelled]" in said
    assert "Traceback" not in said
    transcript = spine("transcript").stdout
    assert "    Slow answer\n" in transcript
    assert "turn t1 cancelled (interrupted)" in transcript
    assert spine("verify").exit_code == 0


def test_ctrl_c_twice_leaves_a_chat(spine, shop) -> None:
    with serving(say("Slow", for_ever=True), say("after")) as server:
        shop(server)
        with started("chat", "--session", "one", stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"hi\n")
            process.stdin.flush()
            assert process.stdout.read(4) == b"Slow"
            process.send_signal(signal.SIGINT)
            process.stdin.write(b"again\n")
            process.stdin.flush()
            assert process.stdout.read(7) == b"\nafter\n"
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
    assert "turn t1 cancelled" in spine("transcript").stdout


def test_a_killed_turn_is_resumed_by_the_next_process(spine, shop) -> None:
    with serving(say("Slow", for_ever=True), say("whole")) as server:
        shop(server)
        with started("run", "--session", "one", "x") as process:
            assert process.stdout is not None
            assert process.stdout.read(4) == b"Slow"
            process.kill()
            process.wait(10)
        done = spine("run", "-c", "more", input="")
        assert done.exit_code == 2
        assert "Try: spine resume one  [session_busy]" in done.stderr
        resumed = spine("resume")
    assert (resumed.exit_code, resumed.stdout) == (0, "whole\n")
    assert spine("verify").exit_code == 0


def test_a_person_decides_in_another_process_while_the_owner_runs(spine, shop) -> None:
    with serving(call("refund", order_id="1", amount_cents=2), say("Done.")) as server:
        shop(server)
        assert subprocess.run([*SPINE, "run", "--session", "one", "x"], stdin=subprocess.DEVNULL).returncode == 3
        done = subprocess.run([*SPINE, "approve", "a1", "--by", "ada"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Done.\n")


def _on_a_terminal(*arguments: str, text: bytes = b"", **environ: str) -> str:
    """Everything that a person would see on one terminal for all streams, until the process ends."""
    master, slave = os.openpty()
    variables = {**os.environ, "TERM": "xterm", **environ}
    process = subprocess.Popen([*SPINE, *arguments], stdin=slave, stdout=slave, stderr=slave, env=variables)
    os.close(slave)
    os.write(master, text)
    seen = b""
    try:
        while piece := os.read(master, 65536):
            seen += piece
    except OSError:  # Linux says so at the end
        pass
    finally:
        process.wait(20)
        os.close(master)
    return seen.decode().replace("\r\n", "\n")


def test_colour_is_for_terminals(demo: Path) -> None:
    plain = subprocess.run([*SPINE, "transcript"], capture_output=True, text=True).stdout
    assert "\x1b" not in plain
    coloured = _on_a_terminal("transcript")
    assert "\x1b[1mASSISTANT t1s1\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert _on_a_terminal("transcript", NO_COLOR="1") == plain


def test_a_terminal_shows_progress_and_nothing_that_acts_on_it(shop) -> None:
    with serving(call("lookup_order", order_id="1"), say("Red \x1b[31m", "alert.")) as server:
        shop(server)
        seen = _on_a_terminal("run", "--session", "one", "x")
    assert '  > lookup_order(order_id="1")\n  < ok in ' in seen
    assert "Red \\x1b[31malert.\n" in seen
    assert "turn t1 completed: 2 steps, 1 tool call" in seen
    assert "\x1b" not in seen


def test_a_chat_on_a_terminal_prompts_and_ends_with_the_input(shop) -> None:
    with serving(say("hello")) as server:
        shop(server)
        seen = _on_a_terminal("chat", text=b"hi\n/exit\n")
    assert seen.count("> ") >= 2
    assert "hello\n" in seen


def test_what_a_terminal_cannot_show_is_no_accident(demo: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*SPINE, "transcript"], capture_output=True, env=environ)
    assert done.returncode == 0
    assert b"\\xb7" in done.stdout


def test_help_takes_little_longer_than_python() -> None:
    """Process time, not wall time, so that a busy machine does not matter; the bound is generous all the same."""

    def seconds(*command: str) -> float:
        before = os.times()
        subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    def fastest(*command: str) -> float:
        return min(seconds(*command) for _ in range(5))

    assert fastest("-m", "spine", "--help") - fastest("-c", "pass") < 0.150
