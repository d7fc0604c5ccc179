"""What is demanded of each figure: units, bounds, and whether a slower machine may be slower.

The bounds were written down for one machine. `Target.is_time` says which ones are divided by the calibration of this
run before they are judged; growth ratios, bytes and counts are judged as they are.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

__all__ = ["TARGETS", "Target"]


@attrs.frozen(kw_only=True)
class Target:
    """One line of the table. `must` is the least acceptable, `aim` the wish; None when nobody demanded anything.

    With `higher` more is better. `published` is the floor on the machine the bounds were written for, in `unit`.
    """

    what: str
    unit: str
    must: float | None = None
    aim: float | None = None
    published: float | None = None
    is_time: bool = True
    higher: bool = False


def _time(what: str, unit: str, must: float | None, aim: float | None, published: float | None = None) -> Target:
    return Target(what=what, unit=unit, must=must, aim=aim, published=published)


def _plain(
    what: str,
    unit: str,
    must: float | None,
    aim: float | None,
    published: float | None = None,
    *,
    higher: bool = False,
) -> Target:
    return Target(what=what, unit=unit, must=must, aim=aim, published=published, is_time=False, higher=higher)


def _rate(what: str, unit: str, must: float | None, aim: float | None, published: float) -> Target:
    return Target(what=what, unit=unit, must=must, aim=aim, published=published, higher=True)


TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "T1": _time("in-memory step, turn of 100 steps", "µs", 120, 60, 12.5),
        "T2": _plain("growth: µs a step, 1,000 over 100 steps", "x", 1.15, 1.03, 1.0),
        "T2 long": _plain("growth: µs a step, 5,000 over 100 steps", "x", 1.15, 1.03, 1.0),
        "T3": _plain("memory a step, turn of 5,000 steps", "KB", 4.0, 2.5, 2.1),
        "T4": _time("a one-step turn, first of a session", "ms", 0.4, 0.2, 0.08),
        "T4 cold": _time("the same in a new runtime, opening it left out", "ms", None, None),
        "T5": _time("durable step, SQLite WAL, NORMAL, 500 steps", "µs", 200, 120, 55),
        "T5 full": _time("durable step, SQLite WAL, FULL: CPU", "µs", None, None),
        "T5 wall": _time("durable step, SQLite WAL, FULL: wall", "µs", None, None),
        "T6": _plain("commits a step, hooks that do not await", "", 2.0, 2.0, 2.0),
        "T6 awaiting": _plain("commits a step, hooks that await", "", 4.0, 4.0, 2.0),
        "T7": _plain("bytes on disk a step after a checkpoint (slope)", "B", 900, 600, 336),
        "T7 file": _plain("bytes on disk a step (whole file, 1,000 steps)", "B", 900, 600, 336),
        "T7 growth": _plain("growth: slope to 5,000 over slope to 1,000 steps", "x", 1.05, 1.0, 1.0),
        "T8": _time("stored session opened with its history, a step", "µs", 40, 15, 10),
        "T8 fold": _time("stored session to model history alone, a step", "µs", 40, 15, 10),
        "T9": _rate("stored events through history and transcript", "events/s", 100_000, 200_000, 281_000),
        "T9 text": _rate("the same, and the transcript written out as text", "events/s", None, None, 281_000),
        "T10": _time("Chat stream over loopback to chunks and message, a chunk", "µs", 22, 15, 15),
        "T11": _time("Messages stream, the same", "µs", 20, 15, 13),
        "T12": _time("Responses stream, the same", "µs", 20, 15, 14),
        "T13": _time("Chat stream in memory to message, a chunk", "µs", 9, 5, 4.3),
        "T13 pieces": _time("the same in pieces of 4 KiB, a chunk", "µs", 9, 5, 4.3),
        "T14": _plain("4,000 argument fragments over 20 x 200", "x", 1.1, 1.0, 1.0),
        "T15": _rate("1,000 concurrent sessions x 10 steps", "steps/s", 8_000, 12_000, 53_000),
        "T15 memory": _plain("the same: memory a session at its peak", "KB", 50, 30, 17),
        "T16": _plain("throughput kept from 1 to 1,000 sessions", "x", 0.85, 0.95, 1.2, higher=True),
        "T17": _time("`import spine`, cold process", "ms", 110, 80, 72),
        "T17 use": _time("`from spine import Agent, Runtime, tool`, cold process", "ms", 110, 80, 72),
        "T17 memory": _plain("the same: memory", "MiB", 30, None, 24),
        "T18": _time("validation of a tool call's arguments", "µs", 45, 2, 0.25),
        "T19": _time("one waterfall, 3 plugins", "µs", 2.5, 0.5, 0.2),
        "T20": _time("request body at 1,000 steps", "ms", 2, 1.2, 0.3),
        "T21": _time("`spine --help`, wall over bare Python", "ms", 150, 100, 54),
        "T21 transcript": _time("`spine transcript`, wall over bare Python", "ms", 150, 100, 54),
    }
)
"""By key: the target's number, and what else is measured under it."""
