"""A key reaches the one address it was meant for: no redirect, proxy or false certificate carries it elsewhere."""

import contextlib
import itertools
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSListener
from test_http_adapter import ANSWER, KEY, adapting, collect
from wire_server import END, HEAD, Server, piece, read_request, serving

from spine.wire import Deadlines

STATUSES = ("301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent", "300 Choices")
TARGETS = {
    "another port": "http://127.0.0.1:{port}/v1",
    "without a scheme": "//127.0.0.1:{port}/v1",
    "another name": "http://localhost:{port}/v1",
    "over https": "https://127.0.0.1:{port}/v1",
    "with a user": "http://someone:word@127.0.0.1:{port}/v1",
    "with the key asked for": "http://127.0.0.1:{port}/v1?key=",
    "in another case": "HTTP://127.0.0.1:{port}/v1",
    "twice": "http://127.0.0.1:{port}/v1\r\nlocation: http://localhost:{port}/",
}
AUTHS = ("bearer", "header x-api-key")


@contextlib.asynccontextmanager
async def bystander() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A second server that keeps every byte it is sent, or even a connection without any."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    heard: list[bytes] = []

    async def handle(stream: SocketStream) -> None:
        heard.append(b"")
        async with stream:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    heard.append(await stream.receive())

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield listener.extra(SocketAttribute.local_port), heard
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("auth", AUTHS)
@pytest.mark.parametrize(("status", "target"), list(itertools.product(STATUSES, TARGETS)))
async def test_no_redirect_takes_a_byte_to_another_origin(status: str, target: str, auth: str) -> None:
    async with bystander() as (port, heard):
        moved = f"HTTP/1.1 {status}\r\nlocation: {TARGETS[target].format(port=port)}\r\ncontent-length: 0\r\n\r\n"
        async with serving(moved.encode()) as server, adapting(base_url=server.url, auth=auth) as adapter:
            error = (await collect(adapter))[1]
        assert (error.category, error.retryable) == ("protocol_error", False)
        assert KEY.encode() in server.requests[0]
        assert heard == []


PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.mark.parametrize("name", PROXIES)
async def test_no_proxy_of_the_environment_hears_anything(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bystander() as (port, heard):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", "")
        async with serving(HEAD + piece(ANSWER) + END) as server, adapting(base_url=server.url) as adapter:
            assert (await collect(adapter))[1].message.text == "Hello"
        assert heard == []


# ---------------------------------------------------------------------------------------------------- certificates

OPENSSL = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
CERTIFICATES = {
    "self-signed": ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"],
    "of another host": ["-subj", "/CN=other.example", "-addext", "subjectAltName=DNS:other.example", "-days", "2"],
    "expired": ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "0"],
}


@contextlib.asynccontextmanager
async def serving_tls(kind: str, folder: Path) -> AsyncIterator[Server]:
    """A sound server, but for its certificate."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
    done = subprocess.run([*made, *CERTIFICATES[kind]], capture_output=True, timeout=20)
    if done.returncode:
        pytest.skip(f"this openssl makes no certificate that is {kind}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    inner = await anyio.create_tcp_listener(local_host="127.0.0.1")
    listener = TLSListener(inner, context, standard_compatible=False)
    server = Server(f"https://127.0.0.1:{inner.extra(SocketAttribute.local_port)}/v1")

    async def handle(stream: Any) -> None:
        async with stream:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                server.requests.append(await read_request(stream))
                await stream.send(HEAD + piece(ANSWER) + END)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield server
        tasks.cancel_scope.cancel()


@OPENSSL
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", CERTIFICATES)
async def test_a_certificate_nobody_vouches_for_gets_no_request(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the environment's certificates change that."""
    async with serving_tls(kind, tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
        monkeypatch.setenv("PYTHONHTTPSVERIFY", "0")
        async with adapting(Deadlines(connect_s=5, first_byte_s=5), base_url=server.url) as adapter:
            error = (await collect(adapter))[1]
        assert (error.category, error.message) == ("connection", "no connection could be made")
        assert server.requests == []
