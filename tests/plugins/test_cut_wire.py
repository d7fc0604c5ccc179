"""The comparison of cuts finds a decoder that depends on them, and tries every place of a short answer."""

import random

import pytest
from cut_wire import PROTOCOLS, compare, cuts, main, splits

from spine.wire import BodyDecoder
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


def test_without_records_nothing_is_compared(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("cut_wire.SHARED", tmp_path)
    assert main(1) == 0
    assert "nothing compared" in capsys.readouterr().out
