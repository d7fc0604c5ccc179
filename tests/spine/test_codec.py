"""Events to canonical bytes and back: exact, short, and honest about what it does not know."""

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spine.codec import Codec, chain_hash, genesis, row_hash
from spine.errors import LogBroken, UsageError, ValueTooLarge
from spine.events import (
    AgentFact,
    EventType,
    FieldChange,
    InputAccepted,
    MessageCommitted,
    ModelChunks,
    Patch,
    SessionCreated,
    SessionRenamed,
    Splice,
    ToolCompleted,
    UnknownEvent,
)
from spine.llm import chunks as c
from spine.llm.usage import Cost, Usage
from spine.messages import (
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    Message,
    Origin,
    ProviderState,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    user_message,
)
from spine.store import INLINE_CONTENT_BYTES, Row
from spine.tools import ServerTool, ToolDefinition, ToolError
from spine.values import CallId, SessionId, decode, digest, encode

CODEC = Codec()
S = SessionId("s")
STATE = ProviderState(protocol="p", provider="q", model="m", data={"signature": [1]})


def row_of(event: Any, codec: Codec = CODEC) -> tuple[Row, dict[Any, bytes]]:
    form = codec.encode_event(event)
    row = Row(7, form.type, form.version, 5, "t1s1", form.origin, form.required, form.data, b"h")
    return row, {content.digest: content.data for content in form.contents}


def again(event: Any, codec: Codec = CODEC) -> Any:
    row, contents = row_of(event, codec)
    return codec.decode_row(S, row, b"", contents.__getitem__).data


