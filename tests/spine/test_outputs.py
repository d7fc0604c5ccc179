"""Typed answers: the schema that a model is told, and the value that its text parses to."""

import dataclasses
from typing import Any, Literal, TypedDict

import attrs
import msgspec
import pytest

from spine.errors import ToolSchemaInvalid, ValueRefused
from spine.outputs import output_schema, parse_asked, parse_output
from spine.values import JsonObject, freeze


@attrs.frozen
class Decision:
    approve: bool
    reason: str = ""


@dataclasses.dataclass
class Money:
    cents: int
    currency: Literal["EUR", "USD"] = "EUR"


class Order(TypedDict):
    id: str
    total: Money


class Struct(msgspec.Struct):
    tags: list[str]


KINDS = {
    "attrs": (Decision, '{"approve": true}', Decision(True)),
    "a dataclass": (Money, '{"cents": 5, "currency": "USD"}', Money(5, "USD")),
    "a typed dict": (Order, '{"id": "a", "total": {"cents": 1}}', {"id": "a", "total": Money(1)}),
    "a struct": (Struct, '{"tags": ["x"]}', Struct(["x"])),
    "a list": (list[int], "[1, 2]", [1, 2]),
    "fenced": (Decision, '```json\n{"approve": false, "reason": "no"}\n```', Decision(False, "no")),
    "fenced without a word": (list[int], "```\n[1]\n```", [1]),
    "with blanks around": (Decision, '\n {"approve": true}\n', Decision(True)),
}


@pytest.mark.parametrize(("kind", "text", "value"), KINDS.values(), ids=KINDS)
def test_a_text_parses_to_its_type(kind: Any, text: str, value: Any) -> None:
    """Whatever kind of class it is, a Markdown fence around it or not."""
    assert parse_output(kind, text) == value
    described = output_schema(kind)
    assert set(described) == {"name", "schema"}
    assert "$ref" not in described["schema"]


def test_a_schema_of_an_object_is_closed_and_stands_at_the_top() -> None:
    """Nested types stay in `$defs`."""
    described = output_schema(Order)
    assert described["name"] == "Order"
    assert described["schema"]["type"] == "object"
    assert described["schema"]["additionalProperties"] is False
    assert described["schema"]["required"] == ["id", "total"]
    assert "Money" in described["schema"]["$defs"]


WRONG = {
    "no JSON": "Yes, I approve.",
    "another type": '{"approve": "yes"}',
    "a missing field": "{}",
    "nothing": "",
    "duplicate keys": '{"approve": true, "approve": false}',
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_text_that_does_not_fit_is_refused_saying_where(text: str) -> None:
    """With the typed error and nothing else."""
    with pytest.raises(ValueRefused):
        parse_output(Decision, text)


def test_a_type_that_no_schema_describes_is_refused() -> None:
    """When it is asked for, not when the answer comes."""
    with pytest.raises(ToolSchemaInvalid, match="complex"):
        output_schema(complex)


def test_the_type_that_was_asked_for_is_told_by_its_schema() -> None:
    """The first of some types that fits what the log says was asked; none, when none does."""
    asked = freeze(output_schema(Decision))
    assert isinstance(asked, JsonObject)
    assert parse_asked((None, Money, Decision), asked, '{"approve": true}') == (Decision(True), None)
    assert parse_asked((None, Money), asked, '{"approve": true}') == (None, None)
    value, problem = parse_asked((Decision,), asked, "Yes.")
    assert value is None
    assert problem is not None
    assert problem.startswith("the answer is no Decision: ")
