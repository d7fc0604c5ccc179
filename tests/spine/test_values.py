"""Ids, frozen JSON, its canonical bytes, and secrets."""

import copy
import json
import math
import pickle
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spine.errors import IdInvalid, ValueRefused
from spine.values import (
    EMPTY_OBJECT,
    MAX_DEPTH,
    CallId,
    JsonObject,
    Secret,
    as_tuple,
    clean_text,
    decode,
    digest,
    encode,
    freeze,
    freeze_flagged,
    freeze_object,
    load,
    session_id,
    short,
    step_of,
    thaw,
    turn_of,
    utc,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


class Colour(StrEnum):
    RED = "red"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@settings(max_examples=200, deadline=None)
@given(json_values)
def test_freezing_keeps_values_and_thawing_gives_them_back(value: Any) -> None:
    """freeze and thaw are inverse up to the kinds of containers; canonical bytes read back to the same value."""
    frozen = freeze(value)
    assert thaw(frozen) == value
    assert encode(frozen) == encode(freeze(json.loads(json.dumps(value))))
    assert encode(freeze(decode(encode(frozen)))) == encode(frozen)
    assert encode(freeze(load(encode(frozen)))) == encode(frozen)
    assert freeze(frozen) is frozen or not isinstance(frozen, JsonObject)


def test_canonical_json_is_sorted_dense_and_exact() -> None:
    """Keys sorted, no spaces, integers of any size, UTF-8."""
    value = freeze_object({"b": 2**70, "a": {"é": [1.5, None, True]}, "": "\0"})
    assert encode(value) == '{"":"\\u0000","a":{"é":[1.5,null,true]},"b":1180591620717411303424}'.encode()


REFUSED = {
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "bytes": b"x",
    "a set": {1},
    "an object": object(),
    "a key that is no text": {1: 2},
    "keys that become the same": {chr(0xD800): 1, chr(0xDFFF): 2},
    "a class": int,
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_is_no_json_is_refused_with_its_path(value: Any) -> None:
    """The error says where the value stands."""
    with pytest.raises(ValueRefused) as refused:
        freeze({"a": [0, {"b": value}]})
    assert refused.value.path == "$.a[1].b"


def test_depth_is_limited_at_the_door_and_at_reading() -> None:
    """Two hundred levels pass, one more does not, ten thousand raise the same error and nothing else."""
    freeze(nested(MAX_DEPTH))
    load(encode(nested(MAX_DEPTH)))
    for levels in (MAX_DEPTH + 1, 10_000):
        with pytest.raises(ValueRefused):
            freeze(nested(levels))
        with pytest.raises(ValueRefused):
            load("[" * levels + "1" + "]" * levels)


def test_text_of_subclasses_becomes_plain_text() -> None:
    """Enum members and other subclasses lose their class."""
    frozen = freeze([Colour.RED, True, 5])
    assert [type(item) for item in frozen] == [str, bool, int]  # type: ignore[union-attr]


SURROGATES = {"none": ("é", "é", False), "one": ("a\ud83d", "a\ufffd", True), "ascii": ("abc", "abc", False)}


@pytest.mark.parametrize(("text", "clean", "flag"), SURROGATES.values(), ids=SURROGATES)
def test_lone_surrogates_are_replaced_and_flagged(text: str, clean: str, flag: bool) -> None:
    """In values and in keys; text without them stays the same object."""
    assert freeze_flagged({"k": [text]}) == ({"k": (clean,)}, flag)
    assert freeze_flagged({text: 1})[1] is flag
    assert clean_text(text) == clean


def test_an_object_refuses_every_change_and_copies_as_itself() -> None:
    """Also through copy and pickle."""
    value = freeze_object({"a": {"b": [1]}})
    for change in (
        lambda: value.__setitem__("a", 1),
        lambda: value.__delitem__("a"),
        lambda: value.update(a=1),
        lambda: value.pop("a"),
        lambda: value.clear(),
        lambda: value.setdefault("z", 1),
        lambda: value.popitem(),
        lambda: value.__ior__({"a": 1}),
    ):
        with pytest.raises(TypeError, match="read-only"):
            change()
    assert copy.copy(value) is value
    assert copy.deepcopy(value) is value
    assert pickle.loads(pickle.dumps(value)) == value
    assert hash(value) == hash(freeze_object({"a": {"b": [1]}}))
    assert value.evolve(c=2) == {"a": {"b": (1,)}, "c": 2}
    assert EMPTY_OBJECT == {}


BAD_JSON = {
    "duplicate keys": '{"a": 1, "a": 2}',
    "duplicate keys inside": '[{"a": {"b": 1, "b": 2}}]',
    "NaN": "[NaN]",
    "Infinity": "[Infinity]",
    "a float beyond range": "[1e999]",
    "an endless integer": "9" * 5000,
    "a tail": "{} x",
    "nothing": "",
    "single quotes": "{'a': 1}",
    "bad UTF-8": b"\xff",
}


@pytest.mark.parametrize("text", BAD_JSON.values(), ids=BAD_JSON)
def test_foreign_json_that_is_ambiguous_or_broken_is_refused(text: Any) -> None:
    """`load` raises ValueRefused and nothing else."""
    with pytest.raises(ValueRefused):
        load(text)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40) | st.text(max_size=40))
