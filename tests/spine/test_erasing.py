"""Erased: the bytes are gone, the chain holds, the session goes on, and the log says so."""

from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine import Agent, Runtime
from spine.codec import Codec, row_hash
from spine.config import Settings
from spine.erasing import Erased, erase
from spine.errors import EventUnknown, SessionBusy, SessionOwned, UsageError
from spine.events import EventType
from spine.exports import ExportReader, export, import_
from spine.forking import fork
from spine.hooks import hookimpl
from spine.log import LogReader
from spine.projectors.model_history import ModelHistory
from spine.proof.verify import Verification, report, verify
from spine.recorded import data_hash, erased_data, is_erased
from spine.store import Append, Overwrite, Owner, Row
from spine.stores.memory import MemoryStore
from spine.stores.sqlite import SqliteStore
from spine.testing import ScriptedAdapter, call, fail, say, think
from spine.tools import Tool, ToolDefinition
from spine.values import Digest, SessionId, decode, digest, encode

SESSION = SessionId("s")
OWNER = Owner("eraser", "h", 1, 1)
NOW = 1_790_000_000_000_000
SECRET = "the secret of a person"
ALONE = Settings(installed_plugins=False)
LONG = f"{SECRET}, at length: " + "x" * 70_000


def agent() -> Agent:
    def handler(arguments: Any, context: Any) -> str:
        context.progress(f"{SECRET} in progress")
        return LONG if arguments.get("long") else f"{SECRET} found"

    tool = Tool(definition=ToolDefinition(name="look", parameters={"type": "object"}), handler=handler)
    return Agent("scripted:demo", tools=(tool,), instructions=f"Keep {SECRET}.")


async def talk(store: Any, *inputs: str, session: str = "s") -> None:
    model = ScriptedAdapter(
        *(
            entry
            for _ in inputs
            for entry in (
                think(f"{SECRET}?") + say(f"{SECRET}!") + call("look", text=SECRET),
                say("Half") + fail("connection"),
            )
        )
    )
    async with Runtime.open(store, model=model, settings=ALONE) as runtime:
        opened = await runtime.session(session, agent(), metadata={"who": SECRET})
        for text in inputs:
            await opened.run(text, check=False)
        await opened.rename(f"About {SECRET}")


@pytest.fixture
def log() -> LogReader:
    """Two turns full of the secret."""
    store = MemoryStore()
    anyio.run(talk, store, SECRET, LONG)
    return LogReader(store, Codec(), SESSION)


def erased(log: LogReader, *seqs: int, contents: tuple[str, ...] = (), reason: str = "asked for") -> Erased:
    return erase(log, seqs, tuple(map(Digest, contents)), reason=reason, owner=OWNER, now=NOW)


def seqs_of(log: LogReader, *kinds: str) -> list[int]:
    return [row.seq for row in log.rows() if row.type in kinds]


def checked(log: LogReader) -> Verification:
    return verify(LogReader(log.store, Codec(), log.session))


def every_byte(log: LogReader) -> bytes:
    contents = log.store._contents.values()  # type: ignore[attr-defined]
    return b"".join([*(row.data for row in log.rows()), *(content.data for content in contents)])


# ------------------------------------------------------------------------------------------------------- the marks


@given(st.binary(), st.binary())
def test_the_digest_of_erased_data_stays(data: bytes, again: bytes) -> None:
    gone = erased_data(data, {"left": 1})
    assert is_erased(gone)
    assert data_hash(gone) == data_hash(data)
    assert data_hash(erased_data(gone, {})) == data_hash(data)
    assert is_erased(data) is data.startswith(b'{"$erased":"1:')
    assert data == again or data_hash(data) != data_hash(again)


# -------------------------------------------------------------------------------------------------- event by event


def private(row: Row) -> bool:
    return SECRET.encode() in row.data or b"$contents" in row.data


