"""YAML cut to JSON types: what is read, what stays text, and what is refused with its place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.errors import ScenarioInvalid
from spine.testing.scenarios.yaml_tree import MAX_BYTES, Source, parse

SOURCE = Source("x.yaml")

SCALARS: list[tuple[str, Any]] = [
    ("null", None), ("~", None), ("", None), ("true", True), ("False", False), ("12", 12), ("-3", -3), ("1.5", 1.5),
    ("2e3", 2000.0), ('"12"', "12"), ("'true'", "true"), ("yes", "yes"), ("no", "no"), ("on", "on"), ("12:30", "12:30"),
    ("2026-01-05", "2026-01-05"), ("0x10", "0x10"), ("010", "010"), ("1_000", "1_000"), ("+1", "+1"), (".5", ".5"),
    (".nan", ".nan"), (".inf", ".inf"), ("a b", "a b"), ("=", "="), ("18446744073709551616", 2**64),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS, ids=[repr(text) for text, _ in SCALARS])
def test_a_plain_word_is_json_or_text(text: str, value: Any) -> None:
    found = parse(f"a: {text}", SOURCE).plain()["a"]
    assert (found, type(found)) == (value, type(value))


def test_values_know_their_place() -> None:
    tree = parse("a:\n  - b: 1\n    c: [x, y]\n", SOURCE)
    inner = tree.value["a"].value[0]
    assert (inner.line, inner.column) == (2, 5)
    assert (inner.keys["c"].line, inner.keys["c"].column) == (3, 5)
    assert [(node.value, node.line, node.column) for node in inner.value["c"].value] == [("x", 3, 9), ("y", 3, 12)]


def test_keys_are_text_and_keep_their_order() -> None:
    assert list(parse("2: a\n1: b\ntrue: c", SOURCE).plain()) == ["2", "1", "true"]


def test_an_empty_file_is_null() -> None:
    assert parse("# nothing\n", SOURCE).value is None


def test_blocks_of_text_are_text() -> None:
    assert parse("a: |\n  12\nb: >\n  true\n  x\n", SOURCE).plain() == {"a": "12\n", "b": "true x\n"}


def test_a_byte_order_mark_is_no_content() -> None:
    assert parse(b"\xef\xbb\xbfa: 1", SOURCE).plain() == parse("\ufeffa: 1", SOURCE).plain() == {"a": 1}


REFUSED: list[tuple[str | bytes, str]] = [
    ("a: !!python/object:os.system x", "1:4: tags are not read here; found tag:yaml.org,2002:python/object:os.system"),
    ("a: !!int 3", "1:4: tags are not read here"),
    ("!!map {a: 1}", "1:1: tags are not read here"),
    ("a: &x 1\nb: *x", "1:4: anchors and aliases are not read here"),
    ("a: 1\nb: *x", "2:4: anchors and aliases are not read here"),
    ("a: 1\nb: 2\na: 3", '3:1: key "a" stands twice; first in line 1'),
    ("? [a]\n: 1", "1:3: a key must be plain text"),
    ("a: 1\n---\nb: 2", "2:1: a second document begins; a file holds one"),
    ("a: [1, 2", "1:9: while parsing a flow sequence: expected ',' or ']'"),
    ("a: {b: 1", "while parsing a flow mapping"),
    ("a:\n\tb: 1", "2:1: while scanning for the next token: found character '\\t'"),
    ("a: 'x", "while scanning a quoted scalar"),
    (f"a: {'9' * 5000}", "1:4: an integer of 5000 digits is longer than 4300"),
    ("a: 1e999", "1:4: 1e999 is outside the range of a number"),
    ("[" * 60 + "]" * 60, "nested deeper than 50 levels"),
    (b"a: \xff", ": byte 3 is no UTF-8"),
    ("a: \x00", ": unacceptable character"),
    ("#" * (MAX_BYTES + 1), ": 1,048,577 bytes are more than a scenario may have, 1,048,576"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[repr(text[:20]) for text, _ in REFUSED])
def test_what_is_no_plain_data_is_refused_with_its_place(text: str | bytes, message: str) -> None:
    with pytest.raises(ScenarioInvalid) as caught:
        parse(text, SOURCE)
    assert str(caught.value).startswith("x.yaml:")
    assert message in str(caught.value)


@given(st.text(alphabet="ab:- \n[]{}\"'#&*!|>?,1~", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but `ScenarioInvalid` comes out of foreign text."""
    try:
        parse(text, SOURCE)
    except ScenarioInvalid:
        return


TEXTS = st.text("ab \"'\\:", max_size=5)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
))  # fmt: skip
def test_json_is_read_as_json(value: Any) -> None:
    """YAML holds JSON: the same values come out."""
    import json

    assert parse(json.dumps(value), SOURCE).plain() == value
