"""Requests by reference (floor 7): frames, patches, digests, and the rebuilding of a request from the log.

A request is stored as a frame (everything but the messages, each text and tool definition by digest), the history it
was built on, and the patches that plugins made. The digest covers the effective request; rebuilding must give it.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import NoneType
from typing import Any

import attrs

from spine.codec import Codec
from spine.events import Change, FieldChange, Splice
from spine.frozen import frozen
from spine.llm.request import ModelRequest, ResponseFormat, Route, ToolChoice, parameter_problem
from spine.messages import Message, SystemBlock
from spine.projectors.model_history import CHAIN_START, History, next_hash
from spine.store import Content
from spine.tools import ServerTool, ToolDefinition
from spine.values import DIGEST_FORMAT, Digest, StepId, decode, digest, encode, freeze, freeze_object

FRAME_TYPE = "application/vnd.spine.frame+json"
JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"
MAX_FRAMES = 16
"""Frames kept for other sessions."""
Origins = Mapping[str, Any] | int | None
"""Whose the parts of a request are, as `spine.origins` tells, or the seq of a frame's content that has the same."""
INLINE_CHANGE_BYTES = 256
"""A changed field whose JSON is longer goes beside the patch, as content."""
MESSAGE_FIELD = "messages"
_KEPT_APART = frozenset(("step", MESSAGE_FIELD, "system", "tools"))
_FIELDS = tuple(field for field in attrs.fields(ModelRequest) if field.name not in ("step", MESSAGE_FIELD))
_PARAMETERS = tuple(field for field in _FIELDS if field.name not in _KEPT_APART)


@frozen
class Selection:
    """What a route resolved to. `settings` is the digest of the non-secret settings; no URL, header or key."""

    provider: str
    protocol: str
    model: str
    settings: Digest | None = None
    prices: str | None = None


@frozen
class Frame:
    """Everything of a request but its messages: the JSON that is digested, and the contents it refers to."""

    json: Mapping[str, Any]
    digest: Digest
    contents: tuple[Content, ...]


def content_of(text: str | bytes, media_type: str) -> Content:
    """Text or bytes as content, with its digest."""
    data = text.encode() if isinstance(text, str) else text
    return Content(digest(data), media_type, data)


# ------------------------------------------------------------------------------------------------ frame, digest


def frame_of(codec: Codec, request: ModelRequest) -> Frame:
    """The frame of a request: parameters that are set, each section's text and each tool by its digest."""
    contents: list[Content] = []
    system = []
    for block in request.system:
        text = content_of(block.text, TEXT_TYPE)
        contents.append(text)
        system.append({**codec.to_json(block), "text": text.digest})
    tools = []
    for tool in request.tools:
        content = content_of(encode(_field_json(codec, "tool", tool)), JSON_TYPE)
        contents.append(content)
        tools.append(content.digest)
    json: dict[str, Any] = {
        field.name: _field_json(codec, field.name, value)
        for field in _PARAMETERS
        if (value := getattr(request, field.name)) != field.default
    }
    json |= {name: items for name, items in (("system", system), ("tools", tools)) if items}
    return Frame(json, digest(encode(json)), tuple(contents))


def frame_content(frame: Frame, selection: Selection, origins: Origins = None) -> Content:
    """The stored form of a frame with the selection made for it, and whose its parts are."""
    json = {"request": frame.json, "selection": selection_json(selection)}
    return content_of(encode(json if origins is None else json | {"origins": origins}), FRAME_TYPE)


def selection_json(selection: Selection) -> dict[str, Any]:
    """A selection as JSON; fields that are None are left out."""
    names = ("provider", "protocol", "model", "settings", "prices")
    return {name: value for name in names if (value := getattr(selection, name)) is not None}


class Frames:
    """The frames that were made last, for all sessions of a runtime: those of one agent mostly have the same.

    Told by the identity of a request's parts, and texts and whole numbers by their value. Equality would not do: 1 and
    1.0 are equal and are written differently.
    """

    def __init__(self) -> None:
        self._made: deque[tuple[ModelRequest, Selection, Origins, Frame, Content]] = deque(maxlen=MAX_FRAMES)

    def of(self, codec: Codec, request: ModelRequest, selection: Selection, origins: Origins) -> tuple[Frame, Content]:
        """The frame of a request without messages, and its `frame_content`."""
        for known, selected, whose, frame, content in self._made:
            if _is_framed_alike(known, request) and selected == selection and whose == origins:
                return frame, content
        frame = frame_of(codec, request)
        content = frame_content(frame, selection, origins)
        self._made.appendleft((request, selection, origins, frame, content))
        return frame, content


