"""The network guard (floor 14): inside `blocked_network`, a connection to another machine is an error that says whose.

Loopback and local sockets stay open. Guarded are name look-ups and connections of Python's own sockets, so whatever is
built on them: asyncio, trio, httpx, requests. An event loop written in C is caught at the look-up of a name only.
"""

import asyncio
import inspect
import ipaddress
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import anyio

from spine.errors import NetworkBlocked

__all__ = ["blocked_network"]

_BELOW: Final = frozenset(
    ("anyio", "asyncio", "concurrent", "contextlib", "httpcore", "selectors", "socket", "ssl", "threading", "trio")
)
"""Packages that connect on behalf of others: the one above them is named."""


_LOOPS: Final = frozenset((("asyncio.events", "_run"), ("trio._core._run", "unrolled_run")))
"""Functions that run a task's next step: below them stands whoever runs the loop, not who wanted the connection."""


@contextmanager
def blocked_network() -> Iterator[None]:
    """Raise `NetworkBlocked` at every connection to another machine, in all threads, until the block is left."""
    with ExitStack() as patches:
        for holder, name, guard in _GUARDS:
            patches.enter_context(_patched(holder, name, guard))
        if "trio" in sys.modules:
            patches.enter_context(_patched(sys.modules["trio"], "open_tcp_stream", _guard_async_connect))
        yield


@contextmanager
def _patched(holder: Any, name: str, guard: Callable[[Any], Any]) -> Iterator[None]:
    own = vars(holder).get(name)
    setattr(holder, name, guard(getattr(holder, name)))
    try:
        yield
    finally:
        if own is None:  # it was inherited
            delattr(holder, name)
        else:
            setattr(holder, name, own)


def _check(host: Any, port: Any) -> None:
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    if not _is_here(host):
        source = _caller()
        raise NetworkBlocked(
            f"test opened a connection to {host}:{port}{f' from {source}' if source else ''}; tests here use a script",
            hint="for a live run, mark it @pytest.mark.live",
        )


def _is_here(host: Any) -> bool:
    if not isinstance(host, str) or host in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _is_numeric(host: Any) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _caller() -> str | None:
    """The package that wanted the connection; None in a thread or a task of its own, which does not show it."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if (module, frame.f_code.co_name) in _LOOPS:
            return None
        if module != __name__ and package not in _BELOW:
            return package
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _guard_connect(original: Callable[..., Any]) -> Callable[..., Any]:
    def connect(self: socket.socket, address: Any) -> Any:
        if isinstance(address, tuple):
            _check(*address[:2])
        return original(self, address)

    return connect


def _guard_sendto(original: Callable[..., Any]) -> Callable[..., Any]:
    def sendto(self: socket.socket, data: Any, *rest: Any) -> Any:
        if isinstance(rest[-1], tuple):
            _check(*rest[-1][:2])
        return original(self, data, *rest)

    return sendto


def _guard_lookup(original: Callable[..., Any]) -> Callable[..., Any]:
    def getaddrinfo(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        if not _is_numeric(host):
            _check(host, port)
        return original(host, port, *rest, **named)

    return getaddrinfo


def _guard_loop_lookup(original: Callable[..., Any]) -> Callable[..., Any]:
    # Checked on the loop as well: the look-up itself runs in a thread, which cannot tell who wanted it.
    async def getaddrinfo(self: Any, host: Any, port: Any, **named: Any) -> Any:
        if not _is_numeric(host):
            _check(host, port)
        return await original(self, host, port, **named)

    return getaddrinfo


def _guard_async_connect(original: Callable[..., Any]) -> Callable[..., Any]:
    # These connect in tasks of their own: an error from there would come in a group, and without a name.
    bind = inspect.signature(original).bind

    def connect(*positional: Any, **named: Any) -> Any:
        host, port = [*bind(*positional, **named).arguments.values()][:2]
        _check(str(host), port)
        return original(*positional, **named)

    return connect


_GUARDS: Final[tuple[tuple[Any, str, Callable[[Any], Any]], ...]] = (
    (socket.socket, "connect", _guard_connect),
    (socket.socket, "connect_ex", _guard_connect),
    (socket.socket, "sendto", _guard_sendto),
    (socket, "getaddrinfo", _guard_lookup),
    (asyncio.BaseEventLoop, "getaddrinfo", _guard_loop_lookup),
    (anyio, "connect_tcp", _guard_async_connect),
)
