"""spine.proof.verify: what holds is said to hold, and nothing else is."""

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spine.codec import Codec
from spine.commits import Writer
from spine.errors import LogBroken, SessionUnknown, StoreUnavailable, UsageError
from spine.events import EventType
from spine.exports import ExportReader
from spine.log import LogReader, SessionLog
from spine.proof.verify import Verification, head_note, parse_head, report, verify
from spine.store import Claim, Row
from spine.stores.memory import MemoryStore
from spine.testing.clock import FakeClock
from spine.values import SessionId, decode, encode

Edit = Callable[[list[Row]], list[Row]]
Rechained = Callable[[Edit], LogReader]
FromFile = Callable[[bytes], ExportReader]


def changed(row: Row, **fields: object) -> Row:
    """A row whose data has other fields."""
    return row._replace(data=encode({**decode(row.data), **fields}))


def find(rows: list[Row], kind: str, number: int = 0) -> int:
    return [i for i, row in enumerate(rows) if row.type == kind][number]


# ------------------------------------------------------------------------------------------------------------ whole


def test_a_log_that_was_not_touched_holds(demo: LogReader) -> None:
    found = verify(demo)
    assert (found.verdict, found.problems, found.broken_at, found.answered) == ("ok", (), None, 2)
    assert (found.events, found.head) == (demo.head[0], demo.head)
    assert [(r.step, r.state) for r in found.requests] == [("t1s1", "equal"), ("t1s2", "equal"), ("t1s3", "equal")]


def test_the_report_of_a_whole_log_is_two_lines(demo: LogReader) -> None:
    found = verify(demo)
    seq, hash = demo.head[0], demo.head[1].hex()[:12]
    assert report(found) == (
        f"refund-1017  ok  {seq} events without gap · chain whole · 3 requests rebuilt, 3 digests equal · "
        "2 calls answered once"
    )
    assert head_note(found) == (
        f"head {seq} {hash}…   note it elsewhere: a chain alone cannot show a cut at its end; "
        f"then: spine verify refund-1017 --head {seq}:{hash}"
    )


def test_an_unknown_session_is_told() -> None:
    with pytest.raises(SessionUnknown):
        verify(LogReader(MemoryStore(), Codec(), SessionId("none")))


# ----------------------------------------------------------------------------------------------------------- edited


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(min_value=0), flip=st.integers(1, 255))
@example(position=0, flip=1)
@example(position=470, flip=32)  # a digit of a hash becomes a capital
def test_any_changed_byte_of_an_export_is_found(
    demo_export: bytes, tmp_path_factory: pytest.TempPathFactory, position: int, flip: int
) -> None:
    """The announced creation time of the first line is the one thing that no hash covers."""
    begin, end = demo_export.index(b'"created":'), demo_export.index(b"\n")
    at = position % len(demo_export)
    data = bytearray(demo_export)
    data[at] ^= flip
    path = tmp_path_factory.mktemp("flip") / "x.jsonl"
    path.write_bytes(data)
    try:
        reader = ExportReader(path, Codec())
    except StoreUnavailable:
        return
    try:
        if not begin <= at < end and at != len(demo_export) - 1:
            assert verify(reader).verdict == "broken", (at, demo_export[at - 20 : at + 20])
    finally:
        reader.close()


def test_the_first_bad_event_is_named_with_what_rests_on_it(demo_export: bytes, from_file: FromFile) -> None:
    found = verify(from_file(demo_export.replace(b'"state":"delivered"', b'"state":"delivereD"', 1)))
    seq = found.broken_at
    assert seq is not None
    (problem,) = found.problems
    assert (problem.seq, problem.what) == (seq, "tool.completed t1s1c1")
    lines = report(found).split("\n")
    assert lines[0].startswith(f"refund-1017  BROKEN at seq {seq} (tool.completed t1s1c1): its hash should be ")
    assert ", its content gives " in lines[0]
    assert lines[1] == (
        f"             seq 1-{seq - 1} are proven; 3 requests: t1s1 equal, t1s2 and t1s3 rest on seq {seq} (message 3)"
    )


