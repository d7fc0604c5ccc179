"""`transcript` (floor 15): what a person saw; nothing is imported that could act."""

import sys
from typing import Final

import click

from spine.cli.options import options, session_argument
from spine.cli.reading import reading_session, up_to_unknown
from spine.cli.screen import LOCAL, is_terminal, out, out_document, out_json, paint
from spine.projectors import SessionTranscript, to_html, to_json, to_markdown, to_text
from spine.projectors.text import SCREEN_OUTCOME_BYTES, SCREEN_OUTCOME_LINES

__all__ = ["COMMANDS"]


@click.command()
@session_argument
@options("store", "json", "until")
@click.option("--times", is_flag=True, help="Show when each part happened.")
@click.option("--full", is_flag=True, help="Show long outcomes whole on a terminal too.")
@click.option("--format", "form", type=click.Choice(["text", "markdown", "html"]), default="text")
def transcript(
    session: str | None, store: str | None, as_json: bool, until: int | None, times: bool, full: bool, form: str
) -> int:
    """Print what a person saw, as text, Markdown, HTML or JSON."""
    with reading_session(store, session, check=True) as reader:
        told, status = up_to_unknown(lambda until: reader.project(SessionTranscript(), until), until)
        if as_json:
            out_json(to_json(told))
        elif form == "text":
            is_cut = is_terminal(sys.stdout) and not full
            text = to_text(
                told,
                times=times,
                zone=LOCAL,
                source=reader.store.url,
                max_outcome_lines=SCREEN_OUTCOME_LINES if is_cut else None,
                max_outcome_bytes=SCREEN_OUTCOME_BYTES if is_cut else None,
            )
            out(paint(text))
        else:
            out_document(to_markdown(told) if form == "markdown" else to_html(told))
    return status


COMMANDS: Final = {"transcript": transcript}
