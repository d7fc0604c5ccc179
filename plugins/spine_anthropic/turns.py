"""The messages of a request as wire bytes: roles alternate, results stand first, own state goes back where it was.

Neighbouring messages of one role become one; the results of an answer's calls open the user message that follows it,
in the order of the calls. Each message is encoded once for a target and kept as long as it lives. Signatures, redacted
thinking, citations, programmatic callers and the blocks of server tools go back to the model they came from, byte for
byte and in their place; for any other model they are left out and listed.

Source: Anthropic's pages on tool use, extended thinking and server tools, read 2026-11-30.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from spine.llm.catalogue import Traits
from spine.messages import (
    ContentBlock,
    ExtensionBlock,
    Message,
    ProviderState,
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
    from_json,
    in_call_order,
    is_by,
    leave_out,
    own_state,
    to_json,
    wire_name,
)
from spine_anthropic.answer import CONTAINER, NAME
from spine_anthropic.parts import Part, said_part, text_part, user_parts

UNPARSED = "unparsed_arguments"
"""The one member of a call's input when its arguments were no JSON object."""
_THINKING = frozenset(("thinking", "redacted_thinking"))


@attrs.define
class Written:
    """One message on the wire. `blocks` are its blocks but for results, `data` the whole message if it stands alone.

    `ids` are the wire ids of its calls by ours, `names` the tools it speaks of. `unanswered` are the places of server
    tool uses without a result in the message, `answered` the ids of those with one.
    """

    role: str
    blocks: tuple[bytes, ...] = ()
    data: bytes = b""
    results: tuple[WrittenResult, ...] = ()
    ids: Mapping[str, str] = attrs.Factory(dict)
    wire_ids: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    opens_with_thinking: bool = False
    container: str | None = None
    unanswered: Mapping[int, str] = attrs.Factory(dict)
    answered: frozenset[str] = frozenset()
    losses: tuple[str, ...] = ()


