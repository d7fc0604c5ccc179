"""spine.exports: a session as a file that verifies on its own, and back, byte for byte."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spine.codec import Codec, chain_hash, genesis, row_hash
from spine.errors import AppendOutcomeUnknown, LogBroken, SessionExists, StoreUnavailable, UsageError
from spine.exports import ExportReader, export, import_, needed_contents
from spine.forking import fork
from spine.log import LogReader
from spine.owning import this_process
from spine.proof.verify import verify
from spine.store import Append, Content, Owner, Row
from spine.stores.memory import MemoryStore
from spine.testing.demo import play_demo
from spine.values import SessionId, digest, encode

OWNER = Owner(id="test", host="here", pid=1, started=0)
SESSION = SessionId("s")


def rows_of(*data: bytes, type: str = "note.made") -> tuple[Row, ...]:
    """A chain of rows of an unknown plugin's type."""
    rows: list[Row] = []
    prev = genesis(SESSION)
    for seq, item in enumerate(data, 1):
        header = (
            seq,
            type,
            1,
            10 * seq,
            None if seq == 1 else "t1",
            None if type == "content.added" else "note@1",
            False,
        )
        prev = chain_hash(prev, header, bytes.fromhex(digest(item)[2:]))
        rows.append(Row(*header, item, prev))
    return tuple(rows)


def store_with(rows: tuple[Row, ...], *contents: Content) -> MemoryStore:
    store = MemoryStore()
    claim = store.claim(SESSION, OWNER, now=0, lease_us=1)
    assert store.append([Append(SESSION, claim.token, 0, genesis(SESSION), rows, contents)]) == [None]
    store.release(SESSION, OWNER)
    return store


def exported(store: MemoryStore) -> bytes:
    out = io.BytesIO()
    export(LogReader(store, Codec(), SESSION), out.write)
    return out.getvalue()


def written(folder: Path, data: bytes) -> Path:
    path = folder / "s.jsonl"
    path.write_bytes(data)
    return path


def imported(path: Path, store: MemoryStore) -> object:
    return import_(path, store, codec=Codec(), owner=OWNER, now=1)


PICTURE = Content(digest(b"\x00\xff"), "image/png", b"\x00\xff")
LONG_TEXT = Content(digest(b"long"), "text/plain", b"long")
ADDED = encode({"digest": PICTURE.digest, "media_type": "image/png", "size": 2})
MOVED = encode({"$contents": {"/text": LONG_TEXT.digest}, "text": ""})


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.none()), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_every_row_comes_back_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, data: list[dict[str, object]]
) -> None:
    rows = rows_of(*(json.dumps(item, ensure_ascii=False, indent=0).replace("\n", " ").encode() for item in data))
    path = written(tmp_path_factory.mktemp("export"), exported(store_with(rows)))
    copy = MemoryStore()
    imported(path, copy)
    assert tuple(copy.read(SESSION)) == rows


def test_contents_stand_before_the_event_that_needs_them_once(tmp_path: Path) -> None:
    store = store_with(rows_of(MOVED, ADDED, ADDED, type="content.added"), PICTURE, LONG_TEXT)
    lines = [json.loads(line) for line in exported(store).splitlines()]
    assert [line.get("content") or line.get("seq") for line in lines[1:]] == [LONG_TEXT.digest, 1, PICTURE.digest, 2, 3]
    assert (lines[1]["text"], lines[3]["base64"]) == ("long", "AP8=")
    copy = MemoryStore()
    imported(written(tmp_path, exported(store)), copy)
    assert copy.contents([PICTURE.digest, LONG_TEXT.digest]) == {c.digest: c for c in (PICTURE, LONG_TEXT)}


def test_the_first_line_says_what_follows() -> None:
    rows = rows_of(b"{}", b"{}")
    head = json.loads(exported(store_with(rows)).splitlines()[0])
    assert head == {
        "format": "agent-spine.export/1",
        "session": "s",
        "seq": 2,
        "hash": rows[-1].hash.hex(),
        "created": 10,
    }


async def test_a_real_session_verifies_from_its_file_alone(tmp_path: Path) -> None:
    store = MemoryStore()
    played = await play_demo(store)
    reader = LogReader(store, Codec(), SessionId(played.session))
    path = tmp_path / "demo.jsonl"
    with path.open("wb") as file:
        done = export(reader, file.write)
    assert (done.seq, done.hash, done.bytes) == (*reader.head, path.stat().st_size)
    from_file = ExportReader(path, Codec())
    try:
        from_file.check()
        assert list(from_file.read()) == list(reader.read())
        assert list(from_file.read(after=3, until=5)) == list(reader.read(after=3, until=5))
        assert [e.seq for e in from_file.read(types=("turn.started",))] == [3]
        assert attrs.evolve(verify(from_file)) == verify(reader)
        assert from_file.store.sessions() == [
            attrs.evolve(info, updated=info.updated) for info in store.sessions() if info.id == played.session
        ]
    finally:
        from_file.close()


