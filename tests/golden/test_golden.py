"""Old logs are read for ever: they open, verify, and project to what they always did; and no schema changes unseen."""

import json
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from golden_samples import samples
from golden_schema import breaks, schemas
from golden_sessions import agent, opened, plugin
from write_golden import FOLDER, SCHEMA, as_json, projected

from spine.codec import Codec
from spine.config import Settings
from spine.events import CORE_EVENTS, EventType
from spine.exports import ExportReader, import_
from spine.llm.catalogue import Traits
from spine.proof.replay.run import Given, replay
from spine.proof.verify import verify
from spine.routes import _FIRST_TRAITS, _settings_digest
from spine.store import Owner, Row
from spine.stored import StoredLog
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing import say
from spine.testing.demo import AGENT, Shop
from spine.values import SessionId, digest

LOGS = sorted(FOLDER.glob("*/*.jsonl"))
SAMPLES = [fact for path in sorted(FOLDER.glob("*/samples.json")) for fact in json.loads(path.read_text())]
OWNER = Owner("o", "h", 1, 1)
UPDATE = "python tests/golden/write_golden.py"


def name_of(path: Path) -> str:
    return str(path.relative_to(FOLDER))


# ------------------------------------------------------------------------------------------------------- whole logs


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_a_golden_log_verifies_and_projects_as_it_did(path: Path) -> None:
    with closing(ExportReader(path, Codec())) as reader:
        reader.check()
        assert as_json(projected(reader)) == json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_a_golden_log_is_imported_byte_for_byte_and_goes_on(path: Path) -> None:
    store = MemoryStore()
    done = import_(path, store, codec=Codec(), owner=OWNER, now=1)
    with closing(ExportReader(path, Codec())) as reader:
        assert list(store.read(done.session)) == list(reader.rows())
    anyio.run(go_on, store, done.session)
    found = verify(StoredLog(store, Codec(), done.session))
    assert (found.verdict, found.requests[-1].state) == ("ok", "equal")


async def go_on(store: Any, session: SessionId) -> None:
    async with opened(store, say("Still here.")) as runtime:
        again = await runtime.session(session, agent())
        assert (await again.run("Are you?")).text == "Still here."


@pytest.mark.parametrize("path", [path for path in LOGS if path.stem != "erased"], ids=name_of)
def test_a_golden_log_replays_byte_for_byte(path: Path) -> None:
    """With the agents and the plugin that it was made with, and nothing else."""
    alone = Settings(installed_plugins=False)
    first = Given(agent=agent(), plugins=(plugin(),), settings=alone)
    if path.stem == "demo":
        first = Given(agent=AGENT, settings=alone, deps=Shop())
    later = attrs.evolve(first, agent=attrs.evolve(first.agent, name="golden two"))
    changes = path.stem == "crashed"
    with closing(ExportReader(path, Codec())) as reader:
        done = anyio.run(partial(replay, reader, first, setting_at=lambda seq: later if changes and seq > 1 else first))
        assert (done.verdict, done.is_exact, done.events) == ("equal", True, reader.head[0])


def test_a_golden_log_that_was_changed_is_found_out(tmp_path: Path) -> None:
    """The expectations of this file are no formality."""
    path = tmp_path / "busy.jsonl"
    path.write_bytes(
        next(path for path in LOGS if path.name == "busy.jsonl").read_bytes().replace(b"Hidden.", b"Hiding.")
    )
    with closing(ExportReader(path, Codec())) as reader:
        assert verify(reader).verdict == "broken"


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_of_each_format_opens_and_holds(number: int, tmp_path: Path) -> None:
    path = tmp_path / "spine.db"
    shutil.copy(FOLDER / f"format-{number}.sqlite", path)
    before = path.read_bytes()
    with closing(SqliteStore(path, is_unchanging=True)) as store:
        for info in store.sessions():
            assert verify(StoredLog(store, Codec(), info.id)).verdict == "ok"
    assert path.read_bytes() == before
    with closing(SqliteStore(path)) as store:
        bases = {info.id: info.base for info in store.sessions()}
        assert bases == {"refund-1017": None, **({"child": "refund-1017"} if number == 2 else {})}
        assert store.check() == []


# ---------------------------------------------------------------------------------------------------- single events


