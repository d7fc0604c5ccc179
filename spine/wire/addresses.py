"""Which addresses a request goes to or names (side room `wire`): checked before any connection, and once it is made.

Two rules guard what cloud machines keep on their own network: no link-local address and no metadata server, in any of
the ways to write one; and a host is either a name or an address in its usual form, so that nobody reads it otherwise.
"""

import ipaddress
import re
import unicodedata
from urllib.parse import SplitResult, urlsplit

from spine.errors import ConfigInvalid
from spine.llm.catalogue import Traits
from spine.llm.errors import provider_error

__all__ = ["attachment_url", "check_address", "is_forbidden"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
"""Metadata servers of clouds that are not link-local (Alibaba, Azure, Oracle, AWS and Google over IPv6)."""
_METADATA_NAMES = frozenset(("metadata", "metadata.google.internal", "metadata.goog", "instance-data"))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SITE_LOCAL = ipaddress.ip_network("fec0::/10")
_COMPATIBLE = ipaddress.ip_network("::/96")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
_LABEL = re.compile(r"(?!-)[\w-]{1,63}(?<!-)")


def check_address(url: str, *, provider: str, allow_http: bool = False) -> str:
    """`url` without its final slashes. Raises `ConfigInvalid` for what no request is sent to.

    https only, except to this machine or with `allow_http`; no user-info, no query or fragment; no link-local,
    multicast, unspecified or metadata address; hosts only as names or as addresses in their usual form.
    """
    parts, why = _split(url)
    if parts is None or parts.scheme not in ("http", "https"):
        raise _refused(provider, why or "is no http or https URL with a host")
    if parts.query or parts.fragment or url.rstrip("/").endswith(("?", "#")):
        raise _refused(provider, "has a query or a fragment, to which no path can be added")
    host = parts.hostname or ""
    address = _address(host)
    if address is not None and is_forbidden(address):
        raise _refused(provider, "names a link-local, multicast, unspecified or metadata address")
    if parts.scheme == "http" and not (allow_http or _is_this_machine(host, address)):
        raise _refused(provider, "is plain http to another machine; use https, or allow_http = true")
    return url.rstrip("/")


def attachment_url(url: str, traits: Traits) -> str:
    """The address of an attachment, which the provider will fetch. Raises `invalid_request` for what is not passed on.

    http, https and data URLs; no user-info; nothing that lies on a private network or on the machine itself, unless
    the target has `private_urls`; no metadata server ever.
    """
    if url[:5].lower() == "data:":
        return url
    parts, why = _split(url)
    address = None if parts is None else _address(parts.hostname or "")
    if parts is None or parts.scheme not in ("http", "https"):
        why = why or "is no http, https or data URL"
    elif address is not None and is_forbidden(address):
        why = "names a link-local, multicast, unspecified or metadata address"
    elif not traits.private_urls and _is_private(parts.hostname or "", address):
        why = "is private, and the provider does not stand on this network (trait private_urls)"
    if why:
        raise provider_error("invalid_request", f"the address of an attachment {why}")
    return url


def is_forbidden(address: Address) -> bool:
    """Whether nothing is ever sent to this address, nor to one that it stands for."""
    return any(
        each.is_link_local or each.is_multicast or each.is_unspecified or each in _METADATA or _is_broadcast(each)
        for each in (address, *_inside(address))
    )


def _split(url: str) -> tuple[SplitResult | None, str]:
    """The parts of a URL whose host means the same to everybody; else None and why not."""
    if any(ord(character) <= 32 or ord(character) == 127 or character == "\\" for character in url):
        return None, "holds spaces, control characters or backslashes"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None, "does not parse"
    if not host:
        return None, ""
    if "@" in parts.netloc:
        return None, "holds a user or a password; keys go into the key setting"
    if "%" in host:
        return None, "has a host with an escape or a zone in it"
    return (parts, "") if _is_plain(host) else (None, "has a host that is neither a name nor an address as usual")


def _is_plain(host: str) -> bool:
    """Whether a host is an address in its one usual form, or a name that nobody could take for one."""
    try:
        return str(ipaddress.ip_address(host)) == host or ":" in host
    except ValueError:
        pass
    plain = unicodedata.normalize("NFKC", host).lower().replace("。", ".")
    if plain.isascii() and not host.isascii():
        return False
    labels = plain.removesuffix(".").split(".")
    if not all(map(_LABEL.fullmatch, labels)) or _NUMBER.fullmatch(labels[-1]):
        return False
    return plain.removesuffix(".") not in _METADATA_NAMES and not plain.startswith("instance-data.")


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _inside(address: Address) -> tuple[Address, ...]:
    """The IPv4 addresses that an IPv6 address stands for: mapped, 6to4, Teredo, NAT64, compatible."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    found: list[Address | None] = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        found.append(last)
    return tuple(each for each in found if each is not None)


def _is_broadcast(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv4Address) and (address.is_reserved or int(address) >> 24 == 0)


def _is_private(host: str, address: Address | None) -> bool:
    if address is None:
        return "." not in host.rstrip(".") or host.rstrip(".").endswith((".localhost", ".local", ".internal"))
    return any(not each.is_global or each in _SITE_LOCAL for each in (address, *_inside(address)))


def _is_this_machine(host: str, address: Address | None) -> bool:
    if address is not None:
        return any(each.is_loopback for each in (address, *_inside(address)))
    return host == "localhost" or host.endswith(".localhost")


def _refused(provider: str, why: str) -> ConfigInvalid:
    return ConfigInvalid(f'the base URL of provider "{provider}" {why}', hint="spine config")
