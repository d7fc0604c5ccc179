"""`erase` and `delete` (floor 15): what is gone for good, and what stays so that the log still verifies."""

import sys
from typing import Final

import click

from spine.appending import claimed
from spine.cli.acting import now, this_owner, this_user
from spine.cli.ending import HOLDS
from spine.cli.options import options, session_argument
from spine.cli.reading import Reading, reading
from spine.cli.screen import is_terminal, note, out, out_json
from spine.erasing import erase as erase_data
from spine.errors import UsageError
from spine.projectors.phrases import counted
from spine.values import Digest, SessionId

__all__ = ["COMMANDS"]


@click.command()
@session_argument
@click.option("--seq", "seqs", metavar="N", type=int, multiple=True, help="An event whose data is erased; repeatable.")
@click.option("--content", "contents", metavar="DIGEST", multiple=True, help="A content that is erased; repeatable.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; the log keeps it.")
@click.option("--by", metavar="NAME", help="Who asked for it; by default you.")
@options("store", "json")
def erase(
    session: str | None,
    seqs: tuple[int, ...],
    contents: tuple[str, ...],
    reason: str,
    by: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Erase private data for good; its digest stays, so that the log still verifies."""
    if not seqs and not contents:
        raise UsageError("nothing to erase was named", hint="spine erase ID --seq N, or --content DIGEST")
    if session is None:
        raise UsageError("erasing wants the session's id", hint="spine sessions")
    with reading(store) as opened:
        source = opened.reader(session)
        digests = tuple(map(Digest, contents))
        done = erase_data(source, seqs, digests, reason=reason, by=by or this_user(), owner=this_owner(), now=now())
    if as_json:
        parts = {"events": list(done.events), "contents": list(done.contents), "beside": list(done.beside)}
        out_json({"session": source.session, **parts, "sessions": list(done.sessions)})
        return HOLDS
    what = [f"seq {', '.join(map(str, done.events))}"] if done.events else []
    out(f"{source.session}: erased {', '.join([*what, *done.contents])}")
    if len(done.sessions) > 1:
        note(f"also in {', '.join(done.sessions[1:])}")
    for digest in done.beside:
        note(f"an erased event referred to {digest}, which is still there")
    return HOLDS


@click.command()
@click.argument("session")
@click.option("--detach", is_flag=True, help="Copy what forks share with it into them first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options("store")
def delete(session: str, detach: bool, yes: bool, store: str | None) -> int:
    """Delete a session for good, with the contents that only it refers to."""
    with reading(store) as opened:
        source = opened.reader(session)
        seq = source.head[0]
        if not yes and not _agreed(f"Delete {source.session} with {counted(seq, 'event')}?"):
            raise UsageError(f"{source.session} was not deleted: nobody agreed", hint=f"spine delete {session} --yes")
        with claimed(opened.store, source.session, this_owner(), now()) as claim:
            if detach:
                _detach_forks(opened, source.session)
            opened.store.delete(source.session, claim.token)
    out(f"{source.session}: deleted, {counted(seq, 'event')}")
    return HOLDS


def _agreed(question: str) -> bool:
    return is_terminal(sys.stdin) and click.confirm(question, err=True)


def _detach_forks(opened: Reading, session: SessionId) -> None:
    for info in opened.store.sessions():
        if info.base == session:
            with claimed(opened.store, info.id, this_owner(), now()) as claim:
                copied = opened.store.detach(info.id, claim.token)
            note(f"{info.id}: {counted(copied, 'event')} copied into it")


COMMANDS: Final = {"erase": erase, "delete": delete}