class TurnEncoder:
    """Encodes messages for one route and its traits. `prepare` raises for those that cannot be."""

    def __init__(self, route: str, traits: Traits) -> None:
        self._route = route
        self._traits = traits
        self._memory = MessageMemory(self._written)
        self.prepare = self._memory.prepare

    def encode(self, messages: Sequence[Message], losses: dict[str, None]) -> "Turns":
        """The messages in turns; what got lost is added to `losses`."""
        turns: list[list[Written]] = []
        seen: set[str] = set()
        role = ""
        for message in messages:
            written = self._memory.written(message, seen)
            if written.losses:
                losses.update(dict.fromkeys(written.losses))
            if not written.data and not written.results:
                continue
            if written.role == role:
                turns[-1].append(written)
            else:
                role = written.role
                turns.append([written])
        return Turns(turns, self._traits.call_id_pattern, losses)

    def _written(self, message: Message, use_vendor_ids: bool) -> Written:
        losses: list[str] = []
        if message.role == "assistant":
            return self._answer(message, losses, use_vendor_ids=use_vendor_ids)
        if message.role == "system":
            losses.append("a system message among the messages was sent as the user's")
        answers = [block for block in message.content if type(block) is ToolResultBlock]
        results = tuple(self._result(block, losses) for block in answers)
        blocks = tuple(to_json(part) for part in self._said_to_model(message, losses))
        return Written(
            role="user",
            blocks=blocks,
            data=_joined("user", blocks),
            results=results,
            names=tuple(block.name for block in answers),
            losses=tuple(losses),
        )

    def _said_to_model(self, message: Message, losses: list[str]) -> Iterator[Part]:
        for block in message.content:
            if type(block) is ExtensionBlock and self._echo(block.provider_state) is not None:
                yield from _own_block(block, losses)
            elif type(block) is not ToolResultBlock:
                yield from user_parts((block,), self._traits, losses)

    def _result(self, block: ToolResultBlock, losses: list[str]) -> WrittenResult:
        parts = user_parts(block.content, self._traits, losses)
        members: dict[str, Any] = {"content": parts} if parts else {}
        if block.is_error:
            members["is_error"] = True
        head = to_json(members)[:-1]
        return WrittenResult(
            block.call_id, head + (b"," if members else b"") + b'"tool_use_id":', b',"type":"tool_result"}'
        )

    # -------------------------------------------------------------------------------------------------- answers

    def _answer(self, message: Message, losses: list[str], *, use_vendor_ids: bool) -> Written:
        ids = call_ids(message, self._traits, NAME, use_vendor_ids=use_vendor_ids)
        is_own = is_by(message.origin, NAME, self._route)
        parts: list[Part] = []
        container: str | None = None
        for block in message.content:
            if is_own and type(block) is ExtensionBlock and block.kind == CONTAINER:
                container = _container_id(block)
            else:
                parts.extend(self._said(block, ids, losses, is_own=is_own))
        blocks = tuple(to_json(part) for part in parts)
        answered = frozenset(str(part["tool_use_id"]) for part in parts if "tool_use_id" in part)
        return Written(
            role="assistant",
            blocks=blocks,
            data=_joined("assistant", blocks),
            ids=ids,
            wire_ids=frozenset(ids.values()),
            names=tuple(block.name for block in message.tool_calls),
            opens_with_thinking=bool(parts) and parts[0]["type"] in _THINKING,
            container=container,
            unanswered=_unanswered(parts, answered),
            answered=answered,
            losses=tuple(losses),
        )

    def _said(self, block: ContentBlock, ids: Mapping[str, str], losses: list[str], *, is_own: bool) -> Iterator[Part]:
        if type(block) is ToolCallBlock:
            yield self._call(block, ids[block.id])
        elif type(block) is ThinkingBlock:
            yield from self._thinking(block, losses)
        elif type(block) is TextBlock:
            yield from self._text(block, losses)
        elif type(block) is ExtensionBlock and is_own:
            yield from _own_block(block, losses)
        else:
            part = said_part(block, self._traits, losses)
            if part is not None:
                yield part

    def _call(self, block: ToolCallBlock, wire_id: str) -> Part:
        """Arguments that were no JSON object go back inside one: the API takes nothing else."""
        arguments: Any = block.arguments
        if arguments is None:
            arguments = {UNPARSED: clean_text(block.arguments_text or "")}
        state = self._echo(block.provider_state) or {}
        caller = {"caller": state["caller"]} if "caller" in state else {}
        name = wire_name(block.name, self._traits.tool_name_pattern)
        return {"type": "tool_use", "id": wire_id, "name": name, "input": arguments, **caller}

    def _thinking(self, block: ThinkingBlock, losses: list[str]) -> Iterator[Part]:
        state = self._echo(block.provider_state)
        if state is not None and "signature" in state:
            yield {"type": "thinking", "thinking": clean_text(block.text), "signature": state["signature"]}
        elif state is not None and "data" in state:
            yield {"type": "redacted_thinking", "data": state["data"]}
        elif block.provider_state is None:
            losses.append("thinking without a signature was left out")
        else:
            losses.append("thinking of another model was left out")

    def _text(self, block: TextBlock, losses: list[str]) -> Iterator[Part]:
        part = text_part(block.text)
        if part is None:
            return
        state = self._echo(block.provider_state)
        if state is not None and "citations" in state:
            part["citations"] = state["citations"]
        elif block.provider_state is not None and state is None:
            losses.append("citations of another model were left out")
        yield part

    def _echo(self, state: ProviderState | None) -> Mapping[str, Any] | None:
        """The opaque state of a block, if it is this model's."""
        return own_state(state, NAME, self._route)


def _own_block(block: ExtensionBlock, losses: list[str]) -> Iterator[Part]:
    """A block of the provider's own, whole as it came."""
    if isinstance(block.data, Mapping) and block.data.get("type"):
        yield dict(block.data)
    else:
        leave_out(block, losses)


def _container_id(block: ExtensionBlock) -> str | None:
    found = block.data.get("id") if isinstance(block.data, Mapping) else None
    return found if isinstance(found, str) else None


def _unanswered(parts: Sequence[Part], answered: frozenset[str]) -> dict[int, str]:
    return {
        place: str(part.get("id"))
        for place, part in enumerate(parts)
        if part["type"] != "tool_use" and str(part["type"]).endswith("_tool_use") and part.get("id") not in answered
    }


def _joined(role: str, blocks: Sequence[bytes]) -> bytes:
    """A message with a comma before it, `b""` when there is nothing in it."""
    return b',{"content":[' + b",".join(blocks) + _TAILS[role] if blocks else b""