def test_each_event_that_holds_something_can_be_erased_and_the_session_goes_on(log: LogReader) -> None:
    before = {row.seq: row for row in log.rows()}
    for seq in [row.seq for row in before.values() if private(row)]:
        erased(log, seq)
        found = checked(log)
        assert found.problems == ()
        assert found.verdict == "ok"
    rows = list(log.rows())
    assert SECRET.encode() not in every_byte(log)
    for row in rows[: len(before)]:
        assert row._replace(data=b"") == before[row.seq]._replace(data=b"")
    anyio.run(go_on, log.store)


async def go_on(store: Any) -> None:
    model = ScriptedAdapter(say("On."))
    async with Runtime.open(store, model=model, settings=ALONE) as runtime:
        session = await runtime.session("s", agent())
        turn = await session.run("And now?")
        assert turn.text == "On."
        texts = [message.text for message in session.history()]
        assert texts == ["[erased]", "[erased]", "", "[erased]", "[erased]", "", "And now?", "On."]
        assert SECRET not in str(session.transcript())
        found = verify(LogReader(store, Codec(), SESSION))
        assert (found.verdict, found.requests[-1].state) == ("ok", "equal")


def test_erasing_an_answer_takes_its_pieces_along(log: LogReader) -> None:
    answer = seqs_of(log, "message.committed")[0]
    pieces = [seq for seq in seqs_of(log, "model.chunks") if seq < answer]
    assert pieces
    assert erased(log, answer).events == (*pieces, answer)


def test_erasing_an_event_takes_its_long_texts_along(log: LogReader) -> None:
    seq = next(row.seq for row in log.rows(types=("input.accepted",)) if b"$contents" in row.data)
    done = erased(log, seq)
    (digest,) = done.contents
    assert log.content(digest) == b"[erased]"
    assert checked(log).erased[-1].what in (digest, "input.accepted")
    assert checked(log).verdict == "ok"


@pytest.mark.parametrize("kind", ["input.delivered", "turn.completed", "content.erased"])
def test_what_holds_nothing_of_anybody_is_not_erased(log: LogReader, kind: str) -> None:
    anyio.run(talk, log.store, "More.")
    erased(log, seqs_of(log, "input.accepted")[0])
    found = seqs_of(log, kind)
    if not found:
        pytest.skip(f"no {kind} in this log")
    head = log.head
    with pytest.raises(UsageError, match="holds nothing that could be erased"):
        erased(log, found[0])
    assert log.head == head


def test_an_event_of_a_plugin_is_erased_whole_and_passed_over() -> None:
    store = MemoryStore()
    anyio.run(talk, store, "Hello.")
    log = LogReader(store, Codec(), SESSION)
    (row,) = log.rows(after=log.head[0] - 1)
    claim = store.claim(SESSION, OWNER, now=NOW, lease_us=1)
    note = Row(row.seq + 1, "crm.note", 1, NOW, None, "crm@1", False, encode({"text": SECRET}), b"")
    note = note._replace(hash=row_hash(row.hash, note))
    assert store.append([Append(SESSION, claim.token, row.seq, row.hash, (note,))]) == [None]
    store.release(SESSION, OWNER)
    erased(log, note.seq)
    (left,) = log.rows(after=note.seq - 1, until=note.seq)
    assert [*decode(left.data)] == ["$erased"]
    found = checked(log)
    assert found.problems == ()


@attrs.frozen(kw_only=True)
class Linked:
    """A required event of a plugin, which means nothing without its data."""

    who: str


class Crm:
    """A plugin that records one at each step."""

    __name__ = "crm"
    __version__ = "1"

    @hookimpl
    def spine_register_events(self, registrar: Any) -> None:
        registrar.add(EventType(name="crm.linked", data=Linked, required=True))

    @hookimpl
    async def spine_post_step(self) -> list[Any]:
        return [Linked(who=SECRET)]