def _is_framed_alike(a: ModelRequest, b: ModelRequest) -> bool:
    return all(map(_is_alike, _framed(a), _framed(b)))


def _is_alike(a: Any, b: Any) -> bool:
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is tuple:
        return len(a) == len(b) and all(map(_is_alike, a, b))
    if kind is SystemBlock:
        return all(map(_is_alike, _block_parts(a), _block_parts(b)))
    return kind in _ALIKE_WHEN_EQUAL and bool(a == b)


_framed = attrgetter(*(field.name for field in _FIELDS))
_block_parts = attrgetter(*(field.name for field in attrs.fields(SystemBlock)))
_ALIKE_WHEN_EQUAL = frozenset((str, int, bool, Route))


def request_digest(codec: Codec, frame_digest: Digest, step: StepId, messages: Sequence[Message]) -> Digest:
    """SHA-256 over the frame's digest, the step, and the running hash of the messages."""
    value = hashlib.sha256(f"agent-spine/1/request\n{frame_digest}\n{step}\n".encode())
    value.update(messages_hash(codec, messages))
    return Digest(DIGEST_FORMAT + value.hexdigest())


def messages_hash(codec: Codec, messages: Sequence[Message]) -> bytes:
    """The running hash of a sequence of messages; a `History` remembers its own."""
    message_bytes = codec.message_bytes
    if isinstance(messages, History):
        return messages.running_hash(message_bytes)
    value = CHAIN_START
    for message in messages:
        value = next_hash(value, message_bytes(message))
    return value


def _field_json(codec: Codec, name: str, value: Any) -> Any:
    match name:
        case "route":
            return str(value)
        case "system":
            return [codec.to_json(block) for block in value]
        case "tools":
            return [_field_json(codec, "tool", tool) for tool in value]
        case "tool":
            tag = "server" if isinstance(value, ServerTool) else "function"
            return {**codec.to_json(value), "type": tag}
        case "stop_sequences":
            return list(value)
        case "tool_choice" | "response_format":
            return None if value is None else codec.to_json(value)
        case _:
            return freeze(value)


def _field_value(codec: Codec, name: str, json: Any) -> Any:
    match name:
        case "route":
            return Route.parse(json)
        case "system":
            return tuple(codec.from_json(block, SystemBlock) for block in json)
        case "tools":
            return tuple(_tool_value(codec, tool) for tool in json)
        case "stop_sequences":
            return tuple(json)
        case "tool_choice":
            return None if json is None else codec.from_json(json, ToolChoice)
        case "response_format":
            return None if json is None else codec.from_json(json, ResponseFormat)
        case "provider_options" | "metadata":
            return freeze_object(json)
        case _:
            return json


_ITEMS: Mapping[str, tuple[type, ...]] = {
    "system": (SystemBlock,),
    "messages": (Message,),
    "tools": (ToolDefinition, ServerTool),
    "stop_sequences": (str,),
}
_SCALARS: Mapping[str, tuple[type, ...]] = {
    "route": (Route,),
    "tool_choice": (ToolChoice, NoneType),
    "parallel_tool_calls": (bool, NoneType),
    "max_output_tokens": (int, NoneType),
    "temperature": (int, float, NoneType),
    "top_p": (int, float, NoneType),
    "seed": (int, NoneType),
    "thinking": (str, int, NoneType),
    "response_format": (ResponseFormat, NoneType),
}


def problem_of(codec: Codec, before: ModelRequest, after: ModelRequest) -> str | None:
    """Why a changed request cannot be made, in words that follow "a plugin"; None when it can.

    Only what differs from `before` is looked at. Tools that are not known are not this function's affair.
    """
    if after.step != before.step:
        return "changed the request's step"
    for name, kinds in _ITEMS.items():
        items = getattr(after, name)
        if items is not getattr(before, name) and not all(isinstance(item, kinds) for item in items):
            return f"put something into the request's {name} that is no {kinds[0].__name__}"
    for name, kinds in _SCALARS.items():
        if not isinstance(getattr(after, name), kinds):
            return f"gave a value for {name} that cannot be recorded: {getattr(after, name)!r:.80}"
    if after.messages is not before.messages:
        if any(message.role == "system" for message in after.messages):
            return "put a system message into the request; sections belong in system"
        if not all(map(codec.reads_back, _inserted(before.messages, after.messages))):
            return "put a message into the request that cannot be recorded"
    try:
        for field in _FIELDS:
            value = getattr(after, field.name)
            if value is not getattr(before, field.name):
                encode(_field_json(codec, field.name, value))
    except Exception as exc:
        return f"gave a value for {field.name} that cannot be recorded: {exc}"
    changed = (name for name in _SCALARS if getattr(after, name) is not getattr(before, name))
    problems = filter(None, (parameter_problem(name, getattr(after, name)) for name in changed))
    return next((f"changed a parameter to what it cannot be: {problem}" for problem in problems), None)


