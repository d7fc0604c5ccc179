"""The command line with its clock moved (floor 15): what `determinism` runs in a process of its own.

Python's own ways to ask for the time answer with another one before anything of an application is imported; nothing of
ours asks them. Waits and deadlines are not touched. `python -m spine.cli.prove.elsewhere SECONDS COMMAND …`
"""

import datetime
import sys
import time
from typing import Any

from spine.cli import cli

__all__ = ["move_clock"]


def move_clock(seconds: float) -> None:
    """Let `time` and `datetime` tell another time from now on, in this process."""
    told = time.time

    class MovedTime(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(told() + seconds, tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    class MovedDay(datetime.date):
        @classmethod
        def today(cls) -> Any:
            return MovedTime.now().date()

    time.time = lambda: told() + seconds
    time.time_ns = lambda: int((told() + seconds) * 1e9)
    datetime.datetime = MovedTime  # type: ignore[misc]
    datetime.date = MovedDay  # type: ignore[misc]


if __name__ == "__main__":
    if float(sys.argv[1]):
        move_clock(float(sys.argv[1]))
    cli(sys.argv[2:])