def test_reading_anything_gives_a_value_or_the_typed_error(data: Any) -> None:
    """Neither reader raises anything else."""
    for read in (load, decode):
        try:
            read(data)
        except ValueRefused:
            continue
        except (TypeError, UnicodeEncodeError):
            assert read is decode  # our own bytes are never text


def test_a_byte_order_mark_is_read_over() -> None:
    """As text editors leave it in bytes."""
    assert load(b"\xef\xbb\xbf{}") == {}


@pytest.mark.parametrize("text", ["a", "A-1_b", "x" * 64, "0"])
def test_a_session_id_in_its_grammar_is_taken(text: str) -> None:
    """Letters, digits, hyphen, underscore; one to sixty-four."""
    assert session_id(text) == text


@pytest.mark.parametrize("text", ["", "x" * 65, "a/b", "..", "a b", "é", "con", "LPT9", "a\n", None, 5])
def test_a_session_id_outside_its_grammar_is_refused(text: Any) -> None:
    """With a bounded excerpt of what was given."""
    with pytest.raises(IdInvalid) as refused:
        session_id(text)
    assert len(refused.value.message) < 300


def test_ids_tell_where_they_belong() -> None:
    """A call's step, a step's turn."""
    assert (turn_of("t12s3c1"), turn_of("t12"), step_of(CallId("t12s3c1"))) == ("t12", "t12", "t12s3")
    assert utc(1_000_000) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_a_digest_carries_its_format_and_is_shown_short() -> None:
    """`1:` and SHA-256; people see eight digits."""
    value = digest(b"")
    assert value == "1:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (short(value), short(b"\xab" * 32)) == ("e3b0c442", "abababab")


def test_a_secret_shows_itself_to_nobody() -> None:
    """Not in repr, str, format, errors or pickle; equality works."""
    secret = Secret("hunter2-hunter2")
    shown = [repr(secret), str(secret), f"{secret}", repr([secret]), repr({"k": secret})]
    assert not any("hunter2" in text for text in shown)
    assert secret.reveal() == "hunter2-hunter2"
    assert secret == Secret("hunter2-hunter2")
    assert secret != Secret("x")
    assert secret != "hunter2-hunter2"
    assert len({secret, Secret("hunter2-hunter2")}) == 1
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(AttributeError):
        secret.other = 1  # type: ignore[attr-defined]


def test_collections_become_tuples_and_text_does_not() -> None:
    """Text would fall into letters."""
    assert as_tuple([1, 2]) == (1, 2)
    given = (1,)
    assert as_tuple(given) is given
    for text in ("ab", b"ab"):
        with pytest.raises(ValueRefused):
            as_tuple(text)
