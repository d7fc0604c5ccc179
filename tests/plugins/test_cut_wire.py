"""The comparison of cuts finds a decoder that depends on them, and tries every place of a short answer."""

import random

import pytest
from cut_wire import PROTOCOLS, compare, compare_bytes, cuts, main, splits, windows

from spine.wire import BodyDecoder, EventStream
from spine_openai_chat.protocol import OpenAIChat

CHUNK = 'data: {"choices":[{"index":0,"delta":{"content":"ü"},"finish_reason":"stop"}]}'
BODY = f"{CHUNK}\r\n\r\ndata: [DONE]\r\n\r\n".encode()


def test_a_short_answer_is_cut_at_every_byte() -> None:
    assert list(cuts(BODY, len(BODY), random.Random(1))) == list(range(1, len(BODY)))
    assert len(cuts(BODY * 50, 64, random.Random(1))) <= 64
    for _, pieces in splits(BODY, 200, random.Random(1)):
        assert b"".join(pieces) == BODY
    assert compare(PROTOCOLS["openai_chat"], "x", BODY, 200) == (3 + len(BODY) - 1, [])


def test_a_decoder_that_depends_on_the_cuts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(BodyDecoder):
        """Takes a piece that ends inside a line end for the end of a line."""

        def feed(self, data: bytes) -> tuple:  # type: ignore[type-arg]
            return super().feed(data + b"\n" if data.endswith(b"\r") else data)

    made = OpenAIChat().decoder

    def decoder(*arguments):  # type: ignore[no-untyped-def]
        found = made(*arguments)
        found.__class__ = Careless
        return found

    protocol = OpenAIChat()
    monkeypatch.setattr(protocol, "decoder", decoder)
    _, different = compare(protocol, "x", BODY.replace(b"\r\n\r\ndata: [", b"\r\ndata: ["), 200)
    assert different


@pytest.mark.parametrize("body", [BODY, BODY * 7, BODY.replace(b"\r", b""), b'{"a": [1, 2]}', b"data: x", b"x", b""])
def test_every_place_of_a_body_is_cut_once(body: bytes) -> None:
    assert compare_bytes("x", body) == (max(len(body) - 1, 0), [])
    assert sum(len(places) for _, places in windows(body)) == max(len(body) - 1, 0)


def test_a_layer_of_bytes_that_depends_on_the_cuts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgets that a CR ended the piece before."""

    def forgetful(self: EventStream, data: bytes) -> bytes:
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    monkeypatch.setattr(EventStream, "_unify", forgetful)
    assert [
        line.rpartition(" ")[2] for line in compare_bytes("x", b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n")[1]
    ] == ["8"]


def test_without_records_nothing_is_compared(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("cut_wire.SHARED", tmp_path)
    assert main(1) == 0
    assert "nothing compared" in capsys.readouterr().out
