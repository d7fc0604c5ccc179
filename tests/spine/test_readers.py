"""Readers check what they read and make the same values as the classes themselves; drafts never come out."""

from typing import Any, Literal

import attrs
import pytest

from spine.codec import Codec
from spine.drafts import draft_of, is_plain, maker
from spine.errors import LogBroken
from spine.events import CORE_EVENTS, EventType
from spine.llm.usage import Usage
from spine.messages import Message, Origin, TextBlock, ToolCallBlock
from spine.store import Row
from spine.values import EMPTY_OBJECT, JsonObject, SessionId, encode, freeze_object

CODEC = Codec()
SESSION = SessionId("s")


@attrs.frozen(kw_only=True)
class Sample:
    """One field of each sort."""

    text: str
    word: Literal["a", "b"] = "a"
    ratio: float = 0.5
    note: str | None = None
    many: tuple[str, ...] = ()
    data: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    made: tuple[int, ...] = attrs.field(factory=lambda: (1, 2))
    shouted: str = attrs.field(default="hey", converter=str.upper)
    inner: "Sample | None" = None


@attrs.frozen
class Checked:
    """A class whose own code must run."""

    number: int = attrs.field(default=0, validator=attrs.validators.ge(0))


@pytest.mark.parametrize(
    "json",
    [
        {"text": "x"},
        {"text": "x", "word": "b", "ratio": 2, "note": "n", "many": ["a"], "data": {"k": [1, {}]}, "made": []},
        {"text": "x", "shouted": "low", "inner": {"text": "y", "inner": {"text": "z"}}, "unheard": 1},
        {"text": "x", "note": None, "inner": None},
    ],
    ids=["defaults", "all", "nested", "nulls"],
)
def test_a_reader_makes_what_the_class_makes(json: dict[str, Any]) -> None:
    """Defaults, factories and converters count; unknown keys are passed over."""

    def by_hand(fields: dict[str, Any]) -> Sample:
        known = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items() if key != "unheard"}
        inner = known.get("inner")
        return Sample(**{**known, "inner": None if inner is None else by_hand(inner)})

    read = CODEC.from_json(json, Sample)
    assert (type(read), read) == (Sample, by_hand(json))
    assert type(read.data) is JsonObject


@pytest.mark.parametrize(
    ("json", "complaint"),
    [
        ({}, "text"),
        ({"text": 5}, "text: expected str, found int"),
        ({"text": None}, "text: expected str, found NoneType"),
        ({"text": "x", "word": "c"}, "word: expected one of 'a', 'b', found 'c'"),
        ({"text": "x", "ratio": True}, "ratio: expected float, found bool"),
        ({"text": "x", "note": 1}, "note: expected str, found int"),
        ({"text": "x", "many": "abc"}, "expected an array, found str"),
        ({"text": "x", "many": ["a", 1]}, "expected str, found int"),
        ({"text": "x", "data": []}, "a JSON object was wanted"),
        ([], "expected an object, found list"),
    ],
)
def test_what_does_not_fit_is_refused(json: Any, complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        CODEC.from_json(json, Sample)


def test_a_value_that_was_read_is_frozen_and_equal() -> None:
    """Nobody can tell a value that was read from one that was made."""
    made = ToolCallBlock(id="t1s1c1", name="f", arguments={"a": 1})
    read = CODEC.from_json(CODEC.to_json(made), ToolCallBlock)
    assert type(read) is ToolCallBlock
    assert (read, hash(read), repr(read)) == (made, hash(made), repr(made))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        read.name = "g"  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        del read.name


def test_a_class_with_code_of_its_own_runs_it() -> None:
    """Validators are no setting of fields: such a class is made by calling it."""
    assert not is_plain(Checked)
    assert CODEC.from_json({"number": 1}, Checked) == Checked(1)
    with pytest.raises(ValueError, match="number"):
        CODEC.from_json({"number": -1}, Checked)


@pytest.mark.parametrize("kind", [event_type.data for event_type in CORE_EVENTS])
def test_every_event_of_the_core_is_read_the_quick_way(kind: type) -> None:
    assert is_plain(kind)


@pytest.mark.parametrize(
    ("items", "usage"),
    [([], Usage()), ([1, None, None, 2], Usage(input_tokens=1, output_tokens=2))],
)
def test_arrays_end_early_and_leave_out_with_null(items: list[Any], usage: Usage) -> None:
    assert CODEC.from_json(items, Usage) == usage


@pytest.mark.parametrize("items", [["p"], ["p", "r", None, None, 5], {"protocol": "p"}, ["p", 1]])
def test_an_array_of_another_shape_is_refused(items: Any) -> None:
    with pytest.raises(TypeError, match="expected"):
        CODEC.from_json(items, Origin)


def test_a_maker_takes_all_fields_by_position() -> None:
    assert maker(TextBlock)("x", None) == TextBlock(text="x")
    assert maker(TextBlock, "text")("x") == TextBlock(text="x")
    assert maker(Message, "content", "role")((), "tool") == Message(role="tool")
    assert issubclass(draft_of(TextBlock), TextBlock)


def test_damaged_data_is_reported_with_its_seq() -> None:
    """A role that is none stops the reading at its event."""
    data = encode({"message": {"role": "king", "content": ["x"]}})
    row = Row(7, "input.accepted", 1, 0, None, None, True, data, b"")
    with pytest.raises(LogBroken, match=r"seq 7.*role: expected one of") as caught:
        CODEC.decode_data(row, lambda digest: b"")
    assert caught.value.seq == 7


@pytest.mark.parametrize(
    "data",
    [
        b'{"message":',
        b"7",
        b'"text"',
        b"[]",
        b"{}",
        b'{"message":{"role":"king"}}',
        b'{"$contents":{"/message":"1:0"}}',
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_type_met_before_is_read_no_less_strictly(data: bytes, version: int) -> None:
    """What a codec refuses in the first event of a type it refuses in every other, in the same words."""

    def refusal(codec: Codec) -> str:
        with pytest.raises(LogBroken) as caught:
            codec.decode_data(Row(7, "input.accepted", version, 0, None, None, True, data, b""), {}.__getitem__)
        return caught.value.message

    met = Codec()
    good = encode({"message": {"role": "user", "content": ["x"]}})
    met.decode_data(Row(6, "input.accepted", 1, 0, None, None, True, good, b""), {}.__getitem__)
    assert refusal(met) == refusal(Codec())


def test_a_plugin_may_use_any_attrs_class() -> None:
    """Its converters and validators run as they stand."""
    codec = Codec([(EventType(name="demo.checked", data=Checked), "demo@1")])
    row = Row(1, "demo.checked", 1, 0, None, "demo@1", False, encode({"number": -1}), b"")
    with pytest.raises(LogBroken, match="number"):
        codec.decode_data(row, lambda digest: b"")


def test_empty_text_is_a_whole_message() -> None:
    assert CODEC.from_json({"content": [""]}, Message) == Message(content=(TextBlock(text=""),))