# ------------------------------------------------------------------------------------------------------------- ends


def test_a_last_line_without_its_newline_is_whole(tmp_path: Path) -> None:
    data = exported(store_with(rows_of(b"{}", b"{}")))
    reader = ExportReader(written(tmp_path, data[:-1]), Codec())
    assert (reader.head[0], reader.torn) == (2, None)
    reader.close()


def test_a_torn_last_line_is_cut_with_a_report_wherever_it_is_torn(tmp_path: Path) -> None:
    rows = rows_of(b'{"a":1}', b'{"b":2}')
    data = exported(store_with(rows))
    begin = data.rindex(b'{"seq"')
    for end in range(begin + 1, len(data) - 1):
        store = MemoryStore()
        done = imported(written(tmp_path, data[:end]), store)
        assert tuple(store.read(SESSION)) == rows[:1]
        assert "torn" in str(getattr(done, "torn", None))


def test_a_file_that_lost_its_last_lines_is_cut_with_a_report(tmp_path: Path) -> None:
    lines = exported(store_with(rows_of(b"{}", b"{}", b"{}"))).splitlines(keepends=True)
    done = imported(written(tmp_path, b"".join(lines[:-1])), MemoryStore())
    assert getattr(done, "torn", None) == "it ends at seq 2, its first line says 3"


def test_a_torn_content_is_cut_too(tmp_path: Path) -> None:
    data = exported(store_with(rows_of(b"{}", ADDED, type="content.added"), PICTURE))
    end = data.index(b"base64") + 3
    reader = ExportReader(written(tmp_path, data[:end]), Codec())
    assert reader.head[0] == 1
    assert reader.torn is not None
    reader.close()


# ---------------------------------------------------------------------------------------------------------- refusals


def edits(data: bytes) -> Iterator[tuple[str, bytes]]:
    lines = data.splitlines(keepends=True)
    yield "an event's data", data.replace(b'"a":1', b'"a":2')
    yield "an event's header", data.replace(b'"at":20', b'"at":21')
    yield "an event's hash", data.replace(json.loads(lines[2])["hash"][:8].encode(), b"00000000")
    yield "a line that is gone", b"".join(lines[:2] + lines[3:])
    yield "two lines swapped", b"".join([*lines[:2], lines[3], lines[2], *lines[4:]])
    yield "a line twice", b"".join([*lines[:3], lines[2], *lines[3:]])
    yield "a line that is no JSON", b"".join([*lines[:2], b"x" + lines[2], *lines[3:]])
    yield "a key too much", data.replace(b'{"seq":2,', b'{"seq":2,"extra":1,')
    yield "the session's name", data.replace(b'"session":"s"', b'"session":"t"')
    yield "the announced hash", data.replace(lines[0][lines[0].index(b'"hash"') :][:20], b'"hash":"000000000000')


@pytest.mark.parametrize("number", range(10))
def test_a_broken_chain_is_refused_and_nothing_is_written(tmp_path: Path, number: int) -> None:
    what, data = list(edits(exported(store_with(rows_of(b'{"a":1}', b'{"a":1}', b'{"a":1}')))))[number]
    store = MemoryStore()
    with pytest.raises(LogBroken):
        imported(written(tmp_path, data), store)
    assert store.sessions() == [], what


