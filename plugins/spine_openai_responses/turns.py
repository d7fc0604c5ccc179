"""The messages of a request as input items, each message encoded once for a target and kept as long as it lives.

An answer goes back as the items it was made of, in their order: messages, reasoning, calls, items of built-in tools;
then one output per call, in the order of the calls. Call ids: the vendor's own go back to the provider that gave them,
if they fit and are unique in the request; else ours are written, in the target's grammar. Item ids, phases and
encrypted reasoning go back to their own model only; items of built-in tools to their own provider.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from spine.llm.catalogue import Traits
from spine.messages import (
    ContentBlock,
    ExtensionBlock,
    Message,
    ProviderState,
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
    join_messages,
    own_state,
    to_json,
    wire_name,
)
from spine_openai_responses.answer import NAME
from spine_openai_responses.parts import input_content, said_text
from spine_openai_responses.wholes import ANNOTATIONS, CALL_STATE, MESSAGE_STATE, PLACE

Item = Mapping[str, Any]
_OUTPUT = b',"type":"function_call_output"}'
_CUSTOM_OUTPUT = b',"type":"custom_tool_call_output"}'


@attrs.define
class _Kept:
    """A message's wire form. `ids` are the wire ids of its calls by ours, `custom` those whose input is free text,
    `results` the outputs of earlier calls."""

    data: bytes = b""
    ids: Mapping[str, str] = attrs.Factory(dict)
    wire_ids: frozenset[str] = frozenset()
    custom: frozenset[str] = frozenset()
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
        """Each message's items as JSON with commas before them; what got lost is added to `losses`."""
        return join_messages(self._memory, messages, losses, self._answers)

    def _answers(self, results: Sequence[WrittenResult], asked: _Kept | None) -> list[bytes]:
        if asked is not None and asked.custom:
            results = [_of_custom(result) if result.call_id in asked.custom else result for result in results]
        return in_call_order(results, asked.ids if asked else {}, self._traits.call_id_pattern)

    def _written(self, message: Message, use_vendor_ids: bool) -> _Kept:
        losses: list[str] = []
        if message.role == "assistant":
            return self._assistant(message, losses, use_vendor_ids)
        results = tuple(self._result(block, losses) for block in message.content if type(block) is ToolResultBlock)
        items: list[Item] = []
        rest: list[ContentBlock] = []
        for block in message.content:
            item = self._sent_back(block, None)
            if item is not None:
                items.append(item)
            elif type(block) is not ToolResultBlock:
                rest.append(block)
        content = input_content(rest, self._traits, losses)
        if content:
            items.append({"role": "developer" if message.role == "system" else "user", "content": content})
        return _Kept(data=_joined(items), results=results, losses=tuple(losses))

    def _result(self, block: ToolResultBlock, losses: list[str]) -> WrittenResult:
        output = to_json(input_content(block.content, self._traits, losses, in_result=True))
        return WrittenResult(block.call_id, b',{"call_id":', b',"output":' + output + _OUTPUT)

    # ------------------------------------------------------------------------------------------- assistants

    def _assistant(self, message: Message, losses: list[str], use_vendor_ids: bool) -> _Kept:
        ids = call_ids(message, self._traits, NAME, use_vendor_ids=use_vendor_ids)
        items: list[dict[str, Any]] = []
        for block in message.content:
            if type(block) is ToolCallBlock:
                items.append(self._call(block, ids[block.id]))
            elif type(block) is ThinkingBlock:
                self._add_thinking(items, block, losses)
            elif (item := self._sent_back(block, message)) is not None:
                items.append({**item})
            else:
                self._add_said(items, block, losses)
        return _Kept(
            data=_joined(self._finished(items, losses)),
            ids=ids,
            wire_ids=frozenset(ids.values()),
            custom=frozenset(block.id for block in message.tool_calls if self._is_custom(block)),
            losses=tuple(losses),
        )

    def _call(self, block: ToolCallBlock, wire_id: str) -> dict[str, Any]:
        """Arguments that were no JSON object go back inside one: servers refuse history that does not parse."""
        name = wire_name(block.name, self._traits.tool_name_pattern)
        state = {key: value for key, value in self._own(block.provider_state).items() if key in CALL_STATE}
        text = clean_text(block.arguments_text or "")
        if self._is_custom(block):
            text = text if block.arguments is None else to_json(block.arguments).decode()
            return {**state, "type": "custom_tool_call", "call_id": wire_id, "name": name, "input": text}
        arguments = to_json({"unparsed_arguments": text} if block.arguments is None else block.arguments).decode()
        return {**state, "type": "function_call", "call_id": wire_id, "name": name, "arguments": arguments}

    def _is_custom(self, block: ToolCallBlock) -> bool:
        return self._own(block.provider_state).get("type") == "custom_tool_call"

    def _add_thinking(self, items: list[dict[str, Any]], block: ThinkingBlock, losses: list[str]) -> None:
        """Blocks of one reasoning item become one again."""
        state = self._own(block.provider_state)
        if not state:
            losses.append("thinking of another model was left out")
            return
        last = items[-1] if items else {}
        if last.get("type") != "reasoning" or last.get("id") != state.get("id"):
            named = {"id": state["id"]} if state.get("id") else {}
            last = {**named, "type": "reasoning", "summary": []}
            items.append(last)
        if state.get("encrypted_content"):
            last["encrypted_content"] = state["encrypted_content"]
        text = clean_text(block.text)
        if text and state.get(PLACE):
            last.setdefault("content", []).append({"type": "reasoning_text", "text": text})
        elif text:
            last["summary"].append({"type": "summary_text", "text": text})

    def _finished(self, items: list[dict[str, Any]], losses: list[str]) -> list[dict[str, Any]]:
        """`items` without reasoning that cannot go back. The server keeps nothing, so reasoning that is not encrypted
        means nothing to it (unless it reads its own text), and it refuses reasoning that no item follows."""
        end = len(items)
        while end and items[end - 1].get("type") == "reasoning":
            end -= 1
        if end < len(items):
            losses.append("thinking that nothing follows was left out")
        taken = ("encrypted_content", self._traits.reasoning_field)
        kept = [i for i in items[:end] if i.get("type") != "reasoning" or any(key in i for key in taken)]
        if len(kept) < end:
            losses.append("thinking without encrypted content was left out")
        return kept

    def _add_said(self, items: list[dict[str, Any]], block: ContentBlock, losses: list[str]) -> None:
        """Neighbouring texts of one message item become one again."""
        state = {key: value for key, value in self._own(block.provider_state).items() if key in MESSAGE_STATE}
        last = items[-1] if items and items[-1].get("role") == "assistant" else None
        if type(block) is ExtensionBlock and block.kind == ANNOTATIONS and last is not None and "id" in last:
            last["content"][-1][ANNOTATIONS] = block.data
            return
        text = said_text(block, self._traits, losses)
        if not text:
            return
        part: dict[str, Any] = {"type": "output_text", "text": text}
        if "id" in state:  # a message with an id is read as it was given
            part[ANNOTATIONS] = []
            state["status"] = "completed"
        if last is None or any(last.get(key) != state.get(key) for key in MESSAGE_STATE):
            last = {**state, "type": "message", "role": "assistant", "content": []}
            items.append(last)
        last["content"].append(part)

    def _sent_back(self, block: ContentBlock, message: Message | None) -> Item | None:
        """The item of a built-in tool, as it came, if it came from this provider; what is encrypted, from this model.

        A caller's own items (an answer to an approval request, say) name provider and model in their state.
        """
        if type(block) is not ExtensionBlock or not isinstance(block.data, Mapping) or block.kind == ANNOTATIONS:
            return None
        state, origin = block.provider_state, message.origin if message is not None else None
        if state is not None:
            source = (state.protocol, f"{state.provider}:{state.model}")
        elif origin is not None:
            source = (origin.protocol, origin.route)
        else:
            return None
        is_own = source == (NAME, self._route)
        is_kin = (source[0], source[1].partition(":")[0]) == (NAME, self._traits.provider)
        is_item = block.data.get("type") == block.kind
        return block.data if is_item and (is_own or (is_kin and "encrypted_content" not in block.data)) else None

    def _own(self, state: ProviderState | None) -> Mapping[str, Any]:
        """State of this very model; empty for any other."""
        return own_state(state, NAME, self._route) or {}


def _joined(items: Sequence[Item]) -> bytes:
    return b"".join(b"," + to_json(item) for item in items)


def _of_custom(result: WrittenResult) -> WrittenResult:
    return WrittenResult(result.call_id, result.before, result.after.removesuffix(_OUTPUT) + _CUSTOM_OUTPUT)
