"""The log is append-only: numbers without gap, facts that nobody can change, the same bytes for the same events."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from stage import TickingClock, agent_of, events_of, judge, kinds_of, plugin, staged, tool_of

from spine.codec import Codec, genesis, row_hash
from spine.errors import EventUnknown, LogBroken, UsageError, ValueRefused
from spine.events import EventType, InputAccepted, RecordedEvent, UnknownEvent
from spine.llm.request import ModelRequest
from spine.messages import Message, TextBlock
from spine.projectors import SessionTranscript, fold, to_text
from spine.projectors.model_history import ModelHistory
from spine.store import Append, Owner, Row
from spine.stores.memory import MemoryStore
from spine.testing.script import call, fail, say, think
from spine.tools import ToolInvocation
from spine.values import JsonObject, SessionId, encode

pytestmark = pytest.mark.anyio
SCRIPT = (
    fail("rate_limit", retry_after_s=0),
    think("Hm.") + say("Looking.") + call("look", n=1, deep={"a": [1, {"b": 2}]}),
    say("Pay?") + call("pay", cents=5),
    say("Paid."),
    say("Again."),
)


def look(arguments: Any, context: Any) -> dict[str, Any]:
    context.progress("half", {"k": [1]})
    return {"found": [1, 2, {"three": 3}]}


async def everything(runtime: Any, observer: Any = None) -> Any:
    """A session in which nearly all there is happens: retry, tools, an approval, a cancel, a title, a second turn."""
    tools = (tool_of("look", look, effect="read_only"), tool_of("pay", look, approval="ask"))
    session = await runtime.session("s", agent_of(*tools, instructions="Be brief."), metadata={"m": [1, {"x": 2}]})
    if observer is not None:
        session.log.observe(observer)
    await session.run("Go.")
    await session.rename("Title")
    await session.approve("a1", by="me")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await session.run("Not now.")
    await session.run("Once more.")
    return session


async def test_numbers_are_1_2_3_over_everything_a_session_does() -> None:
    """Seq is 1, 2, 3, … over runs, retries, approvals, cancels and renames, in the log and at every observer."""
    async with staged(*SCRIPT) as runtime:
        seen: list[int] = []
        session = await everything(runtime, lambda event: seen.append(event.seq))
        events = judge(session.log)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert seen == [event.seq for event in events]
        assert len(events) > 25


# --------------------------------------------------------------------------------------------------- immutability


def values_in(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """Every value inside a value, with its path."""
    yield path, value
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from values_in(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from values_in(item, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from values_in(item, f"{path}[{i}]")


def attempts_to_change(value: Any) -> Iterator[Any]:
    """Ways to change a value in place; each must raise."""
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield lambda name=field.name: setattr(value, name, None)
            yield lambda name=field.name: delattr(value, name)
    elif isinstance(value, dict):
        yield lambda: value.__setitem__("new", 1)
        yield lambda: value.update(new=1)
        yield lambda: value.setdefault("new", 1)
        yield lambda: value.pop("any", None)
        yield lambda: value.clear()
        yield lambda: value.popitem()
        yield lambda: value.__ior__({"new": 1})
        yield lambda: value.__delitem__(next(iter(value), "any"))


def assert_frozen(root: Any) -> int:
    """Try to change everything inside `root`; how many attempts there were."""
    tried = 0
    for path, value in values_in(root):
        assert not isinstance(value, (list, set, bytearray)), f"{path} is a {type(value).__name__}"
        assert type(value) is not dict, f"{path} is a plain dict"
        for attempt in attempts_to_change(value):
            with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError, TypeError)):
                attempt()
            tried += 1
    return tried


async def test_no_value_of_an_event_can_be_changed_anywhere_inside() -> None:
    """Every stored value is frozen deeply: attributes, JSON objects, sequences, however far inside."""
    async with staged(*SCRIPT) as runtime:
        recorded: list[RecordedEvent] = []
        session = await everything(runtime, recorded.append)
        assert sum(map(assert_frozen, recorded)) > 1000
        assert sum(map(assert_frozen, events_of(session))) > 1000
        assert assert_frozen(session.turn) > 50
        assert assert_frozen(tuple(session.history())) > 50


async def test_what_a_caller_keeps_of_its_input_cannot_change_history() -> None:
    """A message is stored as it was given: a list the caller goes on filling is not part of it."""
    async with staged(say("ok"), say("ok")) as runtime:
        session = await runtime.session("s", agent_of())
        content: Any = [TextBlock(text="first")]
        metadata: dict[str, Any] = {"k": [1]}
        await session.run(Message(role="user", content=content, kind="user", metadata=metadata))
        content.append(TextBlock(text="smuggled"))
        metadata["k"].append(2)
        await session.run("next")
        assert session.history()[0].text == "first"
        assert encode(session.history()[0].metadata) == b'{"k":[1]}'
        judge(session.log)


def test_a_json_object_changes_only_by_evolve() -> None:
    """`evolve` returns a changed copy and leaves the original as it was."""
    original = JsonObject({"a": 1})
    changed = original.evolve(a=2, b=[3])
    assert (original, changed) == ({"a": 1}, {"a": 2, "b": (3,)})
    assert_frozen(changed)


# --------------------------------------------------------------------------------------------------- determinism


async def test_the_same_session_gives_the_same_bytes_again() -> None:
    """With the same clock and random numbers a session's log is the same, byte for byte, on every run."""
    logs = []
    for _ in range(2):
        async with staged(*SCRIPT, clock=TickingClock(), random=lambda: 0.5) as runtime:
            session = await everything(runtime)
            logs.append([(row.type, row.place, row.data) for row in session.log.rows()])
    assert logs[0] == logs[1]


