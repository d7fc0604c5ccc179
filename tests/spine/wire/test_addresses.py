"""Addresses a key may be sent to, and addresses of attachments: a zoo of them, of which none slips through."""

import ipaddress
from collections.abc import Iterator

import pytest

from spine import Agent
from spine.errors import ConfigInvalid, TurnFailed
from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.protocols import ProviderSettings, WireProtocol
from spine.llm.providers import CATALOGUE
from spine.llm.request import ModelRequest, Route
from spine.messages import DocumentBlock, ImageBlock, Message, ToolResultBlock, user_message
from spine.testing.clock import FakeClock
from spine.testing.fixtures import offline_runtime
from spine.values import StepId
from spine.wire import HttpAdapter
from spine.wire.addresses import attachment_url, check_address, is_forbidden
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

PROTOCOLS: list[WireProtocol] = [AnthropicMessages(), OpenAIChat(), OpenAIResponses()]
FAR, NEAR = Traits(), Traits(private_urls=True)
GOOD = [
    "https://api.example.com/v1",
    "https://api.example.com/v1/",
    "https://api.example.com./v1",
    "https://API.Example.COM/v1",
    "https://bücher.example/v1",
    "https://xn--bcher-kva.example/v1",
    "https://a_b.example.com/v1",
    "https://1password.com/v1",
    "https://8.8.8.8/v1",
    "https://10.0.0.7:8443/v1",
    "https://[2001:4860:4860::8888]/v1",
    "http://localhost:8080/v1",
    "http://127.0.0.1/v1",
    "http://127.9.9.9/v1",
    "http://[::1]:8080/v1",
    "http://[::ffff:127.0.0.1]/v1",
    "http://models.localhost/v1",
]
BAD = [
    "http://api.example.com/v1",
    "http://192.168.0.10/v1",
    "http://localhost.example.com/v1",
    "http://127.0.0.1.example.com/v1",
    "https://user@example.com/v1",
    "https://user:hunter2@example.com/v1",
    "https://@example.com/v1",
    "https://example.com@169.254.169.254/v1",
    "https://169.254.169.254@example.com/v1",
    "https://example.com:443@evil.example/v1",
    "https://example.com\\@evil.example/v1",
    "https:\\\\example.com\\v1",
    "https://example.com\\.evil.example/v1",
    "https://example.com/v1?key=1",
    "https://example.com/v1?",
    "https://example.com/v1#x",
    "https://example.com/v1#",
    "https://exa mple.com/v1",
    "https://example.com/v1\r\nx: y",
    "https://example.com\t/v1",
    " https://example.com/v1",
    "https://example.com/v1 ",
    "https://example.com/\x00",
    "https://example.com:port/v1",
    "https://example.com:99999/v1",
    "https://example.com:-1/v1",
    "https://[::1/v1",
    "https://::1/v1",
    "https://[fe80::1%25eth0]/v1",
    "https://exam%70le.com/v1",
    "https://%31%36%39.254.169.254/v1",
    "https://-example.com/v1",
    "https://example..com/v1",
    "https://.example.com/v1",
    "https://exa$mple.com/v1",
    "ftp://example.com/v1",
    "file:///etc/passwd",
    "file://example.com/etc/passwd",
    "gopher://example.com/_x",
    "dict://example.com:11211/",
    "ldap://example.com/",
    "unix:///run/docker.sock",
    "javascript:alert(1)",
    "ws://example.com/v1",
    "jar:https://example.com!/",
    "//example.com/v1",
    "/v1",
    "example.com/v1",
    "https:example.com/v1",
    "https:/example.com/v1",
    "https://",
    "https:///v1",
    "https://:443/v1",
    "",
    "https://metadata/v1",
    "https://metadata.google.internal/computeMetadata/v1",
    "https://METADATA.google.internal./",
    "https://metadata.goog/",
    "https://instance-data.ec2.internal/latest",
    "https://instance-data/latest",
]
NEVER = [
    *("169.254.169.254", "169.254.170.2", "169.254.0.1", "0.0.0.0", "224.0.0.1", "239.255.255.250", "255.255.255.255"),
    *("240.0.0.1", "0.1.2.3", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
]
"""IPv4 addresses to which nothing is ever sent."""
NEVER_6 = ["fe80::1", "fe80::a9fe:a9fe", "ff02::1", "::", "fd00:ec2::254", "fd20:ce::254"]
PRIVATE = ["10.0.0.1", "172.16.5.4", "192.168.1.1", "127.0.0.1", "127.1.2.3", "100.64.0.1", "198.18.0.1", "192.0.2.7"]
PRIVATE_6 = ["::1", "fc00::1", "fd12:3456::1", "fec0::1", "2001:db8::1"]
PRIVATE_NAMES = ["localhost", "printer", "router.local", "db.internal", "x.localhost"]


def forms(address: str) -> Iterator[str]:
    """The ways to write an IPv4 address that one reader or another takes."""
    a, b, c, d = octets = [int(part) for part in address.split(".")]
    number = int(ipaddress.IPv4Address(address))
    yield from (str(number), hex(number), f"0{number:o}", f"0x{number:08X}", f"{number + 2**32}")
    yield ".".join(f"0{octet:o}" for octet in octets)
    yield ".".join(f"0{octet}" for octet in octets)
    yield ".".join(hex(octet) for octet in octets)
    yield from (
        f"{a}.{b}.{c * 256 + d}",
        f"{a}.{(b * 256 + c) * 256 + d}",
        f"0x{a:x}.{b}.{c}.{d}",
        f"{a}.{b}.{c}.0{d:o}",
    )
    yield "".join(chr(0xFF10 + int(sign)) if sign.isdigit() else "。" for sign in address)
    yield "".join(chr(0xFF10 + int(sign)) if sign.isdigit() else "." for sign in address)
    yield address.replace(".", "．")
    yield f"{address}."
    yield f"{address}%00"
    yield f"{address[:-1]}%3{address[-1]}"


def embedded(address: str) -> Iterator[str]:
    """IPv6 addresses that stand for an IPv4 address."""
    high, low = divmod(int(ipaddress.IPv4Address(address)), 65536)
    yield from (f"::ffff:{address}", f"::ffff:{high:x}:{low:x}", f"0:0:0:0:0:ffff:{address}", f"64:ff9b::{address}")
    yield from (f"2002:{high:x}:{low:x}::1", f"2001:0:{high:x}:{low:x}::1")
    if high or low > 1:
        yield f"::{address}"


ZOO = [
    *(f"https://{host}/v1" for host in NEVER),
    *(f"https://{form}/v1" for host in NEVER for form in forms(host)),
    *(f"https://[{form}]/v1" for host in NEVER for form in embedded(host)),
    *(f"https://[{host}]/v1" for host in NEVER_6),
    *(f"http://{form}/v1" for host in PRIVATE for form in forms(host)),
    *BAD,
]


def test_the_zoo_is_large() -> None:
    assert len(set(ZOO)) >= 300


@pytest.mark.parametrize("url", GOOD)
def test_https_and_this_machine_are_taken(url: str) -> None:
    assert check_address(url, provider="lab") == url.rstrip("/")


@pytest.mark.parametrize("url", dict.fromkeys(ZOO), ids=ascii)
def test_everything_else_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        check_address(url, provider="lab")
    assert 'provider "lab"' in caught.value.message
    assert "hunter2" not in caught.value.message


def test_plain_http_may_be_allowed_but_nothing_else() -> None:
    assert check_address("http://10.0.0.7/v1", provider="lab", allow_http=True) == "http://10.0.0.7/v1"
    for url in ZOO:
        if url not in ("http://api.example.com/v1", "http://192.168.0.10/v1") and ".example.com" not in url:
            with pytest.raises(ConfigInvalid):
                check_address(url, provider="lab", allow_http=True)


# ----------------------------------------------------------------------------------------------------- attachments


@pytest.mark.parametrize("traits", [FAR, NEAR], ids=["far", "near"])
@pytest.mark.parametrize(
    "url", ["https://example.com/a.png?x=1#y", "http://example.com/a.png", "data:image/png;base64,AA"]
)
def test_attachments_of_the_web_are_passed_on(url: str, traits: Traits) -> None:
    assert attachment_url(url, traits) == url


HOSTS = [*PRIVATE, *PRIVATE_NAMES, *(f"[{host}]" for host in PRIVATE_6)]


@pytest.mark.parametrize("host", HOSTS)
def test_private_attachments_go_to_servers_on_this_network_only(host: str) -> None:
    url = f"http://{host}/a.png"
    assert attachment_url(url, NEAR) == url
    with pytest.raises(ProviderError, match="is private"):
        attachment_url(url, FAR)


NAMELESS = {url for url in ZOO if "?" in url or "#" in url or ".example.com/v1" in url or "192.168.0.10/" in url}


@pytest.mark.parametrize("url", [url for url in dict.fromkeys(ZOO) if url not in NAMELESS], ids=ascii)
def test_what_nothing_is_sent_to_is_no_attachment_either(url: str) -> None:
    for traits in (FAR, NEAR):
        with pytest.raises(ProviderError) as caught:
            attachment_url(url, traits)
        assert caught.value.category == "invalid_request"
        assert not caught.value.retryable
        assert url not in caught.value.failure.message or not url


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.name)
def test_no_protocol_passes_such_an_attachment_on(protocol: WireProtocol) -> None:
    def encode(block: ImageBlock | DocumentBlock) -> bytes:
        message = Message(role="user", content=(block,), kind="user")
        request = ModelRequest(route=Route("lab", "m"), step=StepId("t1s1"), messages=(message,))
        traits = Traits(provider="lab", protocol=protocol.name, model="m")
        protocol.check(request, traits)
        return protocol.encode(request, traits).content

    assert b"https://example.com/a.png" in encode(ImageBlock(url="https://example.com/a.png"))
    with pytest.raises(ProviderError, match="the address of an attachment"):
        encode(ImageBlock(url="http://169.254.169.254/a.png"))
    if protocol.name != "openai_chat":  # it takes documents as data only, and a note stands for others
        with pytest.raises(ProviderError, match="the address of an attachment"):
            encode(DocumentBlock(url="file:///etc/passwd"))


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.name)
def test_such_an_attachment_is_refused_by_check_wherever_it_stands(protocol: WireProtocol) -> None:
    """In a result too, and again after later messages came: nothing is asked before it is gone."""
    bad = ImageBlock(url="http://169.254.169.254/a.png")
    shown = ToolResultBlock(call_id="t1s1c1", name="look", content=(bad,))  # type: ignore[arg-type]
    traits = Traits(provider="lab", protocol=protocol.name, model="m")
    for content in (bad, shown):
        messages = [user_message("a"), Message(role="tool", content=(content,)), user_message("b")]
        for _ in range(2):
            messages.append(user_message("c"))
            request = ModelRequest(route=Route("lab", "m"), step=StepId("t1s2"), messages=tuple(messages))
            with pytest.raises(ProviderError, match="the address of an attachment"):
                protocol.check(request, traits)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.name)
