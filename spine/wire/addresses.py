"""Which addresses a key may be sent to (side room `wire`): checked once, before any connection."""

import ipaddress
from urllib.parse import urlsplit

from spine.errors import ConfigInvalid

__all__ = ["check_address"]


def check_address(url: str, *, provider: str, allow_http: bool = False) -> str:
    """`url` without its final slashes. Raises `ConfigInvalid` for what no request is sent to.

    https only, except to this machine or with `allow_http`; no user-info, no query or fragment; no link-local,
    multicast or unspecified address, where cloud machines keep their credentials.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as exc:
        raise _refused(provider, "does not parse") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise _refused(provider, "is no http or https URL with a host")
    if "@" in parts.netloc:
        raise _refused(provider, "holds a user or a password; keys go into the key setting")
    if parts.query or parts.fragment:
        raise _refused(provider, "has a query or a fragment, to which no path can be added")
    if any(ord(character) <= 32 or ord(character) == 127 for character in url):
        raise _refused(provider, "holds spaces or control characters")
    address = _literal(host)
    if address is not None and (address.is_link_local or address.is_multicast or address.is_unspecified):
        raise _refused(provider, "names a link-local, multicast or unspecified address")
    if parts.scheme == "http" and not (allow_http or _is_this_machine(host, address)):
        raise _refused(provider, "is plain http to another machine; use https, or allow_http = true")
    return url.rstrip("/")


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_this_machine(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if address is not None:
        return address.is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _refused(provider: str, why: str) -> ConfigInvalid:
    return ConfigInvalid(f'the base URL of provider "{provider}" {why}', hint="spine config")
