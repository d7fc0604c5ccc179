"""The messages of a request as wire bytes, each encoded once for a target and kept as long as the message lives.

An assistant message is followed by one `tool` message per result, in the order of its calls, whatever the order of
completion. Call ids: the vendor's own go back to the provider that gave them, if they fit and are unique in the
request; else ours are written, in the target's grammar. Own reasoning and opaque state go back to the same model only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from spine.llm.catalogue import Traits
from spine.messages import (
    Message,
    ProviderState,
    RefusalBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from spine.wire import (
    MessageMemory,
    WrittenResult,
    call_ids,
    clean_text,
    in_call_order,
    is_by,
    join_messages,
    own_state,
    to_json,
    wire_name,
)
from spine_openai_chat.parts import content_parts, joined_text

PROTOCOL = "openai_chat"
ECHOED = frozenset(("reasoning_details", "extra_content"))
"""Opaque members that go back at the message or the call they came with."""


@attrs.define
class _Kept:
    """A message's wire form. `ids` are the wire ids of an assistant's calls by ours, `results` the tool messages."""

    data: bytes = b""
    ids: Mapping[str, str] = attrs.Factory(dict)
    wire_ids: frozenset[str] = frozenset()
    results: tuple[WrittenResult, ...] = ()
    losses: tuple[str, ...] = ()


class TurnEncoder:
    """Encodes messages for one route and its traits. `prepare` raises for those that cannot be."""

    def __init__(self, route: str, traits: Traits) -> None:
        self._route = route
        self._traits = traits
        self._memory = MessageMemory(self._written)
        self.prepare = self._memory.prepare

    def encode(self, messages: Sequence[Message], losses: dict[str, None]) -> list[bytes]:
        """Each message as JSON with a comma before it; what got lost is added to `losses`."""
        return join_messages(self._memory, messages, losses, self._answers)

    def _answers(self, results: Sequence[WrittenResult], asked: _Kept | None) -> list[bytes]:
        return in_call_order(results, asked.ids if asked else {}, self._traits.call_id_pattern)

    def _written(self, message: Message, use_vendor_ids: bool) -> _Kept:
        losses: list[str] = []
        if message.role == "assistant":
            return self._assistant(message, losses, use_vendor_ids=use_vendor_ids)
        results = tuple(self._result(block, losses) for block in message.content if type(block) is ToolResultBlock)
        rest = tuple(block for block in message.content if type(block) is not ToolResultBlock)
        content = content_parts(rest, self._traits, losses)
        role = "user" if message.role != "system" else "developer" if self._traits.developer_role else "system"
        data = b"," + to_json({"role": role, "content": content}) if content else b""
        return _Kept(data=data, results=results, losses=tuple(losses))

    def _result(self, block: ToolResultBlock, losses: list[str]) -> WrittenResult:
        content = to_json(content_parts(block.content, self._traits, losses, in_result=True))
        return WrittenResult(block.call_id, b',{"content":' + content + b',"role":"tool","tool_call_id":', b"}")

    # ------------------------------------------------------------------------------------------- assistants

    def _assistant(self, message: Message, losses: list[str], *, use_vendor_ids: bool) -> _Kept:
        calls = message.tool_calls
        ids = call_ids(message, self._traits, PROTOCOL, use_vendor_ids=use_vendor_ids)
        text = self._visible(message, losses)
        wire: dict[str, Any] = {"role": "assistant", "content": text or None}
        wire.update(self._own_state(message, losses))
        if calls:
            wire["tool_calls"] = [self._call(block, ids[block.id]) for block in calls]
        is_empty = not text and len(wire) == 2
        return _Kept(
            data=b"" if is_empty else b"," + to_json(wire if text or calls else {**wire, "content": ""}),
            ids=ids,
            wire_ids=frozenset(ids.values()),
            losses=tuple(losses),
        )

    def _visible(self, message: Message, losses: list[str]) -> str:
        """Text and refusal as text: a refusal is something the model said."""
        rest = tuple(block for block in message.content if type(block) not in (ToolCallBlock, ThinkingBlock))
        shown = tuple(TextBlock(text=block.text) if type(block) is RefusalBlock else block for block in rest)
        return clean_text(joined_text(shown, self._traits, losses))

    def _call(self, block: ToolCallBlock, wire_id: str) -> dict[str, Any]:
        """Arguments that were no JSON object go back inside one: servers refuse history that does not parse."""
        arguments = block.arguments
        if arguments is None:
            arguments_json = to_json({"unparsed_arguments": clean_text(block.arguments_text or "")})
        else:
            arguments_json = to_json(arguments)
        function = {"name": wire_name(block.name, self._traits.tool_name_pattern), "arguments": arguments_json.decode()}
        state = self._echo(block.provider_state)
        return {"id": wire_id, "type": "function", "function": function, **state}

    def _own_state(self, message: Message, losses: list[str]) -> dict[str, Any]:
        """Reasoning and opaque state for the model that wrote them; of other models' thinking nothing is sent."""
        found: dict[str, Any] = {}
        thinking: list[str] = []
        is_own = is_by(message.origin, PROTOCOL, self._route)
        for block in message.content:
            if type(block) is ThinkingBlock and not is_own:
                losses.append("thinking of another model was left out")
            elif type(block) is ThinkingBlock:
                thinking.append(block.text)
            if type(block) is not ToolCallBlock:
                found.update(self._echo(block.provider_state))
        text = clean_text("".join(thinking))
        if self._traits.reasoning_field and text:
            found[self._traits.reasoning_field] = text
        return found

    def _echo(self, state: ProviderState | None) -> dict[str, Any]:
        own = own_state(state, PROTOCOL, self._route) or {}
        return {key: value for key, value in own.items() if key in ECHOED}