async def test_a_refused_attachment_leaves_no_request_on_record(protocol: WireProtocol) -> None:
    bad = ImageBlock(url="http://10.0.0.1/a.png")
    settings = ProviderSettings(
        provider="lab", protocol=protocol.name, base_url="http://127.0.0.1:1/v1", auth="none", traits=lambda name: FAR
    )
    adapter = HttpAdapter(protocol, settings)
    async with offline_runtime(adapter, FakeClock()) as runtime:
        session = await runtime.session("s", Agent("lab:m"))
        with pytest.raises(TurnFailed, match="the address of an attachment"):
            await session.run(Message(role="user", content=(bad,), kind="user"))
        kinds = [event.type for event in session.log.read()]
        assert "model.requested" not in kinds
    await adapter.aclose()


@pytest.mark.parametrize("address", [*NEVER, *NEVER_6, *(form for host in NEVER for form in embedded(host))])
def test_what_a_name_may_not_lead_to(address: str) -> None:
    assert is_forbidden(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "127.0.0.1", "10.0.0.1", "::1", "2001:4860:4860::8888", "::ffff:8.8.8.8"]
)
def test_what_it_may_lead_to(address: str) -> None:
    assert not is_forbidden(ipaddress.ip_address(address))


def test_the_local_servers_of_the_catalogue_take_private_attachments() -> None:
    for provider, entry in CATALOGUE.providers.items():
        is_near = CATALOGUE.traits(provider, "m").private_urls
        assert is_near == (entry.base_url or "").startswith("http://127.0.0.1"), provider