_HISTORY = """
import sys
from spine.codec import Codec
from spine.projectors import SessionTranscript, fold, to_text
from spine.projectors.model_history import ModelHistory
from spine.log import LogReader
from spine.stores.sqlite import SqliteStore
from spine.values import SessionId
reader = LogReader(SqliteStore(sys.argv[1]), Codec(), SessionId("s"))
projector = ModelHistory()
state = projector.initial()
for event in reader.read():
    if event.type in projector.types:
        projector.apply(state, event)
sys.stdout.buffer.write(b"".join(reader.codec.message_bytes(m) for m in state.view()))
sys.stdout.buffer.write(to_text(fold(SessionTranscript(), reader.read())).encode())
reader.store.close()
"""


async def test_history_is_the_same_bytes_whatever_the_hash_seed_and_locale(tmp_path: Path) -> None:
    """The same log gives the same history and transcript in other processes, hash seeds, locales and time zones."""
    path = tmp_path / "s.db"
    async with staged(*SCRIPT, store=f"sqlite:{path}") as runtime:
        session = await everything(runtime)
        live = b"".join(session.log.codec.message_bytes(message) for message in session.history())
        live += to_text(session.transcript()).encode()
    for environment in (
        {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "UTC"},
        {"PYTHONHASHSEED": "4242", "LC_ALL": "C.UTF-8", "TZ": "Pacific/Auckland"},
    ):
        found = subprocess.run([sys.executable, "-c", _HISTORY, str(path)], env=environment, capture_output=True)
        assert found.stdout == live, found.stderr.decode()


# ------------------------------------------------------------------------------------------------ unknown events


@attrs.frozen(kw_only=True)
class NoteTaken:
    text: str


@attrs.frozen(kw_only=True)
class NoteTakenNow:
    words: tuple[str, ...]
    by: str = "nobody"


NOTE = EventType(name="crm.note", data=NoteTaken)


def add_rows(store: MemoryStore, id: str, *rows: tuple[str, int, str | None, bool, Any]) -> None:
    """Append rows of any type behind a session's log, with a whole chain."""
    session = SessionId(id)
    owner = Owner(id="by-hand", host="h", pid=1, started=0)
    claim = store.claim(session, owner, now=2**60, lease_us=0, take_over=True)
    seq, previous, made = claim.seq, claim.hash or genesis(session), []
    for kind, version, origin, required, data in rows:
        seq += 1
        row = Row(seq, kind, version, 1, None, origin, required, encode(data), b"")
        row = row._replace(hash=row_hash(previous, row))
        previous = row.hash
        made.append(row)
    assert store.append([Append(session, claim.token, claim.seq, claim.hash, tuple(made))]) == [None]
    store.release(session, owner)


async def stored_session(store: MemoryStore) -> None:
    async with staged(say("First."), store=store) as runtime:
        await (await runtime.session("s", agent_of())).run("Go.")


