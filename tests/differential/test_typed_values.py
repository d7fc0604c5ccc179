"""The check against the SDKs' types finds what it is there to find."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Required, TypedDict

import pytest
from typed_values import misfit


class Text(TypedDict, total=False):
    type: Required[Literal["text"]]
    text: Required[str]


class Number(TypedDict, total=False):
    type: Required[Literal["number"]]
    value: Required[float]
    notes: Mapping[str, int] | None


class Message(TypedDict):
    content: str | Iterable[Text | Number]


RIGHT = ("x", [], [{"type": "text", "text": "x"}, {"type": "number", "value": 1, "notes": {"a": 1}}])
WRONG: dict[str, tuple[Any, str]] = {
    "no member of the union": (7, "$.content: 7 is no"),
    "key that is missing": ([{"type": "text"}], "$.content[0]: Text wants text"),
    "key that is unknown": ([{"type": "text", "text": "x", "y": 1}], "$.content[0]: Text has no y"),
    "another type, told of the kind that was meant": ([{"type": "number", "value": "1"}], "$.content[0].value"),
    "behind a mapping": ([{"type": "number", "value": 1.5, "notes": {"a": "b"}}], "$.content[0].notes.a"),
    "true is no number": ([{"type": "number", "value": True}], "$.content[0].value"),
    "late in a list": ([{"type": "text", "text": "x"}, {"type": "image"}], "$.content[1]"),
}


@pytest.mark.parametrize("content", RIGHT, ids=repr)
def test_what_a_type_allows_has_no_misfit(content: Any) -> None:
    assert misfit({"content": content}, Message) is None


@pytest.mark.parametrize(("content", "where"), WRONG.values(), ids=WRONG)
def test_a_misfit_is_told_with_its_place(content: Any, where: str) -> None:
    assert (misfit({"content": content}, Message) or "").startswith(where)