def test_content_that_is_gone_or_changed_is_refused(tmp_path: Path) -> None:
    data = exported(store_with(rows_of(ADDED, type="content.added"), PICTURE))
    lines = data.splitlines(keepends=True)
    for broken, said in (
        (data.replace(b"AP8=", b"AQ8="), "does not match"),
        (b"".join([lines[0], lines[2]]), "missing"),
    ):
        with pytest.raises(LogBroken, match=said):
            imported(written(tmp_path, broken), MemoryStore())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no export"),
        (b"{}\n", "is no export"),
        (b'{"format":"x/9","session":"s","seq":0,"hash":"","created":0}\n', "has the format x/9"),
        (b'{"format":"agent-spine.export/1","session":"../s","seq":0,"hash":"","created":0}\n', "is no export"),
        (b"\xff\xfe\n", "is no export"),
    ],
    ids=["empty", "no head", "another format", "a path for a session", "no text"],
)
def test_what_is_no_export_is_told(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(StoreUnavailable, match=said):
        ExportReader(written(tmp_path, data), Codec())


def test_an_export_without_events_is_not_imported(tmp_path: Path) -> None:
    head = exported(store_with(rows_of(b"{}"))).splitlines(keepends=True)[0]
    with pytest.raises(StoreUnavailable, match="no whole event"):
        imported(written(tmp_path, head), MemoryStore())


# --------------------------------------------------------------------------------------------------------- repeating


def test_importing_again_adds_nothing(tmp_path: Path) -> None:
    path, store = written(tmp_path, exported(store_with(rows_of(b"{}", b"{}")))), MemoryStore()
    assert [getattr(imported(path, store), "added", None) for _ in range(2)] == [2, 0]


def test_an_import_that_stopped_half_way_goes_on(tmp_path: Path) -> None:
    rows = rows_of(*[b"{}"] * 5)
    store = store_with(rows[:2])
    done = imported(written(tmp_path, exported(store_with(rows))), store)
    assert getattr(done, "added", None) == 3
    assert tuple(store.read(SESSION)) == rows


def test_an_import_whose_process_died_goes_on_at_once(tmp_path: Path) -> None:
    """Nobody waits for the lease of a process that is known to be gone."""
    rows, ended = rows_of(*[b"{}"] * 5), subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = store_with(rows[:2])
    store.claim(SESSION, Owner("gone", this_process(1, 1).host, ended.pid, 0), now=1, lease_us=60_000_000)
    done = imported(written(tmp_path, exported(store_with(rows))), store)
    assert getattr(done, "added", None) == 3


class Forgetful(MemoryStore):
    """A store whose every first answer to an append is lost: it was done, or it was not."""

    def __init__(self, arrives: bool) -> None:
        super().__init__()
        self.arrives, self.tries = arrives, 0

    def append(self, batches: Sequence[Append]) -> list[Exception | None]:
        self.tries += 1
        if self.tries % 2 == 0:
            return super().append(batches)
        if self.arrives:
            super().append(batches)
        raise AppendOutcomeUnknown("the line is dead")


@pytest.mark.parametrize("header", [{"at": 1 << 62}, {"version": 1 << 31}, {"place": "a\0"}, {"origin": "\0@1"}])
def test_a_file_with_headers_that_no_store_holds_is_refused(tmp_path: Path, header: dict[str, Any]) -> None:
    """Its chain may be whole all the same: whoever made it computed the hashes."""
    (first,) = rows_of(b"{}")
    first = first._replace(**header)
    path = written(tmp_path, exported(store_with(rows_of(b"{}"))))
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    hash = row_hash(genesis(SESSION), first).hex()
    lines[0]["hash"] = hash
    lines[1] |= {**header, "hash": hash}
    path.write_bytes(b"".join(encode(line) + b"\n" for line in lines))
    store = MemoryStore()
    with pytest.raises(UsageError, match="header of seq 1"):
        imported(path, store)
    assert store.sessions() == []


@pytest.mark.parametrize("arrives", [True, False])
def test_lost_answers_are_settled_where_no_session_runs(tmp_path: Path, arrives: bool) -> None:
    """Import, fork and the like are there once, and say so."""
    rows, store = rows_of(*[b"{}"] * 1100), Forgetful(arrives)
    done = imported(written(tmp_path, exported(store_with(rows))), store)
    assert getattr(done, "added", None) == 1100
    assert tuple(store.read(SESSION)) == rows
    made = fork(LogReader(store, Codec(), SESSION), SessionId("child"), 7, owner=OWNER, now=1)
    assert (made.seq, store.tries) == (8, 8)
    assert [row.type for row in store.read(SessionId("child"), after=7)] == ["session.forked"]


@pytest.mark.parametrize("there", [(b'{"other":1}',), (b"{}", b"{}", b"{}")], ids=["another", "longer"])
def test_another_session_of_that_id_is_never_touched(tmp_path: Path, there: tuple[bytes, ...]) -> None:
    store = store_with(rows_of(*there))
    before = list(store.read(SESSION))
    with pytest.raises(SessionExists, match='session "s" is in memory: already'):
        imported(written(tmp_path, exported(store_with(rows_of(b"{}", b"{}")))), store)
    assert list(store.read(SESSION)) == before


def test_many_rows_are_imported_in_batches(tmp_path: Path) -> None:
    rows = rows_of(*[b"{}"] * 1201)
    store = MemoryStore()
    imported(written(tmp_path, exported(store_with(rows))), store)
    assert tuple(store.read(SESSION)) == rows


@pytest.mark.parametrize(
    ("kind", "data", "needed"),
    [
        ("content.added", ADDED, (PICTURE.digest,)),
        ("content.added", encode({"digest": PICTURE.digest, "text": "inline"}), ()),
        ("input.accepted", MOVED, (LONG_TEXT.digest,)),
        ("input.accepted", encode({"text": PICTURE.digest}), ()),
        ("content.added", b"[", ()),
    ],
)
def test_needed_contents_are_those_an_event_cannot_be_read_without(
    kind: str, data: bytes, needed: tuple[str, ...]
) -> None:
    assert needed_contents(Row(1, kind, 1, 0, None, None, True, data, b"")) == needed
