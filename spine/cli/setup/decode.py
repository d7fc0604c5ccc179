"""`decode` (floor 15): a captured answer of a provider, read by the decoder that live answers go through.

One JSON object on stdout: content stop_reason raw_stop_reason usage model response_id error partial. Nothing is sent,
and no key is looked for.
"""

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from spine import late
from spine.cli.ending import FAILS, HOLDS
from spine.cli.options import options
from spine.cli.protocols import wire_protocol
from spine.cli.reading import load_plugins
from spine.codec import Codec
from spine.config import load_settings
from spine.errors import UsageError
from spine.llm.protocols import WireProtocol
from spine.wire.capture import response_record
from spine.wire.captured import decode_captured

__all__ = ["COMMANDS"]


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("--protocol", metavar="NAME", help="openai_chat, say.")
@click.option("--status", type=int, default=200, show_default=True, help="The HTTP status of the answer.")
@click.option("--batch", is_flag=True, help="FILE has one JSON object a line: id protocol status headers body.")
@click.option("--session", metavar="ID", help="Read what --capture-wire kept of this session instead of FILE.")
@click.option("--step", metavar="STEP", help="Of that session: t1s3, say; by default the last one captured.")
@click.option("--attempt", type=int, metavar="N", help="Of that step; by default the last.")
@options("store")
def decode(
    file: str | None,
    protocol: str | None,
    status: int,
    batch: bool,
    session: str | None,
    step: str | None,
    attempt: int | None,
    store: str | None,
) -> int:
    """Read a captured body from FILE, from stdin, or from a session; exit status 1 when it is an error or is cut."""
    if batch:
        return _decode_batch(file, protocol)
    record: dict[str, Any] = {"protocol": protocol, "status": status}
    if session is not None or step is not None:
        record = response_record(late.load("spine.cli.setup.captured").captured_response(store, session, step, attempt))
    elif protocol is None:
        raise UsageError("no protocol was named", hint="spine decode --protocol openai_chat FILE")
    else:
        record["body"] = _body(file)
    spoken = wire_protocol(load_plugins(load_settings(), Codec()), record["protocol"])
    result = decode_captured(spoken, record)
    sys.stdout.write(f"{json.dumps(result, ensure_ascii=False, indent=2)}\n")
    return HOLDS if result["error"] is None else FAILS


def _body(file: str | None) -> bytes:
    if file is None or file == "-":
        return sys.stdin.buffer.read()
    with open(file, "rb") as opened:
        return opened.read()


def _decode_batch(file: str | None, default: str | None) -> int:
    """One result a line, with the record's id; the status says only whether the file could be read."""
    plugins = load_plugins(load_settings(), Codec())
    protocols: dict[str, WireProtocol] = {}
    for number, record in enumerate(_records(file), 1):
        name = record.get("protocol") or default
        if not isinstance(name, str):
            raise UsageError(f"{file or 'stdin'}:{number}: the record names no protocol", hint="--protocol NAME")
        if name not in protocols:
            protocols[name] = wire_protocol(plugins, name)
        result = {"id": record.get("id"), **decode_captured(protocols[name], record)}
        sys.stdout.write(f"{json.dumps(result)}\n")
    return HOLDS


def _records(file: str | None) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as exc:
            raise UsageError(f"{file or 'stdin'}:{number}: this line is no JSON: {exc}") from exc
        if not isinstance(record, dict):
            raise UsageError(f"{file or 'stdin'}:{number}: this line is no JSON object")
        yield record


def _lines(file: str | None) -> Iterator[bytes]:
    if file is None or file == "-":
        yield from sys.stdin.buffer
        return
    with gzip.open(file, "rb") if file.endswith(".gz") else open(file, "rb") as opened:
        yield from opened


COMMANDS: Final = {"decode": decode}
