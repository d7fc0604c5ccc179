"""spine.cli and spine.cli.ending: the table of commands, exit statuses, and one line for every error."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import click
import pytest

from spine import late
from spine.cli import TABLE, cli
from spine.cli.ending import error_line, guarded
from spine.cli.foreign_names import foreign_names
from spine.errors import EventUnknown, KeyMissing, LogBroken, SessionUnknown, SpineError, StoreBusy, UsageError
from spine.llm.errors import provider_error

NAMES = [name for commands in TABLE.values() for name in commands]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_of_the_table_is_there_and_has_help(spine, name: str) -> None:
    done = spine(name, "--help")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: spine {name}")
    assert "--debug" in done.stdout


def test_every_module_of_the_table_is_loaded_late_and_has_only_its_commands() -> None:
    homes = {home for commands in TABLE.values() for home, _ in commands.values()}
    for home in homes:
        assert late.LATE[home] == "spine.cli"
        listed = {name for commands in TABLE.values() for name, (module, _) in commands.items() if module == home}
        assert set(late.load(home).COMMANDS) == listed


def test_help_lists_every_command_and_imports_next_to_nothing() -> None:
    code = (
        "import sys, contextlib\n"
        "from spine.cli import cli\n"
        "with contextlib.suppress(SystemExit): cli(['--help'])\n"
        "heavy = 'attrs anyio cattrs importlib.metadata msgspec httpx pluggy spine.values'.split()\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(f"\n  {name} " in done.stdout for name in NAMES)


def test_an_unknown_command_names_the_nearest(spine) -> None:
    done = spine("transcipt")
    assert done.exit_code == 2
    assert done.stderr == 'there is no command "transcipt"; nearest is "transcript". Try: spine --help  [usage]\n'
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["log", "--folow"], "no such option '--folow'"),
        (["log", "--store"], "option '--store' requires an argument"),
        (["import", "nowhere.jsonl"], "invalid value for 'FILE': File 'nowhere.jsonl' does not exist"),
        (["init"], "missing argument 'NAME'"),
        (["transcript", "--format", "pdf"], "invalid value for '--format'"),
    ],
)
def test_wrong_use_is_told_in_the_same_form(spine, arguments: list[str], said: str) -> None:
    done = spine(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(said)
    assert " Try: spine " in done.stderr
    assert done.stderr.endswith(" --help  [usage]\n")


def test_without_a_command_help_goes_to_stderr(spine) -> None:
    done = spine()
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: spine ")


def test_version(spine) -> None:
    assert spine("--version").stdout.startswith("spine 0.")


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyMissing("no key", hint="export X=…"), "no key. Try: export X=…  [key_missing]"),
        (SessionUnknown("no session?", hint="spine sessions"), "no session? Try: spine sessions  [session_unknown]"),
        (SpineError("it broke."), "it broke.  [error]"),
        (StoreBusy("locked"), "locked  [store_busy]"),
        (provider_error("not_found", "provider answered 404"), "provider answered 404  [not_found]"),
        (click.UsageError("Bad thing"), "bad thing. Try: spine --help  [usage]"),
        (FileNotFoundError(2, "No such file", "x.json"), "x.json: no such file  [system]"),
        (ZeroDivisionError("oh\nno"), "ZeroDivisionError: oh. Try: the same command with --debug  [internal]"),
    ],
)
def test_an_error_is_one_line_with_hint_and_code(error: Exception, line: str) -> None:
    assert error_line(error) == line


def _raises(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (lambda: None, 0),
        (lambda: 3, 3),
        (_raises(UsageError("x")), 2),
        (_raises(StoreBusy("x")), 2),
        (_raises(LogBroken("x", seq=1)), 1),
        (_raises(EventUnknown("x", seq=1)), 3),
        (_raises(provider_error("billing", "x")), 1),
        (_raises(click.UsageError("x")), 2),
        (_raises(OSError(28, "No space left")), 2),
        (_raises(RuntimeError("x")), 1),
        (_raises(KeyboardInterrupt()), 130),
        (_raises(click.Abort()), 130),
        (_raises(BrokenPipeError()), 141),
        (_raises(ExceptionGroup("g", [ExceptionGroup("h", [UsageError("x")])])), 2),
        (_raises(BaseExceptionGroup("g", [KeyboardInterrupt()])), 130),
        (_raises(ExceptionGroup("g", [UsageError("x"), ValueError("y")])), 1),
    ],
)
def test_the_exit_status_says_what_happened(capfd: pytest.CaptureFixture[str], command, status: int) -> None:
    assert guarded(command, debug=False) == status
    assert "Traceback" not in capfd.readouterr().err


def test_a_traceback_is_shown_with_debug_only(spine, folder: Path) -> None:
    (folder / "spine.toml").write_text("versoin = 1")
    plain, debug = spine("config"), spine("config", "--debug")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr
    assert debug.stderr.endswith(plain.stderr)
    assert spine("--debug", "config").stderr == debug.stderr or "Traceback" in spine("--debug", "config").stderr


# -------------------------------------------------------------------------------------------------- plugin commands


class _Entry:
    group = "spine.commands"
    value = "spine_tickets.cli:command"
    dist = None

    def __init__(self, name: str, found: object) -> None:
        self.name = name
        self._found = found

    def load(self) -> object:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


@click.command()
def tickets() -> int:
    """List tickets."""
    click.echo("no ticket")
    return 3


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three commands, as an installed package would bring them."""
    entries = [_Entry("tickets", tickets), _Entry("broken", ImportError("no module x")), _Entry("odd", 7)]
    module = late.load("spine.cli.foreign")
    monkeypatch.setattr(module, "entry_points", lambda group: [e for e in entries if e.group == group])
    info = tmp_path / "site" / "spine_tickets-1.0.dist-info"
    info.mkdir(parents=True)
    listed = "".join(f"{entry.name} = {entry.value}\n" for entry in entries)
    (info / "entry_points.txt").write_text(
        f"[console_scripts]\nx = y:z\n\n[spine.commands]\n# two\n{listed}[spine]\nq = q\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")


def test_names_of_plugin_commands_are_those_of_the_metadata(foreign: None) -> None:
    listed = {entry.name for entry in importlib.metadata.entry_points(group="spine.commands")}
    assert set(foreign_names()) == {"broken", "odd", "tickets"} == listed


def test_a_plugin_brings_a_command_that_is_imported_when_called(spine, foreign: None) -> None:
    assert "From plugins:\n  broken\n  odd\n  tickets" in spine("--help").stdout.replace("  \n", "\n")
    done = spine("tickets")
    assert (done.exit_code, done.stdout) == (3, "no ticket\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", 'command "broken" of spine_tickets.cli:command does not load: ImportError: no module x  [plugin]'),
        ("odd", 'command "odd" of spine_tickets.cli:command is int; it must be a click.Command  [plugin]'),
    ],
)
def test_a_broken_plugin_command_is_blamed(spine, foreign: None, name: str, said: str) -> None:
    done = spine(name)
    assert (done.exit_code, done.stderr) == (1, f"{said}\n")


def test_the_group_is_what_the_console_script_runs() -> None:
    done = subprocess.run([sys.executable, "-m", "spine", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("spine 0.")
    assert cli.name == "cli"