@pytest.mark.parametrize(
    ("old", "new", "states", "part"),
    [
        (b"Be brief.", b"Be Brief.", "rests rests rests", "section instructions"),
        (b"Pay an order back", b"Pay an order Back", "rests rests rests", "tool refund"),
        (b"arrived broken", b"arrived brokeN", "rests rests rests", "message 1"),
        (b"so I will refund it", b"so I will refund iT", "equal equal rests", "message 4"),
        (b'"channel":"session.approve"', b'"channel":"session.approvE"', "equal equal equal", ""),
    ],
    ids=["section", "tool", "input", "answer", "decision"],
)
def test_which_requests_rest_on_a_bad_event_and_with_which_part(
    demo_export: bytes, from_file: FromFile, old: bytes, new: bytes, states: str, part: str
) -> None:
    """A request that still rebuilds to the one sent rests on nothing bad, whatever the chain says."""
    assert demo_export.count(old) >= 1
    at = demo_export.rindex(old)
    found = verify(from_file(demo_export[:at] + new + demo_export[at + len(old) :]))
    assert found.verdict == "broken"
    assert " ".join(request.state for request in found.requests) == states
    assert {request.part for request in found.requests if request.state == "rests"} == ({part} if part else set())
    assert {request.part for request in found.requests if request.state == "equal"} <= {""}


def test_a_request_that_cannot_be_rebuilt_rests_on_what_is_missing(demo_export: bytes, from_file: FromFile) -> None:
    lines = demo_export.splitlines(keepends=True)
    kept = [line for line in lines if b'"type":"tool.completed"' not in line]
    found = verify(from_file(b"".join(kept)))
    assert [request.state for request in found.requests] == ["equal", "rests", "rests"]


def test_a_line_that_is_gone_is_a_gap(demo_export: bytes, from_file: FromFile) -> None:
    lines = demo_export.splitlines(keepends=True)
    found = verify(from_file(b"".join(lines[:5] + lines[6:])))
    assert found.broken_at == 5
    assert found.problems[0].text == "it is missing; after seq 4 comes seq 6 (content.added t1s1)"


@pytest.mark.parametrize(
    ("order", "first", "last"),
    [
        ((0, 1, 2, 3, 4, 4), 4, "it does not stand in its place; after seq 4 comes seq 4 (input.delivered t1)"),
        ((0, 1, 2, 4, 3), 3, "it does not stand in its place; after seq 4 comes seq 3 (turn.started t1)"),
    ],
    ids=["twice", "swapped"],
)
def test_a_line_in_another_place_is_told_as_such(
    demo_export: bytes, from_file: FromFile, order: tuple[int, ...], first: int, last: str
) -> None:
    lines = demo_export.splitlines(keepends=True)
    found = verify(from_file(b"".join([*(lines[i] for i in order), *lines[5:]])))
    assert found.broken_at == first
    assert last in [problem.text for problem in found.problems]


def test_a_line_that_is_no_event_ends_the_check_there(demo_export: bytes, from_file: FromFile) -> None:
    lines = demo_export.splitlines(keepends=True)
    found = verify(from_file(b"".join([*lines[:5], b"nothing\n", *lines[6:]])))
    assert (found.broken_at, found.verdict) == (5, "broken")
    assert found.problems[0].text.endswith("the line of seq 5 is no event")


@pytest.mark.parametrize("lines", [1, 5])
def test_an_export_that_was_cut_does_not_hold(demo_export: bytes, from_file: FromFile, lines: int) -> None:
    found = verify(from_file(b"".join(demo_export.splitlines(keepends=True)[:lines])))
    assert (found.verdict, found.broken_at) == ("broken", lines)
    assert "its first line says" in report(found)