def _tool_value(codec: Codec, json: Mapping[str, Any]) -> ToolDefinition | ServerTool:
    kind: type[Any] = ServerTool if json.get("type") == "server" else ToolDefinition
    tool: ToolDefinition | ServerTool = codec.from_json({k: v for k, v in json.items() if k != "type"}, kind)
    return tool


# ------------------------------------------------------------------------------------------------------ patches

Put = Callable[[Content], int]
"""Adds content to the log (once per digest) and returns the seq of its `content.added`."""
Get = Callable[[int], bytes]
"""The bytes of the content that the event with this seq added."""


def diff(codec: Codec, before: ModelRequest, after: ModelRequest, put: Put) -> tuple[Change, ...]:
    """The changes that lead from one request to the other, told by identity first; empty when nothing changed."""
    if after is before:
        return ()
    changes: list[Change] = []
    for field in _FIELDS:
        old, new = getattr(before, field.name), getattr(after, field.name)
        if new is not old and new != old:
            changes.append(_field_change(field.name, _field_json(codec, field.name, new), put))
    if after.messages is not before.messages:
        splice = _splice(codec, before.messages, after.messages, put)
        if splice is not None:
            changes.append(splice)
    return tuple(changes)


def _field_change(name: str, json: Any, put: Put) -> FieldChange:
    data = encode(json)
    if len(data) <= INLINE_CHANGE_BYTES:
        return FieldChange(field=name, value=decode(data))
    return FieldChange(field=name, content=put(content_of(data, JSON_TYPE)))


def _inserted(old: Sequence[Message], new: Sequence[Message]) -> Sequence[Message]:
    start, tail = _common(old, new)
    return new[start : len(new) - tail]


def _common(old: Sequence[Message], new: Sequence[Message]) -> tuple[int, int]:
    """How many messages at the start and at the end are the same in both."""
    start = old.same_start(new) if isinstance(old, History) and isinstance(new, History) else 0
    shortest = min(len(old), len(new))
    while start < shortest and (old[start] is new[start] or old[start] == new[start]):
        start += 1
    tail = 0
    while tail < shortest - start and (old[-1 - tail] is new[-1 - tail] or old[-1 - tail] == new[-1 - tail]):
        tail += 1
    return start, tail


def _splice(codec: Codec, old: Sequence[Message], new: Sequence[Message], put: Put) -> Splice | None:
    start, tail = _common(old, new)
    if start == len(old) == len(new):
        return None
    inserted = new[start : len(new) - tail]
    seqs = tuple(put(content_of(codec.message_bytes(message), JSON_TYPE)) for message in inserted)
    return Splice(start=start, end=len(old) - tail, messages=seqs)


def apply(codec: Codec, request: ModelRequest, changes: Sequence[Change], get: Get) -> ModelRequest:
    """The request after `changes`."""
    for change in changes:
        if isinstance(change, Splice):
            inserted = tuple(codec.from_json(decode(get(seq)), Message) for seq in change.messages)
            old = request.messages
            spliced = (*old[: change.start], *inserted, *old[change.end :])
            request = request.evolve(messages=spliced)
        else:
            json = change.value if change.content is None else decode(get(change.content))
            request = request.evolve(**{change.field: _field_value(codec, change.field, json)})
    return request


# -------------------------------------------------------------------------------------------------- rebuilding


def request_from_frame(
    codec: Codec,
    frame: Mapping[str, Any],
    step: StepId,
    messages: Sequence[Message],
    by_digest: Callable[[Digest], bytes],
) -> ModelRequest:
    """The request that `frame_of` took apart; `by_digest` finds a content's bytes."""
    fields = {name: _field_value(codec, name, json) for name, json in frame.items() if name not in _KEPT_APART}
    fields["system"] = tuple(
        codec.from_json({**block, "text": by_digest(block["text"]).decode()}, SystemBlock)
        for block in frame.get("system", ())
    )
    fields["tools"] = tuple(_tool_value(codec, decode(by_digest(tool))) for tool in frame.get("tools", ()))
    return ModelRequest(step=step, messages=messages, **fields)
