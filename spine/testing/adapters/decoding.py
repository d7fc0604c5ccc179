"""How a protocol's answers must be read, whatever the bytes look like on their way (floor 14).

Each case writes a scripted answer in the protocol's own words, changes what must not matter, and compares what is read
with the script. Without a network where there is a decoder; else over a loopback server, piece by piece.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import attrs

from spine.llm.errors import ProviderError
from spine.llm.response import ModelResponse
from spine.messages import RefusalBlock, TextBlock, ThinkingBlock, ToolCallBlock
from spine.testing.chaos.render import Rendered
from spine.testing.script import Entry, call, call_text, refuse, say, stop, think, usage
from spine.testing.scripted import prepare

__all__ = ["DECODINGS", "MIXES", "Decoding", "Outcome", "Read", "try_decoding", "try_prefixes"]

Outcome = ModelResponse | ProviderError
Read = Callable[[tuple[bytes, ...]], Awaitable[Outcome]]
"""Reads a body that comes in these pieces."""
Vary = Callable[[Rendered], Iterable[tuple[bytes, ...]]]
"""Ways in which the body of an answer may arrive, each as its pieces."""

MANY_CUTS: Final = 1500
COUNTED: Final = usage(input_tokens=11, output_tokens=6)
_WORDS: Final = say('It is "5°" – naïve, 日本, 🌧.\n')
MIXES: Final = (_WORDS + call("look", at="Zürich \\ Oslo") + COUNTED, _WORDS + COUNTED, _WORDS)
"""What is cut and changed: the first of these that a protocol can say."""


@attrs.frozen(kw_only=True)
class Decoding:
    """One case. `entry` None: the first of `MIXES` that the protocol can say. `needs` names the member of a `Rendered`
    that it is made of."""

    name: str
    entry: Entry | None = None
    vary: Vary
    needs: str | None = None


async def try_decoding(read: Read, vary: Vary, entry: Entry, rendered: Rendered) -> list[str]:
    """What is read wrongly, a sentence for the first way that is; nothing when all are right."""
    wanted: Any = prepare(entry).items[-1]
    for pieces in vary(rendered):
        problem = _difference(await read(pieces), wanted)
        if problem is not None:
            where = f" ({len(pieces)} pieces, the first of {len(pieces[0])} bytes)" if len(pieces) > 1 else ""
            return [f"{problem}{where}"]
    return []


async def try_prefixes(read: Read, rendered: Rendered) -> list[str]:
    """Each beginning of a body completes, is cut, or breaks the grammar; it never is anything else."""
    body = rendered.body
    for end in _places(len(body)):
        found = await read((body[:end],))
        if isinstance(found, ProviderError) and found.category not in ("stream_truncated", "protocol_error"):
            return [f"expected stream_truncated of the first {end} bytes, got ProviderError {found.category}"]
    return []


# ------------------------------------------------------------------------------------------------------- comparing


def _difference(found: Outcome, wanted: ModelResponse) -> str | None:
    if isinstance(found, ProviderError):
        return f"expected the whole answer, got ProviderError {found.category}: {found.failure.message[:120]}"
    pairs = (
        ("the content", _plain(wanted), _plain(found)),
        ("the stop reason", wanted.stop_reason, found.stop_reason),
        ("input and output tokens", _tokens(wanted), _tokens(found)),
    )
    for what, expected, got in pairs:
        if expected != got:
            return f"expected {what} {expected!r:.160}, got {got!r:.160}"
    return None


def _tokens(response: ModelResponse) -> tuple[int | None, int | None]:
    return response.usage.input_tokens, response.usage.output_tokens


def _plain(response: ModelResponse) -> list[tuple[Any, ...]]:
    """The content without ids and opaque state; a refusal may be said as text."""
    plain: list[tuple[Any, ...]] = []
    for block in response.message.content:
        match block:
            case TextBlock() | RefusalBlock():
                plain.append(("text", block.text))
            case ThinkingBlock():
                plain.append(("thinking", block.text))
            case ToolCallBlock():
                plain.append(("call", block.name, block.arguments_text if block.arguments is None else block.arguments))
            case _:
                plain.append((type(block).__name__,))
    return plain


# ------------------------------------------------------------------------------------------------ what may not matter


def _whole(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
    yield (rendered.body,)


def _event_by_event(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
    yield rendered.frames


def _places(size: int) -> Iterable[int]:
    return range(1, size) if size <= MANY_CUTS else range(1, size, size // MANY_CUTS + 1)


def _every_cut(body: bytes) -> Iterator[tuple[bytes, ...]]:
    yield from ((body[:place], body[place:]) for place in _places(len(body)))


def _byte_by_byte(body: bytes) -> Iterator[tuple[bytes, ...]]:
    yield tuple(body[place : place + 1] for place in range(len(body)))


def _at_random(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
    chance = random.Random(len(rendered.body))
    for largest in (2, 5, 17, 60, 400) * 6:
        pieces, rest = [], rendered.body
        while rest:
            size = chance.randint(1, largest)
            pieces.append(rest[:size])
            rest = rest[size:]
        yield tuple(pieces)


def _changed(change: Callable[[bytes], bytes]) -> Vary:
    """Each event changed, whole and byte by byte."""

    def vary(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
        body = b"".join(map(change, rendered.frames))
        yield (body,)
        yield from _byte_by_byte(body)

    return vary


def _before(start: bytes) -> Vary:
    def vary(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
        yield (start + rendered.body,)
        yield from _byte_by_byte(start + rendered.body)

    return vary


def _mixed_ends(frame: bytes) -> bytes:
    head, _, _ = frame.rpartition(b"\n\n")
    return head.replace(b"\n", b"\r\n") + b"\r\r\n"


def _with_empty_line(frame: bytes) -> bytes:
    """A `data` without a colon adds an empty line, which JSON may have at its end."""
    return frame[:-1] + b"data\n\n" if frame.endswith(b"}\n\n") else frame


def _in_two_lines(frame: bytes) -> bytes:
    """Cut the data after its first brace, where JSON may have a line end."""
    return frame.replace(b"data: {", b"data: {\ndata:  ", 1)


def _without_last_blank(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
    yield (rendered.body.removesuffix(b"\n"),)


def _unstreamed(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
    yield (rendered.whole or b"",)


def _unstreamed_cut(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
    yield from _every_cut(rendered.whole or b"")


def _after_blanks(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
    yield (b" \n", b"\n  ", rendered.whole or b"")


def _with_pings(rendered: Rendered) -> Iterator[tuple[bytes, ...]]:
    yield tuple(piece for frame in rendered.frames for piece in (frame, rendered.ping or b""))


_SHAPES: Final[dict[str, Entry]] = {
    "text": say("It is raining."),
    "text-in-one-piece": say(chunks=["It is raining."]),
    "text-of-500-pieces": say("word " * 500),
    "text-in-many-scripts": say("Ünïcödé 日本語 العربية हिन्दी 🌧🏽‍♀️"),
    "text-with-line-separators": say("one\u2028two\u2029three\u0085four\x0bfive"),
    "text-with-escapes": say('"quoted" \\ back\\slash \n new line \t tab \u0000 nul'),
    "text-like-an-event": say("data: [DONE]\n\nevent: error\ndata: {}\n\n"),
    "usage": say("Counted.") + COUNTED,
    "no-usage": say("Not counted."),
    "token-limit": say("It is") + stop("max_tokens"),
    "refusal": refuse("I will not."),
    "reasoning": think("Let me see.") + say("So be it."),
    "call": call("look", at="Oslo"),
    "call-without-arguments": call("look"),
    "call-with-deep-arguments": call("look", at={"a": [1, 2.5, None, True, {"b": "c"}]}),
    "call-with-broken-arguments": call_text("look", '{"at": "Os'),
    "text-and-two-calls": say("I look twice.") + call("look", at="a") + call("hear", at="b"),
    "three-calls-of-one-tool": call("look", at="1") + call("look", at="2") + call("look", at="3"),
}

_events = partial(Decoding, needs="is_event_stream")
_WAYS: Final = (
    Decoding(name="whole", vary=_whole),
    Decoding(name="event-by-event", vary=_event_by_event),
    Decoding(name="cut-at-every-byte", vary=lambda rendered: _every_cut(rendered.body)),
    Decoding(name="byte-by-byte", vary=lambda rendered: _byte_by_byte(rendered.body)),
    Decoding(name="cut-at-random", vary=_at_random),
    _events(name="crlf", vary=_changed(lambda frame: frame.replace(b"\n", b"\r\n"))),
    _events(name="cr", vary=_changed(lambda frame: frame.replace(b"\n", b"\r"))),
    _events(name="mixed-line-ends", vary=_changed(_mixed_ends)),
    _events(name="bom", vary=_before(b"\xef\xbb\xbf")),
    _events(name="comments", vary=_changed(lambda frame: b": a comment\n" + frame + b":\n\n")),
    _events(name="comments-first", vary=_before(b": hello\n\n:\n\n")),
    _events(name="blank-lines", vary=_changed(lambda frame: b"\n\n" + frame + b"\n")),
    _events(name="data-without-space", vary=_changed(lambda frame: frame.replace(b"data: ", b"data:", 1))),
    _events(name="data-in-two-lines", vary=_changed(_in_two_lines)),
    _events(name="data-line-without-colon", vary=_changed(_with_empty_line)),
    _events(name="ids", vary=_changed(lambda frame: b"id: 1\n" + frame)),
    _events(name="retry-lines", vary=_changed(lambda frame: b"retry: 999999999\nretry: 0\n" + frame)),
    _events(name="unknown-fields", vary=_changed(lambda frame: b"vendor: x\n" + frame)),
    _events(name="last-blank-line-missing", vary=_without_last_blank),
    Decoding(name="pings", vary=_with_pings, needs="ping"),
    Decoding(name="not-streamed", vary=_unstreamed, needs="whole"),
    Decoding(name="not-streamed-cut-at-every-byte", vary=_unstreamed_cut, needs="whole"),
    Decoding(name="not-streamed-after-blanks", vary=_after_blanks, needs="whole"),
)

DECODINGS: Final[tuple[Decoding, ...]] = (
    *(Decoding(name=f"reads-{name}", entry=entry, vary=_event_by_event) for name, entry in _SHAPES.items()),
    *_WAYS,
)
"""All cases, in the order of the card."""
