"""A scripted answer as a provider would write it, for the three protocols that come with the runtime (floor 14).

The other direction of a decoder, written apart from it: the kit compares what a decoder reads with what the script
says. The author of a foreign protocol supplies a function of the same form, `Render`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from spine.testing.script import Call, Entry, Refuse, Say, Think

__all__ = ["RENDERS", "Render", "Rendered"]


@attrs.frozen(kw_only=True)
class Rendered:
    """The bytes of one answer. `frames` are the events of its stream, each whole, blank line included.

    `ends_at` is the place in `frames` of the one by which the answer is complete: cut before it, it is
    `stream_truncated`; what stands behind it (usage, an end mark) may be missing. `error` is a frame that tells of an
    overloaded server in the middle of a stream, `ping` one that says nothing, `whole` the body of the same answer when
    it is not streamed; None where the protocol has none.
    """

    frames: tuple[bytes, ...]
    ends_at: int
    error: bytes | None = None
    ping: bytes | None = None
    whole: bytes | None = None

    @property
    def body(self) -> bytes:
        """The stream in one piece."""
        return b"".join(self.frames)

    @property
    def is_event_stream(self) -> bool:
        """Whether it is one in the sense of the web, with comments and fields."""
        return b"data:" in self.body


Render = Callable[[Entry], Rendered]
"""Writes a script's entry (text, reasoning, refusal, calls, usage, stop reason) in a protocol's own words."""

MODEL: Final = "model-of-chaos"
_USAGE: Final = {"input_tokens": 7, "output_tokens": 5}


def _frame(payload: Mapping[str, Any], *, named: bool = False) -> bytes:
    line = f"event: {payload['type']}\n" if named else ""
    return f"{line}data: {json.dumps(payload, ensure_ascii=False)}\n\n".encode()


def _halves(text: str) -> tuple[str, ...]:
    middle = len(text) // 2
    return tuple(piece for piece in (text[:middle], text[middle:]) if piece)


def _usage_of(entry: Entry) -> tuple[int, int] | None:
    """Input and output tokens, as far as the script reports any."""
    return None if entry.usage is None else (entry.usage.input_tokens or 0, entry.usage.output_tokens or 0)


def _kinds(entry: Entry) -> set[type]:
    return {type(part) for part in entry.parts}


def _text(entry: Entry, kind: type) -> str | None:
    return "".join(piece for part in entry.parts if type(part) is kind for piece in part.pieces) or None  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------ chat completions

_CHAT_WORDS: Final = {Say: "content", Think: "reasoning_content", Refuse: "refusal"}
_CHAT_STOPS: Final = {"max_tokens": "length", "content_filter": "content_filter"}


def _chat_object(kind: str, choices: list[Any], **more: Any) -> dict[str, Any]:
    return {"id": "chat-1", "object": kind, "created": 1, "model": MODEL, "choices": choices, **more}


def _chat_event(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _frame(_chat_object("chat.completion.chunk", [choice]))


def _chat_deltas(entry: Entry) -> Iterator[dict[str, Any]]:
    index = -1
    for part in entry.parts:
        if isinstance(part, Call):
            index += 1
            head = {"id": f"call_{index}", "type": "function", "function": {"name": part.name, "arguments": ""}}
            yield {"tool_calls": [{"index": index, **head}]}
            for piece in _halves(part.text):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
        elif isinstance(part, Say | Think | Refuse):
            yield from ({_CHAT_WORDS[type(part)]: piece} for piece in part.pieces)


def _chat_calls(entry: Entry) -> list[dict[str, Any]]:
    calls = [part for part in entry.parts if isinstance(part, Call)]
    return [
        {"id": f"call_{place}", "type": "function", "function": {"name": part.name, "arguments": part.text}}
        for place, part in enumerate(calls)
    ]


def render_chat(entry: Entry) -> Rendered:
    """As OpenAI Chat Completions."""
    finish = _CHAT_STOPS.get(entry.stop_reason or "", "tool_calls" if Call in _kinds(entry) else "stop")
    counted = _usage_of(entry)
    usage = counted and {"prompt_tokens": counted[0], "completion_tokens": counted[1], "total_tokens": sum(counted)}
    deltas = ({"role": "assistant", "content": ""}, *_chat_deltas(entry))
    tail = (_frame(_chat_object("chat.completion.chunk", [], usage=usage)),) if usage else ()
    frames = (*map(_chat_event, deltas), _chat_event({}, finish), *tail, b"data: [DONE]\n\n")
    message = {
        "role": "assistant",
        **{word: _text(entry, kind) for kind, word in _CHAT_WORDS.items()},
        "tool_calls": _chat_calls(entry) or None,
    }
    whole = _chat_object("chat.completion", [{"index": 0, "message": message, "finish_reason": finish}], usage=usage)
    return Rendered(
        frames=frames,
        ends_at=len(deltas),
        error=_frame({"error": {"message": "The server is overloaded", "code": "server_is_overloaded"}}),
        whole=json.dumps(whole).encode(),
    )


# -------------------------------------------------------------------------------------------------------- messages

_MESSAGES_STOPS: Final = {"max_tokens": "max_tokens", "stop_sequence": "stop_sequence"}
_OPENED: Final = {"type": "message", "role": "assistant", "model": MODEL, "id": "msg_1"}


def _block_start(part: Any, place: int) -> dict[str, Any]:
    match part:
        case Call(name):
            return {"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": {}}
        case Think():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case _:
            return {"type": "text", "text": ""}


def _block_deltas(part: Any) -> Iterator[dict[str, Any]]:
    match part:
        case Call(_, text):
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in _halves(text))
        case Think(pieces):
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces)
            yield {"type": "signature_delta", "signature": "signed"}
        case _:
            yield from ({"type": "text_delta", "text": piece} for piece in part.pieces)


def _block_frames(place: int, part: Any) -> Iterator[bytes]:
    yield _frame(
        {"type": "content_block_start", "index": place, "content_block": _block_start(part, place)}, named=True
    )
    for delta in _block_deltas(part):
        yield _frame({"type": "content_block_delta", "index": place, "delta": delta}, named=True)
    yield _frame({"type": "content_block_stop", "index": place}, named=True)


def _whole_block(place: int, part: Any) -> dict[str, Any]:
    match part:
        case Call(name, text):
            return {"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": json.loads(text or "{}")}
        case Think(pieces):
            return {"type": "thinking", "thinking": "".join(pieces), "signature": "signed"}
        case _:
            return {"type": "text", "text": "".join(part.pieces)}


def _is_json(part: Any) -> bool:
    try:
        return not isinstance(part, Call) or isinstance(json.loads(part.text or "{}"), dict)
    except ValueError:
        return False


def render_messages(entry: Entry) -> Rendered:
    """As Anthropic Messages, which says a refusal as text and a stop reason."""
    kinds, counted = _kinds(entry), _usage_of(entry)
    natural = "tool_use" if Call in kinds else "refusal" if Refuse in kinds else "end_turn"
    stop = {"stop_reason": _MESSAGES_STOPS.get(entry.stop_reason or "", natural), "stop_sequence": None}
    usage = {"usage": dict(zip(_USAGE, counted, strict=True))} if counted else {}
    start: dict[str, Any] = {**_OPENED, "content": [], "stop_reason": None, **usage}
    frames = (
        _frame({"type": "message_start", "message": start}, named=True),
        *(frame for place, part in enumerate(entry.parts) for frame in _block_frames(place, part)),
        _frame({"type": "message_delta", "delta": stop, **usage}, named=True),
        _frame({"type": "message_stop"}, named=True),
    )
    whole = None
    if all(map(_is_json, entry.parts)):
        blocks = [_whole_block(place, part) for place, part in enumerate(entry.parts)]
        whole = json.dumps({**_OPENED, "content": blocks, **stop, **usage}).encode()
    return Rendered(
        frames=frames,
        ends_at=len(frames) - 1,
        error=_frame({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, named=True),
        ping=_frame({"type": "ping"}, named=True),
        whole=whole,
    )


# ------------------------------------------------------------------------------------------------------- responses


def _item(place: int, part: Any, *, done: bool) -> dict[str, Any]:
    status = "completed" if done else "in_progress"
    match part:
        case Call(name, text):
            head = {"id": f"fc_{place}", "type": "function_call", "call_id": f"call_{place}", "name": name}
            return {**head, "status": status, "arguments": text if done else ""}
        case Think(pieces):
            summary = [{"type": "summary_text", "text": "".join(pieces)}] if done else []
            return {"id": f"rs_{place}", "type": "reasoning", "summary": summary}
        case _:
            kind, word = ("refusal", "refusal") if isinstance(part, Refuse) else ("output_text", "text")
            content = [{"type": kind, word: "".join(part.pieces), **({} if kind == "refusal" else {"annotations": []})}]
            head = {"id": f"msg_{place}", "type": "message", "role": "assistant", "status": status}
            return {**head, "content": content if done else []}


def _item_deltas(place: int, part: Any) -> Iterator[dict[str, Any]]:
    where = {"item_id": _item(place, part, done=False)["id"], "output_index": place}
    match part:
        case Call(_, text):
            kind, pieces = "response.function_call_arguments.delta", _halves(text)
        case Think(words):
            kind, pieces, where = "response.reasoning_summary_text.delta", words, {**where, "summary_index": 0}
        case Refuse(words):
            kind, pieces, where = "response.refusal.delta", words, {**where, "content_index": 0}
        case _:
            kind, pieces, where = "response.output_text.delta", part.pieces, {**where, "content_index": 0}
    yield from ({"type": kind, **where, "delta": piece} for piece in pieces)


def _item_events(place: int, part: Any) -> Iterator[dict[str, Any]]:
    yield {"type": "response.output_item.added", "output_index": place, "item": _item(place, part, done=False)}
    yield from _item_deltas(place, part)
    yield {"type": "response.output_item.done", "output_index": place, "item": _item(place, part, done=True)}


def _numbered(events: Iterable[dict[str, Any]]) -> tuple[bytes, ...]:
    return tuple(_frame({**event, "sequence_number": place}, named=True) for place, event in enumerate(events))


def render_responses(entry: Entry) -> Rendered:
    """As OpenAI Responses."""
    counted = _usage_of(entry)
    usage = counted and {**dict(zip(_USAGE, counted, strict=True)), "total_tokens": sum(counted)}
    reason = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}.get(entry.stop_reason or "")
    head = {"id": "resp_1", "object": "response", "model": MODEL, "error": None}
    last = {
        **head,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": [_item(place, part, done=True) for place, part in enumerate(entry.parts)],
        "usage": usage,
    }
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**head, "status": "in_progress"}}]
    for place, part in enumerate(entry.parts):
        events.extend(_item_events(place, part))
    events.append({"type": "response.incomplete" if reason else "response.completed", "response": last})
    return Rendered(
        frames=_numbered(events),
        ends_at=len(events) - 1,
        error=_frame({"type": "error", "code": "server_is_overloaded", "message": "Overloaded"}, named=True),
        whole=json.dumps(last).encode(),
    )


RENDERS: Final[Mapping[str, Render]] = {
    "anthropic_messages": render_messages,
    "openai_chat": render_chat,
    "openai_responses": render_responses,
}
"""By the name of the protocol."""
