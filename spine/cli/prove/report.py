"""`report` (floor 15): a session as one HTML page; the exit status is that of its verification."""

from typing import Final

import click

from spine.cli.ending import OF_VERDICT
from spine.cli.files import output_file
from spine.cli.options import options, session_argument
from spine.cli.reading import reading_session, up_to_unknown
from spine.cli.screen import LOCAL, note
from spine.projectors.phrases import counted
from spine.proof.course import course_of
from spine.proof.report import report_html
from spine.proof.verify import verify

__all__ = ["COMMANDS"]


@click.command()
@session_argument
@click.option("-o", "--output", metavar="FILE", help="The file to write; by default stdout.")
@options("store")
def report(session: str | None, output: str | None, store: str | None) -> int:
    """Write a session as one HTML page: transcript, requests, approvals, figures, versions, verification."""
    with reading_session(store, session, check=True) as reader:
        course, status = up_to_unknown(lambda until: course_of(reader, until), None)
        found = verify(reader)
        page = report_html(reader, course, found, zone=LOCAL, source=reader.store.url).encode()
    with output_file(output) as file:
        file.write(page)
    note(f"{course.session}: {found.verdict}, {counted(len(page), 'byte')} to {output or 'stdout'}")
    return OF_VERDICT[found.verdict] or status


COMMANDS: Final = {"report": report}
