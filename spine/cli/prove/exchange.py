"""`export` and `import` (floor 15): a session as a file of its own, and back, byte for byte."""

import contextlib
from typing import Final

import click

from spine.cli.acting import now, this_owner
from spine.cli.files import input_file, output_file
from spine.cli.options import options, session_argument
from spine.cli.reading import LateCodec, open_configured, reading_session
from spine.cli.screen import note, out, out_json
from spine.config import load_settings, make_store_folder
from spine.exports import ExportReader, export, import_checked
from spine.projectors.phrases import counted

__all__ = ["COMMANDS"]


@click.command("export")
@session_argument
@click.option("-o", "--output", metavar="FILE", help="The file to write; by default stdout.")
@options("store")
def export_command(session: str | None, output: str | None, store: str | None) -> None:
    """Write a session as JSON lines, contents included."""
    with reading_session(store, session) as reader, output_file(output) as file:
        done = export(reader, file.write)
    size = f"{counted(done.seq, 'event')}, {counted(done.bytes, 'byte')}"
    note(f"{done.session}: {size} to {output or 'stdout'}, head {done.seq}:{done.hash.hex()[:12]}")


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@options("store", "json")
def import_command(file: str, store: str | None, as_json: bool) -> None:
    """Bring an exported session (`-`: from stdin) into the store; all of it is checked before anything is written."""
    settings = load_settings(arguments={"store": store})
    codec = LateCodec(settings)
    with input_file(file) as (path, name), contextlib.closing(ExportReader(path, codec, name)) as reader:
        reader.check()
        make_store_folder(settings.store or "")
        with contextlib.closing(open_configured(settings, codec)) as opened:
            done = import_checked(reader, opened, owner=this_owner(), now=now())
    if as_json:
        out_json({"session": done.session, "seq": done.seq, "added": done.added, "contents": done.contents})
    else:
        what = f"{counted(done.added, 'event')} added" if done.added else "nothing to add, it was there already"
        out(f"{done.session}: {what}, {counted(done.seq, 'event')} in {opened.url}")
    if done.torn is not None:
        note(f"{name} was cut: {done.torn}")


COMMANDS: Final = {"export": export_command, "import": import_command}