UNKNOWN = {
    "a core type that is not known": ("core.magic", 1, None, True),
    "a core type that is not known and not required": ("core.hint", 1, None, False),
    "a newer version of a core type": ("input.accepted", 99, None, True),
    "a newer version of a type that is not required": ("tool.progress", 99, None, False),
    "a required type of a plugin that is not installed": ("crm.linked", 1, "crm@1.4", True),
}


@pytest.mark.parametrize(("kind", "version", "origin", "required"), UNKNOWN.values(), ids=UNKNOWN)
async def test_an_event_that_may_not_be_skipped_opens_read_only_up_to_it(
    kind: str, version: int, origin: str | None, required: bool
) -> None:
    """What cannot be projected is refused with its seq and type; up to there, and for listing, all still works."""
    store = MemoryStore()
    await stored_session(store)
    count = store.head(SessionId("s"))[0]  # type: ignore[index]
    add_rows(store, "s", (kind, version, origin, required, {"x": 1}))
    async with staged(say("Second."), store=store) as runtime:
        with pytest.raises(EventUnknown, match=f"up to seq {count}") as refused:
            await runtime.session("s", agent_of())
        assert refused.value.seq == count + 1
        assert kind in refused.value.message
        assert store.owner(SessionId("s")) is None, "a session that did not open is not owned"
        reader = runtime.reader("s")
        listed = list(reader.read())
        assert [event.seq for event in listed] == list(range(1, count + 2))
        assert listed[-1].data == UnknownEvent(JsonObject({"x": 1}))
        assert to_text(fold(SessionTranscript(), reader.read(until=count))).count("First.") == 1
        with pytest.raises(EventUnknown):
            fold(SessionTranscript(), reader.read())
        assert store.head(SessionId("s"))[0] == count + 1  # type: ignore[index]


async def test_events_of_a_plugin_that_is_gone_are_skipped_and_kept() -> None:
    """Unknown plugin events are no obstacle: the session loads and goes on, and their bytes stay as they are."""
    store = MemoryStore()
    await stored_session(store)
    add_rows(store, "s", *(("team.note", 1, "team@2", False, {"n": n}) for n in range(3)))
    before = list(store.read(SessionId("s")))
    async with staged(say("Second."), store=store) as runtime:
        session = await runtime.session("s", agent_of())
        assert (await session.run("More.")).text == "Second."
        assert list(session.log.rows())[: len(before)] == before
        unknown = [event for event in events_of(session) if isinstance(event.data, UnknownEvent)]
        assert [(event.type, event.data.data["n"]) for event in unknown] == [("team.note", n) for n in range(3)]
        judge(session.log)


async def test_unknown_fields_are_kept_and_reported_and_read_over() -> None:
    """A field that a newer version wrote is named by its path; the event reads as far as it is known."""
    store = MemoryStore()
    await stored_session(store)
    extra = {"title": "x", "mood": "good", "deep": {"er": 1}}
    add_rows(store, "s", ("session.renamed", 1, None, True, extra))
    async with staged(store=store) as runtime:
        session = await runtime.session("s", agent_of())
        row = list(session.log.rows())[-1]
        assert session.log.codec.unknown_fields(row) == ("$.deep", "$.mood")
        assert events_of(session)[-1].data.title == "x"
        assert session.log.status.title == "x"
        assert row.data == encode(extra)


async def test_a_known_event_with_broken_data_is_named_by_its_seq() -> None:
    """A malformed core event is reported with its number, not as a bare traceback."""
    store = MemoryStore()
    await stored_session(store)
    add_rows(store, "s", ("session.renamed", 1, None, True, {"title": 5}))
    seq = store.head(SessionId("s"))[0]  # type: ignore[index]
    async with staged(store=store) as runtime:
        with pytest.raises(LogBroken, match=f"seq {seq} ") as broken:
            await runtime.session("s", agent_of())
        assert broken.value.seq == seq


# ----------------------------------------------------------------------------------------------------- upcasters


def split_words(data: dict[str, Any]) -> dict[str, Any]:
    return {"words": data["text"].split()}


def add_author(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "by": "somebody"}


def with_events(*kinds: EventType) -> Any:
    def register(registrar: Any) -> None:
        for kind in kinds:
            registrar.add(kind)

    return plugin("crm", spine_register_events=register)


