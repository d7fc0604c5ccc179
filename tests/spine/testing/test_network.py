"""The network guard: other machines are out of reach, this one is not, and afterwards all is as before."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest

from spine.errors import NetworkBlocked
from spine.testing.network import blocked_network

FAR = "api.example.com"


def connect(address: Any, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> Callable[[], Any]:
    def attempt() -> Any:
        with socket.socket(family, kind) as made:
            made.connect(address)

    return attempt


def send() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.sendto(b"x", ("192.0.2.1", 53))


BLOCKED: dict[str, Callable[[], Any]] = {
    "address": connect(("192.0.2.1", 443)),
    "name": connect((FAR, 443)),
    "IPv6": connect(("2001:db8::1", 443, 0, 0), socket.AF_INET6),
    "connect_ex": lambda: socket.socket().connect_ex(("192.0.2.1", 443)),
    "datagram": send,
    "look-up": lambda: socket.getaddrinfo(FAR, 443),
    "look-up of bytes": lambda: socket.getaddrinfo(FAR.encode(), 443),
    "create_connection": lambda: socket.create_connection((FAR, 443)),
    "httpx": lambda: httpx.get(f"https://{FAR}/"),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("attempt", BLOCKED.values(), ids=BLOCKED.keys())
def test_another_machine_is_out_of_reach(attempt: Callable[[], Any]) -> None:
    with blocked_network(), pytest.raises(NetworkBlocked):
        attempt()


def test_the_message_says_where_to_and_whose() -> None:
    with blocked_network(), pytest.raises(NetworkBlocked) as caught:
        httpx.get(f"https://{FAR}/")
    assert caught.value.message == f"test opened a connection to {FAR}:443 from httpx; tests here use a script"
    assert caught.value.hint == "for a live run, mark it @pytest.mark.live"
    assert caught.value.code == "network"


async def test_an_async_client_is_caught_with_its_name() -> None:
    async with httpx.AsyncClient() as client:
        with blocked_network(), pytest.raises(NetworkBlocked, match="from httpx"):
            await client.get(f"https://{FAR}/")


async def test_an_address_is_caught_with_the_name_of_who_wanted_it() -> None:
    async with httpx.AsyncClient() as client:
        with blocked_network(), pytest.raises(NetworkBlocked, match=r"192\.0\.2\.1:443 from httpx"):
            await client.get("https://192.0.2.1/")


async def test_who_cannot_be_told_is_not_guessed() -> None:
    caught: list[str] = []

    async def work() -> None:
        with socket.socket() as made:
            try:
                made.connect(("192.0.2.1", 443))
            except NetworkBlocked as error:
                caught.append(error.message)

    with blocked_network():
        async with anyio.create_task_group() as group:
            group.start_soon(work)
    assert caught == ["test opened a connection to 192.0.2.1:443 from test_network; tests here use a script"]


def test_a_thread_is_guarded_too() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            socket.getaddrinfo(FAR, 80)
        except NetworkBlocked as error:
            caught.append(error)

    with blocked_network():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(caught) == 1


async def test_loopback_stays_open() -> None:
    async def greet(stream: Any) -> None:
        async with stream:
            await stream.send(b"hello")

    with blocked_network():
        async with anyio.create_task_group() as group:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            group.start_soon(listener.serve, greet)
            for host in ("127.0.0.1", "localhost"):
                async with await anyio.connect_tcp(host, port) as stream:
                    assert await stream.receive() == b"hello"
            group.cancel_scope.cancel()
        await listener.aclose()


def test_local_sockets_stay_open(tmp_path: Any) -> None:
    with blocked_network(), socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        connect(str(tmp_path / "s"), socket.AF_UNIX)()


def test_everything_is_put_back() -> None:
    def state() -> list[Any]:
        own = [vars(socket.socket).get(name) for name in ("connect", "connect_ex", "sendto")]
        return [*own, socket.getaddrinfo, asyncio.BaseEventLoop.getaddrinfo]

    before = state()
    with pytest.raises(ZeroDivisionError), blocked_network():
        _ = 1 / 0
    assert state() == before
