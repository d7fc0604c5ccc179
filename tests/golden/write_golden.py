"""Write what the tests of this folder read: `python tests/golden/write_golden.py`.

Golden logs are for ever: one that is there is never written again. The schema is written anew when every change since
is compatible, and not otherwise: then give the event a new version with an upcaster, and call this with the name of a
new folder for the logs of that version.
"""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
from golden_samples import samples
from golden_schema import breaks, schemas
from golden_sessions import DEMO, NOW, OWNER, play_all

from spine.codec import Codec
from spine.erasing import erase
from spine.exports import ExportReader, export
from spine.forking import fork
from spine.projectors import SessionTranscript, SessionUsage, to_text
from spine.projectors.json import plain
from spine.projectors.model_history import ModelHistory
from spine.projectors.status import Status
from spine.proof.verify import verify
from spine.stored import StoredLog
from spine.stores.sqlite import SqliteStore
from spine.testing.demo import play_demo
from spine.values import SessionId, digest, encode

FOLDER = Path(__file__).parent
SCHEMA = FOLDER / "schema.json"


def projected(reader: StoredLog) -> dict[str, Any]:
    """Everything that is read out of a log, as JSON."""
    projectors = (ModelHistory(), Status(), SessionTranscript(), SessionUsage())
    history, status, transcript, usage = reader.project_all(projectors)
    found = verify(reader)
    return {
        "head": [found.head[0], found.head[1].hex()],
        "verdict": found.verdict,
        "requests": {request.step: [request.state, request.digest] for request in found.requests},
        "history": [
            [message.role, digest(reader.codec.message_bytes(message)), message.text[:60]] for message in history.view()
        ],
        "status": {"turns": status.turns, "title": status.title, "last": status.last and status.last.status},
        "approvals": {id: approval.used for id, approval in status.approvals.items()},
        "transcript": [line[:200] for line in to_text(transcript).splitlines()],
        "usage": plain(usage),
    }


def as_json(value: Any) -> Any:
    """What a value is once it was written and read again."""
    return json.loads(encode(value))


def write_logs(folder: Path) -> None:
    """The golden logs of the versions of today, each with what is read out of it."""
    folder.mkdir()
    for name, (store, session) in anyio.run(play_all).items():
        path = folder / f"{name}.jsonl"
        with path.open("wb") as file:
            export(StoredLog(store, Codec(), session), file.write)
        with closing(ExportReader(path, Codec())) as reader:
            expected = as_json(projected(reader))
        path.with_suffix(".json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
    codec = Codec()
    lines = [codec.encode_event(data) for data in samples()]
    facts = [{"type": each.type, "version": each.version, "data": each.data.decode()} for each in lines]
    (folder / "samples.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def write_files() -> None:
    """A SQLite file of each format."""
    for number in (1, 2):
        path = FOLDER / f"format-{number}.sqlite"
        if path.exists():
            continue
        anyio.run(play_demo, SqliteStore(path, "relaxed"))
        with closing(SqliteStore(path)) as store:
            log = StoredLog(store, Codec(), DEMO)
            if number == 2:
                fork(log, SessionId("child"), 14, owner=OWNER, now=NOW)
                erase(log, [2], reason="golden", by="me", owner=OWNER, now=NOW)


def write_schema() -> None:
    """The schema of today, unless something of the one before does not hold any more."""
    current = schemas()
    problems = breaks(json.loads(SCHEMA.read_text()), current) if SCHEMA.exists() else []
    if problems:
        sys.exit("not compatible: " + "; ".join(problems))
    SCHEMA.write_text(json.dumps(current, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_schema()
    write_files()
    logs = FOLDER / (sys.argv[1] if len(sys.argv) > 1 else "0.1.0")
    if not logs.exists():
        write_logs(logs)