async def test_a_plugins_old_events_are_read_through_its_upcasters() -> None:
    """Version 1 data arrive as version 3 by way of 2; the stored bytes are not rewritten."""
    store = MemoryStore()
    await stored_session(store)
    add_rows(
        store,
        "s",
        ("crm.note", 1, "crm@1", False, {"text": "a b"}),
        ("crm.note", 2, "crm@2", False, {"words": ["c"]}),
        ("crm.note", 3, "crm@3", False, {"words": ["d"], "by": "me"}),
    )
    now = EventType(name="crm.note", data=NoteTakenNow, version=3, upcasters={1: split_words, 2: add_author})
    before = list(store.read(SessionId("s")))
    async with staged(store=store, plugins=[with_events(now)]) as runtime:
        notes = [event for event in runtime.reader("s").read() if event.type == "crm.note"]
        assert [event.data for event in notes] == [
            NoteTakenNow(words=("a", "b"), by="somebody"),
            NoteTakenNow(words=("c",), by="somebody"),
            NoteTakenNow(words=("d",), by="me"),
        ]
        assert [event.version for event in notes] == [1, 2, 3]
        await runtime.session("s", agent_of())
        assert list(store.read(SessionId("s"))) == before


@pytest.mark.parametrize(
    ("kind", "message"),
    {
        "no upcaster": (
            EventType(name="crm.note", data=NoteTakenNow, version=3, upcasters={1: split_words}),
            "from version 2",
        ),
        "no prefix": (EventType(name="note", data=NoteTaken), "plugin.name"),
        "a prefix of the core": (EventType(name="tool.note", data=NoteTaken), "plugin.name"),
        "data of another type": (EventType(name="crm.input", data=InputAccepted), "data of another type"),
    }.values(),
)  # fmt: skip
def test_an_event_type_that_could_not_be_read_for_ever_is_refused(kind: EventType, message: str) -> None:
    """A gap in the upcasters, a name outside the plugin's own, and borrowed data are refused at registration."""
    with pytest.raises(UsageError, match=message):
        Codec([(kind, "crm@1")])


def test_two_plugins_cannot_declare_one_event_type() -> None:
    """The second declaration is refused and names who came second."""
    with pytest.raises(UsageError, match=r"declared twice; other@2 came second"):
        Codec([(NOTE, "crm@1"), (EventType(name="crm.note", data=NoteTakenNow), "other@2")])


def test_an_upcaster_that_fails_is_reported_with_the_events_number() -> None:
    """A stored version that its upcaster cannot read is damage at that seq, not a bare exception."""
    kind = EventType(name="crm.note", data=NoteTakenNow, version=2, upcasters={1: split_words})
    codec = Codec([(kind, "crm@1")])
    row = Row(7, "crm.note", 1, 1, None, "crm@1", False, b'{"wrong":1}', b"")
    with pytest.raises(LogBroken, match="seq 7"):
        codec.decode_row(SessionId("s"), row, b"", lambda digest: b"")


# -------------------------------------------------------------------------------------------------- values at work


def test_a_value_that_is_no_json_is_refused_at_the_door() -> None:
    """Sets, bytes, NaN and keys that are no text never enter an event."""
    for bad in ({"a": {1, 2}}, {"a": b"x"}, {"a": float("nan")}, {1: "a"}, {"a": object()}):
        with pytest.raises(ValueRefused):
            ToolInvocation(id="c", name="n", arguments=bad, requested=None)  # type: ignore[arg-type]


async def test_a_request_keeps_messages_that_nobody_can_change() -> None:
    """A list of messages in a request is made a tuple: what was digested is what is sent."""
    messages = [Message(role="user", content=(TextBlock(text="a"),))]
    request = ModelRequest(route=None, step="t1s1", messages=messages)  # type: ignore[arg-type]
    messages.clear()
    assert len(request.messages) == 1


async def test_projection_of_history_takes_no_part_of_the_event_types_it_does_not_read() -> None:
    """`model_history` declares the types it reads; feeding only those gives the same history."""
    async with staged(*SCRIPT) as runtime:
        session = await everything(runtime)
        projector = ModelHistory()
        state = projector.initial()
        for event in session.log.read(types=tuple(projector.types)):
            projector.apply(state, event)
        assert tuple(state.view()) == tuple(session.history())
        assert "model.chunks" in kinds_of(session)
