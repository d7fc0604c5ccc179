"""JSON of strangers in, canonical JSON out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.llm.errors import ProviderError
from spine.values import freeze
from spine.wire.bodies import error_object, from_json, join_body, to_json

TAKEN = {
    b'{"a": 1, "a": 2}': {"a": 2},
    b"[NaN, Infinity, -Infinity, 1e999, -1e999, 1.5]": [None, None, None, None, None, 1.5],
    b'"\\ud83d\\ude00"': "\U0001f600",
    b'{"\\ud800": "x\\udc96"}': {"\ufffd": "x\ufffd"},
    b"123456789012345678901234567890": 123456789012345678901234567890,
    b'\xef\xbb\xbf{"a": 1}': {"a": 1},
}
BROKEN = [b"", b"{", b"{not json}", b'{"a": 1} x', b'"\xff"', b"[" * 100_000, b"9" * 5000, b"'a'"]


@pytest.mark.parametrize("data", TAKEN)
def test_what_real_servers_send_is_read_and_may_be_frozen(data: bytes) -> None:
    value = from_json(data)
    assert json.dumps(value) == json.dumps(TAKEN[data])
    to_json(freeze(value))


@pytest.mark.parametrize("data", BROKEN)
def test_what_does_not_parse_is_a_retryable_protocol_error(data: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        from_json(data)
    assert (caught.value.category, caught.value.retryable) == ("protocol_error", True)


@given(st.dictionaries(st.text(alphabet="ab"), st.integers()), st.lists(st.dictionaries(st.text("xy"), st.booleans())))
def test_a_joined_body_is_the_object_with_the_list(fields: dict[str, int], items: list[dict[str, bool]]) -> None:
    body = join_body(fields, "messages", [b"," + to_json(item) for item in items])
    assert json.loads(body) == {**fields, "messages": items}


def test_error_objects_are_found_in_every_wrapping() -> None:
    assert error_object([{"error": {"code": 1}}]) == {"code": 1}
    assert error_object({"error": {"code": 1}}) == {"code": 1}
    assert error_object({"error": "text", "code": 2}) == {"error": "text", "code": 2}
    assert [error_object(value) for value in ([], None, 3, "x", [3])] == [{}] * 5