@pytest.mark.parametrize("left", [0, 5])
def test_events_that_are_gone_from_a_store_are_missed(
    demo: LogReader, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Its list of sessions still says where the log ended; nothing goes on from there."""
    store, rows = demo.store, list(demo.rows(until=left))
    last = demo.head[0]
    monkeypatch.setattr(store, "read", lambda session, *, after=0, until=None, types=(): iter(rows[after:until]))
    found = verify(demo)
    assert (found.verdict, found.broken_at) == ("broken", left + 1)
    assert f"the log ends at seq {left}, its head should be seq {last}" in found.problems[0].text
    claim = Claim(1, *demo.head)
    with pytest.raises(LogBroken, match=f"the log ends at seq {left}, its head is seq {last}"):
        SessionLog(Writer(store), demo.codec, demo.session, claim, FakeClock()).load()


def test_a_gap_is_missed_when_a_log_is_opened(demo: LogReader, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in demo.rows() if row.seq != 4]
    monkeypatch.setattr(demo.store, "read", lambda session, **_: iter(rows))
    with pytest.raises(LogBroken, match="seq 4 is missing"):
        SessionLog(Writer(demo.store), demo.codec, demo.session, Claim(1, *demo.head), FakeClock()).load()


def test_many_problems_are_counted_not_listed(demo_export: bytes, from_file: FromFile) -> None:
    found = verify(from_file(demo_export.replace(b'"version":1', b'"version":2')))
    assert len(found.problems) == found.events
    assert report(found).endswith(f"and {found.events - 11} more")


# ------------------------------------------------------------------------------------------- the chain whole, and yet


def test_a_request_that_does_not_rebuild_is_found_though_the_chain_is_whole(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        at = find(rows, "input.accepted")
        message = {"role": "user", "content": ["Something else."], "kind": "user"}
        rows[at] = changed(rows[at], message=message)
        return rows

    found = verify(rechained(edit))
    assert (found.verdict, found.broken_at) == ("broken", None)
    assert [r.state for r in found.requests] == ["different"] * 3
    assert report(found).startswith(
        "refund-1017  BROKEN at seq 9 (model.requested t1s1): the rebuilt request has digest "
    )


def test_a_request_that_differs_says_where_it_can(rechained: Rechained) -> None:
    """The chain was made right again, so only what is new since the last equal request can be wrong."""

    def edit(rows: list[Row]) -> list[Row]:
        at = find(rows, "tool.completed")
        result = {**decode(rows[at].data)["result"], "content": ["Something else."]}
        rows[at] = changed(rows[at], result=result)
        return rows

    found = verify(rechained(edit))
    assert [request.state for request in found.requests] == ["equal", "different", "different"]
    assert [request.part for request in found.requests] == [
        "",
        "messages 2-3, new since t1s1",
        "messages 2-5, new since t1s1",
    ]
    assert "it differs in messages 2-3, new since t1s1" in report(found)


def test_a_request_that_went_out_with_an_open_call_is_found(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        del rows[find(rows, "tool.completed")]
        return rows

    texts = [problem.text for problem in verify(rechained(edit)).problems]
    assert any(text.startswith("the request went out although call t1s1c1 (seq ") for text in texts)


def test_a_call_that_was_answered_twice_is_found(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        at = find(rows, "tool.completed")
        return [*rows[: at + 1], rows[at], *rows[at + 1 :]]

    found = verify(rechained(edit))
    assert "the call was answered at seq " in found.problems[0].text
    assert found.problems[0].what == "tool.completed t1s1c1"


def test_an_answer_to_a_call_nobody_asked_for_is_found(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        at = find(rows, "tool.completed", 1)
        result = {**decode(rows[at].data)["result"], "call_id": "t1s2c9"}
        rows.insert(at, changed(rows[at], result=result))
        return rows

    assert "no message asks for this call" in [problem.text for problem in verify(rechained(edit)).problems]


def test_an_event_that_contradicts_the_others_is_found(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        at = find(rows, "input.delivered")
        rows[at] = changed(rows[at], inputs=[77])
        return rows

    found = verify(rechained(edit))
    assert found.problems[0].text.startswith("it contradicts the events before it")


def test_data_that_does_not_fit_its_type_is_found(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        at = find(rows, "turn.completed")
        rows[at] = changed(rows[at], message="seventeen")
        return rows

    assert "does not fit the type" in verify(rechained(edit)).problems[0].text


def test_content_that_is_gone_is_found(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        at = find(rows, "content.added")
        data = {key: value for key, value in decode(rows[at].data).items() if key != "text"}
        rows[at] = rows[at]._replace(data=encode(data))
        return rows

    found = verify(rechained(edit))
    assert found.broken_at == 5
    assert "is missing" in found.problems[0].text


# ---------------------------------------------------------------------------------------------------------- unknown


def with_event(kind: str, *, origin: str | None, required: bool) -> Edit:
    def edit(rows: list[Row]) -> list[Row]:
        at = find(rows, "tool.completed")
        rows.insert(at + 1, Row(0, kind, 1, rows[at].at, rows[at].place, origin, required, b'{"a":1}', b""))
        return rows

    return edit


def test_unknown_plugin_events_are_reported_and_hold(rechained: Rechained) -> None:
    found = verify(rechained(with_event("crm.seen", origin="crm@1.4", required=False)))
    assert (found.verdict, dict(found.unknown_types)) == ("ok", {"crm.seen of crm@1.4": 1})
    assert "unknown type crm.seen of crm@1.4: 1 event" in report(found)


@pytest.mark.parametrize(("origin", "package"), [("crm@1.4", "spine-crm"), (None, "a newer agent-spine")])
def test_a_required_event_that_is_not_known_leaves_requests_unproven(
    rechained: Rechained, origin: str | None, package: str
) -> None:
    found = verify(rechained(with_event("crm.linked", origin=origin, required=True)))
    assert found.verdict == "unproven"
    assert [r.state for r in found.requests] == ["equal", "rests", "rests"]
    assert f"need {package}" in report(found)


def test_unknown_fields_are_reported_with_their_path(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        rows[0] = changed(rows[0], mood="good")
        return rows

    found = verify(rechained(edit))
    assert (found.verdict, found.unknown_fields) == ("ok", ((1, "$.mood"),))
    assert report(found).endswith("unknown field $.mood at seq 1")


def test_an_event_of_an_older_version_is_no_unknown_field(demo: LogReader) -> None:
    @attrs.frozen(kw_only=True)
    class Newer:
        inputs: tuple[int, ...] = ()

    codec = Codec([(EventType(name="crm.seen", data=Newer, version=2, upcasters={1: lambda d: d}), "crm@2")])
    assert verify(LogReader(demo.store, codec, demo.session)).unknown_fields == ()


# ------------------------------------------------------------------------------------------------------------- head


@pytest.mark.parametrize("text", ["", "41", "41:", "41:abc", ":9f1c6b02", "x:9f1c6b02", "41:9F1C6B02", "-1:9f1c6b02"])
def test_a_head_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not of the form SEQ:HASH"):
        parse_head(text)


def noted(reader: LogReader, head: str) -> Verification:
    return verify(reader, parse_head(head))


def test_a_noted_head_shows_a_cut_and_a_rewritten_log(demo: LogReader, rechained: Rechained) -> None:
    seq, hash = demo.head
    head = f"{seq}:{hash.hex()[:12]}"
    assert noted(demo, head).verdict == "ok"
    cut = noted(rechained(lambda rows: rows[:-2]), head)
    assert (cut.verdict, cut.broken_at) == ("broken", seq - 1)
    assert f"the noted head is seq {seq}: its end was cut" in report(cut)
    rewritten = noted(rechained(lambda rows: [rows[0]._replace(at=rows[0].at + 1), *rows[1:]]), head)
    assert (rewritten.verdict, rewritten.broken_at) == ("broken", seq)


def test_a_head_noted_earlier_still_fits(demo: LogReader) -> None:
    row = next(iter(demo.rows(after=6, until=7)))
    assert noted(demo, f"7:{row.hash.hex()}").verdict == "ok"
    assert noted(demo, f"7:{'0' * 12}").broken_at == 7


def test_the_folder_of_the_export_does_not_matter(demo_export: bytes, tmp_path: Path) -> None:
    for name in ("a.jsonl", "b c.jsonl"):
        (tmp_path / name).write_bytes(demo_export)
        reader = ExportReader(tmp_path / name, Codec())
        assert verify(reader).verdict == "ok"
        reader.close()