EVENTS: dict[str, Any] = {
    "a bare rename": SessionRenamed(title="é"),
    "a session": SessionCreated(agent=AgentFact(name="a", contract=digest(b"")), metadata={"k": [1, {"x": None}]}),
    "a text input": InputAccepted(message=user_message("hi"), key="k"),
    "every block": MessageCommitted(
        message=Message(
            content=(
                TextBlock(text="a", provider_state=STATE),
                TextBlock(text=""),
                JsonBlock(value=[1, {"a": 2**70}]),
                ThinkingBlock(redacted=True, provider_state=STATE),
                ToolCallBlock(id=CallId("c"), name="n", arguments={"x": 1}, vendor_id="v"),
                ToolCallBlock(id=CallId("d"), name="n", arguments_text="{"),
                ImageBlock(url="https://x", detail="low"),
                ExtensionBlock(kind="k", data=None),
            ),
            origin=Origin(protocol="p", route="q:m", response_id="r"),
        ),
        stop_reason="tool_use",
        usage=Usage(input_tokens=0, output_tokens=5, malformed=True, raw={"in": 0}),
        cost=Cost(micros=3, prices="p"),
    ),
    "a result": ToolCompleted(
        result=ToolResultBlock(call_id=CallId("c"), name="n", content=(TextBlock(text="x"),), is_error=True),
        status="error",
        error=ToolError(kind="exception", message="m"),
        duration_s=0.25,
        patches=(
            Patch(plugin="p", changes=(FieldChange(field="a", value=None), Splice(start=0, end=2, messages=(5,)))),
        ),
    ),
    "every chunk": ModelChunks(
        chunks=(
            c.ResponseStarted(),
            c.ResponseStarted("m", "r"),
            c.TextDelta(0, "a"),
            c.TextDelta(0, "b"),
            c.TextDelta(1, "c"),
            c.ThinkingDelta(0, "d"),
            c.RefusalDelta(0, ""),
            c.ToolCallStarted(2, "n"),
            c.ToolCallStarted(3, "n", "v"),
            c.ToolCallDelta(2, "{"),
            c.ToolCallDelta(2, "}"),
            c.BlockAdded(4, ImageBlock(data="aGk=")),
            c.BlockEnded(2),
            c.BlockEnded(4, STATE),
            c.UsageReported(Usage(output_tokens=1)),
            c.ProviderEvent("ping", {"a": [1]}),
        ),
        attempt=2,
        offsets=(0, 5),
    ),
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_an_event_reads_back_as_it_was_written(event: Any) -> None:
    """Round trip, and the same bytes when written again."""
    assert again(event) == event
    assert row_of(again(event))[0].data == row_of(event)[0].data
    assert encode(decode(row_of(event)[0].data)) == row_of(event)[0].data


def test_what_equals_its_default_is_not_written() -> None:
    """So that an optional field added later changes no stored byte."""
    assert row_of(SessionRenamed(title="x"))[0].data == b'{"title":"x"}'
    assert row_of(InputAccepted(message=user_message("hi")))[0].data == (
        b'{"message":{"content":["hi"],"kind":"user","role":"user"}}'
    )


def test_neighbouring_deltas_share_an_array_and_stay_apart() -> None:
    """The pieces are not glued: their borders are facts."""
    event = ModelChunks(chunks=(c.TextDelta(0, "a"), c.TextDelta(0, "b"), c.TextDelta(1, "c"), c.TextDelta(0, "d")))
    assert decode(row_of(event)[0].data) == {"chunks": [["text", 0, "a", "b"], ["text", 1, "c"], ["text", 0, "d"]]}
    assert again(event) == event


_texts = st.text(max_size=8)
_deltas = st.one_of(
    st.builds(c.TextDelta, st.integers(0, 3), _texts),
    st.builds(c.ThinkingDelta, st.integers(0, 3), _texts),
    st.builds(c.ToolCallDelta, st.integers(0, 3), _texts),
    st.builds(c.ToolCallStarted, st.integers(0, 3), _texts, st.none() | _texts),
    st.builds(c.BlockEnded, st.integers(0, 3)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_deltas, min_size=1, max_size=20))
def test_any_sequence_of_chunks_survives(chunks: list[Any]) -> None:
    """Order, borders and empty pieces are kept."""
    event = ModelChunks(chunks=tuple(chunks))
    assert again(event) == event


# ------------------------------------------------------------------------------------------------------- large


def test_a_large_text_lies_beside_by_its_digest_and_comes_back() -> None:
    """Wherever it stands inside, with any key on the way."""
    text = "é" * INLINE_CONTENT_BYTES
    event = InputAccepted(
        message=Message(role="user", content=(TextBlock(text=text), JsonBlock(value={"a/b~c": [text, 1]})))
    )
    row, contents = row_of(event)
    assert len(row.data) < 1000
    assert list(contents) == [digest(text.encode())]
    assert again(event) == event


def test_an_event_over_its_limit_is_refused_with_its_type() -> None:
    """Small texts without end do not fit."""
    event = InputAccepted(message=Message(role="user", content=tuple(TextBlock(text="x" * 1000) for _ in range(1100))))
    with pytest.raises(ValueTooLarge, match=r"input\.accepted has 1,1"):
        CODEC.encode_event(event)


# ------------------------------------------------------------------------------------------------ not understood

BROKEN = {
    "text for a number": ("model.attempt_started", b'{"attempt":"2"}'),
    "a number for text": ("session.renamed", b'{"title":5}'),
    "a missing field": ("session.renamed", b"{}"),
    "an unknown block": ("input.accepted", b'{"message":{"content":[{"type":"hologram"}]}}'),
    "an unknown chunk": ("model.chunks", b'{"chunks":[["hologram",1]]}'),
    "no object": ("session.renamed", b"5"),
    "a list": ("session.renamed", b"[]"),
    "true for an integer": ("model.attempt_started", b'{"attempt":true}'),
    "a missing content": ("session.renamed", b'{"$contents":{"/title":"1:00"},"title":""}'),
    "a pointer to nowhere": ("session.renamed", b'{"$contents":{"/x/y":"1:00"},"title":""}'),
}


@pytest.mark.parametrize(("kind", "data"), BROKEN.values(), ids=BROKEN)
def test_stored_data_that_fit_no_class_are_damage_at_their_seq(kind: str, data: bytes) -> None:
    """`LogBroken` with the seq and the type, whatever is wrong."""
    row = Row(7, kind, 1, 5, None, None, True, data, b"")
    with pytest.raises(LogBroken, match=r"seq 7 \(") as broken:
        CODEC.decode_row(S, row, b"", {}.__getitem__)
    assert broken.value.seq == 7


def test_stored_bytes_that_are_no_json_are_refused() -> None:
    """With a typed error."""
    row = Row(7, "session.renamed", 1, 5, None, None, True, b"{broken", b"")
    with pytest.raises((LogBroken, ValueError)):
        CODEC.decode_row(S, row, b"", {}.__getitem__)


def test_an_unknown_type_or_version_is_carried_as_it_is() -> None:
    """Its data are frozen JSON."""
    for kind, version in (("core.magic", 1), ("session.renamed", 9), ("crm.note", 1)):
        row = Row(7, kind, version, 5, None, None, True, b'{"a":[1]}', b"")
        found = CODEC.decode_row(S, row, b"p", {}.__getitem__)
        assert isinstance(found.data, UnknownEvent)
        assert found.data.data == {"a": (1,)}
        assert CODEC.unknown_fields(row) == ()


UNKNOWN_FIELDS = {
    "none": (b'{"title":"x"}', ()),
    "one": (b'{"mood":"good","title":"x"}', ("$.mood",)),
    "a default spelt out": (b'{"mood":null,"title":"x"}', ()),
}


@pytest.mark.parametrize(("data", "paths"), UNKNOWN_FIELDS.values(), ids=UNKNOWN_FIELDS)
def test_fields_that_a_class_does_not_know_are_named(data: bytes, paths: tuple[str, ...]) -> None:
    """By their path; a default that an older writer spelt out is none."""
    row = Row(7, "session.renamed", 1, 5, None, None, True, data, b"")
    assert CODEC.unknown_fields(row) == paths


def test_unknown_fields_deep_inside_are_named() -> None:
    """In messages and their blocks, too."""
    data = b'{"message":{"content":[{"text":"x","tone":"soft","type":"text"}],"mood":1,"role":"user"}}'
    row = Row(7, "input.accepted", 1, 5, None, None, True, data, b"")
    assert set(CODEC.unknown_fields(row)) == {"$.message.mood", "$.message.content[0].tone"}


@pytest.mark.parametrize("size", [1, 20_000], ids=["kept", "too large to be kept"])
def test_a_messages_bytes_are_the_same_inside_its_event_and_outside(size: int) -> None:
    """Whether they were kept from the event, asked for again, or made anew for an equal message."""
    codec, text = Codec(), "é" * size
    message, equal = (Message(role="user", content=(TextBlock(text=text),), kind="user") for _ in range(2))
    data = codec.encode_event(InputAccepted(message=message)).data
    written = [codec.message_bytes(each) for each in (message, message, equal)]
    assert written == [encode(codec.to_json(message))] * 3
    assert data == encode({"message": codec.to_json(message)})
    assert written[0] in data


def test_bytes_of_messages_that_nobody_asks_for_are_not_kept_for_ever() -> None:
    codec = Codec()
    messages = [Message(role="user", content=(TextBlock(text=str(number)),)) for number in range(1000)]
    for message in messages:
        codec.encode_event(InputAccepted(message=message))
    assert len(codec._written) < 500
    assert [decode(codec.message_bytes(message))["content"] for message in messages] == [[str(n)] for n in range(1000)]


def test_something_that_is_no_event_is_refused() -> None:
    """Only declared classes are appended."""
    with pytest.raises(UsageError, match="no declared event type"):
        CODEC.encode_event(user_message("x"))


# ------------------------------------------------------------------------------------------------- plugins, values


@attrs.frozen(kw_only=True)
class Note:
    text: str
    tags: tuple[str, ...] = ()
    by: str | None = None


def test_a_plugins_event_carries_its_origin_and_can_be_forgotten() -> None:
    """Removed types read as unknown; others stay."""
    codec = Codec([(EventType(name="crm.note", data=Note, required=True), "crm@1")])
    row, _ = row_of(Note(text="x", tags=("a",)), codec)
    assert (row.type, row.origin, row.required) == ("crm.note", "crm@1", True)
    assert again(Note(text="x", tags=("a",)), codec) == Note(text="x", tags=("a",))
    codec.remove("other@1")
    assert codec.event_type("crm.note") is not None
    codec.remove("crm@1")
    assert isinstance(codec.decode_row(S, row, b"", {}.__getitem__).data, UnknownEvent)
    with pytest.raises(UsageError):
        codec.encode_event(Note(text="x"))
    codec.add(EventType(name="crm.note", data=Note), "crm@2")


TOOLS = [ToolDefinition(name="a", parameters={"type": "object"}), ServerTool(name="b", protocol="p", config={"x": 1})]


@pytest.mark.parametrize("value", [*TOOLS, Usage(output_tokens=1), user_message("x"), STATE], ids=repr)
def test_any_value_of_ours_has_a_json_form(value: Any) -> None:
    """`to_json` and `from_json` are inverse."""
    assert CODEC.from_json(decode(encode(CODEC.to_json(value))), type(value)) == value


# -------------------------------------------------------------------------------------------------------- hashes


def test_a_hash_covers_everything_of_a_row_and_binds_it_to_its_session() -> None:
    """Any change of header, data or predecessor gives another hash; so does another session."""
    row, _ = row_of(SessionRenamed(title="x"))
    start = genesis(S)
    base = row_hash(start, row)
    changes: dict[str, Any] = {
        "seq": 8, "type": "x", "version": 2, "at": 6, "place": "t1", "origin": "p@1", "required": False, "data": b"{}",
    }  # fmt: skip
    assert set(changes) | {"hash"} == set(Row._fields)
    hashes = {row_hash(start, row._replace(**{name: value})) for name, value in changes.items()}
    hashes |= {row_hash(genesis(SessionId("t")), row), row_hash(base, row), base}
    assert len(hashes) == len(changes) + 3
    assert base == row_hash(start, row._replace(hash=b"other"))
    assert len(chain_hash(start, row[:7], b"x" * 32)) == 32  # type: ignore[arg-type]
