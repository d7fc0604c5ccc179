"""`diff` (floor 15): exit status 0 when two sessions are alike, 1 when something differs."""

from typing import Final

import click

from spine.cli.ending import FAILS
from spine.cli.options import options
from spine.cli.reading import reading_session, up_to_unknown
from spine.cli.screen import out, out_json
from spine.proof.course import Course, course_of
from spine.proof.diff import compare, diff_json, diff_text

__all__ = ["COMMANDS"]


@click.command()
@click.argument("left")
@click.argument("right")
@options("store", "json")
def diff(left: str, right: str, store: str | None, as_json: bool) -> int:
    """Compare two sessions, or exports, turn by turn, step by step and call by call."""
    (one, status), (other, other_status) = _course(store, left), _course(store, right)
    found = compare(one, other)
    out_json(diff_json(found)) if as_json else out(diff_text(found))
    return max(status, other_status) if found.is_equal else FAILS


def _course(store: str | None, session: str) -> tuple[Course, int]:
    with reading_session(store, session, check=True) as reader:
        return up_to_unknown(lambda until: course_of(reader, until), None)


COMMANDS: Final = {"diff": diff}
