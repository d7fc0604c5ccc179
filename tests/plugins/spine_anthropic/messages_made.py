"""Messages and bodies for the tests of this plugin, made in few words."""

import json
from typing import Any

from spine.llm.catalogue import Traits
from spine.llm.request import ModelRequest, Route
from spine.messages import Message, Origin, ProviderState, TextBlock, ToolCallBlock, ToolResultBlock
from spine_anthropic.protocol import AnthropicMessages

PROTOCOL = AnthropicMessages()
ROUTE = Route("lab", "m")
OWN = Origin(protocol="anthropic_messages", route="lab:m")
OTHER = Origin(protocol="anthropic_messages", route="lab:other")
FOREIGN = Origin(protocol="openai_chat", route="gateway:model-o")


def traits(**fields: Any) -> Traits:
    return Traits(provider="lab", protocol="anthropic_messages", model="m", **{"cache_marks": False, **fields})


def request(*messages: Message, **fields: Any) -> ModelRequest:
    return ModelRequest(route=ROUTE, step="t1s1", messages=messages, **fields)  # type: ignore[arg-type]


def sent(*messages: Message, target: Traits | None = None, **fields: Any) -> list[dict[str, Any]]:
    body = json.loads(PROTOCOL.encode(request(*messages, **fields), target or traits()).content)
    found: list[dict[str, Any]] = body["messages"]
    return found


def losses(*messages: Message, target: Traits | None = None, **fields: Any) -> tuple[str, ...]:
    return PROTOCOL.encode(request(*messages, **fields), target or traits()).losses


def assistant(*content: Any, origin: Origin | None = OWN) -> Message:
    return Message(role="assistant", content=content, origin=origin)


def call(id: str, name: str = "weather", vendor_id: str | None = None, **fields: Any) -> ToolCallBlock:
    return ToolCallBlock(id=id, name=name, vendor_id=vendor_id, **{"arguments": {}, **fields})  # type: ignore[arg-type]


def result(call_id: str, *content: Any, **fields: Any) -> Message:
    blocks = tuple(TextBlock(text=block) if isinstance(block, str) else block for block in content)
    return Message(
        role="tool",
        content=(ToolResultBlock(call_id=call_id, name="weather", content=blocks, **fields),),  # type: ignore[arg-type]
    )


def user(*blocks: Any) -> Message:
    return Message(role="user", content=blocks)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def state(data: Any, protocol: str = "anthropic_messages", model: str = "m") -> ProviderState:
    return ProviderState(protocol=protocol, provider="lab", model=model, data=data)