async def test_a_required_event_of_a_plugin_is_erased_and_its_session_opens_where_the_plugin_is() -> None:
    store = MemoryStore()
    async with Runtime.open(store, model=ScriptedAdapter(say("1"), say("2")), settings=ALONE, plugins=(Crm(),)) as here:
        session = await here.session("s", Agent("scripted:demo"))
        await session.run("Hello.")
        await session.close()
        reader = here.reader("s")
        erase(reader, seqs_of(reader, "crm.linked"), reason="asked for", owner=OWNER, now=NOW)
        assert verify(reader).verdict == "ok"
        again = await here.session("s", Agent("scripted:demo"))
        assert (await again.run("Hello again.")).text == "2"
        assert "Hello again." in str([*again.history()])
    async with Runtime.open(store, model=ScriptedAdapter(), settings=ALONE) as elsewhere:
        with pytest.raises(EventUnknown, match="plugin crm@1"):
            await elsewhere.session("s", Agent("scripted:demo"))


# ------------------------------------------------------------------------------------------------ what is reported


def test_requests_that_rest_on_erased_data_are_said_to_and_earlier_ones_are_equal(log: LogReader) -> None:
    second = seqs_of(log, "input.accepted")[1]
    erased(log, second, reason="request 4711")
    found = checked(log)
    assert [request.state for request in found.requests] == ["equal", "equal", "erased", "erased"]
    text = report(found)
    assert "2 requests rebuilt, 2 digests equal · 2 requests on erased data" in text
    assert f'erased: input.accepted at seq {second} · "request 4711"' in text


def test_an_erasure_that_no_event_accounts_for_is_no_verdict(log: LogReader) -> None:
    seq = seqs_of(log, "input.accepted")[0]
    erased(log, seq)
    (row,) = log.rows(after=seq - 1, until=seq)
    claim = log.store.claim(SESSION, OWNER, now=NOW, lease_us=1)
    other = Overwrite(seq, row.hash, erased_data(row.data, {"message": {"content": ["forged"], "role": "user"}}))
    log.store.append([Append(SESSION, claim.token, *log.head, (), erased=(other,))])
    found = checked(log)
    assert (found.problems, found.verdict) == ((), "unproven")
    assert "no event of the log accounts for it" in report(found)


@pytest.mark.parametrize("place", range(0, 90, 7))
def test_another_digest_in_the_place_of_the_erased_one_breaks_the_chain(log: LogReader, place: int) -> None:
    seq = seqs_of(log, "input.accepted")[0]
    erased(log, seq)
    (row,) = log.rows(after=seq - 1, until=seq)
    data = bytearray(row.data)
    data[place] ^= 1
    claim = log.store.claim(SESSION, OWNER, now=NOW, lease_us=1)
    log.store.append([Append(SESSION, claim.token, *log.head, (), erased=(Overwrite(seq, row.hash, bytes(data)),))])
    assert checked(log).verdict != "ok"


# ---------------------------------------------------------------------------------------------------- contents


def test_a_content_is_erased_wherever_it_lies(log: LogReader) -> None:
    """Inside of events of all sessions, and beside the log."""
    anyio.run(lambda: talk(log.store, "Hello.", session="other"))
    inline = {decode(row.data)["digest"] for row in log.rows(types=("content.added",)) if SECRET.encode() in row.data}
    (instructions,) = inline
    done = erased(log, contents=(instructions,))
    assert done.sessions == ("s", "other")
    for session in done.sessions:
        reader = LogReader(log.store, Codec(), session)
        found = checked(reader)
        assert (found.problems, found.verdict) == ((), "ok")
        assert {request.state for request in found.requests} == {"erased"}
        assert not any(SECRET.encode() in row.data for row in reader.rows(types=("content.added",)))


def test_a_content_that_is_not_there_is_refused(log: LogReader) -> None:
    with pytest.raises(UsageError, match="is not in memory:"):
        erased(log, contents=("1:" + "0" * 64,))


