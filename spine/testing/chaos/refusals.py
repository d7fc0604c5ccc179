"""What servers answer instead of an answer: statuses, delays, error bodies, pages; for every protocol (floor 14).

Names begin with the number that the fault has in the list of what must be tried; one number may be several faults.
"""

import json
from collections.abc import Iterator
from typing import Final

from spine.testing.chaos.networks import fault, refusing, sending
from spine.testing.chaos.server import Fault, Peer, Play
from spine.wire.failures import status_category

__all__ = ["server_faults"]

# ------------------------------------------------------------------------------------------------------- statuses

_STATUSES: Final = (
    *(300, 301, 302, 303, 304, 305, 306, 307, 308),
    *range(400, 432),
    *(451, 498, 499),
    *range(500, 512),
    *range(520, 531),
    *(529, 600, 999),
)
_SINGLE: Final = b'{"error":{"message":"odd"}}'


def _statuses() -> Iterator[Fault]:
    for status in dict.fromkeys(_STATUSES):
        allowed = {status_category(status)} | ({"connection"} if status >= 600 else set())
        yield fault(f"17-status-{status}", refusing(f"{status} Odd", _SINGLE), *allowed)
    for status in (204, 205):
        play = sending(f"HTTP/1.1 {status} Empty\r\nconnection: close\r\n\r\n".encode())
        yield fault(f"17-status-{status}", play, "stream_truncated")
    yield fault("17-status-206", _partial, "answer")
    for target in ("/v1/elsewhere", "https://127.0.0.1:1/v1", "//127.0.0.1:1/v1", "http://someone@127.0.0.1:1/"):
        play = refusing("307 Moved", b"", f"location: {target}")
        name = "21-redirect-loop" if target.startswith("/v1") else f"22-redirect-{target.partition(':')[0][:5]}"
        yield fault(name.replace("/", "-"), play, "protocol_error", retryable=False)


async def _partial(peer: Peer) -> None:
    await peer.head("206 Partial Content")
    await peer.body(*peer.good.frames)
    await peer.end()


_DELAYS: Final = (
    ("retry-after: 7", 7.0),
    ("retry-after: 0.5", 0.5),
    ("retry-after-ms: 1500", 1.5),
    ("retry-after: Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ("retry-after: 120", 120.0),
    ("retry-after: -3", None),
    ("retry-after: nan", None),
    ("retry-after: inf", None),
    ("retry-after: soon", None),
    ("retry-after: 5, 10", None),
)


def _delays() -> Iterator[Fault]:
    for status, category in ((429, "rate_limit"), (503, "server_error")):
        for place, (line, wait) in enumerate(_DELAYS):
            play = refusing(f"{status} Busy", b"{}", line)
            also = {"overloaded"} if status == 503 else set()
            name = f"18-{status}-{line.partition(':')[0]}-{place}"
            yield fault(name, play, category, *also, retry_after_s=wait)


async def _in_turns(peer: Peer) -> None:
    await peer.refuse("529 X" if peer.place % 2 else "429 X", b"{}")


def _counted() -> Iterator[Fault]:
    yield fault("19-fails-once", refusing("500 X", b"{}"), "server_error")
    yield fault("19-fails-for-ever", refusing("500 X", b"{}"), "server_error", repeats=True)
    yield fault("19-fails-until-the-last-attempt", refusing("500 X", b"{}"), "server_error", hits=2)
    yield fault("20-429-every-time", refusing("429 X", b"{}"), "rate_limit", repeats=True)
    yield fault("20-429-and-529-in-turns", _in_turns, "rate_limit", repeats=True)


# ------------------------------------------------------------------------------------------------- 200, but no answer

_KEY_ECHO: Final = b'{"error":{"message":"Incorrect API key provided: %s. You can find your key in the settings."}}'


async def _echo_key(peer: Peer) -> None:
    """Quote the key, as some servers do."""
    words = peer.request.lower()
    places = [line for line in peer.request.split(b"\r\n") if b"canary-" in line]
    key = places[0].rpartition(b" ")[2] if places and words else b"none"
    await peer.refuse("401 Unauthorized", _KEY_ECHO % key)


async def _endless_error(peer: Peer) -> None:
    await peer.head("500 X", "content-length: 100000000", chunked=False)
    for _ in range(1600):
        await peer.send(b"x" * 65536)
    await peer.wait()


def _plain(body: bytes) -> Play:
    return refusing("200 OK", body)


def _bodies() -> Iterator[Fault]:
    error = b'{"error":{"message":"The server is overloaded, try later","code":"server_is_overloaded"}}'
    yield fault("23-200-with-a-json-error", _plain(error), "overloaded", "server_error", needs="whole")
    yield fault(
        "24-200-with-html", _plain(b"<!doctype html><title>Log in</title>"), "protocol_error", "stream_truncated"
    )
    yield fault("25-200-with-nothing", _plain(b""), "stream_truncated")
    for name, body in (("list", b"[]"), ("null", b"null"), ("number", b"0"), ("text", b'"x"'), ("object", b"{}")):
        yield fault(f"26-200-with-{name}", _plain(body), "protocol_error", "stream_truncated")
    deep = b'{"error":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for name, body in (
        ("empty", b""),
        ("not-utf-8", b'{"error":{"message":"\xff\xfe"}}'),
        ("cut-json", b'{"error":{"mess'),
        ("list", b'[{"error":{"message":"x"}}]'),
        ("json-in-text", json.dumps({"error": {"message": '{"error":{"message":"inner"}}'}}).encode()),
        ("deep", deep),
        ("nan", b'{"error":{"message":"x","param":NaN}}'),
    ):
        yield fault(f"27-error-body-{name}", refusing("500 X", body), "server_error")
    yield fault("27-error-body-100-mb", _endless_error, "server_error", is_bomb=True)
    yield fault("27-error-body-with-the-key", _echo_key, "auth")


def server_faults() -> tuple[Fault, ...]:
    """All of them, in the order of their numbers."""
    return tuple(each for part in (_statuses, _delays, _counted, _bodies) for each in part())
