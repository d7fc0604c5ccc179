"""A sample of each event with every field set, made from the types alone."""

import types
import typing
from typing import Any

import attrs

from spine.codec import BLOCK_TAGS
from spine.events import CORE_EVENTS
from spine.llm.errors import CATEGORIES, Failure
from spine.messages import ContentBlock
from spine.values import Json, JsonObject

DIGEST = "1:" + "ab" * 32
TEXTS = {"Digest": DIGEST, "SessionId": "parent", "TurnId": "t1", "StepId": "t1s1", "CallId": "t1s1c1"}
OBJECT = {"a": [1, 2.5, None, True, "é\u2028"], "b": {"c": "\U0001f600"}}


def sample(kind: Any) -> Any:
    """A value of a type, unlike its default wherever there is one."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind == Json:
        return [OBJECT]
    if kind == ContentBlock:
        kind, (origin, arguments) = BLOCK_TAGS["text"], (None, ())
    if origin is typing.Literal:
        return arguments[-1]
    if origin in (typing.Union, types.UnionType):
        return sample(next(each for each in arguments if each is not types.NoneType))
    if origin is tuple:
        return tuple(map(sample, members(arguments[0])))
    if isinstance(kind, typing.NewType):
        return TEXTS[kind.__name__]
    if kind is JsonObject:
        return OBJECT
    if attrs.has(kind):
        return made(kind)
    return {str: "text \u00fc", int: 7, float: 0.25, bool: True}[kind]


def members(kind: Any) -> tuple[Any, ...]:
    """What a list of this type is filled with: each member of a union once."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def made(kind: type) -> Any:
    """An object with every field set."""
    given = {}
    for field in attrs.fields(attrs.resolve_types(kind)):
        words = [word for word in typing.get_args(field.type) if word != field.default]
        is_choice = typing.get_origin(field.type) is typing.Literal
        given[field.alias] = words[-1] if is_choice else sample(field.type)
    if kind is Failure:
        given["category"] = sorted(CATEGORIES)[0]
    for flag, field in attrs.fields_dict(kind).items():
        if field.default is True:
            given[flag] = False
    return kind(**given)


def samples() -> list[Any]:
    """One of each core event."""
    return [made(kind.data) for kind in CORE_EVENTS]