# ------------------------------------------------------------------------------------------------ forks, copies


def test_forks_that_share_the_event_account_for_it_too(log: LogReader) -> None:
    async def fork() -> None:
        async with Runtime.open(log.store, model=ScriptedAdapter(), settings=ALONE) as runtime:
            await runtime.fork("s", "with", seq=log.head[0])
            await runtime.fork("s", "without", seq=1)

    anyio.run(fork)
    done = erased(log, seqs_of(log, "input.accepted")[0])
    assert done.sessions == ("s", "with")
    for session in ("s", "with", "without"):
        assert checked(LogReader(log.store, Codec(), SessionId(session))).verdict == "ok"


@pytest.mark.parametrize("what", ["events", "contents"])
def test_forks_of_what_was_erased_before_account_for_it_wherever_they_begin(log: LogReader, what: str) -> None:
    """Also forks of such forks, and one that begins before the event that says what was erased."""
    head, first = log.head[0], seqs_of(log, "input.accepted")[0]
    if what == "events":
        erased(log, *seqs_of(log, "input.accepted", "message.committed"))
    else:
        erased(log, contents=(digest(LONG.encode()),))
    source = log
    for number, seq in enumerate((log.head[0], head, first + 1, first, 1)):
        child = SessionId(f"fork-{number}")
        fork(source, child, seq, owner=OWNER, now=NOW)
        source = LogReader(log.store, Codec(), child)
        found = checked(source)
        assert (found.verdict, found.problems) == ("ok", ())
        assert {part.reason for part in found.erased} <= {"asked for"}
    assert [row.type for row in source.rows()] == ["session.created", "session.forked"]


def test_a_long_text_that_was_erased_is_stored_again_when_it_is_used_again(log: LogReader) -> None:
    """By another session, and by the one it was erased in: neither is shown what was left in its place."""
    erased(log, contents=(digest(LONG.encode()),))
    anyio.run(lambda: talk(log.store, LONG, session="other"))
    other = LogReader(log.store, Codec(), SessionId("other"))
    assert checked(other).verdict == "ok"
    assert LONG in str([*other.project(ModelHistory()).view()])


def test_long_instructions_that_were_erased_reach_the_next_request_whole() -> None:
    store, model = MemoryStore(), ScriptedAdapter(say("1"), say("2"), say("3"))
    agent = Agent("scripted:demo", instructions=LONG)

    async def ask() -> None:
        async with Runtime.open(store, model=model, settings=ALONE) as runtime:
            await (await runtime.session("s", agent)).run("Hello.")

    log = LogReader(store, Codec(), SESSION)
    anyio.run(ask)
    erased(log, contents=(digest(LONG.encode()),))
    anyio.run(ask)
    anyio.run(ask)
    found = checked(log)
    assert (found.verdict, [each.state for each in found.requests]) == ("ok", ["equal"] * 3)
    assert log.request(seqs_of(log, "model.requested")[-1]).system[0].text == LONG


def test_an_export_of_an_erased_log_verifies_and_comes_back(log: LogReader, tmp_path: Path) -> None:
    for seq in [row.seq for row in log.rows() if private(row)]:
        erased(log, seq)
    path = tmp_path / "s.jsonl"
    with path.open("wb") as file:
        export(log, file.write)
    assert SECRET.encode() not in path.read_bytes()
    reader = ExportReader(path, Codec())
    reader.check()
    assert verify(reader).verdict == "ok"
    reader.close()
    store = MemoryStore()
    import_(path, store, codec=Codec(), owner=OWNER, now=NOW)
    assert checked(LogReader(store, Codec(), SESSION)) == checked(log)


