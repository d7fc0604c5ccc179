"""Who acts from the command line, and when (floor 15)."""

import secrets
import time
from getpass import getuser

from spine.owning import this_process
from spine.store import Owner

__all__ = ["new_session_id", "now", "this_owner", "this_user"]


def now() -> int:
    """The time, microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def this_owner() -> Owner:
    """This process, as the owner of what it claims."""
    return this_process(now(), 0)


def this_user() -> str:
    """Who sits at the keyboard, as the system knows them."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


def new_session_id() -> str:
    """An id that sorts by time and is told apart by its last four digits."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