_TAILS = {"assistant": b'],"role":"assistant"}', "user": b'],"role":"user"}'}

# ---------------------------------------------------------------------------------------------------------- turns


class Turns:
    """The messages of one request, those of one role together."""

    def __init__(self, turns: list[list[Written]], call_id_pattern: str, losses: dict[str, None]) -> None:
        self._turns = turns
        self._pattern = call_id_pattern
        self._losses = losses

    def names(self) -> list[str]:
        """The tools that the messages speak of, in order of appearance."""
        return list(dict.fromkeys(name for turn in self._turns for written in turn for name in written.names))

    def container(self) -> str | None:
        """The container of the answer that goes on: the last one, if nothing but its results came after it."""
        if not self._turns:
            return None
        last = self._turns[-1]
        if last[0].role == "user":
            if len(self._turns) < 2 or not _has_results(last):
                return None
            last = self._turns[-2]
        return next((written.container for written in reversed(last) if written.container is not None), None)

    def goes_on_without_thinking(self) -> bool:
        """Whether an answer goes on after its calls that did not open with thinking of this model.

        Thinking on a budget may not begin there: the API wants the whole answer, from the first of its calls on, to
        open with thinking.
        """
        place = len(self._turns) - 1
        first: list[Written] | None = None
        while place > 0 and _has_results(self._turns[place]):
            first = self._turns[place - 1]
            place -= 2
        return first is not None and not first[0].opens_with_thinking

    def items(self, mark: bytes | None) -> list[bytes]:
        """Each turn as JSON with a comma before it.

        The last user turn and the one before it end in `mark`: what the step before wrote to the cache is read, and
        what is new is written. None: no marks.
        """
        marked = self._marked() if mark is not None else ()
        last = len(self._turns) - 1
        items: list[bytes] = []
        ids: Mapping[str, str] = {}
        for place, turn in enumerate(self._turns):
            first, is_alone = turn[0], len(turn) == 1
            if first.role == "user":
                if place in marked:
                    items.append(self._asked(turn, ids, mark))
                elif is_alone and not first.results:
                    items.append(first.data)
                else:
                    items.append(self._asked(turn, ids))
                continue
            ids = first.ids if is_alone else {key: value for written in turn for key, value in written.ids.items()}
            is_plain = is_alone and not first.unanswered and place != last
            items.append(first.data if is_plain else self._said(turn, place == last))
        return items

    def _marked(self) -> tuple[int, ...]:
        """The places of the last two user turns; every second turn is one."""
        last = len(self._turns) - 1
        if last >= 0 and self._turns[last][0].role != "user":
            last -= 1
        return (last - 2, last)

    def _asked(self, turn: list[Written], ids: Mapping[str, str], mark: bytes | None = None) -> bytes:
        results = turn[0].results if len(turn) == 1 else [result for written in turn for result in written.results]
        blocks = in_call_order(results, ids, self._pattern)
        for written in turn:
            blocks.extend(written.blocks)
        if mark is not None:
            blocks[-1] = b"{" + mark + b"," + blocks[-1][1:]
        return _joined("user", blocks)

    def _said(self, turn: list[Written], is_last: bool) -> bytes:
        """An answer. A server tool's use without result has a place only where the answer goes on."""
        goes_on = is_last or any(written.ids for written in turn)
        answered = frozenset().union(*(written.answered for written in turn))
        blocks: list[bytes] = []
        for written in turn:
            for place, block in enumerate(written.blocks):
                if goes_on or written.unanswered.get(place) in (None, *answered):
                    blocks.append(block)
                else:
                    self._losses["a server tool's use without a result was left out"] = None
        if is_last and blocks:
            blocks[-1:] = _without_tail(blocks[-1])
        return _joined("assistant", blocks)


def _has_results(turn: list[Written]) -> bool:
    return any(written.results for written in turn)


def _without_tail(block: bytes) -> list[bytes]:
    """The API refuses a last answer that ends in blanks."""
    part = from_json(block)
    if part["type"] != "text" or part["text"] == part["text"].rstrip():
        return [block]
    return [to_json({**part, "text": part["text"].rstrip()})]
