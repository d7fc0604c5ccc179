"""A loopback proxy before a server that loses what it is told to: a request, part of an answer, or the whole of it."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

Loss = Literal["request", "early", "answer"]
LOSSES: Final[tuple[Loss, ...]] = ("request", "early", "answer")
"""What is lost: the request never arrives; the line breaks at the answer's first bytes; the whole answer is lost."""
_SETTLED_S: Final = 0.01
"""Silence after which a server is taken to have said all."""


class LosingProxy:
    """Forwards connections to `port`; the next request after `lose` is the last one of its connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._next: Loss | None = None
        self.lost = 0
        """Connections that were broken on purpose."""
        self._is_closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def lose(self, loss: Loss) -> None:
        """Lose this at the next request on any connection."""
        self._next = loss

    def close(self) -> None:
        """Stop listening and break every connection."""
        self._is_closed = True
        self._listener.close()
        for thread in self._threads:
            thread.join(2)

    def _accept(self) -> None:
        while not self._is_closed:
            if not select.select([self._listener], [], [], 0.1)[0]:
                continue
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server, contextlib.suppress(OSError):
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        while not self._is_closed:
            readable = select.select([client, server], [], [], 0.1)[0]
            if server in readable:
                data = server.recv(65536)
                if not data:
                    return
                client.sendall(data)
            elif client in readable:
                data = client.recv(65536)
                loss, self._next = self._next, None
                if not data or loss == "request":
                    self.lost += loss is not None
                    return
                server.sendall(data)
                if loss is not None:
                    self.lost += 1
                    _swallow(client, server, whole=loss == "answer")
                    return


def _swallow(client: socket.socket, server: socket.socket, *, whole: bool) -> None:
    """Pass on the rest of the request, and keep the answer until its first bytes, or until silence after all of it."""
    deadline = time.monotonic() + 5
    wait_s = 5.0
    while time.monotonic() < deadline:
        readable = select.select([client, server], [], [], wait_s)[0]
        if client in readable:
            server.sendall(client.recv(65536))
        elif not readable or not server.recv(65536) or not whole:
            return
        else:
            wait_s = _SETTLED_S


@contextmanager
def losing_proxy(port: int) -> Iterator[LosingProxy]:
    """A proxy that is closed at the end."""
    proxy = LosingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
