"""How a command ends (floor 15): its exit status, and one line on stderr for everything that went wrong.

A line is one sentence (what was attempted, found, acceptable, where), `Try:` with something to paste, and the code
under which the error is documented. A traceback appears only with `--debug`.
"""

import os
import shlex
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from spine.errors import EventUnknown, LogBroken, NoVerdict, SpineError, StoreError, UsageError

__all__ = [
    "FAILS",
    "HOLDS",
    "INTERRUPTED",
    "NO_VERDICT",
    "OF_STORES",
    "OF_VERDICT",
    "READER_GONE",
    "WRONG_USE",
    "ReaderGone",
    "drop_output",
    "error_line",
    "guarded",
    "only_error",
]

HOLDS: Final = 0
FAILS: Final = 1
"""It does not hold, or the turn failed."""
WRONG_USE: Final = 2
"""The call or the configuration is wrong; nothing was done."""
NO_VERDICT: Final = 3
"""Something waits for a person, or a plugin that the answer needs is missing."""
INTERRUPTED: Final = 130
READER_GONE: Final = 141
"""Whoever read stdout left: nothing is wrong with what was read. The status that shells give to the signal."""

OF_VERDICT: Final = {"ok": HOLDS, "broken": FAILS, "unproven": NO_VERDICT}
"""By the verdict of a verification."""
OF_REQUEST: Final = {"equal": HOLDS, "different": FAILS, "erased": NO_VERDICT}
"""By the verdict on a request that was rebuilt."""

_BY_CLASS: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (NoVerdict, NO_VERDICT),
    (UsageError, WRONG_USE),
    (EventUnknown, NO_VERDICT),
    (LogBroken, FAILS),
    (StoreError, WRONG_USE),
    (SpineError, FAILS),
    (OSError, WRONG_USE),
)
"""The first that fits decides."""


OF_STORES: Final = frozenset(
    (
        *("run", "chat", "resume", "retry", "approvals", "approve", "deny", "fork", "sessions", "transcript", "log"),
        *("request", "explain", "diff", "prefix", "report", "replay", "determinism", "what-if", "verify", "export"),
        *("import", "check", "erase", "delete", "migrate"),
    )
)
"""The commands that mean a session, or all sessions, of a store."""


class ReaderGone(Exception):
    """Whoever read stdout left. No `OSError`: for a broken pipe click would end the process with status 1."""


def guarded(command: Callable[[], Any], *, debug: bool, store: str | None = None) -> int:
    """Run a command and return its exit status; what it raises is told on stderr.

    `store` is what the command was given as its store: commands to try next are given it, too.
    """
    _make_printable()
    try:
        status = command()
        sys.stdout.flush()
    except (BrokenPipeError, ReaderGone):
        drop_output()
        return READER_GONE
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return INTERRUPTED
    except (SpineError, click.ClickException, OSError) as error:
        return _told(error, debug, store)
    except BaseExceptionGroup as group:
        return _told(only_error(group), debug, store)
    except Exception as error:
        return _told(error, debug, store)
    return status if isinstance(status, int) else HOLDS


def _told(error: BaseException, debug: bool, store: str | None) -> int:
    if debug:
        sys.__excepthook__(type(error), error, error.__traceback__)  # prints; importing traceback takes a while
    if isinstance(error, KeyboardInterrupt):
        _say("interrupted")
        return INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        _say(error.format_message())
        return WRONG_USE
    _say(error_line(error, store))
    if isinstance(error, click.ClickException):
        return WRONG_USE
    return next((status for kind, status in _BY_CLASS if isinstance(error, kind)), FAILS)


def only_error(group: BaseException) -> BaseException:
    """The error inside groups of one; a group of several as it is."""
    while isinstance(group, BaseExceptionGroup):
        errors = [each for each in group.exceptions if not isinstance(each, KeyboardInterrupt)] or group.exceptions
        if len(errors) > 1:
            return group
        group = errors[0]
    return group


def error_line(error: BaseException, store: str | None = None) -> str:
    """`no key for provider "lab": LAB_KEY is not set. Try: export LAB_KEY=…  [key_missing]`."""
    if isinstance(error, SpineError):
        return _line(error.message, _in_store(error.hint, store), error.code)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "spine"
        message = error.format_message()
        return _line(message[:1].lower() + message[1:], f"{path} --help", "usage")
    if isinstance(error, click.ClickException):
        return _line(error.format_message(), None, "usage")
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return _line(f"{name}{(error.strerror or str(error)).lower()}", None, "system")
    text = str(error).partition("\n")[0]
    return _line(f"{type(error).__name__}: {text}", "the same command with --debug", "internal")


def _in_store(hint: str | None, store: str | None) -> str | None:
    """A command to try, in the store that the failed one was given."""
    words = (hint or "").split()
    if store is None or "--store" in words or words[:1] != ["spine"] or words[1:2] == [] or words[1] not in OF_STORES:
        return hint
    return f"{hint} --store {shlex.quote(store)}"


def _line(message: str, hint: str | None, code: str) -> str:
    said = message.rstrip()
    if hint is not None:
        said = f"{said if said.endswith(('.', '?', '!')) else f'{said}.'} Try: {hint}"
    return f"{said}  [{code}]"


def _say(text: str) -> None:
    # Whoever reads stderr may be gone as well.
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        return


def _make_printable() -> None:
    """Never fail because a terminal cannot show a character, nor because a stream was closed before we began."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # In this order each takes its own number again, so that no store is ever opened where messages are printed.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """The reader of stdout is gone: what is still buffered goes nowhere, instead of failing again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