def test_the_file_of_a_store_holds_nothing_of_it_any_more(tmp_path: Path) -> None:
    path = tmp_path / "spine.db"
    store = SqliteStore(path, "relaxed")
    anyio.run(talk, store, SECRET, LONG)
    store = SqliteStore(path)
    log = LogReader(store, Codec(), SESSION)
    assert SECRET.encode() in path.read_bytes()
    erase(log, [row.seq for row in log.rows() if private(row)], reason="asked for", owner=OWNER, now=NOW)
    assert checked(log).verdict == "ok"
    assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.iterdir())
    store.close()


# --------------------------------------------------------------------------------------------------------- races


class Meddled:
    """A store in which something happens just before the first batch of a kind is stored, or just after it."""

    def __init__(self, store: Any, kind: str, meddle: Any, *, is_late: bool = False) -> None:
        self._store, self._kind, self._meddle, self._is_late = store, kind, meddle, is_late

    def append(self, batches: Any) -> Any:
        meddle = None
        if any(getattr(batch, self._kind) for batch in batches):
            meddle, self._meddle = self._meddle, None
        if meddle is not None and not self._is_late:
            meddle()
        verdicts = self._store.append(batches)
        if meddle is not None and self._is_late:
            meddle()
        return verdicts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("made", ["before it is stored", "after it is stored", "around it"])
def test_a_fork_that_is_made_while_something_is_erased_says_so_once(log: LogReader, made: str) -> None:
    """Whichever of the two was looking when the other one was stored."""
    seq, child = seqs_of(log, "input.accepted")[0], LogReader(log.store, Codec(), SessionId("child"))
    others = attrs.evolve(OWNER, id="forker")

    def make_fork(store: Any) -> None:
        fork(LogReader(store, Codec(), SESSION), child.session, owner=others, now=NOW)

    def erase_it(store: Any) -> None:
        erase(LogReader(store, Codec(), SESSION), [seq], reason="asked for", owner=OWNER, now=NOW)

    if made == "around it":
        make_fork(Meddled(log.store, "base", lambda: erase_it(log.store)))
    else:
        is_late = made == "after it is stored"
        erase_it(Meddled(log.store, "erased", lambda: make_fork(log.store), is_late=is_late))
    assert [checked(log).verdict, checked(child).verdict] == ["ok", "ok"]
    assert len(seqs_of(child, "content.erased")) == 1
    assert SECRET.encode() not in next(iter(child.rows(after=seq - 1, until=seq))).data


# ---------------------------------------------------------------------------------------------------- refusals


def test_a_session_that_others_own_is_left_alone(log: LogReader) -> None:
    log.store.claim(SESSION, attrs.evolve(OWNER, id="another"), now=NOW, lease_us=10**9)
    with pytest.raises(SessionOwned):
        erased(log, seqs_of(log, "input.accepted")[0])
    assert SECRET.encode() in every_byte(log)


def test_while_a_turn_is_open_nothing_is_erased() -> None:
    async def begin(store: MemoryStore) -> None:
        asks = attrs.evolve(agent().own_tools[0], approval="ask")
        async with Runtime.open(store, model=ScriptedAdapter(call("look")), settings=ALONE) as runtime:
            session = await runtime.session("s", Agent("scripted:demo", tools=(asks,)))
            await session.run("Go.")

    store = MemoryStore()
    anyio.run(begin, store)
    with pytest.raises(SessionBusy, match='turn t1 of session "s" is open'):
        erased(LogReader(store, Codec(), SESSION), 2)


def test_a_reason_is_wanted_and_the_event_must_be_there(log: LogReader) -> None:
    with pytest.raises(UsageError, match="wants a reason"):
        erased(log, 2, reason=" ")
    with pytest.raises(UsageError, match="s has no event 999"):
        erased(log, 999)


def test_erasing_again_changes_nothing_that_is_erased(log: LogReader) -> None:
    seq = seqs_of(log, "input.accepted")[0]
    erased(log, seq)
    (before,) = log.rows(after=seq - 1, until=seq)
    erased(log, seq)
    assert [before] == list(log.rows(after=seq - 1, until=seq))
    assert checked(log).verdict == "ok"
