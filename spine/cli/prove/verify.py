"""`verify` (floor 15): exit status 0 when the log holds, 1 when it does not, 3 when something cannot be judged here."""

from typing import Any, Final

import click

from spine.cli.acting import now, this_owner
from spine.cli.ending import OF_VERDICT
from spine.cli.files import output_file
from spine.cli.options import options, session_argument
from spine.cli.reading import reading_session
from spine.cli.screen import note, out, out_json
from spine.exports import ExportReader, export
from spine.proof.repair import in_words, repair_tail
from spine.proof.verify import Verification, head_note, parse_head, report
from spine.proof.verify import verify as check
from spine.stored import StoredLog

__all__ = ["COMMANDS"]


@click.command()
@session_argument
@click.option("--head", metavar="SEQ:HASH", help="A head that was noted elsewhere.")
@click.option("--repair-tail", "repair", is_flag=True, help="Cut off a damaged end first, if nothing whole follows it.")
@options("store", "json")
def verify(session: str | None, head: str | None, repair: bool, store: str | None, as_json: bool) -> int:
    """Check chain, gaps, contents, requests and calls of a session, or of an export."""
    noted = None if head is None else parse_head(head)
    if repair:
        with reading_session(store, session) as reader:
            _repair(reader)
    with reading_session(store, session) as reader:
        found = check(reader, noted)
    if as_json:
        out_json(_fact(found))
    else:
        out(report(found))
        if found.verdict != "broken" and noted is None:
            out(head_note(found))
    return OF_VERDICT[found.verdict]


def _repair(reader: StoredLog) -> None:
    if not isinstance(reader, ExportReader):
        note(in_words(reader.session, repair_tail(reader, owner=this_owner(), now=now())))
    elif reader.torn is None:
        note(f"{reader.file.url}: its end is not torn")
    else:  # what is left is written anew, with a first line that fits
        reader.check()
        with output_file(reader.file.url) as file:
            done = export(reader, file.write)
        note(f"{reader.file.url}: ends at seq {done.seq} now; cut off because {reader.torn}")


def _fact(found: Verification) -> dict[str, Any]:
    return {
        "session": found.session,
        "verdict": found.verdict,
        "events": found.events,
        "head": {"seq": found.head[0], "hash": found.head[1].hex()},
        "broken_at": found.broken_at,
        "problems": [{"seq": p.seq, "what": p.what, "text": p.text} for p in found.problems],
        "requests": [{"step": r.step, "seq": r.seq, "state": r.state, "part": r.part} for r in found.requests],
        "answered": found.answered,
        "contents": found.contents,
        "erased": [{"seq": part.seq, "what": part.what, "reason": part.reason} for part in found.erased],
        "unknown_types": dict(found.unknown_types),
        "unknown_fields": [{"seq": seq, "path": path} for seq, path in found.unknown_fields],
        "unproven": found.unproven,
    }


COMMANDS: Final = {"verify": verify}
