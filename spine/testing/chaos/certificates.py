"""Certificates for servers that misbehave, made on the spot and thrown away (floor 14).

Nothing is installed, and nothing kept in a file of the project: a key on the curve P-256, a certificate that it signs,
written as DER by hand (RFC 5280, RFC 5480, RFC 5915). For tests on this machine only; no care was taken against anybody
who watches the time that signing takes.
"""

import base64
import contextlib
import datetime
import hashlib
import ipaddress
import secrets
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final
from unittest import mock

__all__ = ["EXPIRED", "VALID", "secured"]

VALID: Final = (-1, 30)
EXPIRED: Final = (-30, -1)
"""From when to when a certificate holds, in days from now."""

_P: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int]


@contextlib.contextmanager
def _secured(names: tuple[str, ...], days: tuple[int, int], is_trusted: bool) -> Iterator[ssl.SSLContext]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as around:
        path = Path(folder, "server.pem")
        certificate, key = _certificate(names, days)
        path.write_text(_pem("CERTIFICATE", certificate) + _pem("EC PRIVATE " + "KEY", key))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        if is_trusted:
            around.enter_context(mock.patch("certifi.where", return_value=str(path)))
        yield context


def secured(
    *names: str, days: tuple[int, int] = VALID, is_trusted: bool = True
) -> Callable[[], AbstractContextManager[ssl.SSLContext]]:
    """What gives a server a certificate for `names` (hosts and addresses) that holds for `days`.

    With `is_trusted`, clients that ask `certifi` whom to trust, as httpx does, trust it while the block runs: then they
    refuse it for nothing but its own faults.
    """
    return lambda: _secured(names, days, is_trusted)


# -------------------------------------------------------------------------------------------------- keys and signing


def _sum(a: _Point | None, b: _Point | None) -> _Point | None:
    """Of two points of the curve; None is the point at infinity."""
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and a[1] != b[1]:
        return None
    rise, run = (3 * a[0] ** 2 - 3, 2 * a[1]) if a == b else (b[1] - a[1], b[0] - a[0])
    slope = rise * pow(run, -1, _P)
    x = (slope**2 - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _times(factor: int) -> _Point:
    """A multiple of the generator."""
    found: _Point | None = None
    power: _Point | None = _G
    while factor:
        if factor & 1:
            found = _sum(found, power)
        power, factor = _sum(power, power), factor >> 1
    assert found is not None
    return found


def _signature(message: bytes, secret: int) -> bytes:
    """ECDSA with SHA-256."""
    digest = int.from_bytes(hashlib.sha256(message).digest())
    once = secrets.randbelow(_N - 1) + 1
    r = _times(once)[0] % _N
    s = pow(once, -1, _N) * (digest + r * secret) % _N
    return _sequence(_integer(r), _integer(s))


# ------------------------------------------------------------------------------------------------------------- DER


def _der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = len(body).to_bytes((len(body).bit_length() + 7) // 8) if len(body) > 127 else b""
    return bytes((tag, 0x80 | len(size) if size else len(body))) + size + body


def _sequence(*parts: bytes) -> bytes:
    return _der(0x30, *parts)


def _integer(value: int) -> bytes:
    return _der(2, value.to_bytes(value.bit_length() // 8 + 1))


def _bits(data: bytes) -> bytes:
    return _der(3, b"\0", data)


def _extension(number: int, value: bytes, *, is_critical: bool = False) -> bytes:
    """`number` is the last of an id in the arc of X.509's extensions."""
    return _sequence(_der(6, bytes((0x55, 0x1D, number))), _der(1, b"\xff") if is_critical else b"", _der(4, value))


def _time(days: int) -> bytes:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    return _der(0x18, f"{moment:%Y%m%d%H%M%S}Z".encode())


def _name(text: str) -> bytes:
    try:
        return _der(0x87, ipaddress.ip_address(text).packed)
    except ValueError:
        return _der(0x82, text.encode())


_P256: Final = bytes.fromhex("06082a8648ce3d030107")
_KEY_KIND: Final = _sequence(bytes.fromhex("06072a8648ce3d0201"), _P256)
_SIGNED_WITH: Final = _sequence(bytes.fromhex("06082a8648ce3d040302"))


def _certificate(names: tuple[str, ...], days: tuple[int, int]) -> tuple[bytes, bytes]:
    """A certificate that vouches for itself, and its key."""
    secret = secrets.randbelow(_N - 1) + 1
    point = b"\x04" + b"".join(number.to_bytes(32) for number in _times(secret))
    subject = _sequence(_der(0x31, _sequence(bytes.fromhex("0603550403"), _der(0x0C, b"chaos"))))
    told = _sequence(
        _der(0xA0, _integer(2)),
        _integer(secrets.randbits(64)),
        _SIGNED_WITH,
        subject,
        _sequence(*map(_time, days)),
        subject,
        _sequence(_KEY_KIND, _bits(point)),
        _der(
            0xA3,
            _sequence(
                _extension(14, _der(4, hashlib.sha1(point, usedforsecurity=False).digest())),
                _extension(15, _der(3, b"\x02\x84"), is_critical=True),  # it may sign, and sign certificates
                _extension(17, _sequence(*map(_name, names))),
                _extension(19, _sequence(_der(1, b"\xff")), is_critical=True),
            ),
        ),
    )
    key = _sequence(_integer(1), _der(4, secret.to_bytes(32)), _der(0xA0, _P256), _der(0xA1, _bits(point)))
    return _sequence(told, _SIGNED_WITH, _bits(_signature(told, secret))), key


def _pem(kind: str, data: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(data).decode()}-----END {kind}-----\n"
