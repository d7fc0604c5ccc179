"""What servers say out of turn, in the words of each of the three protocols that come with the runtime (floor 14).

A row is a name, the events of a stream, and the outcomes that are right. `GOOD` stands for the frames of the good
answer, so that a row shows only what is odd about it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from spine.testing.chaos.render import RENDERS
from spine.testing.chaos.server import ANSWER, Fault, Peer, Play
from spine.testing.script import Say, usage

__all__ = ["protocol_faults"]

COUNTED: Final = ANSWER + usage(input_tokens=7, output_tokens=5)
TEXT: Final = "".join(piece for part in ANSWER.parts if isinstance(part, Say) for piece in part.pieces)
Row = tuple[str, tuple[Any, ...], str] | tuple[str, tuple[Any, ...], str, str]
"""Name, events (payloads, or frames as they are), outcomes joined with `|`, and the text when it is not `TEXT`."""


def _frames(events: tuple[Any, ...]) -> tuple[bytes, ...]:
    return tuple(each if isinstance(each, bytes) else b"data: %s\n\n" % json.dumps(each).encode() for each in events)


def _play(frames: tuple[bytes, ...]) -> Play:
    async def play(peer: Peer) -> None:
        await peer.answer(*frames)

    return play


def protocol_faults(protocol: str) -> tuple[Fault, ...]:
    """The rows of a protocol as faults; none for a protocol that is not one of ours."""
    return tuple(_faults(_ROWS[protocol])) if protocol in _ROWS else ()


def _faults(rows: tuple[Row, ...]) -> Iterator[Fault]:
    for name, events, expect, *text in rows:
        outcomes = frozenset(expect.split("|"))
        play = _play(_frames(events))
        yield Fault(name=f"faults/{name}", play=play, expect=outcomes, text=text[0] if text else TEXT)


# ------------------------------------------------------------------------------------------------ chat completions

GOOD_CHAT: Final = RENDERS["openai_chat"](COUNTED).frames
_DONE: Final = b"data: [DONE]\n\n"
_BEFORE_FINISH: Final = GOOD_CHAT[:-3]
_FINISH: Final = GOOD_CHAT[-3]


def _chat(delta: Any, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def _calls(*calls: Any) -> tuple[Any, ...]:
    return (_chat({"role": "assistant", "content": TEXT}), *(_chat({"tool_calls": [call]}) for call in calls))


def _call(index: Any, name: Any = "look", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"index": index, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def _usage(usage: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [], "usage": usage}


_CALLED: Final = _chat({}, "tool_calls")
_CHAT_ROWS: Final[tuple[Row, ...]] = (
    ("50-done-first", (_DONE,), "stream_truncated"),
    ("50-done-twice", (*GOOD_CHAT, _DONE), "answer"),
    ("50-done-missing", GOOD_CHAT[:-1], "answer"),
    ("50-done-instead-of-finish", (*_BEFORE_FINISH, _DONE), "answer"),
    ("50-data-after-done", (*GOOD_CHAT, _chat({"content": "more"})), "protocol_error"),
    ("50-done-inside-a-call", (*_calls(_call(0, arguments='{"a')), _DONE), "stream_truncated"),
    ("51-finish-twice", (*_BEFORE_FINISH, _FINISH, _FINISH, _DONE), "answer"),
    ("51-two-finishes", (*_BEFORE_FINISH, _FINISH, _chat({}, "length"), _DONE), "protocol_error"),
    ("51-finish-unknown", (*_BEFORE_FINISH, _chat({}, "banana")), "answer"),
    ("51-finish-null", (*_BEFORE_FINISH, _chat({}, None)), "stream_truncated"),
    ("51-finish-error", (*_BEFORE_FINISH, _chat({}, "error")), "server_error"),
    ("52-usage-missing", (*_BEFORE_FINISH, _FINISH, _DONE), "answer"),
    ("52-usage-negative", (*_BEFORE_FINISH, _FINISH, _usage({"prompt_tokens": -1}), _DONE), "answer"),
    ("52-usage-huge", (*_BEFORE_FINISH, _FINISH, _usage({"prompt_tokens": 10**30}), _DONE), "answer"),
    ("52-usage-text", (*_BEFORE_FINISH, _FINISH, _usage("many"), _DONE), "answer"),
    ("52-usage-twice", (*GOOD_CHAT[:-1], GOOD_CHAT[-2], _DONE), "answer"),
    ("52-usage-after-done", (*_BEFORE_FINISH, _FINISH, _DONE, _usage({"prompt_tokens": 1})), "answer"),
    ("53-index-gap", (*_calls(_call(0), _call(7)), _CALLED, _DONE), "answer"),
    ("53-index-backwards", (*_calls(_call(4), _call(1)), _CALLED, _DONE), "answer"),
    ("53-index-missing", (*_calls(_call(None)), _CALLED, _DONE), "answer"),
    ("53-id-repeated", (*_calls(_call(0, id="x"), _call(1, id="x")), _CALLED, _DONE), "answer"),
    ("53-id-missing", (*_calls(_call(0), _call(1)), _CALLED, _DONE), "answer"),
    ("53-name-empty", (*_calls(_call(0, name="")), _CALLED, _DONE), "answer|protocol_error"),
    ("53-name-in-pieces", (*_calls(_call(0, "lo", ""), _call(0, "ok", "{}")), _CALLED, _DONE), "answer"),
    ("53-name-is-a-number", (*_calls(_call(0, name=5)), _CALLED, _DONE), "protocol_error"),
    ("53-arguments-no-json", (*_calls(_call(0, arguments="{bro")), _CALLED, _DONE), "answer"),
    ("53-arguments-twice-a-key", (*_calls(_call(0, arguments='{"a":1,"a":2}')), _CALLED, _DONE), "answer"),
    ("53-arguments-surrogate", (*_calls(_call(0, arguments='{"a":"\\ud800"}')), _CALLED, _DONE), "answer"),
    ("53-arguments-nan", (*_calls(_call(0, arguments='{"a":NaN}')), _CALLED, _DONE), "answer"),
    ("53-arguments-2-mb", (*_calls(_call(0, arguments="x" * 2_000_000)), _CALLED, _DONE), "protocol_error"),
    ("56-role-missing", (_chat({"content": TEXT}), _FINISH, _DONE), "answer"),
    ("56-choices-empty", (*_BEFORE_FINISH, {"choices": []}, _FINISH, _DONE), "answer"),
    ("56-choices-null", (*_BEFORE_FINISH, {"choices": None}, _FINISH, _DONE), "answer"),
    ("56-choices-object", (*_BEFORE_FINISH, {"choices": {"a": 1}}, _FINISH, _DONE), "answer|protocol_error"),
    ("56-delta-null", (*_BEFORE_FINISH, _chat(None), _FINISH, _DONE), "answer"),
    ("56-delta-text", (*_BEFORE_FINISH, _chat("x"), _FINISH, _DONE), "protocol_error"),
    (
        "56-two-choices",
        (*_BEFORE_FINISH, {"choices": [{"index": 1, "delta": {"content": "no"}}]}, _FINISH, _DONE),
        "answer",
    ),
    ("57-model-differs", (*_BEFORE_FINISH, _chat({}, "stop", model="another")), "answer"),
    ("58-unknown-object", (*_BEFORE_FINISH, {"object": "news", "x": 1}, _FINISH, _DONE), "answer"),
)


# -------------------------------------------------------------------------------------------------------- messages

GOOD_MESSAGES: Final = RENDERS["anthropic_messages"](COUNTED).frames
_START, _OPEN, _CLOSE = GOOD_MESSAGES[0], GOOD_MESSAGES[1], GOOD_MESSAGES[-3]
_DELTA, _STOP = GOOD_MESSAGES[-2], GOOD_MESSAGES[-1]
_TEXTS: Final = GOOD_MESSAGES[2:-3]


def _piece(index: Any, text: str = "x") -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}}


def _block(block: Mapping[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _message_delta(reason: Any, usage: Any = None) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


_SPOKEN: Final = (_START, _OPEN, *_TEXTS, _CLOSE)
_SIGNED: Final = (
    _block({"type": "thinking", "thinking": "Hm."}, 1),
    {"type": "content_block_stop", "index": 1},
)
_MESSAGES_ROWS: Final[tuple[Row, ...]] = (
    ("50-done-after-the-end", (*GOOD_MESSAGES, _DONE), "answer"),
    ("50-done-instead-of-the-end", (*GOOD_MESSAGES[:-1], _DONE), "stream_truncated"),
    ("51-stop-reason-twice", (*_SPOKEN, _DELTA, _DELTA, _STOP), "answer"),
    ("51-two-stop-reasons", (*_SPOKEN, _DELTA, _message_delta("max_tokens"), _STOP), "protocol_error"),
    ("51-stop-reason-unknown", (*_SPOKEN, _message_delta("banana"), _STOP), "answer"),
    ("51-stop-reason-missing", (*_SPOKEN, _STOP), "answer|stream_truncated"),
    ("52-usage-negative", (*_SPOKEN, _message_delta("end_turn", {"output_tokens": -4}), _STOP), "answer"),
    ("52-usage-huge", (*_SPOKEN, _message_delta("end_turn", {"output_tokens": 10**30}), _STOP), "answer"),
    ("52-usage-text", (*_SPOKEN, _message_delta("end_turn", "many"), _STOP), "answer"),
    ("54-stop-without-start", (_START, _CLOSE, _DELTA, _STOP), "protocol_error"),
    ("54-delta-without-block", (_START, *_TEXTS, _DELTA, _STOP), "protocol_error"),
    ("54-delta-of-another-block", (_START, _OPEN, _piece(5), _CLOSE, _DELTA, _STOP), "protocol_error"),
    ("54-blocks-overlap", (_START, _OPEN, _block({"type": "text", "text": ""}, 1), _CLOSE), "protocol_error"),
    ("54-start-twice-at-the-start", (_START, *GOOD_MESSAGES), "answer"),
    ("54-start-twice-in-the-answer", (*_SPOKEN, _START, _DELTA, _STOP), "protocol_error"),
    ("54-end-before-start", (_DELTA, _STOP), "protocol_error"),
    ("54-end-inside-a-block", (_START, _OPEN, *_TEXTS, _DELTA, _STOP), "protocol_error"),
    ("56-start-without-message", ({"type": "message_start"}, *GOOD_MESSAGES[1:]), "protocol_error"),
    ("58-unknown-block", (*_SPOKEN, _block({"type": "news", "x": 1}, 1), _SIGNED[1], _DELTA, _STOP), "answer"),
    ("58-unknown-event", (_START, {"type": "news", "x": 1}, *GOOD_MESSAGES[1:]), "answer"),
    ("58-no-event-lines", tuple(frame.partition(b"\n")[2] for frame in GOOD_MESSAGES), "answer"),
    ("59-signature-missing", (*_SPOKEN, *_SIGNED, _DELTA, _STOP), "answer"),
)


# ------------------------------------------------------------------------------------------------------- responses

GOOD_RESPONSES: Final = RENDERS["openai_responses"](COUNTED).frames
_CREATED, _LAST = GOOD_RESPONSES[0], json.loads(GOOD_RESPONSES[-1].partition(b"data: ")[2])
_BODY: Final = GOOD_RESPONSES[:-1]


def _ended(kind: str, **changes: Any) -> dict[str, Any]:
    return {"type": kind, "response": {**_LAST["response"], **changes}}


def _renumbered(numbers: Mapping[int, int]) -> tuple[Any, ...]:
    events = [json.loads(frame.partition(b"data: ")[2]) for frame in GOOD_RESPONSES]
    return tuple({**event, "sequence_number": numbers.get(place, place)} for place, event in enumerate(events))


_OTHER: Final = [{"id": "msg_0", "type": "message", "content": [{"type": "output_text", "text": "Something else."}]}]
_RESPONSES_ROWS: Final[tuple[Row, ...]] = (
    ("50-done-after-the-end", (*GOOD_RESPONSES, _DONE), "answer"),
    ("50-done-instead-of-the-end", (*_BODY, _DONE), "stream_truncated"),
    ("51-completed-twice", (*GOOD_RESPONSES, GOOD_RESPONSES[-1]), "answer"),
    ("51-two-endings", (*GOOD_RESPONSES, _ended("response.incomplete", status="incomplete")), "protocol_error"),
    ("52-usage-missing", (*_BODY, _ended("response.completed", usage=None)), "answer"),
    ("52-usage-negative", (*_BODY, _ended("response.completed", usage={"input_tokens": -3})), "answer"),
    ("52-usage-text", (*_BODY, _ended("response.completed", usage="many")), "answer"),
    ("55-number-repeated", _renumbered({3: 2}), "answer"),
    ("55-number-backwards", _renumbered({3: 0, 4: 1}), "answer"),
    ("55-item-done-without-added", (_CREATED, *_BODY[-1:], GOOD_RESPONSES[-1]), "answer"),
    ("55-deltas-without-item", (_CREATED, *_BODY[2:], GOOD_RESPONSES[-1]), "answer"),
    ("55-only-the-last-event", GOOD_RESPONSES[-1:], "answer"),
    ("55-completed-with-other-text", (*_BODY, _ended("response.completed", output=_OTHER)), "answer|protocol_error"),
    ("55-failed-with-null-error", (*_BODY, _ended("response.failed", status="failed", error=None)), "server_error"),
    ("55-completed-then-failed", (*GOOD_RESPONSES, {"type": "response.failed"}), "protocol_error|server_error"),
    (
        "55-incomplete-for-an-unknown-reason",
        (*_BODY, _ended("response.incomplete", status="incomplete", incomplete_details={"reason": "banana"})),
        "answer",
    ),
    ("55-completed-without-response", (*_BODY, {"type": "response.completed"}), "protocol_error"),
    ("58-unknown-event", (_CREATED, {"type": "response.news", "x": 1}, *GOOD_RESPONSES[1:]), "answer"),
    ("58-unknown-item", (*_BODY, {"type": "response.output_item.added", "item": {"type": "news"}}, _LAST), "answer"),
)

_ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "anthropic_messages": _MESSAGES_ROWS,
    "openai_chat": _CHAT_ROWS,
    "openai_responses": _RESPONSES_ROWS,
}
