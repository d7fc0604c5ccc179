"""Export and import of a session as JSON lines (floor 9): one file that verifies on its own and opens read-only.

The format, one JSON object a line, each line ended by a newline:

    {"format":"agent-spine.export/1","session":…,"seq":41,"hash":…,"created":…}     the head of the log
    {"content":"1:…","media_type":"text/plain","text":…}                            before the first event it is for
    {"seq":1,"type":…,"version":1,"at":…,"place":…,"origin":…,"required":…,"data":…,"hash":…}

`data` stands there byte for byte as stored, so that hashes can be checked over the file alone. Content that is no
UTF-8 text is written as `base64`. A file whose last line is torn, or that ends early, can be read up to there.
"""

import base64
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, BinaryIO, Final

import msgspec

from spine.appending import claimed, store_all
from spine.codec import Codec, row_hash
from spine.errors import LogBroken, SessionExists, StoreUnavailable, ValueRefused
from spine.frozen import frozen
from spine.log import LogReader
from spine.store import ERASED_TYPE, Append, Content, Owner, Row, SessionInfo, Store, digests_in
from spine.stored import StoredLog
from spine.values import Digest, SessionId, decode, digest, session_id

__all__ = ["ExportReader", "Exported", "Imported", "export", "import_", "import_checked", "needed_contents"]

FORMAT: Final = "agent-spine.export/1"
BATCH_ROWS: Final = 500
_CONTENT_LINE: Final = b'{"content":"'


class _Head(msgspec.Struct):
    format: str
    session: str
    seq: int
    hash: str
    created: int


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    seq: int
    type: str
    version: int
    at: int
    place: str | None
    origin: str | None
    required: bool
    data: msgspec.Raw
    hash: str