@pytest.mark.parametrize("fact", SAMPLES, ids=lambda fact: f"{fact['type']}-{fact['version']}")
def test_a_stored_event_of_each_version_reads(fact: dict[str, Any]) -> None:
    """And one of the current version is written again in the same bytes; upcasting it twice changes nothing."""
    codec = Codec()
    row = Row(1, fact["type"], fact["version"], 0, None, None, True, fact["data"].encode(), b"")
    read = codec.decode_data(row, lambda wanted: b"")
    written = codec.encode_event(read)
    again = row._replace(version=written.version, data=written.data)
    assert codec.decode_data(again, lambda wanted: b"") == read
    if fact["version"] == written.version:
        assert written.data == row.data
        assert codec.unknown_fields(row) == ()


def test_every_version_of_every_event_has_a_stored_sample() -> None:
    stored = {(fact["type"], fact["version"]) for fact in SAMPLES}
    missing = [
        (kind.name, v) for kind in CORE_EVENTS for v in range(1, kind.version + 1) if (kind.name, v) not in stored
    ]
    assert missing == [], f"write a new folder of golden logs: {UPDATE} VERSION"


def test_a_sample_sets_every_field() -> None:
    """What is not stored cannot be lost: no field of a sample is left out because it equals its default."""
    codec = Codec()
    for data in samples():
        written = json.loads(codec.encode_event(data).data)
        assert set(attrs.fields_dict(type(data))) == set(written), type(data).__name__


# ------------------------------------------------------------------------------------------------------------ schema


def test_no_schema_changes_without_a_new_version() -> None:
    recorded = json.loads(SCHEMA.read_text())
    assert breaks(recorded, as_json(schemas())) == [], "give the event a new version, an upcaster and a golden log"
    assert as_json(schemas()) == recorded, f"compatible, and to be written down: {UPDATE}"


@attrs.frozen(kw_only=True)
class Note:
    """A plugin's event."""

    text: str
    number: int = 3
    choice: str | None = None


@attrs.frozen(kw_only=True)
class Longer:
    """The same with one more field that has a default."""

    text: str
    number: int = 3
    choice: str | None = None
    more: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Shorter:
    text: str
    number: int = 3


@attrs.frozen(kw_only=True)
class Other:
    text: int
    number: int = 3
    choice: str | None = None


@attrs.frozen(kw_only=True)
class Defaulted:
    text: str
    number: int = 4
    choice: str | None = None


@attrs.frozen(kw_only=True)
class Wider:
    text: str | None
    number: int = 3
    choice: str | int | None = None


@attrs.frozen(kw_only=True)
class Demanding:
    text: str
    wanted: str
    number: int = 3
    choice: str | None = None


def schema_of(data: type, version: int = 1) -> Any:
    upcasters = {v: (lambda stored: stored) for v in range(1, version)}
    return as_json(schemas((EventType(name="crm.note", data=data, version=version, upcasters=upcasters),)))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (Note, []),
        (Longer, []),
        (Wider, []),
        (Shorter, ["crm.note lost the field choice"]),
        (Other, ["crm.note has another type for text"]),
        (Defaulted, ["crm.note has another default for number"]),
        (Demanding, ["crm.note wants the new field wanted"]),
    ],
)
def test_what_breaks_old_logs_is_told_from_what_does_not(data: type, found: list[str]) -> None:
    assert breaks(schema_of(Note), schema_of(data)) == found
    assert breaks(schema_of(Note), schema_of(data, version=2)) == []
    assert breaks(schema_of(Note), {"events": {}, "classes": {}}) == ["crm.note is gone"]


def test_an_optional_field_more_changes_no_byte_and_no_digest() -> None:
    older = Codec([(EventType(name="crm.note", data=Note), "crm@1")])
    newer = Codec([(EventType(name="crm.note", data=Longer), "crm@2")])
    was = older.encode_event(Note(text="é", choice="x"))
    now = newer.encode_event(Longer(text="é", choice="x"))
    assert digest(was.data) == digest(now.data)
    row = Row(1, "crm.note", 1, 0, None, "crm@1", False, was.data, b"")
    assert newer.decode_data(row, lambda wanted: b"") == Longer(text="é", choice="x")
    more = row._replace(data=newer.encode_event(Longer(text="é", more=("a",))).data)
    assert older.decode_data(more, lambda wanted: b"") == Note(text="é")
    assert older.unknown_fields(more) == ("$.more",)


def test_a_trait_that_came_later_changes_the_digest_of_settings_only_where_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Traits(provider="p", protocol="q", model="m")
    unlike = attrs.evolve(plain, vision=not plain.vision)
    digests = [_settings_digest(traits) for traits in (plain, unlike)]
    monkeypatch.setattr("spine.routes._FIRST_TRAITS", _FIRST_TRAITS - {"vision"})  # as if it came later
    assert _settings_digest(plain) != digests[0]
    assert _settings_digest(unlike) == digests[1]
