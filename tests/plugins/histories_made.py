"""Pieces of histories and requests, made for the tests of every encoder."""

from typing import Any

from spine.llm.request import ModelRequest, Route
from spine.messages import ImageBlock, Message, TextBlock, ToolCallBlock, ToolResultBlock, user_message
from spine.tools import ToolDefinition

PNG = ImageBlock(data="iVBORw0KGgo=", detail="low")


def request(*messages: Message, route: str = "lab:m", **fields: Any) -> ModelRequest:
    """A request of these messages, or of a greeting."""
    told = messages or (user_message("Hi"),)
    return ModelRequest(route=Route.parse(route), step="t1s1", messages=told, **fields)  # type: ignore[arg-type]


def user(*content: Any) -> Message:
    return Message(role="user", content=content, kind="user")


def asked(id: str, name: str = "weather", vendor_id: str | None = None, **fields: Any) -> ToolCallBlock:
    """A call, without arguments unless some are given."""
    return ToolCallBlock(id=id, name=name, vendor_id=vendor_id, **{"arguments": {}, **fields})  # type: ignore[arg-type]


def result(call_id: str, *content: Any) -> Message:
    """The result of one call; texts may be plain."""
    blocks = tuple(TextBlock(text=block) if isinstance(block, str) else block for block in content)
    return Message(role="tool", content=(ToolResultBlock(call_id=call_id, name="weather", content=blocks),))  # type: ignore[arg-type]


def tool(name: str, parameters: Any = None, **fields: Any) -> ToolDefinition:
    return ToolDefinition(name=name, parameters=parameters or {}, **fields)