class _Content(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    content: str
    media_type: str
    text: str | None = None
    base64: str | None = None


# ---------------------------------------------------------------------------------------------------------- writing


@frozen(kw_only=True)
class Exported:
    """What was written."""

    session: SessionId
    seq: int
    hash: bytes
    contents: int
    bytes: int


def export(reader: StoredLog, out: Callable[[bytes], Any]) -> Exported:
    """Write a session as of now, line by line, in bounded memory but for its largest event.

    `out` takes bytes, as a file's `write` does. Broken logs are exported as they are. Raises `SessionUnknown`.
    """
    seq, hash = reader.head
    first = next(iter(reader.rows(until=1)), None)
    lines = _Lines(out)
    lines.write(_Head(FORMAT, reader.session, seq, hash.hex(), first.at if first is not None else 0))
    written: set[Digest] = set()
    for row in reader.rows(until=seq):
        wanted = [found for found in digests_in(row.data) if found not in written]
        there = reader.store.contents(wanted) if wanted else {}
        for found in filter(there.__contains__, wanted):
            lines.write(_content_line(there[found]))
            written.add(found)
        header = (row.seq, row.type, row.version, row.at, row.place, row.origin, row.required)
        lines.write(_Event(*header, msgspec.Raw(row.data), row.hash.hex()))
    return Exported(session=reader.session, seq=seq, hash=hash, contents=len(written), bytes=lines.size)


class _Lines:
    def __init__(self, out: Callable[[bytes], Any]) -> None:
        self._out = out
        self._encoder = msgspec.json.Encoder()
        self.size = 0

    def write(self, value: Any) -> None:
        line = self._encoder.encode(value) + b"\n"
        self._out(line)
        self.size += len(line)


def _content_line(content: Content) -> _Content:
    try:
        return _Content(content.digest, content.media_type, text=content.data.decode())
    except UnicodeDecodeError:
        return _Content(content.digest, content.media_type, base64=base64.b64encode(content.data).decode())


# ---------------------------------------------------------------------------------------------------------- reading


class ExportFile:
    """An export as a store of one session that can only be read: line positions in memory, lines on the disk.

    Raises `StoreUnavailable` for a file that is no export. Chains are not checked here: see `ExportReader.check`.
    """

    waits = False

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.url = name or os.fspath(path)
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by `close`
        except OSError as exc:
            raise StoreUnavailable(f"{self.url} cannot be read: {exc.strerror}") from exc
        self._events: list[tuple[int, int]] = []
        self._contents: dict[Digest, tuple[int, int]] = {}
        self.torn: str | None = None
        """What is wrong with the end of the file; None when it is whole."""
        try:
            self.announced = self._read_head()
            self._index()
        except BaseException:
            self._file.close()
            raise

    def _read_head(self) -> _Head:
        line = self._file.readline()
        try:
            head = msgspec.json.decode(line, type=_Head)
            self.session = session_id(head.session)
        except (msgspec.DecodeError, ValueError) as exc:
            raise StoreUnavailable(f"{self.url} is no export of a session: its first line is not a head") from exc
        if head.format != FORMAT:
            raise StoreUnavailable(f"{self.url} has the format {head.format}, this version reads {FORMAT}")
        return head

    def _index(self) -> None:
        at, last = self._file.tell(), b""
        for last in self._file:
            span = (at, len(last))
            at += len(last)
            if last.startswith(_CONTENT_LINE):
                end = last.find(b'"', len(_CONTENT_LINE))
                self._contents[Digest(last[len(_CONTENT_LINE) : end].decode(errors="replace"))] = span
            else:
                self._events.append(span)
        if last and not last.endswith(b"\n"):
            self._drop_torn(last)
        found = len(self._events)
        if self.torn is None and found < self.announced.seq:
            self.torn = f"it ends at seq {found}, its first line says {self.announced.seq}"

    def _drop_torn(self, line: bytes) -> None:
        """A whole last line may lack its newline; anything else is cut."""
        spans = list(self._contents.items())
        if line.startswith(_CONTENT_LINE):
            self._contents = dict(spans[:-1])
        elif self._try_event(line) is None:
            self._events.pop()
        else:
            return
        self.torn = f"its last line is torn after {len(line)} bytes, seq {len(self._events)} is the last whole event"

    @staticmethod
    def _try_event(line: bytes) -> _Event | None:
        try:
            return msgspec.json.decode(line, type=_Event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def head(self, session: SessionId) -> tuple[int, bytes] | None:
        """Seq and hash of the last event; the hash is empty when its line is no event."""
        if session != self.session or not self._events:
            return None
        number = len(self._events)
        return next(((row.seq, row.hash) for row in self._readable(number)), (number, b""))

    def _readable(self, number: int) -> Iterator[Row]:
        with suppress(LogBroken):
            yield self._row(number)

    def read(
        self, session: SessionId, *, after: int = 0, until: int | None = None, types: Sequence[str] = ()
    ) -> Iterator[Row]:
        """Rows as they stand in the file. Raises `LogBroken` at a line that is no event."""
        last = len(self._events) if until is None else min(until, len(self._events))
        for number in range(max(after, 0) + 1, last + 1 if session == self.session else 0):
            row = self._row(number)
            if not types or row.type in types:
                yield row

    def _row(self, number: int) -> Row:
        line = self._line(self._events[number - 1])
        event = self._try_event(line)
        if event is None:
            raise LogBroken(f"{self.url}: the line of seq {number} is no event", seq=number)
        hash = _from_hex(event.hash)
        header = (event.seq, event.type, event.version, event.at, event.place, event.origin, event.required)
        return Row(*header, bytes(event.data), hash)

    def _line(self, span: tuple[int, int]) -> bytes:
        self._file.seek(span[0])
        return self._file.read(span[1])

    def contents(self, digests: Sequence[Digest]) -> dict[Digest, Content]:
        """Those of `digests` that are in the file."""
        found = ((wanted, self._content(self._contents[wanted])) for wanted in digests if wanted in self._contents)
        return {wanted: content for wanted, content in found if content is not None}

    def _content(self, span: tuple[int, int]) -> Content | None:
        try:
            line = msgspec.json.decode(self._line(span), type=_Content)
            data = line.text.encode() if line.text is not None else base64.b64decode(line.base64 or "", validate=True)
        except (msgspec.DecodeError, ValueError):
            return None
        return Content(Digest(line.content), line.media_type, data)

    def sessions(self) -> list[SessionInfo]:
        """The one session."""
        head = self.head(self.session)
        if head is None:
            return []
        last = next((row.at for row in self._readable(len(self._events))), 0)
        return [SessionInfo(self.session, *head, self.announced.created, last)]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _from_hex(text: str) -> bytes:
    """The hash that was written; bytes that are no hash for anything that `hex` does not write, capitals included."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        return text.encode()
    return found if found.hex() == text else text.encode()


class ExportReader(LogReader):
    """Reads an exported session from its file alone, as `LogReader` reads one from a store."""

    def __init__(self, path: str | os.PathLike[str], codec: Codec, name: str | None = None) -> None:
        self.file = ExportFile(path, name)
        super().__init__(self.file, codec, self.file.session)  # type: ignore[arg-type]  # reads only

    @property
    def torn(self) -> str | None:
        """What is wrong with the end of the file; None when it is whole."""
        return self.file.torn

    def check(self) -> None:
        """Raise `LogBroken` unless every event follows the one before it, and each content matches its digest.

        Raises `StoreUnavailable` when not one event is whole.
        """
        if not self.head[0]:
            raise StoreUnavailable(f"{self.file.url} has no whole event")
        prev = self.genesis
        for number, row in enumerate(self.rows(), 1):
            if row.seq != number:
                raise LogBroken(f"{self.file.url}: seq {number} is missing, found seq {row.seq}", seq=number)
            if row_hash(prev, row) != row.hash:
                raise LogBroken(f"{self.file.url}: seq {number} ({row.type}) does not match its hash", seq=number)
            for wanted, content in self._contents_of(row).items():
                if digest(content.data) != wanted and content.media_type != ERASED_TYPE:
                    raise LogBroken(f"{self.file.url}: content {wanted[:10]}… does not match its digest", seq=number)
            for wanted in needed_contents(row):
                if not self.store.contents([wanted]):
                    raise LogBroken(f"{self.file.url}: content {wanted[:10]}… of seq {number} is missing", seq=number)
            prev = row.hash
        announced = self.file.announced
        if self.torn is None and (announced.seq, announced.hash) != (self.head[0], prev.hex()):
            raise LogBroken(f"{self.file.url}: its first line does not name its last event", seq=announced.seq)

    def _contents_of(self, row: Row) -> dict[Digest, Content]:
        return self.store.contents(digests_in(row.data))

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def needed_contents(row: Row) -> tuple[Digest, ...]:
    """Contents beside the log without which an event cannot be read: its long texts, and what it adds.

    Empty for data that does not parse.
    """
    if b'"$contents"' not in row.data and row.type != "content.added":
        return ()
    try:
        data = decode(row.data)
        needed = list(data.get("$contents", {}).values())
        if row.type == "content.added" and data.get("text") is None and "digest" in data:
            needed.append(data["digest"])
    except (ValueRefused, AttributeError):
        return ()
    return tuple(Digest(str(wanted)) for wanted in needed)


# --------------------------------------------------------------------------------------------------------- importing


@frozen(kw_only=True)
class Imported:
    """What an import did. `added` events are new in the store; `torn` says what was cut off the file's end."""

    session: SessionId
    seq: int
    added: int
    contents: int
    torn: str | None = None


def import_(path: str | os.PathLike[str], store: Store, *, codec: Codec, owner: Owner, now: int) -> Imported:
    """Bring an exported session into `store`, under the same id, byte for byte.

    The whole chain is checked before anything is written: raises `LogBroken` for a broken one. An import that was
    interrupted goes on where it stopped, one that was done before adds nothing; raises `SessionExists` when the store
    has another session of that id. `now` in microseconds since 1970 UTC.
    """
    with closing(ExportReader(path, codec)) as reader:
        reader.check()
        return import_checked(reader, store, owner=owner, now=now)


def import_checked(reader: ExportReader, store: Store, *, owner: Owner, now: int) -> Imported:
    """As `import_`, of a file whose `check` passed: for callers that make the store only then."""
    session = reader.session
    have = store.head(session)
    if have is not None and not _is_prefix(reader, have):
        raise SessionExists(f'session "{session}" is in {store.url} already and is not the one in the file')
    begin = have[0] if have else 0
    contents = 0
    if begin < reader.head[0]:
        with claimed(store, session, owner, now) as claim:
            contents = _append_all(reader, store, claim.token, claim.seq, claim.hash or reader.genesis)
    return Imported(
        session=session, seq=reader.head[0], added=reader.head[0] - begin, contents=contents, torn=reader.torn
    )


def _is_prefix(reader: ExportReader, have: tuple[int, bytes]) -> bool:
    seq, hash = have
    return any(row.hash == hash for row in reader.rows(after=seq - 1, until=seq))


def _append_all(reader: ExportReader, store: Store, token: int, seq: int, prev: bytes) -> int:
    written: set[Digest] = set()
    rows: list[Row] = []
    contents: dict[Digest, Content] = {}

    def flush() -> None:
        nonlocal seq, prev
        batch = Append(reader.session, token, seq, prev, tuple(rows), tuple(contents.values()))
        store_all(store, (batch,))
        seq, prev = rows[-1].seq, rows[-1].hash
        written.update(contents)
        rows.clear()
        contents.clear()

    for row in reader.rows(after=seq):
        rows.append(row)
        contents |= {d: c for d, c in reader._contents_of(row).items() if d not in written}
        if len(rows) == BATCH_ROWS:
            flush()
    if rows:
        flush()
    return len(written)
