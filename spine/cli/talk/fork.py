"""`fork` (floor 15): a session that goes on from an event of another; no model is asked."""

from typing import Final

import click

from spine.cli.acting import new_session_id, now, this_owner
from spine.cli.ending import HOLDS
from spine.cli.options import options, session_argument
from spine.cli.reading import load_plugins, reading
from spine.cli.screen import note, out, out_json
from spine.forking import fork as fork_session
from spine.projectors.phrases import counted
from spine.values import session_id

__all__ = ["COMMANDS"]


@click.command()
@session_argument
@click.option("--at", "seq", metavar="SEQ", type=int, help="The last event to share; by default the last one.")
@click.option("--as", "child", metavar="ID", help="The fork's id; by default a new one.")
@options("store", "json")
def fork(session: str | None, seq: int | None, child: str | None, store: str | None, as_json: bool) -> int:
    """Make another session that goes on from an event of this one, and print its id."""
    with reading(store) as opened:
        source = opened.reader(session)
        # Results that no model has seen may still wait for a plugin that checks them.
        withholds = bool(load_plugins(opened.settings, opened.codec).hooks.chain("spine_post_execute"))
        child = session_id(child or new_session_id())
        done = fork_session(source, child, seq, owner=this_owner(), now=now(), withholds=withholds)
    if as_json:
        fact = {"session": done.session, "parent": done.parent, "shared": done.shared, "seq": done.seq}
        out_json({**fact, "closed": list(done.closed)})
        return HOLDS
    out(done.session)
    note(f"{done.session} shares {counted(done.shared, 'event')} with {done.parent}")
    if done.closed:
        note(f"closed in it: {', '.join(done.closed)}")
    return HOLDS


COMMANDS: Final = {"fork": fork}
