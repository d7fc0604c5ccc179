"""Entries of a script as scenario files write them (floor 14): one mapping for each attempt of the model.

The parts of an answer arrive in the order of the file: `say` above `fail` is an answer that breaks off.
"""

from collections.abc import Mapping
from typing import Any, Final

from spine.llm.errors import CATEGORIES
from spine.llm.response import STOP_REASONS
from spine.testing import script
from spine.testing.scenarios.shapes import (
    Anything,
    ByType,
    Choice,
    Field,
    Flag,
    ListOf,
    MapOf,
    Number,
    OneOrMore,
    Shape,
    Text,
    Whole,
)
from spine.testing.scenarios.yaml_tree import Node
from spine.testing.script import Entry

__all__ = ["ENTRY"]


def _entry(values: Mapping[str, Any], node: Node) -> Entry:
    entry = Entry(where=f"line {node.line}")
    for key, value in values.items():
        if key == "say" or (key == "chunks" and "say" not in values):
            entry += script.say(values.get("say"), chunks=values.get("chunks"))
        elif key != "chunks":
            entry += _PARTS[key](value)
    return entry


def _calls(groups: tuple[dict[str, Any], ...]) -> Entry:
    entry = Entry()
    for group in groups:
        for name, arguments in group.items():
            entry += script.call_text(name, arguments) if isinstance(arguments, str) else script.call(name, **arguments)
    return entry


def _failure(value: str | Mapping[str, Any]) -> Entry:
    fields: dict[str, Any] = {"category": value} if isinstance(value, str) else dict(value)
    return script.fail(**fields)


_PARTS: Final[Mapping[str, Any]] = {
    "expect": lambda fields: script.expect(**fields),
    "think": script.think,
    "refuse": script.refuse,
    "call": _calls,
    "stall": lambda value: script.stall(None if value == "forever" else value),
    "fail": _failure,
    "cut": lambda _: script.cut(),
    "usage": lambda counts: script.usage(**counts),
    "stop": script.stop,
}

_EXPECT_REQUEST: Final = Shape(
    {
        "last_role": Field(Choice(("user", "assistant", "tool")), "Role of the last message."),
        "contains": Field(OneOrMore(Text()), "Text in the messages since the model last spoke."),
        "lacks": Field(OneOrMore(Text()), "Text that does not stand there."),
        "system_contains": Field(OneOrMore(Text()), "Text in the system prompt."),
        "system_lacks": Field(OneOrMore(Text()), "Text that the system prompt does not hold."),
        "tools": Field(ListOf(Text()), "Names of all tools of the request, in any order."),
        "messages": Field(Whole(), "How many messages the request has."),
    }
)
_FAIL: Final = Shape(
    {
        "category": Field(Choice(CATEGORIES), "What kind of failure it is.", required=True),
        "status": Field(Whole(), "HTTP status."),
        "retry_after_s": Field(Number(), "The delay that the server asks for, in seconds."),
        "message": Field(Text(), "What the provider says."),
        "code": Field(Text(), "The vendor's own code."),
        "retryable": Field(Flag(), "Whether the same request may succeed later; follows from the category."),
    }
)
_USAGE: Final = Shape(
    {
        name: Field(Whole(), f"Reported {name.replace('_', ' ')}.")
        for name in (
            "input_tokens",
            "cache_read_tokens",
            "cache_write_tokens",
            "output_tokens",
            "reasoning_tokens",
            "total_tokens",
        )
    }
)
ENTRY: Final = Shape(
    {
        "expect": Field(_EXPECT_REQUEST, "What the request must be like."),
        "say": Field(Text(), "Text, which arrives word by word."),
        "think": Field(Text(), "Visible reasoning."),
        "call": Field(
            OneOrMore(MapOf(ByType({dict: Anything(), str: Text()}))),
            "Tool calls: name to arguments, or to raw text; several as one mapping or as a list.",
        ),
        "fail": Field(ByType({str: Choice(CATEGORIES), dict: _FAIL}), "The attempt fails, after what stands above."),
        "chunks": Field(ListOf(Text()), "The pieces in which the text arrives."),
        "usage": Field(_USAGE, "Token counts; without it none are reported."),
        "refuse": Field(Text(), "A refusal."),
        "stall": Field(ByType({int: Number(), float: Number(), str: Choice(("forever",))}), "Silence, in seconds."),
        "cut": Field(Flag(only=True), "The stream ends without its end."),
        "stop": Field(Choice(STOP_REASONS), "The stop reason, when it is not the natural one."),
    },
    _entry,
)
