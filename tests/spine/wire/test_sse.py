"""The event-stream grammar: one result for every cut, bounded, linear."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.llm.errors import ProviderError
from spine.wire import EventStream, WireLimits

M = "message"
GRAMMAR = {
    "lf": (b"data: a\n\ndata: b\n\n", [(M, b"a"), (M, b"b")]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [(M, b"a"), (M, b"b")]),
    "cr": (b"data: a\r\rdata: b\r\r", [(M, b"a"), (M, b"b")]),
    "mixed ends": (b"data: a\r\n\ndata: b\r\rdata: c\n\r\n", [(M, b"a"), (M, b"b"), (M, b"c")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [(M, b"a")]),
    "one byte order mark only": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [(M, b"b")]),
    "no space": (b"data:a\n\n", [(M, b"a")]),
    "one space is dropped, no more": (b"data:  a \n\n", [(M, b" a ")]),
    "several data lines": (b"data: a\ndata:b\ndata\n\n", [(M, b"a\nb\n")]),
    "data without colon": (b"data\n\n", [(M, b"")]),
    "comments dispatch nothing": (b": ping\n\n:\n\ndata: a\n: in between\n\n", [(M, b"a")]),
    "named": (b"event: error\ndata: a\n\ndata: b\n\n", [("error", b"a"), (M, b"b")]),
    "a name without data is forgotten": (b"event: x\n\ndata: a\n\n", [(M, b"a")]),
    "id and retry": (b"id: 7\nretry: 250\ndata: a\n\n", [(M, b"a")]),
    "unknown fields": (b"foo: 1\nbar\ndata: a\n\n", [(M, b"a")]),
    "raw line separators of Unicode stay": (
        "data: a\u2028b\x85c\u2029\n\n".encode(),
        [(M, "a\u2028b\x85c\u2029".encode())],
    ),
    "vertical tab and form feed stay": (b"data: a\x0bb\x0cc\x1cd\n\n", [(M, b"a\x0bb\x0cc\x1cd")]),
    "no final blank line": (b"data: a\n\ndata: b\n", [(M, b"a"), (M, b"b")]),
    "no final line end": (b"data: a\n\ndata: b", [(M, b"a"), (M, b"b")]),
    "field names are whole words": (b"database: x\ndata : y\ndata: a\n\n", [(M, b"a")]),
    "nothing": (b"", []),
    "blank lines": (b"\n\n\r\n\r\r", []),
}


def events(*pieces: bytes) -> list[tuple[str, bytes]]:
    stream = EventStream()
    found = [event for piece in pieces for event in stream.feed(piece)]
    return [*found, *stream.finish()]


@pytest.mark.parametrize("name", GRAMMAR)
def test_the_grammar_is_read_whole_by_byte_and_at_every_cut(name: str) -> None:
    body, expected = GRAMMAR[name]
    assert events(body) == expected
    assert events(*(body[i : i + 1] for i in range(len(body)))) == expected
    for cut in range(len(body) + 1):
        assert events(body[:cut], body[cut:]) == expected, cut


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b":", b" ", b"data", b"event", b"x", b"\xef\xbb\xbf", b"\xf0\x9f"])),
    st.data(),
)
def test_every_way_of_cutting_gives_the_same_events(tokens: list[bytes], data: st.DataObject) -> None:
    body = b"".join(tokens)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert events(*pieces) == events(body)


def test_id_and_retry_are_kept_and_nonsense_is_not() -> None:
    stream = EventStream()
    stream.feed(b"id: 7\nretry: 250\n\nid: a\0b\nretry: soon\nretry: -1\nretry: 99999999999999999999\n\n")
    assert (stream.last_id, stream.retry_ms) == ("7", 250)


def test_lines_of_no_field_are_counted() -> None:
    stream = EventStream()
    stream.feed(b"hello there\nfoo: 1\n: comment\ndata: a\n\n")
    assert stream.ignored == 2


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"data: " + b"x" * 200, "line"),
        (b"data: " + b"x" * 200 + b"\n\n", "line"),
        (b": " + b"x" * 200 + b"\n", "line"),
        (b"data: 0123456789\n" * 20, "event"),
        (b"data:0123456789\n" * 20, "event"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_line_or_event_over_its_limit_is_a_protocol_error(body: bytes, what: str, size: int) -> None:
    stream = EventStream(WireLimits(line_bytes=100, event_bytes=150))
    with pytest.raises(ProviderError) as caught:
        [stream.feed(body[start : start + size]) for start in range(0, len(body), size)]
    assert caught.value.category == "protocol_error"
    assert f"a {what} of the event stream" in caught.value.message


def seconds(pieces: list[bytes]) -> float:
    stream = EventStream()
    started = time.process_time()
    for piece in pieces:
        stream.feed(piece)
    return time.process_time() - started


@pytest.mark.parametrize(
    "make",
    [
        lambda n: [b"x"] * n,  # one line that never ends
        lambda n: [b"data:\n" * n],  # one event of empty lines
        lambda n: [b"\r"] * n,
        lambda n: [b"data: x\n\n" * n],
    ],
    ids=["long line", "long event", "line ends", "many events"],
)
def test_time_grows_with_the_bytes_alone(make) -> None:
    small, large = (min(seconds(make(n)) for _ in range(3)) for n in (20_000, 80_000))
    assert large < 12 * small + 0.05
